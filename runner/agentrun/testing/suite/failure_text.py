"""What a reader is told of a case that did not pass."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache

from agentrun.core.facts import ChildStarted, Record
from agentrun.core.outcome import Outcome
from agentrun.engine.run import FinishedRun, journal_run_id
from agentrun.net.environment import find_credentials
from agentrun.redactor import Redactor, mask_except_placeholders
from agentrun.report.formatting import OutputLine, make_paragraph
from agentrun.report.run_renderer import RunTreeRenderer
from agentrun.spec.problems import escape_invisible
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent
from agentrun.testing.suite.verdict import CaseVerdict


def run_story(prepared: CompiledAgent, played: CaseRuns) -> str:
    """The runs as they went, in the words of `agentrun run`. Sub-agents stand deeper.

    It ends with the answer, or with why the run failed; not where the recording does not fit, which the verdict tells
    itself, at length.
    """
    lines: list[str] = []
    for run in played.runs:
        family = RunTreeRenderer(prepared.file.agent, shows_failure=not _is_miss(run))
        told = [*_story_lines(family, run, journal_run_id(run.journal), run.journal), *_answer_lines(run)]
        lines += [f"{'  ' * line.indent}{line.text}" for line in told]
    return "\n".join(lines)


def _is_miss(run: FinishedRun) -> bool:
    fault = run.ending.fault if isinstance(run.ending, Outcome) else None
    return fault is not None and fault.code.startswith("cassette.")


def _answer_lines(run: FinishedRun) -> tuple[OutputLine, ...]:
    """What `agentrun run` has for standard output."""
    answer = run.ending.answer if isinstance(run.ending, Outcome) else None
    return make_paragraph(answer, indent=1) if answer else ()


def _story_lines(
    family: RunTreeRenderer, whole: FinishedRun, run: str, records: Sequence[Record]
) -> Iterator[OutputLine]:
    for record in records:
        yield from family.renderer_for(run, record).render(record)
        if isinstance(record.fact, ChildStarted):
            yield from _story_lines(family, whole, record.fact.run, whole.children.get(record.fact.run, ()))


def render_failure(verdict: CaseVerdict) -> str:
    """A case that did not pass, in plain text: what does not hold, the run as it went, and what differs.

    Nothing that acts on a terminal is in it, and no credential of the environment.
    """
    parts = ["\n".join(_complaint_lines(verdict))]
    if verdict.story:
        parts.append("\n".join(["The run:", *_indent_lines(verdict.story)]))
    for wrong in verdict.complaints:
        if wrong.detail:
            parts.append("\n".join([f"{wrong.claim}:", *_indent_lines(wrong.detail)]))
    return "\n\n".join(parts)


def _complaint_lines(verdict: CaseVerdict) -> Iterator[str]:
    for wrong in verdict.complaints:
        first, *rest = safe_lines(wrong.message)
        yield f"{wrong.claim}: {first}"
        yield from (f"  {line}" for line in rest)
        if wrong.hint:
            yield from (f"  → {line}" for line in safe_lines(wrong.hint))


def _indent_lines(text: str) -> Iterator[str]:
    return (f"  {line}".rstrip() for line in safe_lines(text))


def safe_lines(text: str) -> list[str]:
    """A text as it may be shown, line by line."""
    return [
        escape_invisible(line)
        for line in mask_except_placeholders(_environment_redactor().redact_excerpt(text)).split("\n")
    ]


def find_credential(text: str) -> str | None:
    """The name of the first credential of the environment that stands in a text."""
    return _environment_redactor().find_first(text)


@cache
def _environment_redactor() -> Redactor:
    """Knows the credentials of the environment by value."""
    return Redactor(find_credentials(os.environ))
