"""The credentials of an environment, and the secrets that this process does not print.

Rule 1  A replay and `agentrun test` hide nothing of their environment: the same package, input and cassette give the
        same bytes on every machine. They know the placeholders of the cassette.
Rule 2  Everything else hides the credentials of the environment, also commands that show what another process stored.
"""

from __future__ import annotations

import binascii
import json
import os
import re
from base64 import b64decode
from collections.abc import Container, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from agentrun.redactor import SHORTEST_SECRET, Redactor
from agentrun.secret import Secret, find_secrets, names_credential

NamedCredentials: TypeAlias = list[tuple[str, Secret]]
_LINE = 24
"""A shorter line can occur in any text, unless it is part of a private key."""
_SCHEMES = ("basic", "bearer", "token", "apikey")
_HARMLESS_VARIABLES = {"PWD", "GPG_KEY"}
"""The working directory, whose name looks like a password, and a public key that images of Python name."""
_word = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PASSWORD_WORDS = {"pass", "pwd", "sshpass"}
_PASSWORD_ENDINGS = ("password", "passwd", "passphrase")
"""Also of words without a border: PGPASSWORD."""
_CREDENTIAL_WORDS = {
    *("secrets", "tokens", "key", "keys", "credential", "credentials", "creds", "auth", "dsn", "cookie", "private"),
    "cert",
}
_CREDENTIAL_ENDINGS = ("secret", "token", "apikey")
_HARMLESS_ENDINGS = {
    *("algorithm", "count", "dir", "directory", "enabled", "expiry", "file", "folder", "host", "id", "length", "limit"),
    *("method", "mode", "name", "path", "policy", "port", "size", "sock", "socket", "timeout", "ttl", "type", "uri"),
    *("url", "user", "username", "version"),
}
"""The last word of a variable that is about a credential, such as SSH_AUTH_SOCK or PRIVATE_KEY_FILE."""


def find_credentials(environment: Mapping[str, str], named: Container[str] = ()) -> NamedCredentials:
    """The credentials of an environment, each with its name. `named`: variables that are credentials in any case."""
    found: dict[str, str] = {}
    for name in sorted(environment.keys() - _HARMLESS_VARIABLES):
        text = environment[name].strip()
        if name in named or names_credential(name) or _may_be_credential(name, text):
            for value in (text, *_credential_parts(text)):
                found.setdefault(value, name)
        for start, end, _ in find_secrets(text, name):
            for value in (text[start:end], unquote(text[start:end])):
                found.setdefault(value, name)
    return [(name, Secret(value)) for value, name in found.items() if len(value) >= SHORTEST_SECRET]


def _may_be_credential(name: str, value: str) -> bool:
    """Whether one of the words of a name is that of a credential: DB_PASS, OPENAI_KEY, API_KEY_PROD, PASSWORD1."""
    words = [word.lower() for word in _word.findall(name)]
    if not words or words[-1] in _HARMLESS_ENDINGS:
        return False
    if any(word in _PASSWORD_WORDS or word.endswith(_PASSWORD_ENDINGS) for word in words):
        return True
    is_named = any(word in _CREDENTIAL_WORDS or word.endswith(_CREDENTIAL_ENDINGS) for word in words)
    return is_named and not value.isalpha()  # such as `production`


def _credential_parts(value: str) -> Iterator[str]:
    """The parts of a credential that are credentials on their own."""
    scheme, space, rest = value.partition(" ")
    if space and scheme.lower() in _SCHEMES:
        value = _decode_base64(rest) if scheme.lower() == "basic" else rest
        yield from (rest, value)
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        least = SHORTEST_SECRET if value.startswith("-----BEGIN") else _LINE
        yield from (line for line in lines if len(line) >= least and not line.startswith("-----"))
    if value[:1] in ("{", "["):
        yield from _credentials_in_json(_parse_json(value))
    elif "://" not in value and not any(map(str.isspace, value)):
        yield value.partition(":")[2]


def _credentials_in_json(data: Any, key: str = "") -> Iterator[str]:
    """The credentials in a JSON document."""
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


class HiddenSecrets:
    """The secrets that this process does not print."""

    def __init__(self) -> None:
        self._reads_environment = False
        self._others: NamedCredentials = []
        self._redactor: Redactor | None = None

    def read_environment(self) -> None:
        """Hide the credentials of the environment from now on."""
        self._reads_environment, self._others, self._redactor = True, [], None

    def ignore_environment(self) -> None:
        """Hide nothing: this process replays."""
        self._reads_environment, self._others, self._redactor = False, [], None

    def add(self, values: NamedCredentials) -> None:
        """Hide these values too, such as those of a `.env` file."""
        self._others += values
        self._redactor = None

    @property
    def redactor(self) -> Redactor:
        if self._redactor is None:
            found = find_credentials(os.environ) if self._reads_environment else []
            self._redactor = Redactor(found + self._others)
        return self._redactor


hidden_secrets = HiddenSecrets()
