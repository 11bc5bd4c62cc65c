"""Variables of the environment in a request: `${NAME}` in its address and headers, and its credential.

Rule 1  A value is put in just before sending. What a codec builds, a journal or a recording has only names.
Rule 2  What comes of it is shown to nobody: no error says more than a name, and a server that repeats a value in its
        refusal is not quoted.
Rule 3  What a request of a tool brings is for the origin that was declared. Anywhere else it brings nothing.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable, Container, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

from msgspec.structs import replace

from agentrun.secret import MASK, Secret, find_secrets, names_credential
from agentrun.wire import HttpCall, HttpReply

Lookup: TypeAlias = Callable[[str], Secret]
"""The value of a variable. Raises `host.missing`."""

AddressOverrides: TypeAlias = Mapping[str, str]
"""Addresses that a variable of the environment replaces: the declared beginning of an address → the variable."""

MIN_SECRET_LENGTH = 8
"""A value that is shorter is no secret, and hiding it would make holes in every text."""

_FOR_ANYBODY = ("accept", "accept-language", "user-agent")

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,127})\}")
HOST_VARIABLE = re.compile(rf"(?:https?://)?{_VARIABLE.pattern}")
"""The beginning of an address whose host a variable names."""


def variables_in(text: str) -> list[str]:
    """The variables that a text names."""
    return _VARIABLE.findall(text)


def request_variables(call: HttpCall) -> Iterator[str]:
    """The variables that a request needs, in the order in which they stand in it."""
    yield from variables_in(call.url)
    yield from credential_variables(call)


def credential_variables(call: HttpCall) -> Iterator[str]:
    """The same without those of its address, which is no secret."""
    for _, value in call.headers:
        yield from variables_in(value)
    if call.auth is not None:
        yield call.auth.name


def request_address(call: HttpCall, lookup: Lookup, elsewhere: AddressOverrides = MappingProxyType({})) -> str:
    """Where the request goes. The address that was declared stays what a journal and a recording have."""
    for home, variable in elsewhere.items():
        if call.url.startswith(home + "/"):
            return lookup(variable).reveal().rstrip("/") + call.url[len(home) :]
    return fill_variables(call.url, lookup)


def declared_host(call: HttpCall, elsewhere: AddressOverrides = MappingProxyType({})) -> str:
    """The host of a request in the words of a spec: a variable by its name, and nothing of the path or a credential."""
    place = HOST_VARIABLE.match(call.url)
    if place is not None:
        return place[0]
    try:
        host = urlsplit(call.url).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    variable = next((name for home, name in elsewhere.items() if call.url.startswith(home + "/")), None)
    return f"{host or 'its host'}, in whose place is {variable}" if variable else host or "its host"


def fill_variables(text: str, lookup: Lookup) -> str:
    """A text with the values that it names."""
    return _VARIABLE.sub(lambda found: lookup(found[1]).reveal(), text) if "${" in text else text


def fill_address(url: str, lookup: Lookup) -> str:
    """An address with the values that it names. The slash after the first is one slash, also if the value has it."""
    place = HOST_VARIABLE.match(url)
    if place is None or url[place.end() : place.end() + 1] != "/":
        return fill_variables(url, lookup)
    return fill_variables(place[0], lookup).rstrip("/") + fill_variables(url[place.end() :], lookup)


def without_credentials(call: HttpCall) -> HttpCall:
    """A request for another origin than the declared one."""
    fields = tuple(field for field in call.headers if field[0].lower() in _FOR_ANYBODY and not variables_in(field[1]))
    return replace(call, headers=fields, body=b"", auth=None)


def request_headers(call: HttpCall, lookup: Lookup) -> list[tuple[str, str]]:
    """Its headers, with the credential."""
    fields = [(name, fill_variables(value, lookup)) for name, value in call.headers]
    if call.auth is not None:
        fields.append((call.auth.header, call.auth.prefix + lookup(call.auth.name).reveal()))
    return fields


def is_header_value(text: str) -> bool:
    """Whether a header can hold it. Libraries quote the value that they refuse, so it is not left to them."""
    return text.isascii() and text.isprintable()


def redirect_with_variable(reply: HttpReply, call: HttpCall, lookup: Lookup) -> HttpReply:
    """A redirection to the place that a variable names, in words of that variable: no tape has where it leads today."""
    place = HOST_VARIABLE.match(call.url)
    if place is None or call.reach is None or not 300 <= reply.status < 400:
        return reply
    base, home = fill_address(call.url, lookup), fill_variables(place[0], lookup)
    fields = (
        (name, _location_with_variable(place[0], home, base, text) if name == "location" else text)
        for name, text in reply.headers
    )
    return HttpReply(reply.status, tuple(fields), reply.body)


def _location_with_variable(place: str, home: str, base: str, location: str) -> str:
    """A `location`, which may be relative to the `base`. `home`: what the `place` is today."""
    try:
        where, parts = urljoin(base, location), urlsplit(home)
    except ValueError:
        return location
    inside = home.rstrip("/")
    if where.startswith(inside) and where[len(inside) : len(inside) + 1] in (
        ("/",) if home != inside else ("", "/", "?")
    ):
        return place + where[len(inside) :]
    root = f"{parts.scheme}://{parts.netloc}"
    if where.startswith(f"{root}/") and not parts.query:
        return place + "/.." * parts.path.rstrip("/").count("/") + where[len(root) :]
    return where if where.startswith(("http://", "https://")) else location


def mask_reply(reply: HttpReply, call: HttpCall, lookup: Lookup) -> HttpReply:
    """A reply that is no success, without the values that the request brought."""
    values = {lookup(name).reveal() for name in request_variables(call)}
    values = {value for value in values if len(value) >= MIN_SECRET_LENGTH}
    fields, body = reply.headers, reply.body
    for value in sorted(values, key=len, reverse=True):
        fields = tuple((name, text.replace(value, MASK)) for name, text in fields)
        body = body.replace(value.encode(), MASK.encode())
    return HttpReply(reply.status, fields, body)


# --- the credentials in an environment: values that no command may show ---------------------------------------


NamedCredentials = list[tuple[str, Secret]]

_LINE = 24
"""A line that is shorter may stand in any text, unless it is one of a private key."""
_SCHEMES = ("basic", "bearer", "token", "apikey")


_FOLDERS = {"PWD"}
"""Where a shell stands. It is called as a password would be, and half of all paths begin with it."""


def find_credentials(environment: Mapping[str, str], named: Container[str] = ()) -> NamedCredentials:
    """The name of each value, and the value. `named`: variables that are credentials, whatever they are called."""
    found: dict[str, str] = {}
    for name in sorted(environment.keys() - _FOLDERS):
        text = environment[name].strip()
        if name in named or names_credential(name):
            for value in (text, *_credential_parts(text)):
                found.setdefault(value, name)
        for start, end, _ in find_secrets(text, name):
            for value in (text[start:end], unquote(text[start:end])):
                found.setdefault(value, name)
    return [(name, Secret(value)) for value, name in found.items() if len(value) >= MIN_SECRET_LENGTH]


def _credential_parts(value: str) -> Iterator[str]:
    """What of a credential is one by itself."""
    scheme, space, rest = value.partition(" ")
    if space and scheme.lower() in _SCHEMES:
        value = _decode_base64(rest) if scheme.lower() == "basic" else rest
        yield from (rest, value)
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        least = MIN_SECRET_LENGTH if value.startswith("-----BEGIN") else _LINE
        yield from (line for line in lines if len(line) >= least and not line.startswith("-----"))
    if value[:1] in ("{", "["):
        yield from _credentials_in_json(_parse_json(value))
    elif "://" not in value and not any(map(str.isspace, value)):
        yield value.partition(":")[2]


def _credentials_in_json(data: Any, key: str = "") -> Iterator[str]:
    """The credentials in a document."""
    match data:
        case dict():
            for name, item in data.items():
                yield from _credentials_in_json(item, name)
        case list():
            for item in data:
                yield from _credentials_in_json(item, key)
        case str():
            if names_credential(key):
                yield from (data, *_credential_parts(data))
            yield from (data[start:end] for start, end, _ in find_secrets(data))


def _decode_base64(text: str) -> str:
    try:
        return b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
