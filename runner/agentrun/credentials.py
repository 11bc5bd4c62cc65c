"""Which variables of an environment are credentials, and which values this process does not print.

Rule 1  A variable is a credential if its name has a word such as KEY or PASSWORD as a whole part, or if its value has
        the shape of a key or looks random. Certainly harmless values are not hidden: that would damage texts.
Rule 2  The parts of a credential count: pairs of a cookie, strings in JSON, lines of a PEM block, user info and query
        of an address. Credentials inside any other value, such as the password in an address, count too.
Rule 3  A package and `[tool.agentrun]` can only add names. The operator removes them, with AGENTRUN_NOT_SECRET; the key
        of a provider stays secret.
Rule 4  A replay and `agentrun test` hide nothing of their environment: the same package, input and cassette give the
        same bytes on every machine. They know the placeholders of the cassette.
Rule 5  Everything else hides the credentials of the environment, also commands that show what another process stored.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote, unquote_plus

from agentrun.canonical_json import parse_document
from agentrun.redactor import SHORTEST_SECRET, Redactor
from agentrun.secret import Secret, entropy, find_secrets

NamedCredentials: TypeAlias = list[tuple[str, Secret]]
PROVIDER_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
NOT_SECRET_VARIABLE = "AGENTRUN_NOT_SECRET"  # the name of a variable
_OWN_NAMES = {NOT_SECRET_VARIABLE, "PWD"}
"""Their names have words of credentials. PWD is the working directory."""

_CREDENTIAL_WORDS_TEXT = """
    KEY TOKEN SECRET PASS PASSWORD PWD AUTH CRED CREDS CREDENTIAL CREDENTIALS COOKIE DSN WEBHOOK PRIVATE CERT JWT
    PGPASSWORD SSHPASS PASSWD PASSPHRASE APIKEY AUTHTOKEN AUTHORIZATION BEARER KEYS TOKENS SECRETS PASSWORDS COOKIES
    ACCESSKEY SECRETKEY PRIVATEKEY ACCESSTOKEN MYSECRET PGPASS SMBPASSWD SSHPASSWORD
"""
_CREDENTIAL_WORDS = frozenset(_CREDENTIAL_WORDS_TEXT.split())
"""Parts of names, between underscores. The second half are common names without a border between their words."""
_HARMLESS_WORDS_TEXT = """
    any dummy fake false no none not-a-key null off on test true unused yes
    anonymous application basic bearer changeit changeme default development disabled enabled external internal
    kerberos keychain keyring local localhost negotiate optional password postgres preferred production required
    secretsmanager staging standard testing undefined unlimited username verify-ca verify-full workstation
"""
_HARMLESS_WORDS = frozenset(_HARMLESS_WORDS_TEXT.split())
_HARMLESS_FIELDS_TEXT = """
    auth_provider_x509_cert_url auth_uri client_email client_id client_x509_cert_url domain expires max-age path
    priority project_id samesite scope token_uri type universe_domain
