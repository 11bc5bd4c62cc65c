"""One thing that a run does differently, with its place, and changes as Markdown for a comment on a pull request.

Text of models and tools is data. In a line of Markdown, every character with a meaning in Markdown, in HTML or on a
code host is written as a character reference inside `<code>`, so that it is no markup, mention or link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.report.formatting import MAX_LINE_LENGTH
from agentrun.report.value_diff import ABSENT, FieldDifference, format_change
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible
from agentrun.spec.safe_text import plural, truncate_text

ChangeKind: TypeAlias = (
    Literal["agent", "instructions", "prompt", "params", "input", "history", "route", "tools", "setting", "request"]
    | Literal["reply", "finish", "model", "step", "call", "argument", "result", "ruling", "approval", "hook", "fault"]
    | Literal[
        "repair", "told", "compaction", "delivery", "share", "outcome", "output", "spend", "run", "metadata", "other"
    ]
)
ChangeStatus: TypeAlias = Literal["changed", "new", "gone", "moved"]

MAX_COMMENT_LENGTH = 60_000
"""Characters. The limit of GitHub is 65,536."""
MAX_MARKDOWN_DIFF_LINES = 60


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


# --- Markdown ---------------------------------------------------------------------------------------------------------

# Characters without a meaning inside a line: letters and digits, some marks, and some more between letters or digits.
_PLAIN = re.compile(r"[A-Za-z0-9 ,;()/=%?+]|[.:](?= |$)|(?<=[^\W_])[-_](?=[^\W_])|(?<=\d)[.](?=\d)|[^\x00-\x7f]")
_TICKS = re.compile(r"`+")


def inline_code(text: str) -> str:
    """A line of text that is safe at any place of a Markdown document."""
    shown = (char if _PLAIN.match(text, at) else f"&#{ord(char)};" for at, char in enumerate(text))
    return f"<code>{''.join(shown)}</code>"


def code_block(lines: Iterable[str], language: str = "") -> str:
    shown = [escape_invisible(line) for line in lines]
    longest = max((len(run) for line in shown for run in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *shown, fence])


def changes_markdown(title: str, changes: Sequence[RunChange], room: int = MAX_COMMENT_LENGTH) -> str:
    """A heading, the number of changes, a table of them, and the texts that differ behind a fold."""
    head = f"### {title}\n\n"
    if not changes:
        return f"{head}No differences.\n"
    table = [f"**{plural(len(changes), 'difference')}**", "", "| | what | change |", "|---|---|---|"]
    used = len(head) + sum(map(len, table))
    for number, change in enumerate(changes):
        row = f"| {change.how} | {change.kind} | {inline_code(change.text)} |"
        if used + len(row) > room:
            table.append(f"\n… and {plural(len(changes) - number, 'more difference')}.")
            used = room
            break
        table.append(row)
        used += len(row) + 1
    return f"{head}{chr(10).join(table)}\n{_details(changes, room - used)}"


def folder_markdown(title: str, changed: Sequence[tuple[str, Sequence[RunChange]]], total: int) -> str:
    """A heading, the number of files, and a section for each changed file of a folder that has `total` files."""
    parts: list[str] = []
    room = MAX_COMMENT_LENGTH
    for name, changes in changed:
        part = changes_markdown(inline_code(name), changes, room)
        room -= len(part)
        if room < 0:
            parts.append(f"… and {plural(len(changed) - len(parts), 'more file')}.\n")
            break
        parts.append(part)
    head = f"## {title}\n\n{plural(len(changed), 'file')} of {total} changed.\n\n"
    return head + "\n".join(parts)


def _details(changes: Sequence[RunChange], room: int) -> str:
    found = []
    for change in changes:
        if lines := diff_lines(change):
            summary, diff = inline_code(change.text), code_block(lines, "diff")
            block = f"\n<details><summary>{summary}</summary>\n\n{diff}\n\n</details>\n"
            room -= len(block)
            if room < 0:
                break
            found.append(block)
    return "".join(found)


def diff_lines(change: RunChange) -> list[str]:
    """The lines in which two texts differ. Empty if the text of the change has all of it."""
    before, after = change.before, change.after
    if not isinstance(before, str) or not isinstance(after, str) or "\n" not in before + after:
        return []
    one, two = (mask(text).split("\n") for text in (before, after))
    lines = unified_diff(one, two, n=2, lineterm="")
    found = [escape_invisible(line) for line in islice(lines, 2, MAX_MARKDOWN_DIFF_LINES + 3)]
    return [*found[:MAX_MARKDOWN_DIFF_LINES], "…"] if len(found) > MAX_MARKDOWN_DIFF_LINES else found
