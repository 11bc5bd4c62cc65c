"""The interactions of a cassette with their requests and replies parsed.

`report/` describes and compares them. The two packages do not import each other, so `report/` is given these values and
never parses a request itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.answered import PROVIDERS, answered, model_of
from agentrun.cassette.asked import ADDRESS, Asked, asked
from agentrun.cassette.difference import of_history
from agentrun.cassette.file import load
from agentrun.cassette.tape import Cassette, Interaction
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Reply
from agentrun.redact import Redactor
from agentrun.spec.project import cassette_limit_near

Kind: TypeAlias = Literal["model", "tool", "approval", "hook", "sink", "http"]

_CALLS: tuple[Kind, ...] = ("tool", "approval", "hook", "sink")
"""What is recorded as `CALL <kind>://<name>`."""


class ModelExchange(Struct, frozen=True):
    """A request to a model, and its reply."""

    request: Asked
    reply: Reply | Fault

    @property
    def provider(self) -> str:
        return PROVIDERS[self.request.format]

    @property
    def model(self) -> str:
        return model_of(self.request)

    @property
    def address(self) -> str:
        return str(self.request.settings.get(ADDRESS, ""))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the request without its address."""
        return {name: value for name, value in self.request.settings.items() if name != ADDRESS}

    def history_changes(self, after: ModelExchange) -> Iterator[str]:
        """How the earlier messages differ in another request."""
        for difference in of_history(self.request, after.request):
            yield difference.brief or difference.sentence()


class ParsedInteraction(Struct, frozen=True):
    """One interaction."""

    number: int
    """From 1."""
    recorded: Interaction
    kind: Kind
    exchange: ModelExchange | None = None
    """Null: no model was asked, or the format of the request is not known."""


class ParsedCassette(Struct, frozen=True):
    """A whole cassette."""

    metadata: dict[str, Any]
    interactions: tuple[ParsedInteraction, ...]


def parse_cassette(cassette: Cassette) -> ParsedCassette:
    """Parse all interactions. A body that is damaged, or in an unknown format, is left as it is."""
    numbered = enumerate(cassette.interactions, 1)
    return ParsedCassette(cassette.metadata, tuple(_parse(number, each) for number, each in numbered))


def load_redacted(path: Path, redactor: Redactor) -> ParsedCassette:
    """Read and parse a cassette without the values that a redactor knows. Raises `CassetteError`."""

    def redact(each: Interaction) -> Interaction:
        call = replace(each.call, url=redactor.text(each.call.url), body=redactor.raw(each.call.body))
        return replace(each, call=call, reply=replace(each.reply, body=redactor.raw(each.reply.body)))

    cassette = load(path, cassette_limit_near(path))
    interactions = tuple(map(redact, cassette.interactions))
    return parse_cassette(replace(cassette, metadata=redactor.data(cassette.metadata), interactions=interactions))


def _parse(number: int, interaction: Interaction) -> ParsedInteraction:
    request = asked(interaction.call)
    if request is not None:
        return ParsedInteraction(number, interaction, "model", ModelExchange(request, answered(interaction, request)))
    scheme = interaction.call.url.partition("://")[0]
    is_call = interaction.call.method.upper() == "CALL"
    return ParsedInteraction(number, interaction, next((kind for kind in _CALLS if is_call and kind == scheme), "http"))
