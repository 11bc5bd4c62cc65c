"""What a model answered, read from a recorded reply by the codec that reads it in a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.parsed_request import ADDRESS_SETTING, ParsedRequest, parse_request
from agentrun.cassette.request_diff import compare_history
from agentrun.core.effects import ModelRequest
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply, Transcript
from agentrun.core.package import ModelSettings, Route
from agentrun.providers.registry import codec_for
from agentrun.redactor import Redactor
from agentrun.spec.project import cassette_limit_for
from agentrun.spec.safe_text import short_text
from agentrun.wire import HttpReply

PROVIDER_BY_FORMAT = {
    "OpenAI Chat": "openai",
    "OpenAI Responses": "openai-responses",
    "Anthropic Messages": "anthropic",
    "Gemini": "gemini",
}
"""Wire format in words → provider."""

# `-2025-04-14`, `-20241022`, `-0613`, `-001`: which build of the model that was asked for answered.
_BUILD = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{3,4})")


class ModelComparison(Struct, frozen=True):
    """One question to a model, and who answered."""

    number: int
    """The interaction, from 1."""
    line: int
    requested: str
    answered: str | None
    """Null: nobody did, or the reply does not say."""

    @property
    def differs(self) -> bool:
        return self.answered is not None and not is_same_model(self.requested, self.answered)


def parse_reply(interaction: Interaction, question: ParsedRequest) -> Reply | Fault:
    """What came of a question to a model."""
    codec = codec_for(PROVIDER_BY_FORMAT[question.format])
    request = _minimal_request(question)
    if request.settings.stream and _is_stream(interaction.reply):
        decoder = codec.stream(request)
        decoder.feed(interaction.reply.body)
        return decoder.end()
    return codec.decode(interaction.reply, request)


def compare_models(tape: Cassette) -> Iterator[ModelComparison]:
    """Which models were asked, and which answered."""
    for number, interaction in enumerate(tape.interactions, 1):
        question = parse_request(interaction.call)
        if question is not None:
            reply = parse_reply(interaction, question)
            model = reply.model if isinstance(reply, Reply) else None
            yield ModelComparison(number, interaction.line, requested_model(question), model)


def model_names(tape: Cassette) -> list[str]:
    """The models that were asked, each once, as `asked → answered` where another model answered.

    A request that failed names its model only if no other request to it was answered.
    """
    found = list(compare_models(tape))
    answered = {each.requested for each in found if each.answered is not None}
    names = (
        f"{short_text(each.requested, 60)} → {short_text(str(each.answered), 60)}"
        if each.differs
        else short_text(each.requested, 60)
        for each in found
        if each.answered is not None or each.requested not in answered
    )
    return list(dict.fromkeys(names))


def requested_model(question: ParsedRequest) -> str:
    """The name of the model that is asked."""
    name = question.settings.get("model")
    return name if isinstance(name, str) else "unnamed"


def is_same_model(asked: str, answered: str) -> bool:
    """Whether a model is the one that was asked for: a build of it, or what `-latest` stands for, is."""
    asked = asked.removeprefix("models/").removesuffix("-latest")
    rest = answered.removeprefix("models/")
    return rest == asked or (rest.startswith(asked) and _BUILD.fullmatch(rest[len(asked) :]) is not None)


def _is_stream(reply: HttpReply) -> bool:
    kinds = [value for name, value in reply.headers if name == "content-type"]
    return reply.status == 200 and not any("json" in kind or "html" in kind for kind in kinds)


def _minimal_request(question: ParsedRequest) -> ModelRequest:
    """As much of the request as reading a reply takes."""
    route = Route(PROVIDER_BY_FORMAT[question.format], requested_model(question), None, None, {}, None, None, {})
    settings = ModelSettings(
        routes=(),
        temperature=None,
        top_p=None,
        seed=None,
        stop=(),
        max_output_tokens=None,
        reasoning=None,
        tool_choice="auto",
        stream=question.settings.get("stream") is True,
    )
    return ModelRequest(route, settings, "", Transcript(), None)


# --- the interactions of a cassette with their requests and replies parsed ------------------------------------


InteractionKind: TypeAlias = Literal["model", "tool", "approval", "hook", "sink", "http"]

_CALLS: tuple[InteractionKind, ...] = ("tool", "approval", "hook", "sink")
"""What is recorded as `CALL <kind>://<name>`."""


class ModelExchange(Struct, frozen=True):
    """A request to a model, and its reply."""

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
        """The settings of the request without its address."""
        return {name: value for name, value in self.request.settings.items() if name != ADDRESS_SETTING}

    def history_changes(self, after: ModelExchange) -> Iterator[str]:
        """How the earlier messages differ in another request."""
        for difference in compare_history(self.request, after.request):
            yield difference.brief or difference.sentence()


class ParsedInteraction(Struct, frozen=True):
    """One interaction."""

    number: int
    """From 1."""
    recorded: Interaction
    kind: InteractionKind
    exchange: ModelExchange | None = None
    """Null: no model was asked, or the format of the request is not known."""


class ParsedCassette(Struct, frozen=True):
    """A whole cassette."""

    metadata: dict[str, Any]
    interactions: tuple[ParsedInteraction, ...]


def parse_cassette(cassette: Cassette) -> ParsedCassette:
    """Parse all interactions. A body that is damaged, or in an unknown format, is left as it is."""
    numbered = enumerate(cassette.interactions, 1)
    return ParsedCassette(cassette.metadata, tuple(_parse_interaction(number, each) for number, each in numbered))


def load_redacted(path: Path, redactor: Redactor) -> ParsedCassette:
    """Read and parse a cassette without the values that a redactor knows. Raises `CassetteError`."""

    def redact(each: Interaction) -> Interaction:
        call = replace(each.call, url=redactor.redact_text(each.call.url), body=redactor.redact_bytes(each.call.body))
        return replace(each, call=call, reply=replace(each.reply, body=redactor.redact_bytes(each.reply.body)))

    cassette = load_cassette(path, cassette_limit_for(path))
    interactions = tuple(map(redact, cassette.interactions))
    return parse_cassette(
        replace(cassette, metadata=redactor.redact_data(cassette.metadata), interactions=interactions)
    )


def _parse_interaction(number: int, interaction: Interaction) -> ParsedInteraction:
    request = parse_request(interaction.call)
    if request is not None:
        return ParsedInteraction(
            number, interaction, "model", ModelExchange(request, parse_reply(interaction, request))
        )
    scheme = interaction.call.url.partition("://")[0]
    is_call = interaction.call.method.upper() == "CALL"
    return ParsedInteraction(number, interaction, next((kind for kind in _CALLS if is_call and kind == scheme), "http"))
