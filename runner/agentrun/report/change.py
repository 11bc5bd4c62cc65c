"""One thing that a run does differently, and where."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.report.fields import ABSENT, Field, arrow
from agentrun.report.line import LONGEST

Kind: TypeAlias = Literal[
    "agent",
    "instructions",
    "prompt",
    "params",
    "input",
    "history",
    "route",
    "tools",
    "reply",
    "finish",
    "model",
    "step",
    "call",
    "argument",
    "result",
    "ruling",
    "approval",
    "hook",
    "fault",
    "repair",
    "told",
    "compaction",
    "delivery",
    "share",
    "outcome",
    "output",
    "spend",
    "run",
    "request",
    "setting",
    "metadata",
    "other",
]
How: TypeAlias = Literal["changed", "new", "gone", "moved"]


class Change(Struct, frozen=True, kw_only=True):
    text: str
    """All of it in a line, fit for a terminal: `turn 2: the call of refund: amount 20 → 25`."""
    kind: Kind = "other"
    how: How = "changed"
    run: int | None = None
    """Of a conversation: which of its runs, from 1."""
    turn: int | None = None
    """As it is counted now; of what is gone, as it was."""
    call: str | None = None
    path: str = ""
    """The calls that lead to the sub-agent that it is about."""
    before: Any = ABSENT
    """Plain data, not cleaned. ABSENT: there was nothing."""
    after: Any = ABSENT


class Place(Struct, frozen=True):
    """Where two journals are compared."""

    label: str = ""
    """In words: `run 2, turn 3`."""
    run: int | None = None
    turn: int | None = None
    call: str | None = None
    path: str = ""

    def in_run(self, number: int) -> Place:
        return replace(self, label=_joined(self.label, f"run {number}"), run=number)

    def in_turn(self, number: int) -> Place:
        return replace(self, label=_joined(self.label, f"turn {number}"), turn=number)

    def in_agent(self, name: str, call: str) -> Place:
        path = f"{self.path}.{call}" if self.path else call
        return replace(self, label=_joined(self.label, name), turn=None, call=None, path=path)

    def of_call(self, call: str) -> Place:
        return replace(self, call=call)

    def told(self, kind: Kind, words: str, how: How = "changed", before: Any = ABSENT, after: Any = ABSENT) -> Change:
        text = f"{self.label}: {words}" if self.label else words
        return Change(
            text=text if len(text) <= LONGEST else text[: LONGEST - 1] + "…",
            kind=kind,
            how=how,
            run=self.run,
            turn=self.turn,
            call=self.call,
            path=self.path,
            before=before,
            after=after,
        )

    def of_field(self, kind: Kind, field: Field, before: str = "", name: str = "") -> Change:
        """One field of plain data. `before`: what stands before its path; `name`: what it is called without one."""
        how: How = "new" if field.before is ABSENT else "gone" if field.after is ABSENT else "changed"
        return self.told(kind, f"{before}{field.words(name)}", how, before=field.before, after=field.after)

    def changed(self, kind: Kind, name: str, before: Any, after: Any) -> Change:
        """`name: before → after`."""
        return self.told(kind, f"{name}: {arrow(before, after, name)}", before=before, after=after)


def _joined(label: str, more: str) -> str:
    return f"{label}, {more}" if label else more
