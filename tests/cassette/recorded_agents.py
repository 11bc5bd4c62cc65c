"""Cassette misses of one agent: recorded as it was and requested as it is now, through the real codecs."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.miss_context import MissContext, Template
from agentrun.cassette.miss_explanation import MissExplanation, explain_miss
from agentrun.compiler.package_file import seal_package
from agentrun.compiler.prompts import complete_params, render_input, render_instructions
from agentrun.core.call_validation import offered_tools
from agentrun.core.effects import ModelRequest
from agentrun.core.messages import Message, Transcript, user_message
from agentrun.core.package import Package
from agentrun.providers.codec import codec_for
from agentrun.wire import HttpCall, HttpReply

from ..core.script import tool
from ..packages import ROUTE, package
from ..providers.exchange import encode

MODELS = {
    "openai": "gpt-4.1-mini",
    "openai-responses": "gpt-4.1-mini",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-2.5-flash",
}
FILES = ("specs/prompts/support.md.j2", "specs/prompts/tone.md")
ACCEPT = "agentrun specs/support.yaml --case default"

SUPPORT = """You help customers of {{ shop }}.

{% if region == "eu" -%}
Amounts are in euro.
{% else -%}
Amounts are in dollars.
{% endif -%}
{% for rule in rules -%}
- {{ rule }}
{% endfor -%}
"""
TONE = "Be brief."
PARAMS: dict[str, Any] = {
    "region": {"type": "string", "default": "eu"},
    "shop": {"type": "string", "default": "Lamps & Co"},
    "rules": {"type": "array", "default": ["Look first.", "Promise nothing."]},
}
REFUND: dict[str, Any] = {
    "type": "object",
    "required": ["order", "amount"],
    "properties": {"order": {"type": "string"}, "amount": {"type": "number"}},
}
AGENT: dict[str, Any] = {
    "params": PARAMS,
    "instructions": [SUPPORT, TONE],
    "input": "Where is my order?\nI live in {{ region }}.",
    "tools": {"refund": tool(description="Pays back.", args=REFUND), "now": tool(description="Tells the time.")},
}


class Agent(Struct, frozen=True):
    """A package with values."""

    package: Package
    params: dict[str, Any]

    def call(self, *later: Message, message: str | None = None) -> HttpCall:
        """What it asks its model, after what was said."""
        own, route = self.package, self.package.model.routes[0]
        first = user_message(message or render_input(own, self.params) or "")
        asked = ModelRequest(
            route,
            own.model,
            render_instructions(own, self.params),
            Transcript((first, *later)),
            own.output.schema,
            offered_tools(own, ()),
        )
        return encode(codec_for(route.provider), asked)

    def metadata(self) -> dict[str, Any]:
        return {"params": self.params, "sections": seal_package(self.package).sections}

    def here(self) -> MissContext:
        own = self.package
        return MissContext(
            sections=seal_package(own).sections,
            params=self.params,
            instructions=tuple(Template(file, 1, text) for file, text in zip(FILES, own.instructions, strict=False)),
            input=None if own.input is None else Template("specs/support.yaml", 7, own.input),
            record_command=ACCEPT,
        )


def agent(provider: str = "openai", given: dict[str, Any] | None = None, **changes: Any) -> Agent:
    """The agent, with some sections changed."""
    route = ROUTE | {"provider": provider, "name": MODELS[provider]} | changes.pop("route", {})
    own = package(**(AGENT | changes | {"model": {"routes": [route], **changes.get("model", {})}}))
    return Agent(own, complete_params(own, given or {}))


def unplayed_interactions(*calls: HttpCall, first: int = 1) -> list[tuple[int, Interaction]]:
    """Interactions that were not played yet; each takes ten lines of its file."""
    return [(n, Interaction(call, HttpReply(200, (), b""), line=n * 10)) for n, call in enumerate(calls, first)]


def explanation_of_change(was: Agent, now: Agent, *, later: Sequence[Message] = (), **more: Any) -> MissExplanation:
    """One recording of what the agent asked, and what it asks today."""
    return explain_miss(now.call(*later), unplayed_interactions(was.call(*later)), was.metadata(), now.here(), **more)


def sentences(found: MissExplanation) -> list[str]:
    return [difference.sentence() for difference in found.differences]


def call_of(url: str, body: Any) -> HttpCall:
    return HttpCall("CALL", url, (), msgspec.json.encode(body))
