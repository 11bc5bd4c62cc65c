"""The summary of a run, made from the bytes of its journal, agrees with the state that the core makes from it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.decide import decide
from agentrun.core.effects import Wait
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import ChildStarted, ModelAsked, ModelReplied, Parent, Record, ToolFinished
from agentrun.core.package import Package
from agentrun.core.spend import BudgetShare, ChildSpend
from agentrun.core.state import State, pending_effects
from agentrun.errors import StorageError
from agentrun.journal.storage import MemoryJournal, read_journal_file
from agentrun.store import run_summary
from agentrun.store.run_summary import MAX_INTEGER, MAX_TIME, RunSummary, summarize

from ..core.shapes import SHAPES
from ..core.test_random_runs import World
from ..journal.journals import GOLDEN, LINES, RUN_STOPPED, WITH_TOOLS, journal, model_asked, replied, run_started


def text_of(records: Sequence[Record]) -> bytes:
    made = MemoryJournal()
    for record in records:
        made.append(replace(record, prev=made.head))
    return made.text()


def summary_of(records: Sequence[Record], text: bytes | None = None) -> RunSummary:
    found = summarize("run-1", text_of(records) if text is None else text, lambda: records)
    assert found is not None
    return found


def priced(record: Record) -> Record:
    """The record with a cost of its own, in runs without a price."""
    amount, fact = 1000 + record.seq, record.fact
    match fact:
        case ModelAsked() | ModelReplied():
            return replace(record, fact=replace(fact, cost=amount))
        case ChildStarted():
            return replace(record, fact=replace(fact, share=BudgetShare(tokens=amount, cost=2 * amount)))
        case ToolFinished(spent=ChildSpend()):
            return replace(record, fact=replace(fact, spent=ChildSpend(amount, 3 * amount, 1)))
    return record


def suspension(package: Package, state: State) -> tuple[str, ...]:
    """What the run waits for, if the engine suspends it in this state."""
    step = decide(package, state)
    if not isinstance(step, Wait) or step.inflight or step.deadline is not None:
        return ()
    return (*(question.subject for question in step.questions), *step.waits_for)


def differences(package: Package, records: Sequence[Record]) -> Iterator[str]:
    """Where the summary of a journal, after each of its records, disagrees with the core."""
    state, text = State(), text_of(records).split(b"\n")
    for length, record in enumerate(records, 1):
        state = evolve(state, record)
        summary = summary_of(records[:length], b"\n".join([*text[:length], b""]))
        yield from (f"record {length}: {each}" for each in _differences(package, state, summary))


def _differences(package: Package, state: State, summary: RunSummary) -> Iterator[str]:
    expected = {
        "agent": state.started.agent,
        "started": state.began,
        "seq": state.seq,
        "cost": state.meter.cost,
        "tokens": state.meter.tokens,
        "turns": state.turns,
        "ended": state.now if state.stopped else None,
    }
    found = {name: getattr(summary, name) for name in expected}
    if found != expected:
        yield f"{found}, not {expected}"
    waits = {each.subject for each in summary.waits_for}
    if (summary.status == "waiting") != bool(waits):
        yield f"{summary.status}, but waits for {waits}"
    if state.stopped is not None:
        code = state.stopped.fault.code if state.stopped.fault else None
        status = "cancelled" if code == "cancelled" else state.stopped.status
        if (summary.status, summary.code) != (status, code):
            yield f"{summary.status} {summary.code}, not {status} {code}"
    elif suspended := suspension(package, state):
        if waits != set(suspended):
            yield f"it waits for {waits}, not {suspended}"
    elif waits and pending_effects(state):
        yield f"it waits for {waits}, but work was interrupted"


def random_differences(seed: int) -> list[str]:
    run = World(seed)
    run.finish()
    return list(differences(run.agent, [priced(record) for record in run.records]))


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_summary_agrees_with_the_core_after_every_record_of_random_runs(seed: int) -> None:
    assert random_differences(seed) == []


@pytest.mark.parametrize("name", SHAPES)
def test_summary_agrees_with_the_core_after_every_record_of_each_shape(name: str) -> None:
    run = SHAPES[name]()
    run.finish()
    assert list(differences(run.agent, [priced(record) for record in run.records])) == []


@pytest.mark.parametrize("planted", ["forgets failures", "forgets shares", "forgets reservations", "never waits"])
def test_planted_mistake_in_the_summary_is_found(monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    if planted == "forgets failures":
        monkeypatch.setattr(run_summary, "MAYBE_CHARGED", ())
    elif planted == "forgets shares":
        monkeypatch.setattr(run_summary._SpendSum, "_charge", lambda self, amounts: None)
    elif planted == "forgets reservations":
        monkeypatch.setattr(run_summary._SpendSum, "_charge_reserved", lambda self: None)
    else:
        monkeypatch.setattr(run_summary, "_waits", lambda state: ())
    assert any(random_differences(seed) for seed in range(150))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.jsonl")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_journals_of_every_release_are_summarized(path: Path) -> None:
    records = tuple(read_journal_file(path))
    state, summary = fold(records), summary_of(records, path.read_bytes())
    assert (summary.cost, summary.tokens, summary.turns) == (state.meter.cost, state.meter.tokens, state.turns)
    assert (summary.status in ("completed", "failed", "cancelled")) == (state.stopped is not None)


def test_summary_has_session_and_parent() -> None:
    parent = Parent("run-0", "c1.0", 1, BudgetShare())
    summary = summary_of(journal(run_started(parent=parent, session="chat"), model_asked()).records())
    assert (summary.session, summary.parent) == ("chat", "run-0")


def test_incomplete_last_line_is_ignored() -> None:
    whole, records = journal(*WITH_TOOLS[:5]).text(), journal(*WITH_TOOLS[:5]).records()
    assert summary_of(records, whole + b'{"at":5,"ep') == summary_of(records)
    assert summarize("run-1", b"", list) is None
    assert summarize("run-1", b'{"at":1', list) is None


@pytest.mark.parametrize(
    "line", [b"{", b"", b"\xff", b"[]", b'{"at":1}', b"[" * 100_000, LINES[3].replace(b'"at":', b'"at":x')]
)
@pytest.mark.parametrize("position", [0, 3, len(LINES) - 1])
def test_unreadable_line_makes_the_run_damaged(line: bytes, position: int) -> None:
    text = b"\n".join([*LINES[:position], line, *LINES[position + 1 :], b""])
    summary = summary_of([], text)
    assert (summary.status, summary.code, summary.run) == ("damaged", "journal.damaged", "run-1")


def test_line_of_an_unknown_kind_is_skipped() -> None:
    unknown = b'{"at":4000,"epoch":1,"fact":{"call":5,"type":"tea_made"},"prev":"sha256:0","seq":4}'
    finished = summary_of([], b"\n".join([*LINES[:3], unknown, *LINES[3:], b""]))
    assert (finished.status, finished.seq) == ("completed", len(LINES) + 1)
    known = unknown.replace(b"tea_made", b"tool_started")
    assert summary_of([], b"\n".join([*LINES[:3], known, *LINES[3:], b""])).status == "damaged"


@pytest.mark.parametrize(
    ("code", "status"),
    [("journal.damaged", "damaged"), ("journal.truncated", "damaged"), ("recovery.failed", "interrupted")],
)
def test_unfinished_run_that_cannot_be_checked_has_its_code(code: str, status: str) -> None:
    def fails() -> list[Record]:
        raise StorageError(code, "no")

    summary = summarize("run-1", journal(*WITH_TOOLS[:5]).text(), fails)
    assert summary is not None
    assert (summary.status, summary.code) == (status, code)


def test_numbers_fit_into_the_index() -> None:
    text = journal(run_started(), model_asked(), replace(replied("a"), cost=10**30), RUN_STOPPED).text()
    summary = summary_of([], text.replace(b'"at":1000', b'"at":-1').replace(b'"at":4000', b'"at":1' + b"0" * 30))
    assert (summary.cost, summary.started, summary.ended) == (MAX_INTEGER, 0, MAX_TIME)
