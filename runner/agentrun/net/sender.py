"""Send requests over HTTP.

Rule 1  Limits of time, size and destination are those of the client's transport (`net/client.py`).
Rule 2  If a request is cancelled, its connection is closed and no task continues.
Rule 3  Values of the environment exist only in the frames of one exchange. Errors are raised without their traceback
        and causes, because a traceback can show every local variable.
Rule 4  Errors of a request with a `reach` say whether the request may have been `sent`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import httpx

from agentrun.errors import AgentrunError, InternalError
from agentrun.net import environment, failures
from agentrun.net.client import EXCHANGE_EXTENSION, Exchange
from agentrun.net.guard import url_origin
from agentrun.wire import HttpCall, HttpReply

_DEFAULTS = (("accept-encoding", "identity"), ("user-agent", "agentrun"))
_MOST_ADDRESSES = 64


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
        """The reply, or an error without traceback (rule 3)."""
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
