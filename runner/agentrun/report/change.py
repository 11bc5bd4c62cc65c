"""One thing that a run does differently, with its place."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.report.formatting import MAX_LINE_LENGTH
from agentrun.report.value_diff import ABSENT, FieldDifference, format_change
from agentrun.spec.safe_text import truncate_text

ChangeKind: TypeAlias = (
    Literal["agent", "instructions", "prompt", "params", "input", "history", "route", "tools", "setting", "request"]
    | Literal["reply", "finish", "model", "step", "call", "argument", "result", "ruling", "approval", "hook", "fault"]
    | Literal[
        "repair", "told", "compaction", "delivery", "share", "outcome", "output", "spend", "run", "metadata", "other"
    ]
)
ChangeStatus: TypeAlias = Literal["changed", "new", "gone", "moved"]


class RunChange(Struct, frozen=True, kw_only=True):
    text: str
    """The change in one line, safe for a terminal: `turn 2: the call of refund: amount 20 → 25`."""
    words: str = ""
    """The same without the run and the turn, to compare it with the changes of other runs. Empty: it has neither."""
    kind: ChangeKind = "other"
    how: ChangeStatus = "changed"
    run: int | None = None
    """In a conversation: the number of the run, from 1."""
    turn: int | None = None
    """The number of the turn now; if it is gone, its old number."""
    call: str | None = None
    path: str = ""
    """The calls that lead to the sub-agent of this change."""
    before: Any = ABSENT
    """Plain data, not redacted. ABSENT: there was no value."""
    after: Any = ABSENT


class ChangePlace(Struct, frozen=True):
    label: str = ""
    """As text: `run 2, turn 3`."""
    run: int | None = None
    turn: int | None = None
    call: str | None = None
    path: str = ""

    def in_run(self, number: int) -> ChangePlace:
        return replace(self, label=self._label(f"run {number}"), run=number)

    def in_turn(self, number: int) -> ChangePlace:
        return replace(self, label=self._label(f"turn {number}"), turn=number)

    def in_agent(self, name: str, call: str) -> ChangePlace:
        path = f"{self.path}.{call}" if self.path else call
        return replace(self, label=self._label(name), turn=None, call=None, path=path)

    def _label(self, more: str) -> str:
        return f"{self.label}, {more}" if self.label else more

    def in_call(self, call: str) -> ChangePlace:
        return replace(self, call=call)

    def make_change(
        self, kind: ChangeKind, words: str, how: ChangeStatus = "changed", before: Any = ABSENT, after: Any = ABSENT
    ) -> RunChange:
        return RunChange(
            text=truncate_text(f"{self.label}: {words}" if self.label else words, MAX_LINE_LENGTH),
            words=truncate_text(words, MAX_LINE_LENGTH),
            kind=kind,
            how=how,
            run=self.run,
            turn=self.turn,
            call=self.call,
            path=self.path,
            before=before,
            after=after,
        )

    def field_change(self, kind: ChangeKind, field: FieldDifference, before: str = "", name: str = "") -> RunChange:
        """A changed field. `before`: the text before its path; `name`: the text instead of an empty path."""
        how: ChangeStatus = "new" if field.before is ABSENT else "gone" if field.after is ABSENT else "changed"
        return self.make_change(kind, f"{before}{field.text(name)}", how, before=field.before, after=field.after)

    def value_change(self, kind: ChangeKind, name: str, before: Any, after: Any) -> RunChange:
        """`name: before → after`."""
        return self.make_change(kind, f"{name}: {format_change(before, after, name)}", before=before, after=after)
