"""The values that a run knows and must not show: credentials of the environment.

Rule 1  Every variable that the package names for a credential or a header counts, and the usual one of each provider.
Rule 2  So does every variable of the environment whose name says that it is a credential, and what has the shape of one
        in any other: tools read the environment too.
Rule 3  A part that is as good as the whole counts too: the password of a pair or an address, what follows `Basic` or
        `Bearer`, the secrets of a JSON document, each line of a private key. Servers and tools take values apart.
Rule 4  A value of fewer than eight characters is none: hiding it would make holes in every text.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Container, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from agentrun.core.package import Package
from agentrun.core.package_tools import HttpTool, McpTool
from agentrun.engine.world import packages_of
from agentrun.net.environment import SHORTEST, credentials_in, named_in
from agentrun.secret import Secret, find_secrets, names_credential

Known = list[tuple[str, Secret]]

_LINE = 24
"""A line of a value that is shorter may stand in any text."""


def known_values(package: Package, environment: Mapping[str, str]) -> Known:
    """The name of each value, and the value."""
    return values_of(environment, set(_named(package)))


def values_of(environment: Mapping[str, str], named: Container[str] = ()) -> Known:
    """The same without a package. `named`: variables that are credentials, whatever they are called."""
    found: dict[str, str] = {}
    for name in sorted(environment):
        text = environment[name].strip()
        if name in named or names_credential(name):
            found.setdefault(text, name)
            for part in _parts(text):
                found.setdefault(part, name)
        for start, end, kind in find_secrets(text, name):
            found.setdefault(text[start:end], name)
            if kind == "password in a url":
                found.setdefault(unquote(text[start:end]), name)
    return [(name, Secret(value)) for value, name in found.items() if len(value) >= SHORTEST]


def _parts(value: str) -> Iterator[str]:
    """What of a credential is one by itself."""
    scheme, space, rest = value.partition(" ")
    if space and scheme.lower() in ("basic", "bearer", "token", "apikey"):
        yield rest
        value = _decoded(rest) if scheme.lower() == "basic" else rest
        yield value
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _LINE and not line.startswith("-----"))
    if value[:1] in ("{", "["):
        yield from _inside(_json(value), credential=False)
    elif not any(map(str.isspace, value)) and "://" not in value:
        yield value.partition(":")[2]


def _decoded(text: str) -> str:
    try:
        return b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _inside(data: Any, *, credential: bool) -> Iterator[str]:
    """The credentials in a document."""
    match data:
        case dict():
            for key, item in data.items():
                yield from _inside(item, credential=names_credential(key))
        case list():
            for item in data:
                yield from _inside(item, credential=credential)
        case str():
            if credential:
                yield data
                yield from _parts(data)
            yield from (data[start:end] for start, end, _ in find_secrets(data))


def _named(package: Package) -> Iterator[str]:
    from agentrun.engine.live import calls_of  # late: it takes a second, and a replay needs only the names

    for call in calls_of(package):
        yield from credentials_in(call)
    for agent in packages_of(package):
        for tool in agent.tools.values():
            if isinstance(tool, HttpTool):
                yield from (name for text in tool.headers.values() for name in named_in(text))
                yield from named_in(tool.auth.secret) if tool.auth else ()
            elif isinstance(tool, McpTool):
                yield from (name for text in (*tool.headers.values(), *tool.env.values()) for name in named_in(text))
