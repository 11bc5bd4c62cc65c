"""Group cases by the cause of their failure, so that one difference is reported once.

Rule 1  The causes of a case are its changes, and its failures that no change explains.
Rule 2  Changes that come from the same line of a template are one cause, even if the line is rendered differently. So
        are failures of the same assertion, whatever the answers are.
Rule 3  A cause of more cases comes first. Otherwise the order is that of the cases.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import count
from typing import TypeAlias

from msgspec import Struct

from agentrun.spec.safe_text import plural
from agentrun.testing.suite.verdict import SNAPSHOT_ASSERTIONS, CaseChange, CaseFailure, CaseVerdict

MAX_LISTED_TEXTS = 3
MAX_LISTED_NAMES = 20
_Reason: TypeAlias = CaseChange | CaseFailure


class Cause(Struct, frozen=True, kw_only=True):
    title: str
    """In a few words: `instructions line 5 changed`."""
    texts: tuple[str, ...]
    """The whole texts, each once. There are several if one assertion failed in several ways."""
    lines: tuple[str, ...]
    """More about it, for people."""
    file: str | None
    """The file with the line that changed, or with the assertion that failed. None: unknown."""
    line: int | None
    hint: str | None
    """What to do, if it is the same for all cases and not just to accept or record them again."""
    verdicts: tuple[CaseVerdict, ...]
    is_change: bool
    """Whether the agent does something differently. Otherwise it is a failure, which the details of a case repeat."""

    @property
    def heading(self) -> str:
        """`11 cases: instructions line 5 changed  (specs/prompts/support.md.j2:5)`."""
        noun = "case" if "::" in self.verdicts[0].id else "file"
        return f"{plural(len(self.verdicts), noun)}: {self.placed_title}"

    @property
    def placed_title(self) -> str:
        place = f"{self.file}:{self.line}"
        return self.title if self.file is None or place in self.title else f"{self.title}  ({place})"

    @property
    def case_lines(self) -> list[str]:
        """The names of the cases, in one line for each file."""
        names: dict[str, list[str]] = {}
        for verdict in self.verdicts:
            file, _, name = verdict.id.partition("::")
            names.setdefault(file, []).append(name)
        return [f"{file}: {_listed(found)}" if found[0] else file for file, found in names.items()]


def group_by_cause(verdicts: Iterable[CaseVerdict]) -> list[Cause]:
    """The causes of the cases that did not pass."""
    groups: dict[tuple[object, ...], list[tuple[CaseVerdict, _Reason]]] = {}
    for verdict in verdicts:
        own: dict[tuple[object, ...], _Reason] = {}
        for reason in _reasons(verdict):
            own.setdefault(_key(reason, own), reason)
        for key, reason in own.items():
            groups.setdefault(key, []).append((verdict, reason))
    return sorted(map(_make_cause, groups.values()), key=lambda cause: -len(cause.verdicts))


def _reasons(verdict: CaseVerdict) -> Iterator[_Reason]:
    if not verdict.is_bad:
        return
    for failure in verdict.failures:
        is_advice = failure.assertion == "record" and failure is not verdict.failures[0]
        if not (verdict.changes and _is_explained(failure)) and not is_advice:
            yield failure
    yield from verdict.changes


def _is_explained(failure: CaseFailure) -> bool:
    """Whether the changes of a case say more than this failure."""
    return failure.assertion.startswith("cassette.") or failure.assertion in SNAPSHOT_ASSERTIONS


def _key(reason: _Reason, own: Container[tuple[object, ...]]) -> tuple[object, ...]:
    """Reasons with the same key are one cause. `own`: the keys of the case so far."""
    match reason:
        case CaseFailure(line=int()) if not reason.assertion.startswith("spec."):
            place = reason.assertion, reason.file, reason.line
            return next(key for number in count() if (key := (*place, number)) not in own)  # several on one line
        case CaseFailure():
            return reason.assertion, reason.message
        case CaseChange(line=int()) if reason.recorded_line is not None or reason.current_line is not None:
            return reason.file, reason.line
        case CaseChange():
            return reason.title, reason.file, reason.line, reason.recorded_line, reason.current_line


def _make_cause(group: Sequence[tuple[CaseVerdict, _Reason]]) -> Cause:
    verdicts, first = tuple(verdict for verdict, _ in group), group[0][1]
    texts = tuple(dict.fromkeys(_text(reason) for _, reason in group))
    title, lines = texts[0], tuple[str, ...]()
    if isinstance(first, CaseChange):
        title, lines = first.title, tuple(_prompt_lines(first))
    elif len(texts) > 1:
        title, lines = f"{first.assertion} failed", tuple(_case_messages(group))
    elif verdicts[0].status == "unreadable":
        lines = tuple(first.detail.split("\n")[1:])  # the first line repeats the message
    hints = {_hint(verdict, reason) for verdict, reason in group}
    hint = hints.pop() if len(hints) == 1 else None
    return Cause(
        title=title,
        texts=texts,
        lines=lines,
        file=first.file,
        line=first.line,
        hint=hint,
        verdicts=verdicts,
        is_change=isinstance(first, CaseChange),
    )


def _hint(verdict: CaseVerdict, reason: _Reason) -> str | None:
    """The hint, unless the lines of a problem have it, or the summary has one command for all cases."""
    failure = reason
    if isinstance(reason, CaseChange):
        failure = next((each for each in verdict.failures if _is_explained(each)), reason)
    if not isinstance(failure, CaseFailure) or verdict.status == "unreadable":
        return None
    is_command = (failure.hint or "").startswith(("agentrun ", "record it: "))
    return None if is_command or failure.assertion in SNAPSHOT_ASSERTIONS else failure.hint


def _text(reason: _Reason) -> str:
    return reason.text if isinstance(reason, CaseChange) else f"{reason.assertion}: {reason.message}"


def _prompt_lines(change: CaseChange) -> Iterator[str]:
    for label, text in (("recorded:", change.recorded_line), ("now:", change.current_line)):
        if text is not None:
            yield f"{label:<9} {text}"


def _case_messages(group: Sequence[tuple[CaseVerdict, _Reason]]) -> Iterator[str]:
    """What is wrong in each of the first cases."""
    for verdict, reason in group[:MAX_LISTED_TEXTS]:
        if isinstance(reason, CaseFailure):
            yield f"{verdict.id.partition('::')[2] or verdict.id}: {reason.message}"
    if len(group) > MAX_LISTED_TEXTS:
        yield f"and {plural(len(group) - MAX_LISTED_TEXTS, 'more case')}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_LISTED_NAMES
    return ", ".join([*names[:MAX_LISTED_NAMES], *([f"and {more} more"] if more > 0 else [])])
