"""Send requests over HTTP. The transport limits where a request may go, for how long, and how much may come back.

Rule 1  There are two time limits: for the whole exchange, and for the silence between two pieces of a reply. Before the
        first piece of a reply that is not streamed, only the first applies, because the model is thinking.
Rule 2  A request does not influence the next one: the client does not see `location` and `set-cookie`, so there is
        nothing to follow or to remember.
Rule 3  A request with a `reach` goes only where `net/guard.py` allows it, and never through a proxy, because its
        destination could not be checked.
Rule 4  The client logs the address of each request, so it sees only the origin. The rest is in the `Exchange`.
Rule 5  If a request is cancelled, its connection is closed and no task continues.
Rule 6  Values of the environment exist only in the frames of one exchange. Errors are raised without their traceback
        and causes, because a traceback can show every local variable.
Rule 7  Errors of a request with a `reach` say whether the request may have been `sent`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # not in typeshed

import httpx

from agentrun.errors import AgentrunError, InternalError
from agentrun.net import environment, failures
from agentrun.net.guard import Resolver, UrlOrigin, check_addresses, refuse_other_origins, resolve_host, url_origin
from agentrun.net.reply_body import MAX_REPLY_BODY, MAX_STREAMED_BODY, ReplyBody
from agentrun.net.transport import ADDRESSES_EXTENSION, PooledTransport
from agentrun.wire import HttpCall, HttpReply, NetworkAccess

EXCHANGE_EXTENSION = "agentrun.exchange"
_HIDDEN_HEADERS = (b"location", b"set-cookie")
_DEFAULTS = (("accept-encoding", "identity"), ("user-agent", "agentrun"))
_MOST_ADDRESSES = 64


def make_client(
    proxies: Mapping[str, str] = MappingProxyType({}),
    cert_file: Path | None = None,
    cert_dir: Path | None = None,
    *,
    resolve: Resolver = resolve_host,
) -> httpx.AsyncClient:
    """A client for one event loop. Its requests need an `Exchange`.

    `proxies`: by scheme; `all` for the other schemes, `no` with hosts that are reached directly. `cert_file` and
    `cert_dir`: the authorities to trust. `resolve`: resolves host names for requests with a `reach`.
    """
    transport = LimitedTransport(dict(proxies), cert_file, cert_dir, resolve)
    return httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)


class Exchange:
    """The limits of one request, and its progress. Times are in milliseconds."""

    url: httpx.URL
    """The complete address."""
    home: UrlOrigin
    """The declared origin of a request with a `reach`."""

    def __init__(self, gap: int, time: int, heard: Callable[[bytes], None] | None, reach: NetworkAccess | None) -> None:
        """`heard` gets the bytes of a reply with status 200 as they arrive."""
        self.gap = gap
        self.time = time
        self.reach = reach
        self.sent = False
        """Whether a part of the request may have been sent. Only known if the request has a `reach`."""
        self.status: int | None = None
        self.received: int | None = None
        """Bytes of the body. None: the reply has not begun."""
        self._heard = heard
        most = MAX_REPLY_BODY if heard is None else MAX_STREAMED_BODY
        self._most = most if reach is None else reach.max_bytes
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + time / 1000

    @property
    def is_over(self) -> bool:
        return self._loop.time() >= self._end

    def deadline(self) -> asyncio.Timeout:
        """The time limit for the next bytes."""
        if self.status is None and self._heard is None:
            return asyncio.timeout_at(self._end)
        return asyncio.timeout_at(min(self._end, self._loop.time() + self.gap / 1000))

    def begin(self, response: httpx.Response) -> None:
        """The head of the reply. Raises `provider.decode` for an unknown encoding."""
        self.status = response.status_code
        self._fields = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw
        )
        self._body = ReplyBody(self._fields, self._most)
        self.received = 0

    def feed(self, data: bytes) -> None:
        """The next bytes of the body. Raises `provider.decode` if it is too large or cannot be decoded."""
        assert self.received is not None
        self.received += len(data)
        self._body.feed(data, self._heard if self.status == 200 else None)

    def reply(self) -> HttpReply:
        """The complete reply. Raises `provider.zero_output` if it was cut off."""
        assert self.status is not None
        return HttpReply(self.status, self._fields, self._body.end(self.status))

    async def trace(self, event: str, _: Any) -> None:
        """Called by httpcore for every step."""
        self.sent = self.sent or event.endswith(".send_request_headers.started")


class LimitedTransport(httpx.AsyncBaseTransport):
    """Sends requests directly or through a proxy, each within the limits of its `Exchange`."""

    def __init__(
        self, proxies: dict[str, str], cert_file: Path | None, cert_dir: Path | None, resolve: Resolver
    ) -> None:
        self._proxies = proxies
        self._certificates = cert_file, cert_dir
        self._resolve = resolve
        self._transports: dict[tuple[bool, str | None], httpx.AsyncBaseTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange: Exchange = request.extensions[EXCHANGE_EXTENSION]
        async with exchange.deadline():
            proxy = None
            if exchange.reach is None:
                proxy = self._proxy(request.url)
            else:
                origin = url_origin(str(request.url))
                refuse_other_origins(origin, exchange.reach, exchange.home)
                addresses = await check_addresses(origin.host, origin.port, exchange.reach, self._resolve)
                request.extensions |= {ADDRESSES_EXTENSION: addresses, "trace": exchange.trace}
            if proxy is None:
                request.extensions["target"] = exchange.url.raw_path
            else:
                request = httpx.Request(
                    request.method,
                    exchange.url,
                    headers=request.headers,
                    stream=request.stream,
                    extensions=request.extensions,
                )
            transport = self._transport(request.url.scheme == "https", proxy)
            response = await transport.handle_async_request(request)
        fields = [field for field in response.headers.raw if field[0].lower() not in _HIDDEN_HEADERS]
        return httpx.Response(response.status_code, headers=fields, stream=_LimitedStream(response, exchange))

    async def aclose(self) -> None:
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.aclose()

    def _transport(self, is_https: bool, proxy: str | None) -> httpx.AsyncBaseTransport:
        key = is_https, proxy
        if key not in self._transports:
            # Loading the certificates takes 27 ms. A context without certificates trusts no server.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if is_https or proxy is not None:
                file, directory = self._certificates
                if file or directory:
                    context = ssl.create_default_context(cafile=file, capath=directory)
                else:
                    context = httpx.create_ssl_context(trust_env=False)
            if proxy is None:
                self._transports[key] = PooledTransport(context)
            else:
                self._transports[key] = httpx.AsyncHTTPTransport(verify=context, trust_env=False, proxy=proxy)
        return self._transports[key]

    def _proxy(self, url: httpx.URL) -> str | None:
        if proxy_bypass_environment(url.host, self._proxies):
            return None
        return self._proxies.get(url.scheme) or self._proxies.get("all")


class _LimitedStream(httpx.AsyncByteStream):
    """The body of a reply. A piece was decoded and passed on before it is returned."""

    def __init__(self, response: httpx.Response, exchange: Exchange) -> None:
        self._response = response
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._response.stream, httpx.AsyncByteStream)
        self._exchange.begin(self._response)
        pieces = aiter(self._response.stream)
        while True:
            async with self._exchange.deadline():
                data = await anext(pieces, None)
            if data is None:
                return
            self._exchange.feed(data)
            yield data

    async def aclose(self) -> None:
        await self._response.aclose()


class HttpxSender:
    """A `Sender` over a client, which the caller closes. `elsewhere`: addresses that a variable replaces."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        lookup: environment.Lookup,
        elsewhere: environment.AddressOverrides | None = None,
    ) -> None:
        self._client = client
        self._lookup = lookup
        self._elsewhere = elsewhere or {}
        self._address = lru_cache(_MOST_ADDRESSES)(_parse_address)

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        """Send a request and return the complete reply. `heard` gets the bytes of a reply with status 200 as they
        arrive. Limits are in milliseconds.

        Raises `provider.transient`, `.timeout`, `.zero_output`, `.decode`, `.fatal`, `host.missing`.
        """
        exchange = Exchange(gap, time, heard, call.reach)
        result = await self._result(call, exchange)
        if isinstance(result, HttpReply):
            return result
        result = failures.with_host(result, environment.attempted_host(call, self._lookup, self._elsewhere))
        if isinstance(result, AgentrunError) and call.reach is not None:
            result.fields.update(sent=exchange.sent, status=exchange.status)
        raise result

    async def _result(self, call: HttpCall, exchange: Exchange) -> HttpReply | BaseException:
        """The reply, or an error without traceback (rule 6)."""
        try:
            response = await self._client.send(self._request(call, exchange), stream=True)
            try:
                async for _ in response.aiter_raw():  # the transport collects the body
                    pass
            finally:
                await response.aclose()
            reply = exchange.reply()
            if reply.status == 200:
                return reply
            return environment.mask_reply(
                environment.redirect_with_variable(reply, call, self._lookup), call, self._lookup
            )
        except TimeoutError:
            if exchange.is_over:
                return failures.timeout_error(exchange.time, "the reply")
            return failures.timeout_error(exchange.gap, "a pause in the reply")
        except failures.TIMEOUT_ERRORS:
            return failures.timeout_error(min(exchange.gap, exchange.time), "the connection")
        except failures.NETWORK_ERRORS as error:
            return failures.network_failure(error, exchange.received)
        except AgentrunError as error:
            return type(error)(error.code, error.message, hint=error.hint, fields=error.fields)
        except Exception as error:  # noqa: BLE001  # a bug in agentrun: only its type is shown
            kind = type(error).__name__
            return InternalError("internal", f"{kind} while sending a request", fields={"error": kind})
        except BaseException as error:  # noqa: BLE001  # raised by `send`, without the frames of this exchange
            return type(error)(*error.args)

    def _request(self, call: HttpCall, exchange: Exchange) -> httpx.Request:
        if call.reach is None:
            shown, exchange.url = self._address(environment.request_address(call, self._lookup, self._elsewhere))
        else:
            text = environment.fill_address(call.url, self._lookup)
            origin = url_origin(text)
            exchange.home = url_origin(environment.fill_address(call.reach.home, self._lookup))
            shown, exchange.url = self._address(text)
            if url_origin(str(shown)) != origin:
                raise failures.unsendable_error()  # httpx parses it differently than the guard
            call = call if origin == exchange.home else environment.without_credentials(call)
        fields = environment.request_headers(call, self._lookup)
        if not all(environment.is_header_value(value) for _, value in fields):
            raise failures.unsendable_error()
        names = {name.lower() for name, _ in fields}
        fields += [field for field in _DEFAULTS if field[0] not in names]
        timeout = {"connect": min(exchange.gap, exchange.time) / 1000}
        extensions = {"timeout": timeout, EXCHANGE_EXTENSION: exchange}
        return httpx.Request(call.method, shown, headers=fields, content=call.body, extensions=extensions)


def _parse_address(text: str) -> tuple[httpx.URL, httpx.URL]:
    """The origin of an address, which may be shown, and the address."""
    url = httpx.URL(text)
    if url.scheme not in ("http", "https") or not url.host:
        raise failures.unsendable_error()
    url = url.copy_with(userinfo=b"", fragment=None)
    return url.copy_with(raw_path=b"/"), url
