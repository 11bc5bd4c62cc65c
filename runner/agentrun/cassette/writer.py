"""Write cassettes: vcrpy converts the interactions, and our serializer lays out the text, one interaction at a time.

Rule 1  Request bodies are written as pretty JSON and packed (`packing.py`), response bodies exactly as they arrived.
Rule 2  Only headers of the allow-list are written.
Rule 3  A file that vcrpy loads and saves through this serializer stays the same. vcrpy gets the whole bodies.
Rule 4  A large reply that repeats is written once, with an anchor that is its hash. vcrpy reads anchors too.

Importing vcrpy takes a tenth of a second, so commands that only read cassettes do not import this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from vcr.request import Request
from vcr.serialize import serialize
from vcr.serializers import yamlserializer

from agentrun.canonical_json import NOT_JSON, pretty_json, text_hash
from agentrun.cassette.interactions import (
    NO_REPLY,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    Interaction,
    allowed_headers,
)
from agentrun.cassette.json_body import LARGE_TEXT, JsonBody
from agentrun.cassette.packing import BASE_KEY, CHANGES_KEY, PACKED_KEY, Expander, Packer
from agentrun.cassette.yaml_writer import AnchoredText, OneLine, dump_yaml
from agentrun.wire import HttpCall

READING_HINT = (
    f"  # Counted from 1. {BASE_KEY} 1 means: the whole body of interaction 1 was sent, with what is below "
    f"{CHANGES_KEY} instead. To see whole bodies: agentrun cassette expand"
)
"""For those who see a packed request for the first time."""


def dump_cassette(interactions: Iterable[Interaction], metadata: Mapping[str, Any], *, packed: bool = True) -> str:
    """The text of a cassette file. `packed`: whether the requests are packed."""
    pairs = (
        list(_packed_pairs(interactions))
        if packed
        else [(_request(each.call), _response(each)) for each in interactions]
    )
    requests, responses = [request for request, _ in pairs], [response for _, response in pairs]
    cassette = {"requests": requests, "responses": responses, "metadata": dict(metadata)}
    return str(serialize(cassette, WholeSerializer))  # type: ignore[no-untyped-call]  # vcrpy has no types


def _packed_pairs(interactions: Iterable[Interaction]) -> Iterator[tuple[Request, dict[str, Any]]]:
    """The requests and responses. A body that shares its parts with earlier ones is never made whole."""
    packer = Packer()
    for each in interactions:
        request, response = each.request, _response(each)
        body = _as_text(request.body) if isinstance(request, HttpCall) else request.json
        shorter = packer.pack(body, (request.method, request.url), each.path)
        packer.add_reply(_as_text(each.reply.body) or "")
        if shorter is None:
            yield _request(each.call), response
        else:
            extra = {**response.get("agentrun", {}), PACKED_KEY: shorter.digest}
            call = HttpCall(request.method, request.url, request.headers, shorter.body.encode())
            yield _request(call), {**response, "agentrun": extra}


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _request(call: HttpCall) -> Request:
    headers = {name: ", ".join(values) for name, values in _header_lists(call.headers, REQUEST_HEADERS).items()}
    request = Request(call.method, "", call.body or None, headers)  # type: ignore[no-untyped-call]  # vcrpy has no types
    try:
        request.uri = call.url
    except ValueError:  # urllib takes the brackets of a placeholder for those of an IPv6 address
        request._uri = call.url  # noqa: SLF001  # the setter would parse it
    return request


def _response(interaction: Interaction) -> dict[str, Any]:
    reply, failure = interaction.reply, interaction.failure
    extra = {
        "path": interaction.path or None,
        "start": interaction.start,
        "end": interaction.end,
        "chunks": list(interaction.chunks) if len(interaction.chunks) > 1 else None,
        "failure": None if failure is None else msgspec.to_builtins(failure),
        "stopped": interaction.stopped or None,
    }
    extra = {key: value for key, value in extra.items() if value is not None}
    return {
        "status": {"code": reply.status, "message": _status_reason(reply.status)},
        "headers": _header_lists(reply.headers, RESPONSE_HEADERS),
        "body": {"string": reply.body},
        **({"agentrun": extra} if extra else {}),
    }


def _status_reason(status: int) -> str:
    if status == NO_REPLY:
        return "No Reply"
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""


def _header_lists(headers: Iterable[tuple[str, str]], allowed: frozenset[str]) -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for name, value in allowed_headers(headers, allowed):
        listed.setdefault(name, []).append(value)
    return listed


class WholeSerializer:
    """A serializer for vcrpy: block style, one value per line, keys in the order in which people read them."""

    @staticmethod
    def deserialize(text: str) -> dict[str, Any]:
        """Raises `PackingError`."""
        data: dict[str, Any] = yamlserializer.deserialize(text)  # type: ignore[no-untyped-call]  # vcrpy has no types
        return {**data, "interactions": _expand(data["interactions"])} if PACKED_KEY in text else data

    @staticmethod
    def serialize(cassette: dict[str, Any]) -> str:
        return "".join(_cassette_parts(cassette, cassette["interactions"]))


class CassetteSerializer(WholeSerializer):
    """The same with packed requests."""

    @staticmethod
    def serialize(cassette: dict[str, Any]) -> str:
        return "".join(_cassette_parts(cassette, _pack(cassette["interactions"])))


def _cassette_parts(cassette: dict[str, Any], interactions: list[dict[str, Any]]) -> Iterator[str]:
    head = {"version": cassette["version"]}
    if cassette.get("metadata"):
        head["metadata"] = cassette["metadata"]
    yield dump_yaml(head)
    is_packed = any(PACKED_KEY in (each["response"].get("agentrun") or ()) for each in interactions)
    yield f"interactions:{READING_HINT if is_packed else ''}\n" if interactions else "interactions: []\n"
    anchors = _Anchors(_reply_text(each["response"]) for each in interactions)
    yield from (dump_yaml([_layout(each, anchors)]) for each in interactions)


def _pack(interactions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    packer, packed = Packer(), []
    for each in interactions:
        request, response = each["request"], each["response"]
        extra = response.get("agentrun")
        endpoint, path = (request["method"], request["uri"]), str(extra.get("path")) if isinstance(extra, dict) else ""
        is_packed = isinstance(extra, dict) and PACKED_KEY in extra  # by a serializer that does not expand
        body = request["body"] if isinstance(request["body"], str) and not is_packed else None
        shorter = packer.pack(body, endpoint, path)
        packer.add_reply(_reply_text(response))
        if shorter is not None:
            request = {**request, "body": shorter.body}
            response = {**response, "agentrun": {**(extra or {}), PACKED_KEY: shorter.digest}}
        packed.append({"request": request, "response": response})
    return packed


def _expand(interactions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    expander, expanded = Expander(), []
    for each in interactions:
        request, response = each["request"], each["response"]
        body = request.get("body")
        data = body.encode() if isinstance(body, str) else b""
        whole: bytes | JsonBody = data
        extra = response.get("agentrun")
        if isinstance(extra, dict) and PACKED_KEY in extra:
            whole = expander.expand(data, extra[PACKED_KEY])
            request = {**request, "body": whole.pretty().decode()}
            rest = {key: value for key, value in extra.items() if key != PACKED_KEY}
            response = {key: value for key, value in response.items() if key != "agentrun"}
            response |= {"agentrun": rest} if rest else {}
        expander.add(whole, _reply_text(response).encode())
        expanded.append({"request": request, "response": response})
    return expanded


def _reply_text(response: dict[str, Any]) -> str:
    """The body of a response. Empty: it has another form."""
    body = response.get("body")
    text = body.get("string") if isinstance(body, dict) else None
    return text if isinstance(text, str) else ""


def _layout(interaction: dict[str, Any], anchors: _Anchors) -> dict[str, Any]:
    request, response = interaction["request"], dict(interaction["response"])
    extra = response.get("agentrun")
    if isinstance(extra, dict) and isinstance(extra.get("chunks"), list):
        response["agentrun"] = {**extra, "chunks": OneLine(extra["chunks"])}
    if text := anchors.mark(_reply_text(response)):
        response["body"] = {**response["body"], "string": text}
    is_packed = isinstance(extra, dict) and PACKED_KEY in extra
    ordered = {key: request[key] for key in ("method", "uri", "headers")}
    body = request["body"] if is_packed else _format_body(request["body"])
    return {"request": {**ordered, "body": body}, "response": response}


class _Anchors:
    """Marks the large texts that repeat."""

    def __init__(self, texts: Iterable[str]) -> None:
        counts = Counter(text for text in texts if len(text) >= LARGE_TEXT)
        self._repeated = {text for text, count in counts.items() if count > 1}
        self._written: set[str] = set()

    def mark(self, text: str) -> AnchoredText | None:
        if text not in self._repeated:
            return None
        marked = AnchoredText(text)
        marked.anchor, marked.is_alias = text_hash(text).replace(":", "-"), text in self._written
        self._written.add(text)
        return marked


def _format_body(body: Any) -> Any:
    try:
        return pretty_json(msgspec.json.decode(body)) if isinstance(body, str) else body
    except NOT_JSON:
        return body