"""
_HARMLESS_FIELDS = frozenset(_HARMLESS_FIELDS_TEXT.split())
"""Attributes of cookies, and fields of key files that are known to everybody who uses the service."""
_RANDOM_LENGTH = 20
_RANDOM_BITS = 3.5
_CI_PREFIXES = ("GITHUB_", "RUNNER_", "CI_")
"""Names of values that CI services make up. They look random and are not secret."""
_LINE = 24
"""A shorter line can occur in any text, unless it is part of a private key."""
_random = re.compile(r"[A-Za-z0-9+/_=~-]+")
_number = re.compile(r"[+-]?[0-9]+(?:[.,_][0-9]+)*(?::[0-9]+)?")
_host = re.compile(r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*\.[a-z]{2,24}(?::[0-9]{1,5})?")
_user_info = re.compile(r"://([^/?#\s]*)@")
_header = re.compile(r"(?:basic|bearer|token|apikey|[a-z0-9_-]+:)\s+(.+)", re.IGNORECASE | re.DOTALL)
_pair = re.compile(r"(?:^|[?&#;\s])\s*([^=?&#;\s]+)=([^?&;\s]+)")
_cookie = re.compile(r"(?:^|;)\s*([^=?&#;\s]+)=([^;]+)")
_separator = re.compile(r"[^A-Z0-9]+")
_border = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def find_credentials(
    environment: Mapping[str, str], named: Collection[str] = (), keys: Collection[str] = ()
) -> NamedCredentials:
    """The credentials of an environment, each with its name. `named`: variables that are credentials in any case.
    `keys`: those of providers, which the operator cannot remove."""
    found: dict[str, str] = {}
    removed = removed_names(environment, keys)
    for name in sorted(environment.keys() - removed - _OWN_NAMES):
        is_named = name in named or name in keys or name in PROVIDER_KEYS
        for value in _secret_values(name, environment[name].strip(), is_named=is_named):
            found.setdefault(value, name)
    return [(name, Secret(value)) for value, name in found.items() if len(value) >= SHORTEST_SECRET]


def removed_names(environment: Mapping[str, str], keys: Collection[str] = ()) -> set[str]:
    """The variables of AGENTRUN_NOT_SECRET that are set."""
    names = {name.strip() for name in environment.get(NOT_SECRET_VARIABLE, "").split(",")}
    return names & environment.keys() - {*PROVIDER_KEYS, *keys}


def short_credentials(environment: Mapping[str, str], named: Collection[str] = ()) -> list[str]:
    """The variables that name a credential whose value is too short to hide."""
    others = environment.keys() - removed_names(environment) - _OWN_NAMES
    short = {name: value for name in sorted(others) if 0 < len(value := environment[name].strip()) < SHORTEST_SECRET}
    unsafe = {name: value for name, value in short.items() if value.lower() not in _HARMLESS_WORDS}
    return [name for name, value in unsafe.items() if name in named or _names_secret(name, value)]


def is_credential(name: str, value: str) -> bool:
    """Whether a variable or field is a credential as a whole."""
    if len(value) >= SHORTEST_SECRET and _names_secret(name, value):
        return True
    return (
        len(value) >= _RANDOM_LENGTH
        and _random.fullmatch(value) is not None
        and all(any(map(test, value)) for test in (str.isupper, str.islower, str.isdigit))
        and entropy(value) >= _RANDOM_BITS
        and not _is_path(value)
        and not name.startswith(_CI_PREFIXES)
    )


def _names_secret(name: str, value: str) -> bool:
    words = {part.strip("0123456789") for part in _separator.split(name.upper())}
    return not words.isdisjoint(_CREDENTIAL_WORDS) and not _is_harmless(value)


def _is_harmless(value: str) -> bool:
    return bool(
        value.lower() in _HARMLESS_WORDS or _number.fullmatch(value) or _host.fullmatch(value) or _is_path(value)
    )


def _is_path(value: str) -> bool:
    """Whether it is a path that exists, or several. A single word may be a password and the name of a file."""
    if "/" not in value or "\0" in value:
        return False
    return all(os.path.exists(path) for path in value.split(os.pathsep) if path)


def _secret_values(name: str, text: str, *, is_named: bool = False) -> Iterator[str]:
    """A credential and its parts, or the credentials inside another value."""
    is_secret = is_named or is_credential(name, text)
    if is_secret:
        yield text
    for start, end, _ in find_secrets(text):
        yield from (text[start:end], unquote(text[start:end]))
    for field, value in _parts(text):
        if not is_secret and not field:
            continue
        is_part = is_secret and field.lower() not in _HARMLESS_FIELDS and not _is_harmless(value)
        yield from _secret_values("_".join(_border.split(field)), value, is_named=is_part)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a value with their names, which are empty for most."""
    if len(text) < SHORTEST_SECRET:
        return
    if text[0] in "{[":
        yield from _json_texts(text)
        return
    if decoded := _decode_base64(text):
        yield "", decoded
    if "%" in text and "://" not in text and (decoded := unquote_plus(text)) != text:
        yield "", decoded
    if found := _header.fullmatch(text):
        yield "", found[1]
    if len(lines := text.replace("\\n", "\n").splitlines()) > 1:
        least = SHORTEST_SECRET if "-----BEGIN" in text else _LINE
        yield from (("", each) for line in lines if len(each := line.strip()) >= least and each[:5] != "-----")
    if found := _user_info.search(text):
        yield "", found[1]
    elif "://" not in text and not any(map(str.isspace, text)):
        yield from (("", each) for each in text.partition(":")[::2] if ":" in text)
    for name, value in (*_pair.findall(text), *_cookie.findall(text)):
        yield name, value.strip("\"' ")


def _json_texts(text: str) -> Iterator[tuple[str, str]]:
    """The strings of a JSON document with their keys."""
    left: list[tuple[str, Any]] = [("item", parse_document(text))]
    while left:
        key, data = left.pop()
        match data:
            case dict():
                left += data.items()
            case list():
                left += ((key, item) for item in data)
            case str():
                yield key, data


def _decode_base64(text: str) -> str:
    """The text that a value encodes. Empty: it does not."""
    try:
        decoded = b64decode(text, validate=True).decode()
    except (ValueError, UnicodeDecodeError):  # not ASCII, or wrong padding
        return ""
    return decoded if decoded.replace("\n", "").isprintable() else ""


class HiddenSecrets:
    """The secrets that this process does not print."""

    def __init__(self) -> None:
        self._names: Callable[[], Iterable[str]] | None = None
        self._others: NamedCredentials = []
        self._redactor: Redactor | None = None

    def read_environment(self, names: Callable[[], Iterable[str]] = tuple) -> None:
        """Hide the credentials of the environment from now on. `names`: returns those that the project adds."""
        self._names, self._others, self._redactor = names, [], None

    def ignore_environment(self) -> None:
        """Hide nothing: this process replays."""
        self._names, self._others, self._redactor = None, [], None

    def add(self, values: NamedCredentials) -> None:
        """Hide these values too, such as those of a `.env` file."""
        self._others += values
        self._redactor = None

    @property
    def redactor(self) -> Redactor:
        if self._redactor is None:
            found = [] if self._names is None else find_credentials(os.environ, {*self._names()})
            self._redactor = Redactor(found + self._others)
        return self._redactor


hidden_secrets = HiddenSecrets()
