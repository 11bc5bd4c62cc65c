"""A suite that is over, for human eyes: what is wrong, what changed, how many of each, and what to do.

Rule 1  The same suite gives the same text, however long it took and however many processes ran it.
Rule 2  A mistake in a spec is told once, not for each of its cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

import click
from msgspec.structs import replace

from agentrun.cli.show import clean
from agentrun.cli.suite_end import Ended
from agentrun.engine.approvals import TO_ANSWER
from agentrun.spec.safe_text import plural
from agentrun.testing.suite.failure_text import render_failure
from agentrun.testing.suite.verdict import OWN_CASSETTE_HINT, CaseVerdict, Complaint

FEW = 3
"""Cases that are named; of more only the number is said."""


def told(ended: Ended, *, quiet: bool, color: bool) -> Iterator[str]:
    """Line by line."""
    yield from _failures(ended, color=color)
    yield from _notes(ended, color=color)
    if not quiet:
        yield from _aside(ended)
    yield from _changes(ended)
    yield from _snapshots(ended, color=color)
    yield from _recordings(ended)
    yield from _measured(ended, color=color)
    yield from _live(ended)
    yield _paint(_counted(ended), color, fg=_tone(ended), bold=True)
    yield from _advice(ended)


def _paint(text: str, color: bool, **style: Any) -> str:
    return click.style(text, **style) if color else text


def _tone(ended: Ended) -> str:
    return "red" if ended.exit_code else "green"


def _failures(ended: Ended, *, color: bool) -> Iterator[str]:
    said: dict[Any, int] = {}
    for verdict in ended.verdicts:
        if not verdict.is_bad:
            continue
        if verdict.status == "unreadable":
            said[verdict.complaints] = said.get(verdict.complaints, 0) + 1
            if said[verdict.complaints] > 1:
                continue
        yield _heading(verdict, color=color)
        yield from (f"  {_line(line, color=color)}".rstrip() for line in render_failure(verdict).split("\n"))
        yield ""
    for times in said.values():
        if times > 1:
            yield f"{plural(times - 1, 'more case')} could not be run for the same reason"
            yield ""


def _notes(ended: Ended, *, color: bool) -> Iterator[str]:
    """Journals of cases that were recorded, where they are not the accepted ones."""
    for verdict in ended.verdicts:
        if verdict.notes:
            yield _heading(verdict, color=color, title="CHANGED", tint="yellow")
            text = render_failure(replace(verdict, complaints=verdict.notes))
            yield from (f"  {_line(line, color=color)}".rstrip() for line in text.split("\n"))
            yield ""


def _heading(verdict: CaseVerdict, *, color: bool, title: str | None = None, tint: str = "red") -> str:
    place = f"{clean(verdict.file)}:{verdict.line}"
    return f"{_paint(title or verdict.status.upper(), color, fg=tint, bold=True)}  {clean(verdict.id)}  ({place})"


def _line(line: str, *, color: bool) -> str:
    """A line of a difference in its colour."""
    if line.startswith("  +"):
        return _paint(line, color, fg="green")
    return _paint(line, color, fg="red") if line.startswith("  -") else line


def _aside(ended: Ended) -> Iterator[str]:
    """Cases that say themselves why they are not run, or do not pass."""
    found = False
    for verdict in ended.verdicts:
        if verdict.status in ("skipped", "xfailed"):
            found = True
            yield f"{verdict.status}  {clean(verdict.id)}  ({clean(verdict.reason or '')})"
    if found:
        yield ""


def _changes(ended: Ended) -> Iterator[str]:
    if not ended.changes:
        return
    yield "What is different now:"
    yield from (f"  {clean(text)}  ({_where(ids)})" for text, ids in ended.changes.items())
    yield ""


def _where(ids: list[str]) -> str:
    return ", ".join(map(clean, ids)) if len(ids) <= FEW else plural(len(ids), "case")


def _live(ended: Ended) -> Iterator[str]:
    if not ended.live:
        return
    yield "Live assertions (network: true), not replayed:"
    yield from (f"  {clean(function)}  ({_where(ids)})" for function, ids in ended.live.items())
    yield ""


def _snapshots(ended: Ended, *, color: bool) -> Iterator[str]:
    written = [result.written for result in ended.results if result.written is not None]
    lines = [f"  {each.how:<8} {clean(each.path)}" for each in written]
    lines += [f"  {'removed':<8} {clean(path)}" for path in ended.removed]
    if lines:
        yield "Snapshots:"
        yield from lines
        yield ""
    if ended.unclaimed:
        yield _paint("Snapshots that no case claims:", color, fg="red")
        yield from (f"  {clean(path)}" for path in ended.unclaimed)
        yield ""


def _recordings(ended: Ended) -> Iterator[str]:
    """What recording cost, and which calls failed while it did."""
    if not ended.recorded:
        return
    yield f"Recording {plural(len(ended.recorded), 'case')} spent {ended.spent}."
    for each in ended.recorded:
        for call in each.failed_calls:
            yield f"  failed call  {clean(each.id)}  {clean(call)}"
    yield ""


def _measured(ended: Ended, *, color: bool) -> Iterator[str]:
    tried, endings = ended.swept
    if tried:
        ways = ", ".join(f"{count} {clean(how)}" for how, count in endings.items())
        yield f"Swept: {plural(tried, 'fault')}; the runs ended: {ways}"
        yield ""
    if ended.coverage is not None:
        yield from (clean(line) for line in ended.coverage.text().split("\n"))
        if ended.is_short:
            message = f"{ended.coverage.percent:g} % of the specs is covered, less than {ended.least:g} %"
            yield _paint(message, color, fg="red")
        yield ""


def _counted(ended: Ended) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in ended.counts.items()) or "no cases"
    left = ended.cases - sum(verdict.id.count("::") for verdict in ended.verdicts)
    return f"{counts}, {left} not run" if left > 0 else counts


def _advice(ended: Ended) -> Iterator[str]:
    """The commands that accept what is new."""
    bad = [verdict for verdict in ended.verdicts if verdict.status in ("failed", "missed")]
    journals = [
        v for v in ended.verdicts if any(each.claim == "journal-snapshot" for each in (*v.complaints, *v.notes))
    ]
    missed = [
        v for v in bad if any(wrong.claim.startswith("cassette.") and _can_record(wrong) for wrong in v.complaints)
    ]
    if journals or ended.unclaimed:
        what = "accept the journals as they are now" if journals else "remove them"
        yield f"  → {what}: {_command(ended, [] if ended.unclaimed else journals)} --update"
    for how in ("new", "all"):
        if chosen := [verdict for verdict in missed if _least_recording(verdict) == how]:
            yield f"  → record them: {_command(ended, chosen)} --record {how}"


def _least_recording(verdict: CaseVerdict) -> str:
    """`new` keeps recorded tool results. It does not help where the cassette cannot be read, or was played while the
    rest was live."""
    found = [
        wrong.claim == "cassette.damaged" or (wrong.hint or "").endswith("--record all") for wrong in verdict.complaints
    ]
    return "all" if any(found) else "new"


def _can_record(miss: Complaint) -> bool:
    """Whether recording the case helps: not while it plays another's recording, which fits that one, nor where nobody
    answered an approval."""
    return not (miss.hint or "").startswith((OWN_CASSETTE_HINT, TO_ANSWER))


def _command(ended: Ended, verdicts: list[CaseVerdict]) -> str:
    """The command for these cases; for many, for all."""
    paths = [verdict.id for verdict in verdicts] if 0 < len(verdicts) <= FEW else ended.paths
    return " ".join(["agentrun test", *(quote(clean(path)) for path in paths)])
