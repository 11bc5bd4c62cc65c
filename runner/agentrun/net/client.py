"""The HTTP client of live runs. Its transport limits where a request may go, for how long, and how much may come back.

Rule 1  There are two time limits: for the whole exchange, and for the silence between two pieces of a reply. Before the
        first piece of a reply that is not streamed, only the first applies, because the model is thinking.
Rule 2  A request does not influence the next one: the client does not see `location` and `set-cookie`, so there is
        nothing to follow or to remember.
Rule 3  A request with a `reach` goes only where `net/guard.py` allows it, and never through a proxy, because its
        destination could not be checked.
Rule 4  The client logs the address of each request, so it sees only the origin. The rest is in the `Exchange`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # not in typeshed

import httpx

from agentrun.net.guard import Resolver, UrlOrigin, check_addresses, refuse_other_origins, resolve_host, url_origin
from agentrun.net.reply_body import MAX_REPLY_BODY, MAX_STREAMED_BODY, ReplyBody
from agentrun.net.transport import ADDRESSES_EXTENSION, PooledTransport
from agentrun.wire import HttpReply, NetworkAccess

EXCHANGE_EXTENSION = "agentrun.exchange"
_HIDDEN_HEADERS = (b"location", b"set-cookie")


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
