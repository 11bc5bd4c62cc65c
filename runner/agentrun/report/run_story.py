"""The story of a run in words, from its journal: turns, calls, rulings with their reasons, spend and the outcome.

Rule 1  The story of a sub-agent is nested where its parent starts it.
Rule 2  The package adds limits and the names of sub-agents. Without it, the story has all that happened.
Rule 3  A run without a terminal record ends with what is open: work without a result, and what the run waits for.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.core.facts import ChildStarted, Record, RunResumed, RunStopped, StandIns
from agentrun.core.outcome import outcome_of
from agentrun.core.package import Package
from agentrun.core.state import State, pending_effects
from agentrun.journal.family import ReadJournal, RunFamily
from agentrun.report.formatting import OutputLine, format_count, format_dollars, format_duration, format_time, make_line
from agentrun.report.render_facts import MAX_SHOWN_NAME, call_label, lost_work_label, subject_label, until_text
from agentrun.report.run_renderer import CHILD_INDENT, RunRenderer, outcome_summary
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible
from agentrun.spec.safe_text import plural, short_text

_SHORT_FINGERPRINT = len("sha256:") + 12


class StoryStep(Struct, frozen=True):
    """A record and its lines."""

    journal: ReadJournal
    record: Record
    before: State
    """The state of the run before the record."""
    after: State
    package: Package | None
    lines: tuple[OutputLine, ...]


class Story(Struct, frozen=True):
    head: tuple[OutputLine, ...]
    steps: tuple[StoryStep, ...]
    end: tuple[OutputLine, ...]


def render_story(family: RunFamily, packages: Mapping[str, Package]) -> Iterator[OutputLine]:
    """`packages`: those that the runs name, by fingerprint. One that is not known may be missing."""
    story = make_story(family, packages)
    yield from story.head
    for step in story.steps:
        yield from step.lines
    yield from story.end


def make_story(family: RunFamily, packages: Mapping[str, Package]) -> Story:
    """The same, with the record that each line comes from."""
    steps = tuple(_steps(family, family.root, packages))
    state = next(step.after for step in reversed(steps) if step.journal is family.root)
    is_known = family.root.is_finished == (state.stopped is not None)  # otherwise there is a fact of a later release
    return Story(tuple(_head(family.root, state)), steps, tuple(render_outcome(state)) if is_known else ())


def _renderer(journal: ReadJournal, packages: Mapping[str, Package]) -> RunRenderer:
    return RunRenderer(packages.get(journal.started.package), details=True)


_STAND_INS: dict[StandIns, str] = {
    "cassette": "partly from a cassette",
    "case": "with the stubs or faults of a case",
}


def _head(journal: ReadJournal, state: State) -> Iterator[OutputLine]:
    started = journal.started
    last = journal.records[-1].fact
    status = last.status if isinstance(last, RunStopped) else "not finished"
    names = [short_text(name, MAX_SHOWN_NAME) for name in (started.agent, started.run)]
    yield make_line(" · ".join([*names, status]))
    resumes = sum(isinstance(record.fact, RunResumed) for record in journal.records)
    texts = [f"started {format_time(journal.records[0].at)}", f"took {format_duration(max(state.elapsed, 0))}"]
    texts.append(plural(len(journal.records), "record"))
    texts += [f"resumed {plural(resumes, 'time')}"] if resumes else []
    texts += ["replayed"] if started.replayed else []
    texts += [] if started.stand_ins is UNSET else [_STAND_INS[started.stand_ins]]
    yield make_line(", ".join([*texts, f"package {short_text(started.package[:_SHORT_FINGERPRINT])}"]), "dim")


def _steps(family: RunFamily, journal: ReadJournal, packages: Mapping[str, Package]) -> Iterator[StoryStep]:
    renderer, seen = _renderer(journal, packages), set[str]()
    for record in journal.records:
        before, lines = renderer.state, renderer.render(record)
        fact = record.fact
        child = None
        if isinstance(fact, ChildStarted) and fact.run not in seen:
            seen.add(fact.run)
            child = family.children.get(fact.run)
            if child is None or not child.records:
                label = call_label(renderer.state, fact.call)
                text = f"{label}: the sub-agent has no journal that can be read"
                lines, child = (*lines, make_line(text, "warn", CHILD_INDENT)), None
        if record is journal.records[-1] and journal is not family.root and renderer.state.stopped is None:
            lines += tuple(_open_work_of_child(journal, renderer.state))
        yield StoryStep(journal, record, before, renderer.state, renderer.package, lines)
        if child is not None:
            yield from _steps(family, child, packages)


def _open_work_of_child(child: ReadJournal, state: State) -> Iterator[OutputLine]:
    depth = child.started.parent.depth if child.started.parent else 1
    return (replace(line, indent=line.indent + CHILD_INDENT * depth) for line in _open_work(state))


def render_outcome(state: State) -> Iterator[OutputLine]:
    """The last lines of a run: its answer and what it used, or what is open."""
    if state.stopped is None:
        yield from _open_work(state)
        yield make_line(f"so far {_spend(state)}", "dim")
        return
    outcome = outcome_of(state)
    if outcome.answer is not None:
        yield make_line("answer", "good")
        for text in outcome.answer.split("\n"):
            yield OutputLine(escape_invisible(mask(text)), "plain", 1)
    yield make_line(outcome_summary(outcome), "dim")


def open_calls(state: State, tools: Container[str] | None = None) -> list[str]:
    """The calls that were started, and whose outcome is not known. `tools`: only calls of these."""
    calls = (call for call in state.calls if call.status in ("started", "lost"))
    return [lost_work_label(state, call.id) for call in calls if tools is None or call.tool in tools]


def _open_work(state: State) -> Iterator[OutputLine]:
    texts = [f"{lost_work_label(state, effect)} has no result" for effect in pending_effects(state)]
    if state.gate.question is not None and state.gate.answer is None:
        texts.append(f"waits for an approval of {subject_label(state, state.gate.subject)}")
    for call in state.calls:
        label = lost_work_label(state, call.id)
        match call.status:
            case "lost":
                texts.append(f"it is not known whether {label} ran")
            case "asking" | "deferred" if call.gate.question is not None:
                texts.append(f"waits for an approval of {label}")
            case "deferred":
                texts.append(f"a rule deferred {label}{until_text(call.gate)}")
            case "asleep":
                texts.append(f"waits for the sub-agent of {label}")
    for text in texts or ["nothing was running at the end of the journal"]:
        yield make_line(text, "warn")


def _spend(state: State) -> str:
    meter = state.meter
    texts = [plural(state.turns, "turn"), f"{format_count(meter.tokens)} tokens"]
    texts += [plural(meter.tool_calls, "tool call")] if meter.tool_calls else []
    return ", ".join([*texts, *([format_dollars(meter.cost)] if meter.cost else [])])
