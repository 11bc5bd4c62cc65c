"""One reply of the script, ready to be put into a provider's words.

Rule 1  Nothing here depends on time or chance: the same script gives the same bytes.
Rule 2  Ids and signatures are made of the turn's number, so that it can be seen whether they come back.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from msgspec import UNSET, Struct

from agentrun.canon import compact
from agentrun.core.messages import Finish
from agentrun.providers.names import wire_name
from agentrun.spec.v1.provider import ScriptedTurn, ScriptedUsage

MADE_AT = 1_700_000_000
"""When every reply says that it was made, in seconds."""


class CannotSay(Exception):
    """The script asks for something that a format has no words for."""


class SaidCall(Struct, frozen=True):
    """A call."""

    id: str
    tool: str
    arguments: str

    @property
    def value(self) -> dict[str, Any]:
        """The arguments for a format that has them as JSON and not as text."""
        try:
            value = json.loads(self.arguments)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise CannotSay(f"this format can only say arguments that are a JSON object, unlike raw: of {self.tool}")
        return value


class Said(Struct, frozen=True, kw_only=True):
    """A reply."""

    model: str
    number: int
    """The turn's number, from 0."""
    reasoning: str
    text: str
    refusal: str
    calls: tuple[SaidCall, ...]
    finish: Finish
    usage: ScriptedUsage | None
    chunk: int

    def id(self, kind: str) -> str:
        return f"{kind}_{self.number + 1}"

    def pieces(self, text: str) -> list[str]:
        """A text in the pieces in which a stream brings it."""
        return [text[start : start + self.chunk] for start in range(0, len(text), self.chunk)]

    @property
    def signature(self) -> str:
        return signature(self.number)


def said(turn: ScriptedTurn, number: int, model: str) -> Said:
    calls = tuple(
        SaidCall(
            f"call_{number + 1}_{index + 1}",
            wire_name(call.tool),
            compact(call.args).decode() if call.raw is UNSET else call.raw,
        )
        for index, call in enumerate(turn.calls)
    )
    return Said(
        model=model,
        number=number,
        reasoning=turn.reasoning or "",
        text=turn.text or "",
        refusal=turn.refusal or "",
        calls=calls,
        finish=("tool_calls" if calls else "stop") if turn.finish is UNSET else turn.finish,
        usage=turn.usage if isinstance(turn.usage, ScriptedUsage) else None,
        chunk=turn.chunk,
    )


def signature(number: int) -> str:
    """The signature of what was thought in a turn. It is base64, which one of the formats demands."""
    return base64.b64encode(f"thought in turn {number + 1}".encode()).decode()


def event(data: Any, name: str | None = None) -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else compact(data).decode()
    return f"{head}data: {text}\n\n".encode()
