"""What a failure of the network means.

Rule 1  No connection, or none that lasted until the reply began: `provider.transient`.
        The reply began and was cut off: `provider.zero_output`. It is not HTTP: `provider.decode`.
Rule 2  Nothing that a library says is passed on: its words may hold an address or a header with a credential in it.
        The kind of failure is told in our own words.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import httpcore
import httpx

from agentrun.errors import ProviderError
from agentrun.net.reply_body import cut_off_error

TIMEOUT_ERRORS = (httpx.TimeoutException, httpcore.TimeoutException)
NETWORK_ERRORS = (
    *(httpx.HTTPError, httpx.InvalidURL),
    *(httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.ProxyError),
    OSError,
)
"""What can go wrong on the way. httpx and the library under it have names of their own for the same."""
_OURS = (httpx.InvalidURL, httpx.LocalProtocolError, httpcore.LocalProtocolError)
_THEIRS = (httpx.RemoteProtocolError, httpcore.RemoteProtocolError)
_CLOSED = ("Server disconnected", "peer closed connection")
"""How they begin when the connection was closed too early. Any other words are about bytes that are not HTTP."""

_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLError, "tls"),
    (socket.gaierror, "dns"),
    (ConnectionRefusedError, "refused"),
    (ConnectionError, "reset"),
)
_NO_REPLY = "no reply came"
_WORDS = {
    "tls": "no secure connection could be made",
    "dns": "its name is not known",
    "refused": "the connection was refused",
    "reset": "the connection was reset",
    "closed": "the connection was closed before a reply came",
    "unreachable": "it cannot be reached",
}


def network_failure(error: Exception, received: int | None) -> ProviderError:
    """The error for what the HTTP library raised. `received`: bytes of the body; None: the reply had not begun."""
    if isinstance(error, _OURS):
        return unsendable_error()
    if isinstance(error, _THEIRS) and not str(error).startswith(_CLOSED):
        return ProviderError("provider.decode", "the reply is not HTTP", fields={"offset": received or 0})
    if received is not None:
        return cut_off_error(received)
    return _transient_error("closed" if isinstance(error, _THEIRS) else _kind(error))


def unsendable_error() -> ProviderError:
    message = "the request cannot be sent: its address or a header is not one that HTTP can carry"
    return ProviderError("provider.fatal", message, fields={"status": None})


def timeout_error(limit: int, what: str) -> ProviderError:
    message = f"{what} took longer than {limit} ms"
    return ProviderError("provider.timeout", message, fields={"status": None, "limit": limit})


def _transient_error(kind: str) -> ProviderError:
    fields = {"status": None, "reason": kind}
    return ProviderError("provider.transient", f"{_NO_REPLY}: {_WORDS[kind]}", fields=fields)


def with_host(error: BaseException, host: str) -> BaseException:
    """The error with the host that did not answer, as it was declared."""
    if not isinstance(error, ProviderError) or not error.message.startswith(f"{_NO_REPLY}: "):
        return error
    message = error.message.replace(_NO_REPLY, f"{_NO_REPLY} from {host}", 1)
    return ProviderError(error.code, message, hint=error.hint, fields=error.fields)


def _kind(error: BaseException) -> str:
    for cause in _causes(error):
        for kind, word in _KINDS:
            if isinstance(cause, kind):
                return word
    return "unreachable"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from (inner for each in error.exceptions for inner in _causes(each))
        error = error.__cause__ or error.__context__
