"""What a reader is told of a case that did not pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentrun.core.facts import Record
from agentrun.core.facts_calls import ChildStarted
from agentrun.engine.assemble import FinishedRun, run_of
from agentrun.errors import AgentrunError
from agentrun.report.family import Family
from agentrun.report.line import Line
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.prepared import Prepared


def story_of(prepared: Prepared, played: Played) -> str:
    """The runs as they went, in the words of `agentrun run`. Sub-agents stand deeper."""
    lines: list[str] = []
    for run in played.runs:
        told = _lines(Family(prepared.file.agent), run, run_of(run.journal), run.journal)
        lines += [f"{'  ' * line.indent}{line.text}" for line in told]
    return "\n".join(lines)


def _lines(family: Family, whole: FinishedRun, run: str, records: Sequence[Record]) -> Iterator[Line]:
    for record in records:
        yield from family.story_of(run, record).tell(record)
        if isinstance(record.fact, ChildStarted):
            yield from _lines(family, whole, record.fact.run, whole.children.get(record.fact.run, ()))


def causes_of(miss: AgentrunError) -> tuple[str, ...]:
    """What changed since the recording was made, in words."""
    return (miss.message,)
