"""Errors for failures of the network.

Rule 1  The connection failed before the reply began: `provider.transient`. The reply was cut off:
        `provider.zero_output`. The reply is not HTTP: `provider.decode`.
Rule 2  Texts of the HTTP library are never shown, because they may contain an address or a header with a credential.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Any

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
"""All network errors. httpx and httpcore have different classes for the same errors."""
_OURS = (httpx.InvalidURL, httpx.LocalProtocolError, httpcore.LocalProtocolError)
_THEIRS = (httpx.RemoteProtocolError, httpcore.RemoteProtocolError)
_CLOSED = ("Server disconnected", "peer closed connection")
"""The beginning of their messages if the connection was closed too early. Other messages mean that it is not HTTP."""

_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLError, "tls"),
    (socket.gaierror, "dns"),
    (ConnectionRefusedError, "refused"),
    (ConnectionError, "reset"),
)
_NO_REPLY = "no reply came"
_WORDS = {
    "tls": "the TLS connection failed",
    "dns": "the host name cannot be resolved",
    "refused": "the connection was refused",
    "reset": "the connection was reset",
    "closed": "the connection was closed before a reply came",
    "unreachable": "the host cannot be reached",
}


def network_failure(error: Exception, received: int | None) -> ProviderError:
    """The error for an exception of the HTTP library. `received`: bytes of the body; None: the reply had not begun."""
    if isinstance(error, _OURS):
        return unsendable_error()
    if isinstance(error, _THEIRS) and not str(error).startswith(_CLOSED):
        return ProviderError("provider.decode", "the reply is not HTTP", fields={"offset": received or 0})
    if received is not None:
        return cut_off_error(received)
    return no_reply_error("closed" if isinstance(error, _THEIRS) else _kind(error))


def unsendable_error() -> ProviderError:
    message = "the request cannot be sent: its address or a header is not valid in HTTP"
    return ProviderError("provider.fatal", message, fields={"status": None})


def timeout_error(limit: int, what: str) -> ProviderError:
    message = f"{what} took longer than {limit} ms"
    return ProviderError("provider.timeout", message, fields={"status": None, "limit": limit})


def no_reply_error(kind: str, **fields: Any) -> ProviderError:
    """The error for a request without a reply. `kind`: a key of `_WORDS`."""
    fields = {"status": None, "reason": kind, **fields}
    return ProviderError("provider.transient", f"{_NO_REPLY}: {_WORDS[kind]}", fields=fields)


def with_host(error: BaseException, host: str) -> BaseException:
    """Add the host that did not answer to the message."""
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
