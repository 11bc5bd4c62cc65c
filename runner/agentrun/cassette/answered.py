"""What a model answered, read from a recorded reply by the codec that reads it in a run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from agentrun.cassette.asked import Asked, asked
from agentrun.cassette.tape import Cassette, Interaction
from agentrun.core.effects import ModelRequest
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Reply, Transcript
from agentrun.core.package import Model, Route
from agentrun.providers.registry import codec_for
from agentrun.spec.text import short
from agentrun.wire import HttpReply

PROVIDERS = {
    "OpenAI Chat": "openai",
    "OpenAI Responses": "openai-responses",
    "Anthropic Messages": "anthropic",
    "Gemini": "gemini",
}
"""Wire format in words → provider."""

# `-2025-04-14`, `-20241022`, `-0613`, `-001`: which build of the model that was asked for answered.
_BUILD = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{3,4})")


class Exchange(Struct, frozen=True):
    """One question to a model, and who answered."""

    number: int
    """The interaction, from 1."""
    line: int
    asked: str
    answered: str | None
    """Null: nobody did, or the reply does not say."""

    @property
    def differs(self) -> bool:
        return self.answered is not None and not same_model(self.asked, self.answered)


def answered(interaction: Interaction, question: Asked) -> Reply | Fault:
    """What came of a question to a model."""
    codec = codec_for(PROVIDERS[question.format])
    request = _request(question)
    if request.settings.stream and _is_stream(interaction.reply):
        decoder = codec.stream(request)
        decoder.feed(interaction.reply.body)
        return decoder.end()
    return codec.decode(interaction.reply, request)


def exchanges(tape: Cassette) -> Iterator[Exchange]:
    """Which models were asked, and which answered."""
    for number, interaction in enumerate(tape.interactions, 1):
        question = asked(interaction.call)
        if question is not None:
            reply = answered(interaction, question)
            model = reply.model if isinstance(reply, Reply) else None
            yield Exchange(number, interaction.line, model_of(question), model)


def model_names(tape: Cassette) -> list[str]:
    """The models that were asked, each once, as `asked → answered` where another model answered.

    A request that failed names its model only if no other request to it was answered.
    """
    found = list(exchanges(tape))
    answered = {each.asked for each in found if each.answered is not None}
    names = (
        f"{short(each.asked, 60)} → {short(str(each.answered), 60)}" if each.differs else short(each.asked, 60)
        for each in found
        if each.answered is not None or each.asked not in answered
    )
    return list(dict.fromkeys(names))


def model_of(question: Asked) -> str:
    """The name of the model that is asked."""
    name = question.settings.get("model")
    return name if isinstance(name, str) else "unnamed"


def same_model(asked: str, answered: str) -> bool:
    """Whether a model is the one that was asked for: a build of it, or what `-latest` stands for, is."""
    asked = asked.removeprefix("models/").removesuffix("-latest")
    rest = answered.removeprefix("models/")
    return rest == asked or (rest.startswith(asked) and _BUILD.fullmatch(rest[len(asked) :]) is not None)


def _is_stream(reply: HttpReply) -> bool:
    kinds = [value for name, value in reply.headers if name == "content-type"]
    return reply.status == 200 and not any("json" in kind or "html" in kind for kind in kinds)


def _request(question: Asked) -> ModelRequest:
    """As much of the request as reading a reply takes."""
    route = Route(PROVIDERS[question.format], model_of(question), None, None, {}, None, None, {})
    settings = Model(
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
