"""Write cassettes: vcrpy converts the interactions, and our serializer lays out the text, one interaction at a time.

Rule 1  Request bodies are written as pretty JSON, response bodies exactly as they arrived.
Rule 2  Only headers of the allow-list are written.
Rule 3  A file that vcrpy loads and saves through this serializer stays the same.

Importing vcrpy takes a tenth of a second, so commands that only read cassettes do not import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
import yaml
from vcr.request import Request
from vcr.serialize import serialize
from vcr.serializers import yamlserializer

from agentrun.canonical_json import NOT_JSON, pretty_json
from agentrun.cassette.interactions import NO_REPLY, Interaction
from agentrun.cassette.yaml_loader import LinedMapping
from agentrun.wire import HttpCall

REQUEST_HEADERS = frozenset({"accept", "content-type"})
RESPONSE_HEADERS = frozenset({"content-type", "date", "location", "retry-after"})


def dump_cassette(interactions: Iterable[Interaction], metadata: Mapping[str, Any]) -> str:
    """The text of a cassette file."""
    pairs = [(_request(each.call), _response(each)) for each in interactions]
    requests, responses = [request for request, _ in pairs], [response for _, response in pairs]
    cassette = {"requests": requests, "responses": responses, "metadata": dict(metadata)}
    return str(serialize(cassette, CassetteSerializer))  # type: ignore[no-untyped-call]  # vcrpy has no types


def _request(call: HttpCall) -> Request:
    headers = {name: ", ".join(values) for name, values in _allowed_headers(call.headers, REQUEST_HEADERS).items()}
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
        "headers": _allowed_headers(reply.headers, RESPONSE_HEADERS),
        "body": {"string": reply.body},
        **({"agentrun": extra} if extra else {}),
    }


def _status_reason(status: int) -> str:
    if status == NO_REPLY:
        return "No Reply"
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""


def _allowed_headers(headers: Iterable[tuple[str, str]], allowed: frozenset[str]) -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for name, value in headers:
        if name.lower() in allowed:
            listed.setdefault(name.lower(), []).append(value)
    return listed


class CassetteSerializer:
    """A serializer for vcrpy: block style, one value per line, keys in the order in which people read them."""

    deserialize = staticmethod(yamlserializer.deserialize)

    @staticmethod
    def serialize(cassette: dict[str, Any]) -> str:
        head = {"version": cassette["version"]}
        if cassette.get("metadata"):
            head["metadata"] = cassette["metadata"]
        interactions = cassette["interactions"]
        first = "interactions:\n" if interactions else "interactions: []\n"
        return "".join([_dump(head), first, *(_dump([_layout(each)]) for each in interactions)])


def _layout(interaction: dict[str, Any]) -> dict[str, Any]:
    request, response = interaction["request"], dict(interaction["response"])
    extra = response.get("agentrun")
    if isinstance(extra, dict) and isinstance(extra.get("chunks"), list):
        response["agentrun"] = {**extra, "chunks": _OneLine(extra["chunks"])}
    ordered = {key: request[key] for key in ("method", "uri", "headers")}
    return {"request": {**ordered, "body": _format_body(request["body"])}, "response": response}


def _format_body(body: Any) -> Any:
    try:
        return pretty_json(msgspec.json.decode(body)) if isinstance(body, str) else body
    except NOT_JSON:
        return body


class _OneLine(list[int]):
    """A list that is written on one line."""


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as block scalars. Pure Python, so the output is the same with and without libyaml."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # a value that occurs twice is written twice
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    style = "|" if len(lines) > 1 else None
    if not all(line.isprintable() for line in lines):
        style = '"'  # the one style that keeps every character as it is
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(LinedMapping, yaml.SafeDumper.represent_dict)
_Dumper.add_representer(
    _OneLine, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)


def _dump(data: Any) -> str:
    """A part of the document. PyYAML ends one whose last text ends with an empty line, as streams do, with `...`."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**30)
    return str(text).removesuffix("...\n") if text.endswith("\n...\n") else str(text)
