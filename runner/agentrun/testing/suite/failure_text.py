"""Describe a case that did not pass, as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentrun.core.facts import ChildStarted, Record
from agentrun.credentials import hidden_secrets
from agentrun.engine.run import FinishedRun, journal_run_id
from agentrun.report.formatting import OutputLine, make_paragraph
from agentrun.report.run_renderer import RunTreeRenderer
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent, ending_miss
from agentrun.testing.suite.verdict import CaseFailure, CaseVerdict


def run_steps(agent: CompiledAgent, case_runs: CaseRuns) -> str:
    """The steps of the runs in the words of `agentrun run`, with sub-agents indented.

    It ends with the answer or with the failure. A miss is left out, because the verdict explains it.
    """
    lines: list[str] = []
    for run in case_runs.runs:
        tree = RunTreeRenderer(agent.file.agent, shows_failure=ending_miss(run) is None)
        answer = run.ending.answer
        rendered = [*_story_lines(tree, run, journal_run_id(run.journal), run.journal)]
        rendered += make_paragraph(answer, indent=1) if answer else ()
        lines += [f"{'  ' * line.indent}{line.text}" for line in rendered]
    return "\n".join(lines)


def _story_lines(
    tree: RunTreeRenderer, finished: FinishedRun, run: str, records: Sequence[Record]
) -> Iterator[OutputLine]:
    for record in records:
        yield from tree.renderer_for(run, record).render(record)
        if isinstance(record.fact, ChildStarted):
            yield from _story_lines(tree, finished, record.fact.run, finished.children.get(record.fact.run, ()))


def render_failure(verdict: CaseVerdict) -> str:
    """A case that did not pass, as plain text: the failures, the steps of the run, and the details.

    It has no control characters, and in a recording no credentials of the environment.
    """
    parts = ["\n".join(_failure_lines(verdict))]
    if verdict.steps:
        parts.append("\n".join(["The run:", *_indent_lines(verdict.steps)]))
    for failure in verdict.failures:
        if failure.detail and not _is_explained_by_detail(failure):
            parts.append("\n".join([f"{failure.assertion}:", *_indent_lines(failure.detail)]))
    return "\n\n".join(parts)


def _is_explained_by_detail(failure: CaseFailure) -> bool:
    """Whether the detail contains the message and the hint, as that of a problem or of a miss does."""
    return bool(failure.detail) and failure.assertion.startswith(("spec.", "cassette."))


def _failure_lines(verdict: CaseVerdict) -> Iterator[str]:
    for failure in verdict.failures:
        if _is_explained_by_detail(failure):
            lines = safe_lines(failure.detail)
            if failure.assertion not in lines[0]:
                lines = [f"{failure.assertion}: {lines[0]}", *(f"  {line}" for line in lines[1:])]
            yield from lines
            continue
        first, *rest = safe_lines(failure.message)
        yield f"{failure.assertion}: {first}{_place_suffix(failure, verdict)}"
        yield from (f"  {line}" for line in rest)
        if failure.hint:
            yield from (f"  → {line}" for line in safe_lines(failure.hint))


def _place_suffix(failure: CaseFailure, verdict: CaseVerdict) -> str:
    """Where the assertion is, unless the reader knows it from the line of the case or from the message."""
    place = failure.place
    if place is None or place == f"{verdict.file}:{verdict.line}" or place in failure.message:
        return ""
    return f"  ({safe_lines(place)[0]})"


def _indent_lines(text: str) -> Iterator[str]:
    return (f"  {line}".rstrip() for line in safe_lines(text))


def safe_lines(text: str) -> list[str]:
    """The lines of a text without secrets and control characters."""
    masked = mask(hidden_secrets.redactor.redact_excerpt(text))
    return [escape_invisible(line) for line in masked.split("\n")]
