"""Variables of the environment in a request: `${NAME}` in its address and headers, and its credential.

Rule 1  A value is put in just before sending. What a codec builds, a journal or a recording has only names.
Rule 2  What comes of it is shown to nobody: no error says more than a name, and a server that repeats a value in its
        refusal is not quoted.
Rule 3  What a request of a tool brings is for the origin that was declared. Anywhere else it brings nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import urljoin, urlsplit

from msgspec.structs import replace

from agentrun.secret import MASK, Secret
from agentrun.wire import HttpCall, HttpReply

Lookup: TypeAlias = Callable[[str], Secret]
"""The value of a variable. Raises `host.missing`."""

Elsewhere: TypeAlias = Mapping[str, str]
"""Addresses that a variable of the environment replaces: the declared beginning of an address → the variable."""

SHORTEST = 8
"""A value that is shorter is no secret, and hiding it would make holes in every text."""

_FOR_ANYBODY = ("accept", "accept-language", "user-agent")

_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,127})\}")
PLACE = re.compile(rf"(?:https?://)?{_NAMED.pattern}")
"""The beginning of an address whose host a variable names."""


def named_in(text: str) -> list[str]:
    """The variables that a text names."""
    return _NAMED.findall(text)


def names_in(call: HttpCall) -> Iterator[str]:
    """The variables that a request needs, in the order in which they stand in it."""
    yield from named_in(call.url)
    yield from credentials_in(call)


def credentials_in(call: HttpCall) -> Iterator[str]:
    """The same without those of its address, which is no secret."""
    for _, value in call.headers:
        yield from named_in(value)
    if call.auth is not None:
        yield call.auth.name


def address(call: HttpCall, lookup: Lookup, elsewhere: Elsewhere = MappingProxyType({})) -> str:
    """Where the request goes. The address that was declared stays what a journal and a recording have."""
    for home, variable in elsewhere.items():
        if call.url.startswith(home + "/"):
            return lookup(variable).reveal().rstrip("/") + call.url[len(home) :]
    return filled(call.url, lookup)


def declared_host(call: HttpCall, elsewhere: Elsewhere = MappingProxyType({})) -> str:
    """The host of a request in the words of a spec: a variable by its name, and nothing of the path or a credential."""
    place = PLACE.match(call.url)
    if place is not None:
        return place[0]
    try:
        host = urlsplit(call.url).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    variable = next((name for home, name in elsewhere.items() if call.url.startswith(home + "/")), None)
    return f"{host or 'its host'}, in whose place is {variable}" if variable else host or "its host"


def filled(text: str, lookup: Lookup) -> str:
    """A text with the values that it names."""
    return _NAMED.sub(lambda found: lookup(found[1]).reveal(), text) if "${" in text else text


def whole(url: str, lookup: Lookup) -> str:
    """An address with the values that it names. The slash after the first is one slash, also if the value has it."""
    place = PLACE.match(url)
    if place is None or url[place.end() : place.end() + 1] != "/":
        return filled(url, lookup)
    return filled(place[0], lookup).rstrip("/") + filled(url[place.end() :], lookup)


def away(call: HttpCall) -> HttpCall:
    """A request for another origin than the declared one."""
    fields = tuple(field for field in call.headers if field[0].lower() in _FOR_ANYBODY and not named_in(field[1]))
    return replace(call, headers=fields, body=b"", auth=None)


def headers(call: HttpCall, lookup: Lookup) -> list[tuple[str, str]]:
    """Its headers, with the credential."""
    fields = [(name, filled(value, lookup)) for name, value in call.headers]
    if call.auth is not None:
        fields.append((call.auth.header, call.auth.prefix + lookup(call.auth.name).reveal()))
    return fields


def is_field(text: str) -> bool:
    """Whether a header can hold it. Libraries quote the value that they refuse, so it is not left to them."""
    return text.isascii() and text.isprintable()


def homeward(reply: HttpReply, call: HttpCall, lookup: Lookup) -> HttpReply:
    """A redirection to the place that a variable names, in words of that variable: no tape has where it leads today."""
    place = PLACE.match(call.url)
    if place is None or call.reach is None or not 300 <= reply.status < 400:
        return reply
    base, home = whole(call.url, lookup), filled(place[0], lookup)
    fields = (
        (name, _in_words(place[0], home, base, text) if name == "location" else text) for name, text in reply.headers
    )
    return HttpReply(reply.status, tuple(fields), reply.body)


def _in_words(place: str, home: str, base: str, location: str) -> str:
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


def refusal(reply: HttpReply, call: HttpCall, lookup: Lookup) -> HttpReply:
    """A reply that is no success, without the values that the request brought."""
    values = {lookup(name).reveal() for name in names_in(call)}
    values = {value for value in values if len(value) >= SHORTEST}
    fields, body = reply.headers, reply.body
    for value in sorted(values, key=len, reverse=True):
        fields = tuple((name, text.replace(value, MASK)) for name, text in fields)
        body = body.replace(value.encode(), MASK.encode())
    return HttpReply(reply.status, fields, body)
