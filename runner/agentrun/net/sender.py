"""Send requests over HTTP.

Rule 1  There are two time limits: for the whole exchange, and for the silence between two pieces of a reply. Before the
        first piece of a reply that is not streamed, only the first applies, because the model is thinking.
Rule 2  No redirects, no cookies, and nothing from the environment unless the user asks for it. A request does not
        influence the next one.
Rule 3  If a request is cancelled, its connection is closed and no task continues.
Rule 4  Values of the environment exist only in the frames of one exchange. Errors are raised without their traceback
        and causes, because a traceback can show every local variable.
Rule 5  One sender serves one event loop. Connections are reused.
Rule 6  A request with a `reach` goes only where `net/guard.py` allows it, and never through a proxy, because its
        destination could not be checked. Its errors say whether the request may have been `sent`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx

from agentrun.errors import AgentrunError, InternalError
from agentrun.net import environment, failures
from agentrun.net.guard import Resolver, check_addresses, normalise_host, refuse_other_origins, resolve_host, url_origin
from agentrun.net.reply_body import MAX_REPLY_BODY, MAX_STREAMED_BODY, ReplyBody
from agentrun.net.transport import ADDRESSES_EXTENSION, PooledTransport
from agentrun.wire import HttpCall, HttpReply, NetworkAccess

_DEFAULTS = (("accept-encoding", "identity"), ("user-agent", "agentrun"))
_MOST_ADDRESSES = 64


class HttpxSender:
    """A `Sender` over real connections.

    `trust_env`: use the proxies and certificates that the environment names. `elsewhere`: addresses that a variable
    replaces. `resolve`: resolves host names for requests with a `reach`.
    """

    def __init__(
        self,
        lookup: environment.Lookup,
        *,
        trust_env: bool = False,
        elsewhere: environment.AddressOverrides | None = None,
        resolve: Resolver = resolve_host,
    ) -> None:
        self._lookup = lookup
        self._resolve = resolve
        self._elsewhere = elsewhere or {}
        self._trust_env = trust_env
        self._transports: dict[tuple[bool, str | None], httpx.AsyncBaseTransport] = {}
        self._address = lru_cache(_MOST_ADDRESSES)(_parse_address)

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        """Send a request and return the complete reply. `heard` gets the bytes of a reply with status 200 as they
        arrive. Limits are in milliseconds.

        Raises `provider.transient`, `.timeout`, `.zero_output`, `.decode`, `.fatal`, `host.missing`.
        """
        most = MAX_REPLY_BODY if heard is None else MAX_STREAMED_BODY
        exchange = _Exchange(gap, time, heard, most if call.reach is None else call.reach.max_bytes)
        result = await self._result(call, exchange)
        if isinstance(result, HttpReply):
            return result
        result = failures.with_host(result, environment.attempted_host(call, self._lookup, self._elsewhere))
        if isinstance(result, AgentrunError) and call.reach is not None:
            result.fields.update(exchange.progress())
        raise result

    async def close(self) -> None:
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.aclose()

    async def _result(self, call: HttpCall, exchange: _Exchange) -> HttpReply | BaseException:
        """The reply, or an error without traceback (rule 4)."""
        try:
            request, proxy = await self._prepare(call, exchange)
            reply = await exchange.run(self._transport(request.url.scheme == "https", proxy), request)
            if reply.status == 200:
                return reply
            return environment.mask_reply(
                environment.redirect_with_variable(reply, call, self._lookup), call, self._lookup
            )
        except TimeoutError:
            return exchange.timeout()
        except failures.NETWORK_ERRORS as error:
            return exchange.failure(error)
        except AgentrunError as error:
            return type(error)(error.code, error.message, hint=error.hint, fields=error.fields)
        except Exception as error:  # noqa: BLE001  # a bug in agentrun: only its type is shown
            kind = type(error).__name__
            return InternalError("internal", f"{kind} while sending a request", fields={"error": kind})
        except BaseException as error:  # noqa: BLE001  # raised by `send`, without the frames of this exchange
            return type(error)(*error.args)

    async def _prepare(self, call: HttpCall, exchange: _Exchange) -> tuple[httpx.Request, str | None]:
        """The request and its proxy."""
        if call.reach is None:
            url = self._address(environment.request_address(call, self._lookup, self._elsewhere))
            return self._request(call, url, exchange), self._proxy(url)
        async with asyncio.timeout_at(exchange.end):
            url, is_home, addresses = await self._check_destination(
                environment.fill_address(call.url, self._lookup), call.reach
            )
        request = self._request(call if is_home else environment.without_credentials(call), url, exchange)
        request.extensions |= {ADDRESSES_EXTENSION: addresses, "trace": exchange.trace}
        return request, None

    async def _check_destination(self, text: str, reach: NetworkAccess) -> tuple[httpx.URL, bool, Sequence[str]]:
        """The address, whether it has the declared origin, and the IP addresses to connect to."""
        origin, home = url_origin(text), url_origin(environment.fill_address(reach.home, self._lookup))
        refuse_other_origins(origin, reach, home)
        url = self._address(text)
        if normalise_host(url.raw_host.decode("ascii")) != origin.host or (url.port or origin.port) != origin.port:
            raise failures.unsendable_error()  # httpx parses it differently than the guard
        return url, origin == home, await check_addresses(origin.host, origin.port, reach, self._resolve)

    def _request(self, call: HttpCall, url: httpx.URL, exchange: _Exchange) -> httpx.Request:
        fields = environment.request_headers(call, self._lookup)
        if not all(environment.is_header_value(value) for _, value in fields):
            raise failures.unsendable_error()
        names = {name.lower() for name, _ in fields}
        fields += [field for field in _DEFAULTS if field[0] not in names]
        extensions = {"timeout": {"connect": min(exchange.gap, exchange.time) / 1000}}
        return httpx.Request(call.method, url, headers=fields, content=call.body, extensions=extensions)

    def _transport(self, is_https: bool, proxy: str | None) -> httpx.AsyncBaseTransport:
        key = is_https, proxy
        if key not in self._transports:
            # Loading the certificates takes 27 ms. A context without certificates trusts no server.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if is_https or proxy is not None:
                context = httpx.create_ssl_context(trust_env=self._trust_env)
            if proxy is None:
                self._transports[key] = PooledTransport(context)
            else:
                self._transports[key] = httpx.AsyncHTTPTransport(verify=context, trust_env=False, proxy=proxy)
        return self._transports[key]

    def _proxy(self, url: httpx.URL) -> str | None:
        if not self._trust_env or proxy_bypass(url.host):
            return None
        proxies = getproxies()
        return proxies.get(url.scheme) or proxies.get("all")


class _Exchange:
    def __init__(self, gap: int, time: int, heard: Callable[[bytes], None] | None, most: int) -> None:
        self.gap = gap
        self.time = time
        self._heard = heard
        self._most = most
        self._loop = asyncio.get_running_loop()
        self.end = self._loop.time() + time / 1000
        self._sent = False
        """Whether a part of the request may have been sent. Only known if the request is traced."""
        self._status: int | None = None
        self._received: int | None = None
        """Bytes of the body. None: the reply has not begun."""

    async def run(self, transport: httpx.AsyncBaseTransport, request: httpx.Request) -> HttpReply:
        async with asyncio.timeout_at(self.end if self._heard is None else self._next()) as deadline:
            response = await transport.handle_async_request(request)
            try:
                return await self._read(response, deadline)
            finally:
                await response.aclose()

    async def _read(self, response: httpx.Response, deadline: asyncio.Timeout) -> HttpReply:
        status = self._status = response.status_code
        fields = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw
        )
        body = ReplyBody(fields, self._most)
        self._received = 0
        assert isinstance(response.stream, httpx.AsyncByteStream)
        deadline.reschedule(self._next())
        async for data in response.stream:
            deadline.reschedule(self._next())
            self._received += len(data)
            body.feed(data, self._heard if status == 200 else None)
        return HttpReply(status, fields, body.end(status))

    async def trace(self, event: str, _: Any) -> None:
        """Called by httpcore for every step."""
        self._sent = self._sent or event.endswith(".send_request_headers.started")

    def progress(self) -> dict[str, Any]:
        """The progress of the exchange, for the fields of an error."""
        return {"sent": self._sent, "status": self._status}

    def timeout(self) -> AgentrunError:
        if self._loop.time() >= self.end:
            return failures.timeout_error(self.time, "the reply")
        return failures.timeout_error(self.gap, "a pause in the reply")

    def failure(self, error: Exception) -> AgentrunError:
        if isinstance(error, failures.TIMEOUT_ERRORS):
            return failures.timeout_error(min(self.gap, self.time), "the connection")
        return failures.network_failure(error, self._received)

    def _next(self) -> float:
        """The deadline for the next bytes."""
        return min(self.end, self._loop.time() + self.gap / 1000)


def _parse_address(text: str) -> httpx.URL:
    url = httpx.URL(text)
    if url.scheme not in ("http", "https") or not url.host:
        raise failures.unsendable_error()
    return url
