"""What the requests of tools and sinks say about themselves: their headers, and the hosts that they may reach."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET, UnsetType

from agentrun.compiler.addresses import OWN_HEADERS
from agentrun.compiler.resolve import Spec
from agentrun.compiler.template import is_template
from agentrun.spec.problems import Problem, quoted
from agentrun.spec.tree import place_of
from agentrun.spec.v1.tools import Auth

_HOST = re.compile(r"(https?)://([^/?$]+?)(?::(\d+))?(?:[/?].*)?", re.DOTALL)
_PORTS = {"http": "80", "https": "443"}


def header_problems(
    spec: Spec, path: Sequence[str], headers: Mapping[str, str], auth: Auth | UnsetType
) -> Iterator[Problem]:
    """Headers that no request can have, or that say one thing twice. `path`: of the tool or sink."""
    places = {name: place_of(spec.root, [*path, "headers", name], key=True) for name in headers}
    texts = dict(headers)
    if auth is not UNSET:
        place = place_of(spec.root, [*path, "auth", "header"])
        if auth.header.lower() in map(str.lower, headers):
            message = f"the header {quoted(auth.header)} is set by `auth` and by `headers`"
            yield Problem(place, "spec.header", message, "remove one of the two")
            return
        places[auth.header], texts[auth.header] = place, auth.scheme or "x"
    seen: set[str] = set()
    for name, text in texts.items():
        if name.lower() in OWN_HEADERS:
            message = f"the header {quoted(name)} is for the request itself to decide"
            yield Problem(places[name], "spec.header", message, "remove it")
        elif name.lower() in seen:
            yield Problem(
                places[name], "spec.header", f"the header {quoted(name)} is there twice", "remove one of them"
            )
        elif not is_template(text) and not (text.isascii() and text.isprintable() and text == text.strip()):
            message = (
                f"the header {quoted(name)} holds what no header can: a line end, a blank around it, an odd letter"
            )
            yield Problem(places[name], "spec.header", message, "write it in one line of plain letters")
        seen.add(name.lower())


def host_problems(spec: Spec, name: str, url: str, hosts: Sequence[str] | UnsetType) -> Iterator[Problem]:
    """A list of hosts that the address itself is not in: every call would be refused."""
    found = _HOST.fullmatch(url)
    if hosts is UNSET or found is None or found[2].startswith("["):
        return
    host, port = found[2].lower(), found[3] or _PORTS[found[1]]
    if not any(_lists(entry.lower(), host, port, _PORTS[found[1]]) for entry in hosts):
        message = "`hosts` does not list the host of `url`, so that no call would reach it"
        entry = host if port == _PORTS[found[1]] else f"{host}:{port}"
        yield Problem(place_of(spec.root, ["tools", name, "hosts"]), "spec.url", message, f"add {entry}")


def _lists(entry: str, host: str, port: str, usual: str) -> bool:
    name, _, at = entry.partition(":")
    if int(at or usual) != int(port):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else name == host
