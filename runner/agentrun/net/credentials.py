"""The credentials in an environment: values that no command may show.

Rule 1  Every variable counts whose name says that it is a credential, and what has the shape of one in any other: tools
        read the environment too.
Rule 2  A part that is as good as the whole counts as well: the password of a pair or an address, what follows `Basic`
        or `Bearer`, the secrets of a JSON document, each line of a private key. Servers and tools take values apart.
Rule 3  A value of fewer than eight characters is none: hiding it would make holes in every text.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Container, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from agentrun.net.environment import SHORTEST
from agentrun.secret import Secret, find_secrets, names_credential

Known = list[tuple[str, Secret]]

_LINE = 24
"""A line that is shorter may stand in any text, unless it is one of a private key."""
_SCHEMES = ("basic", "bearer", "token", "apikey")


_FOLDERS = {"PWD"}
"""Where a shell stands. It is called as a password would be, and half of all paths begin with it."""


def credentials(environment: Mapping[str, str], named: Container[str] = ()) -> Known:
    """The name of each value, and the value. `named`: variables that are credentials, whatever they are called."""
    found: dict[str, str] = {}
    for name in sorted(environment.keys() - _FOLDERS):
        text = environment[name].strip()
        if name in named or names_credential(name):
            for value in (text, *_parts(text)):
                found.setdefault(value, name)
        for start, end, _ in find_secrets(text, name):
            for value in (text[start:end], unquote(text[start:end])):
                found.setdefault(value, name)
    return [(name, Secret(value)) for value, name in found.items() if len(value) >= SHORTEST]


def _parts(value: str) -> Iterator[str]:
    """What of a credential is one by itself."""
    scheme, space, rest = value.partition(" ")
    if space and scheme.lower() in _SCHEMES:
        value = _decoded(rest) if scheme.lower() == "basic" else rest
        yield from (rest, value)
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        least = SHORTEST if value.startswith("-----BEGIN") else _LINE
        yield from (line for line in lines if len(line) >= least and not line.startswith("-----"))
    if value[:1] in ("{", "["):
        yield from _inside(_json(value))
    elif "://" not in value and not any(map(str.isspace, value)):
        yield value.partition(":")[2]


def _inside(data: Any, key: str = "") -> Iterator[str]:
    """The credentials in a document."""
    match data:
        case dict():
            for name, item in data.items():
                yield from _inside(item, name)
        case list():
            for item in data:
                yield from _inside(item, key)
        case str():
            if names_credential(key):
                yield from (data, *_parts(data))
            yield from (data[start:end] for start, end, _ in find_secrets(data))


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
