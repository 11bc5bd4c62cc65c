"""Environment variables in a request: `${NAME}` in its address and headers, and its credential.

Rule 1  A value is filled in just before sending. Requests of codecs, journals and cassettes contain only names.
Rule 2  No error shows the value of a header or a credential. If a server repeats a value in an error reply, it is
        masked. Of an address only host and port are shown.
Rule 3  A tool sends its headers, body and credential only to the origin that was declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import urljoin, urlsplit

from msgspec.structs import replace

from agentrun.errors import AgentrunError
from agentrun.redactor import SHORTEST_SECRET
from agentrun.secret import MASK, Secret, find_secrets, names_credential
from agentrun.wire import HttpCall, HttpReply

Lookup: TypeAlias = Callable[[str], Secret]
"""Returns the value of a variable. Raises `host.missing`."""

AddressOverrides: TypeAlias = Mapping[str, str]
"""Addresses that an environment variable replaces: the declared beginning of an address → the variable."""

_FOR_ANYBODY = ("accept", "accept-language", "user-agent")

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,127})\}")
HOST_VARIABLE = re.compile(rf"(?:https?://)?{_VARIABLE.pattern}")
"""The beginning of an address with a variable as host."""


def variables_in(text: str) -> list[str]:
    return _VARIABLE.findall(text)


def request_variables(call: HttpCall) -> Iterator[str]:
    """The variables of a request, in order."""
    yield from variables_in(call.url)
    yield from credential_variables(call)


def credential_variables(call: HttpCall) -> Iterator[str]:
    """The variables of the headers and the credential. An address is not a secret."""
    for _, value in call.headers:
        yield from variables_in(value)
    if call.auth is not None:
        yield call.auth.name


def request_address(call: HttpCall, lookup: Lookup, elsewhere: AddressOverrides = MappingProxyType({})) -> str:
    """The real address of a request. Journals and cassettes contain the declared address."""
    for home, variable in elsewhere.items():
        if call.url.startswith(home + "/"):
            return lookup(variable).reveal().rstrip("/") + call.url[len(home) :]
    return fill_variables(call.url, lookup)


def attempted_host(call: HttpCall, lookup: Lookup, elsewhere: AddressOverrides = MappingProxyType({})) -> str:
    """The host and port of a request, for errors: `localhost:8080 (OPENAI_BASE_URL)`. A tool's variable is shown by its
    name only, because the model reads the errors of tools."""
    variable = next((name for home, name in elsewhere.items() if call.url.startswith(home + "/")), None)
    if match := HOST_VARIABLE.match(call.url):
        variable = match[1]
        if call.reach is not None:
            return match[0]
    try:
        host = urlsplit(request_address(call, lookup, elsewhere)).netloc.rpartition("@")[2]
    except (ValueError, AgentrunError):
        host = ""
    if variable is None:
        return host or "its host"
    return variable if not host or names_credential(variable) or find_secrets(host) else f"{host} ({variable})"


def fill_variables(text: str, lookup: Lookup) -> str:
    """Replace `${NAME}` in a text by its value."""
    return _VARIABLE.sub(lambda match: lookup(match[1]).reveal(), text) if "${" in text else text


def fill_address(url: str, lookup: Lookup) -> str:
    """Replace `${NAME}` in an address. If the host variable ends with a slash, the slash is not doubled."""
    match = HOST_VARIABLE.match(url)
    if match is None or url[match.end() : match.end() + 1] != "/":
        return fill_variables(url, lookup)
    return fill_variables(match[0], lookup).rstrip("/") + fill_variables(url[match.end() :], lookup)


def without_credentials(call: HttpCall) -> HttpCall:
    """The request for an origin that was not declared."""
    fields = tuple(field for field in call.headers if field[0].lower() in _FOR_ANYBODY and not variables_in(field[1]))
    return replace(call, headers=fields, body=b"", auth=None)


def request_headers(call: HttpCall, lookup: Lookup) -> list[tuple[str, str]]:
    """The headers of a request, with the credential."""
    fields = [(name, fill_variables(value, lookup)) for name, value in call.headers]
    if call.auth is not None:
        fields.append((call.auth.header, call.auth.prefix + lookup(call.auth.name).reveal()))
    return fields


def is_header_value(text: str) -> bool:
    """Whether a text is a valid header value. HTTP libraries quote invalid values in their errors, so it is checked
    here."""
    return text.isascii() and text.isprintable()


def redirect_with_variable(reply: HttpReply, call: HttpCall, lookup: Lookup) -> HttpReply:
    """Write a redirect to the host of a variable with the variable, so that no cassette contains its current value."""
    match = HOST_VARIABLE.match(call.url)
    if match is None or call.reach is None or not 300 <= reply.status < 400:
        return reply
    base, home = fill_address(call.url, lookup), fill_variables(match[0], lookup)
    fields = (
        (name, _location_with_variable(match[0], home, base, text) if name == "location" else text)
        for name, text in reply.headers
    )
    return HttpReply(reply.status, tuple(fields), reply.body)


def _location_with_variable(variable: str, home: str, base: str, location: str) -> str:
    """A `location`, which may be relative to `base`, with the variable. `home`: the current value of the variable."""
    try:
        where, parts = urljoin(base, location), urlsplit(home)
    except ValueError:
        return location
    inside = home.rstrip("/")
    if where.startswith(inside) and where[len(inside) : len(inside) + 1] in (
        ("/",) if home != inside else ("", "/", "?")
    ):
        return variable + where[len(inside) :]
    root = f"{parts.scheme}://{parts.netloc}"
    if where.startswith(f"{root}/") and not parts.query:
        return variable + "/.." * parts.path.rstrip("/").count("/") + where[len(root) :]
    return where if where.startswith(("http://", "https://")) else location


def mask_reply(reply: HttpReply, call: HttpCall, lookup: Lookup) -> HttpReply:
    """An error reply with the values of the request's variables masked."""
    values = {lookup(name).reveal() for name in request_variables(call)}
    values = {value for value in values if len(value) >= SHORTEST_SECRET}
    fields, body = reply.headers, reply.body
    for value in sorted(values, key=len, reverse=True):
        fields = tuple((name, text.replace(value, MASK)) for name, text in fields)
        body = body.replace(value.encode(), MASK.encode())
    return HttpReply(reply.status, fields, body)
