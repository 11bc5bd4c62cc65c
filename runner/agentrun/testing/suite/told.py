"""What a reader is told of a case that did not pass."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache

from agentrun.core.facts import Record
from agentrun.core.facts_calls import ChildStarted
from agentrun.core.outcome import Outcome
from agentrun.engine.run import FinishedRun, run_of
from agentrun.net.credentials import credentials
from agentrun.redact import Redactor, masked
from agentrun.report.family import Family
from agentrun.report.line import Line, paragraph
from agentrun.spec.problems import visible
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.prepared import Prepared
from agentrun.testing.suite.verdict import Verdict


def story_of(prepared: Prepared, played: Played) -> str:
    """The runs as they went, in the words of `agentrun run`. Sub-agents stand deeper.

    It ends with the answer, or with why the run failed; not where the recording does not fit, which the verdict tells
    itself, at length.
    """
    lines: list[str] = []
    for run in played.runs:
        family = Family(prepared.file.agent, tells_failure=not _is_miss(run))
        told = [*_lines(family, run, run_of(run.journal), run.journal), *_answer(run)]
        lines += [f"{'  ' * line.indent}{line.text}" for line in told]
    return "\n".join(lines)


def _is_miss(run: FinishedRun) -> bool:
    fault = run.ended.fault if isinstance(run.ended, Outcome) else None
    return fault is not None and fault.code.startswith("cassette.")


def _answer(run: FinishedRun) -> tuple[Line, ...]:
    """What `agentrun run` has for standard output."""
    answer = run.ended.answer if isinstance(run.ended, Outcome) else None
    return paragraph(answer, indent=1) if answer else ()


def _lines(family: Family, whole: FinishedRun, run: str, records: Sequence[Record]) -> Iterator[Line]:
    for record in records:
        yield from family.story_of(run, record).tell(record)
        if isinstance(record.fact, ChildStarted):
            yield from _lines(family, whole, record.fact.run, whole.children.get(record.fact.run, ()))


def failure_text(verdict: Verdict) -> str:
    """A case that did not pass, in plain text: what does not hold, the run as it went, and what differs.

    Nothing that acts on a terminal is in it, and no credential of the environment.
    """
    parts = ["\n".join(_heads(verdict))]
    if verdict.story:
        parts.append("\n".join(["The run:", *_indented(verdict.story)]))
    for wrong in verdict.complaints:
        if wrong.detail:
            parts.append("\n".join([f"{wrong.claim}:", *_indented(wrong.detail)]))
    return "\n\n".join(parts)


def _heads(verdict: Verdict) -> Iterator[str]:
    for wrong in verdict.complaints:
        first, *rest = shown(wrong.message)
        yield f"{wrong.claim}: {first}"
        yield from (f"  {line}" for line in rest)
        if wrong.hint:
            yield from (f"  → {line}" for line in shown(wrong.hint))


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}".rstrip() for line in shown(text))


def shown(text: str) -> list[str]:
    """A text as it may be shown, line by line."""
    return [visible(line) for line in masked(_known().shown(text)).split("\n")]


def credential_in(text: str) -> str | None:
    """The name of the first credential of the environment that stands in a text."""
    return _known().found(text)


@cache
def _known() -> Redactor:
    """Knows the credentials of the environment by value."""
    return Redactor(credentials(os.environ))
