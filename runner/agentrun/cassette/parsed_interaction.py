"""The interactions of a cassette with their requests and replies parsed.

Replies are parsed by the codec that parses them in a run. `report/` gets these values and never parses a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import BodyHashes, Cassette, Interaction, PackedCall
from agentrun.cassette.json_body import ChangedBodies
from agentrun.cassette.parsed_request import ADDRESS_SETTING, ParsedRequest, RequestParser, parse_request
from agentrun.cassette.request_diff import compare_history, count_equal_messages
from agentrun.core.effects import ModelRequest
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply, Transcript
from agentrun.core.package import ModelSettings, Route
from agentrun.providers.codec import codec_for
from agentrun.redactor import Redactor
from agentrun.spec.project import cassette_limit_for
from agentrun.spec.safe_text import short_text
from agentrun.wire import HttpCall, HttpReply

PROVIDER_BY_FORMAT = {
    "OpenAI Chat": "openai",
    "OpenAI Responses": "openai-responses",
    "Anthropic Messages": "anthropic",
    "Gemini": "gemini",
}

# The build of a model at the end of its name: `-2025-04-14`, `-20241022`, `-0613`, `-001`.
_BUILD = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{3,4})")
InteractionKind: TypeAlias = Literal["model", "tool", "approval", "hook", "sink", "http"]
_CALLS: tuple[InteractionKind, ...] = ("tool", "approval", "hook", "sink")
"""Recorded as `CALL <kind>://<name>`."""


class ModelComparison(Struct, frozen=True):
    number: int
    """The interaction, from 1."""
    line: int
    requested: str
    answered: str | None
    """Null: there is no answer, or it does not name the model."""

    @property
    def differs(self) -> bool:
        return self.answered is not None and not is_same_model(self.requested, self.answered)


def parse_reply(interaction: Interaction, request: ParsedRequest) -> Reply | Fault:
    codec = codec_for(PROVIDER_BY_FORMAT[request.format])
    minimal = _minimal_request(request)
    if minimal.settings.stream and _is_stream(interaction.reply):
        decoder = codec.stream(minimal)
        decoder.feed(interaction.reply.body)
        return decoder.end()
    return codec.decode(interaction.reply, minimal)


def compare_models(cassette: Cassette) -> Iterator[ModelComparison]:
    for number, interaction in enumerate(cassette.interactions, 1):
        request = parse_request(interaction.short_call())
        if request is not None:
            reply = parse_reply(interaction, request)
            model = reply.model if isinstance(reply, Reply) else None
            yield ModelComparison(number, interaction.line, requested_model(request), model)


def model_names(cassette: Cassette) -> list[str]:
    """The requested models, each once, as `requested → answered` where another model answered.

    The model of a failed request is listed only if no other request to it was answered.
    """
    compared = list(compare_models(cassette))
    answered = {each.requested for each in compared if each.answered is not None}
    names: dict[str, None] = {}
    for each in compared:
        if each.answered is not None or each.requested not in answered:
            other = f" → {short_text(str(each.answered), 60)}" if each.differs else ""
            names[short_text(each.requested, 60) + other] = None
    return list(names)


def requested_model(request: ParsedRequest) -> str:
    name = request.settings.get("model")
    return name if isinstance(name, str) else "unnamed"


def is_same_model(requested: str, answered: str) -> bool:
    """Whether the requested model answered. A build of it counts, and so does the model behind `-latest`."""
    requested = requested.removeprefix("models/").removesuffix("-latest")
    rest = answered.removeprefix("models/")
    return rest == requested or (rest.startswith(requested) and _BUILD.fullmatch(rest[len(requested) :]) is not None)


def _is_stream(reply: HttpReply) -> bool:
    kinds = [value for name, value in reply.headers if name == "content-type"]
    return reply.status == 200 and not any("json" in kind or "html" in kind for kind in kinds)


def _minimal_request(request: ParsedRequest) -> ModelRequest:
    """The parts of the request that a codec needs to decode a reply."""
    route = Route(PROVIDER_BY_FORMAT[request.format], requested_model(request), None, None, {}, None, None, {})
    settings = ModelSettings(
        routes=(),
        temperature=None,
        top_p=None,
        seed=None,
        stop=(),
        max_output_tokens=None,
        reasoning=None,
        tool_choice="auto",
        stream=request.settings.get("stream") is True,
    )
    return ModelRequest(route, settings, "", Transcript(), None)


class ModelExchange(Struct, frozen=True):
    request: ParsedRequest
    reply: Reply | Fault

    @property
    def provider(self) -> str:
        return PROVIDER_BY_FORMAT[self.request.format]

    @property
    def model(self) -> str:
        return requested_model(self.request)

    @property
    def address(self) -> str:
        return str(self.request.settings.get(ADDRESS_SETTING, ""))

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self.request.settings.items() if name != ADDRESS_SETTING}

    def equal_messages(self, after: ModelExchange, start: int) -> int:
        """How many messages of another request are equal before the first that differs. `start`: those that are."""
        return count_equal_messages(self.request, after.request, start)

    def history_changes(self, after: ModelExchange, equal: int) -> Iterator[str]:
        """The differences of the earlier messages in another request. `equal`: how many of them are equal."""
        for difference in compare_history(self.request, after.request, equal):
            yield difference.brief or difference.sentence()


class ParsedInteraction(Struct, frozen=True):
    number: int
    """From 1."""
    recorded: Interaction
    kind: InteractionKind
    body_hash: bytes
    """Of the request, whatever the notation of its JSON."""
    exchange: ModelExchange | None = None
    """Null: not a model request, or in an unknown format."""


class ParsedCassette(Struct, frozen=True):
    metadata: dict[str, Any]
    interactions: tuple[ParsedInteraction, ...]


def parse_cassette(cassette: Cassette) -> ParsedCassette:
    """Parse all interactions. Damaged bodies and unknown formats are left unparsed."""
    parser, hashes = RequestParser(), BodyHashes()
    parsed = []
    for number, each in enumerate(cassette.interactions, 1):
        request = parser.parse(each)
        exchange = None if request is None else ModelExchange(request, parse_reply(each, request))
        parsed.append(ParsedInteraction(number, each, _kind(each, exchange), hashes.of(each.request), exchange))
    return ParsedCassette(cassette.metadata, tuple(parsed))


def load_redacted(path: Path, redactor: Redactor) -> ParsedCassette:
    bodies = ChangedBodies(redactor.redact_bytes)

    def redact(each: Interaction) -> Interaction:
        request = each.request
        if isinstance(request, PackedCall) and not redactor.changes(sorted_json(list(request.json.fields))):
            clean: HttpCall | PackedCall = replace(request, json=bodies.of(request.json))
        else:
            clean = replace(each.call, body=redactor.redact_bytes(each.call.body))
        clean = replace(clean, url=redactor.redact_text(request.url))
        return replace(each, request=clean, reply=replace(each.reply, body=redactor.redact_bytes(each.reply.body)))

    cassette = load_cassette(path, cassette_limit_for(path))
    interactions = tuple(map(redact, cassette.interactions))
    metadata = redactor.redact_data(cassette.metadata)
    return parse_cassette(replace(cassette, metadata=metadata, interactions=interactions))


def _kind(interaction: Interaction, exchange: ModelExchange | None) -> InteractionKind:
    if exchange is not None:
        return "model"
    scheme, is_call = interaction.request.url.partition("://")[0], interaction.request.method.upper() == "CALL"
    return next((kind for kind in _CALLS if is_call and kind == scheme), "http")
