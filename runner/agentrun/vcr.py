"""Agentrun's matching, redaction and atomic writes for plain vcrpy and for pytest-recording.

    agentrun.vcr.register()                  # for `vcr.use_cassette`
    agentrun.vcr.register(my_vcr)            # for an instance of `vcr.VCR`

Rule 1  Method, address and body must be equal. JSON is compared by its values, everything else byte by byte. A body
        that is neither bytes, text nor JSON matches nothing. A placeholder matches any text.
Rule 2  Everything is redacted before it is written. If a secret may be left, or a body cannot be searched, nothing is
        written and the old file stays.
Rule 3  Of the request headers only `accept` and `content-type` are written, and addresses without user and password. A
        response header that names a credential is written as a placeholder. Compressed bodies are decompressed.
        Requests are packed in the file; vcrpy and its matchers see the whole bodies.
Rule 4  The values of headers, parameters and fields of bodies (JSON and forms) that name a credential, and keys of a
        known shape in any text, are replaced everywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import vcr
from vcr.filters import decode_response
from vcr.persisters.filesystem import CassetteDecodeError
from vcr.request import Request
from vcr.serialize import serialize
from vcr.util import read_body

from agentrun.canonical_json import is_json
from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import REQUEST_HEADERS, Interaction
from agentrun.cassette.leaks import body_texts
from agentrun.cassette.match import MatchKey, match_key, normalised_key
from agentrun.cassette.packing import PackingError
from agentrun.cassette.redaction import RunRedaction, match_placeholders, redact_cassette
from agentrun.cassette.request_diff import describe_differences
from agentrun.cassette.writer import CassetteSerializer
from agentrun.core.package import RedactionRule
from agentrun.core.policy import compile_mask
from agentrun.credentials import NamedCredentials, find_credentials
from agentrun.errors import CassetteError, storage_failed
from agentrun.files import ProjectTree
from agentrun.redactor import Redactor
from agentrun.secret import Secret, find_secrets, looks_random, names_credential, placeholder
from agentrun.spec.project import working_secrets
from agentrun.wire import HttpCall, HttpReply

NAME = "agentrun"
"""The name of the matcher and of the serializer."""
_MAX_DIFFERENCES = 3
_ENCODING = "content-encoding"
_CREDENTIAL_WORDS = {"key", "auth", "session", "sessionid", "sid", "sig", "signature"}
"""In the name of a header or parameter: its value may be a credential if it is long and looks random."""
_LONG = 16
_word = re.compile(r"[a-z]+")
_form = re.compile(r"[^\s=&]+=[^\s&]*(&[^\s=&]+=[^\s&]*)*\Z")
_form_part = re.compile(  # of multipart/form-data
    r'^content-disposition: *form-data; *name="([^"\r\n]*)".*\r\n(?:.+\r\n)*\r\n((?s:.*?))\r\n--',
    re.IGNORECASE | re.MULTILINE,
)


def register(
    recorder: Any = vcr.default_vcr,
    *,
    volatile: Sequence[str] = (),
    redact: Iterable[Mapping[str, str]] = (),
    secrets: Mapping[str, str] | None = None,
) -> Any:
    """Register the matcher, the serializer and the persister with a `vcr.VCR`, make them its defaults, and return it.

    `volatile`: the paths of JSON fields that may differ, as in `replay.volatile`. `redact`: rules as in
    `replay.redact`. `secrets`: values by their names. The credentials of the environment, the variables that
    `[tool.agentrun] secrets` names, headers and addresses are always redacted.
    """
    redaction = _Redaction(redact, secrets or {})
    recorder.register_matcher(NAME, _matcher(tuple(volatile), redaction))
    recorder.register_serializer(NAME, CassetteSerializer)
    recorder.register_persister(CassettePersister(recorder.persister, redaction))
    # vcrpy explains a miss only if another matcher succeeds.
    recorder.match_on, recorder.serializer = ("method", NAME), NAME
    return recorder


def _matcher(volatile: tuple[str, ...], redaction: _Redaction) -> Callable[[Request, Request], None]:
    @lru_cache(maxsize=256)  # vcrpy compares a request with every recorded one, several times
    def keys(call: HttpCall) -> tuple[MatchKey, ...]:
        return (match_key(call), *([normalised_key(call, "", volatile)] if volatile else []))

    def matches(recorded: HttpCall, call: HttpCall) -> bool:
        return any(map(_same_key, keys(recorded), keys(call)))

    def agentrun(sent: Request, recorded: Request) -> None:
        """vcrpy shows the name of this function and the message of its error."""
        try:
            now, was = _call(sent), _call(recorded)
        except (TypeError, ValueError) as error:
            raise AssertionError(str(error)) from None
        if not matches(was, now) and not matches(was, clean := redaction.redact_request(now)):
            differences = islice(describe_differences(was, clean), _MAX_DIFFERENCES)
            raise AssertionError("; ".join(differences) or "the requests differ")

    return agentrun


def _same_key(recorded: MatchKey, sent: MatchKey) -> bool:
    if recorded == sent:
        return True
    was, now = (HttpCall(method, url, (), body) for _, method, url, body in (recorded, sent))
    return match_placeholders(was, now) is not None


def _call(request: Request) -> HttpCall:
    """The request without the user and password of its address, which clients send as a header.

    Raises `TypeError` or `ValueError` if the body is neither bytes, text nor JSON.
    """
    headers = tuple((name, value) for name, value in _fields(request.headers) if name in REQUEST_HEADERS)
    url = urlsplit(request.uri)
    address = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl() if url.username else request.uri
    return HttpCall(request.method, address, headers, _body(read_body(request)))  # type: ignore[no-untyped-call]  # vcrpy has no types


def _body(body: Any) -> bytes:
    match body:
        case None:
            return b""
        case str():
            return body.encode()
        case bytes() | bytearray() | memoryview():
            return bytes(body)
        case dict() | list():  # aiohttp's `json=`
            return json.dumps(body).encode()
    raise TypeError(f"a body of type {type(body).__name__} cannot be compared or recorded")


def _fields(headers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, values in headers.items():
        for value in values if isinstance(values, list | tuple) else [values]:
            yield name.lower(), value.decode("latin-1") if isinstance(value, bytes) else str(value)


class _Redaction:
    """Knows the rules, and all credentials that the environment had so far."""

    def __init__(self, rules: Iterable[Mapping[str, str]], secrets: Mapping[str, str]) -> None:
        self._rules = [msgspec.convert({"path": None, "pattern": None, **rule}, RedactionRule) for rule in rules]
        for rule in self._rules:
            if rule.path is None and rule.pattern is None:
                raise ValueError(f"the rule {rule.name!r} needs a path or a pattern")
            compile_mask(rule.pattern or "")
        self._redactor = Redactor((name, Secret(value)) for name, value in secrets.items())
        self._environment: dict[str, str] = {}
        self.update()

    def update(self) -> None:
        """Learn the credentials of the environment again if it has changed."""
        environment = dict(os.environ)
        if environment != self._environment:
            self._environment = environment
            self._redactor = self._redactor.with_values(find_credentials(environment, working_secrets()))
            self._run = RunRedaction(self._rules, self._redactor)

    def redact_request(self, call: HttpCall) -> HttpCall:
        self.update()
        return self._run.redact_request(call)

    def with_values(self, values: NamedCredentials) -> RunRedaction:
        self.update()
        return RunRedaction(self._rules, self._redactor.with_values(values))


class CassettePersister:
    """Saves a cassette redacted and atomically. Another persister loads it."""

    def __init__(self, loader: Any, redaction: _Redaction) -> None:
        self._loader = loader
        self._redaction = redaction

    def load_cassette(self, cassette_path: str | os.PathLike[str], serializer: Any) -> Any:
        self._redaction.update()
        path, hint = os.fspath(cassette_path), "restore the file or record it again"
        try:
            return self._loader.load_cassette(cassette_path, serializer=serializer)
        except CassetteDecodeError as error:  # vcrpy would take it for an empty cassette and replace it
            raise CassetteError("cassette.damaged", f"{path} is not UTF-8", hint=hint, fields={"file": path}) from error
        except PackingError as error:
            load_cassette(Path(path))  # the error of our reader has the line
            raise CassetteError("cassette.damaged", f"{path}: {error}", hint=hint, fields={"file": path}) from error

    def save_cassette(
        self, cassette_path: str | os.PathLike[str], cassette_dict: dict[str, Any], serializer: Any
    ) -> None:
        """Raises `storage.failed`. Links below the working directory are not followed."""
        text = serialize(self._redact(cassette_dict), serializer)  # type: ignore[no-untyped-call]  # vcrpy has no types
        path, here = Path(os.path.abspath(cassette_path)), Path.cwd()
        ProjectTree(here if path.is_relative_to(here) else path.parent, "cassette").write(path, text.encode())

    def _redact(self, cassette: dict[str, Any]) -> dict[str, Any]:
        requests, responses = cassette["requests"], list(map(_decompress, cassette["responses"]))
        headers = [*(each.headers for each in requests), *(each["headers"] for each in responses)]
        fields = [field for each in headers for field in _fields(each)]
        interactions = list(map(_interaction, requests, responses))
        bodies = [body for each in interactions for body in (each.call.body, each.reply.body)]
        addresses = [*(each.uri for each in requests), *(value for _, value in fields if "://" in value)]
        fields += [field for each in addresses for field in _parameters(each)]
        values = [value for each in fields for value in _credentials(*each)]
        values += [value for each in bodies for field in _body_fields(each) for value in _passwords(*field)]
        redaction = self._redaction.with_values(values)
        clean = redact_cassette(redaction, interactions, cassette.get("metadata") or {})
        pairs = zip(responses, clean.interactions, strict=True)
        return {
            "requests": [_request(each.call) for each in clean.interactions],
            "responses": [_response(one, each, redaction) for one, each in pairs],
            "metadata": clean.metadata,
        }


def _parameters(address: str) -> list[tuple[str, str]]:
    """The parameters of an address, and its password."""
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError:
        return []
    return [*parse_qsl(parts.query), *parse_qsl(parts.fragment), ("password", unquote(password or ""))]


def _credentials(name: str, value: str) -> Iterator[tuple[str, Secret]]:
    """The credentials in a header or a parameter."""
    if names_credential(name):
        yield from find_credentials({name: value}, {name})
    elif len(value) >= _LONG and _CREDENTIAL_WORDS & {*_word.findall(name.lower())} and looks_random(value):
        yield name, Secret(value)
    cookies = value.split(";") if name == "cookie" else value.split(";")[:1] if name == "set-cookie" else []
    values = (each.partition("=")[2].strip() for each in cookies)
    yield from ((name, Secret(each)) for each in values if find_secrets(each, name))


def _body_fields(body: bytes) -> Iterator[tuple[str, str]]:
    """The texts and numbers of a JSON body with their keys, or the fields of a form with one or several parts."""
    if not is_json(body):
        text = body.decode("utf-8", "replace")
        yield from parse_qsl(text) if _form.match(text) else _form_part.findall(text)
    yield from ((each.key, each.text) for each in body_texts(body) if each.key is not None)


def _passwords(name: str, value: str) -> NamedCredentials:
    """The credentials in a field of a body. A token may be a word of a text, so it must look random."""
    if not names_credential(name) or (name.lower().endswith("token") and not looks_random(value)):
        return []
    return find_credentials({name: value}, {name})


def _decompress(response: dict[str, Any]) -> dict[str, Any]:
    """The response with a body that can be searched. Raises `storage.failed`."""
    if not {"status", "headers", "body"} <= response.keys():
        raise storage_failed("cassette", "nothing was recorded: a response has the form of an old version of vcrpy")
    plain: dict[str, Any] = decode_response(response)  # type: ignore[no-untyped-call]  # vcrpy has no types
    encodings = [[value for name, value in _fields(one["headers"]) if name == _ENCODING] for one in (response, plain)]
    body = _body(plain["body"]["string"])
    # vcrpy takes a body that it cannot decompress for a decompressed one.
    is_hidden = encodings[0] != encodings[1] and body == _body(response["body"]["string"]) and not _is_text(body)
    if is_hidden or any(value.strip().lower() not in ("", "identity") for value in encodings[1]):
        message = f"nothing was recorded: a reply with {_ENCODING} {encodings[0][0]} cannot be searched for secrets"
        raise storage_failed("cassette", message, hint="send the request with `accept-encoding: gzip`")
    return plain


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _interaction(request: Request, response: dict[str, Any]) -> Interaction:
    headers = tuple(
        (name, placeholder(name) if names_credential(name) else value) for name, value in _fields(response["headers"])
    )
    reply = HttpReply(response["status"]["code"], headers, _body(response["body"]["string"]))
    return Interaction(_call(request), reply, chunks=tuple((response.get("agentrun") or {}).get("chunks", ())))


def _request(call: HttpCall) -> Request:
    try:
        return Request(call.method, call.url, call.body or None, dict(call.headers))  # type: ignore[no-untyped-call]  # vcrpy has no types
    except ValueError:  # urllib takes the brackets of a placeholder for those of an IPv6 address
        message = f"nothing was recorded: the host of {call.url} is a secret, and vcrpy cannot load such an address"
        raise storage_failed("cassette", message) from None


def _response(response: dict[str, Any], clean: Interaction, redaction: RunRedaction) -> dict[str, Any]:
    body, headers = clean.reply.body, dict[str, list[str]]()
    is_changed = body != _body(response["body"]["string"])
    for name, value in clean.reply.headers:
        headers.setdefault(name, []).append(str(len(body)) if is_changed and name == "content-length" else value)
    more = redaction.data({key: value for key, value in response.items() if key not in ("headers", "body")})
    if clean.chunks:
        more["agentrun"]["chunks"] = list(clean.chunks)
    return {**response, **more, "headers": headers, "body": {"string": body}}
