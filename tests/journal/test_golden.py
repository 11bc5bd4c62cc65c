"""Released golden journals give the same facts, outcome and canonical form as when they were written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.facts import CallSettled, ModelFailed, ModelReplied, Record, RunResumed
from agentrun.core.state import State
from agentrun.core.transitions import lost_work
from agentrun.journal.canonical import canonical
from agentrun.journal.storage import FileJournal, read_journal_file

from ..core.script import Run, RunWaits, calls_reply, hook, rule, text_reply, tool
from ..packages import package
from .journals import KINDS
from .shapes import SHAPES, children, golden, outcome_json, write_journal

FILES = golden()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_journal_gives_its_outcome_and_canonical_form(path: Path) -> None:
    records = tuple(read_journal_file(path))
    assert outcome_json(records) == path.with_suffix(".json").read_text(encoding="utf-8")
    assert canonical(records, children(path)) == path.with_suffix(".yaml").read_text(encoding="utf-8")


def test_golden_journals_cover_every_version_and_fact() -> None:
    assert {path.parent.name for path in FILES} == {"v1", "v2"}
    seen = {type(record.fact) for path in FILES for record in read_journal_file(path)}
    assert {kind.__name__ for kind in KINDS if kind not in seen} == set(), "a golden journal of these is missing"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_journal_can_be_resumed_after_any_record(path: Path, tmp_path: Path) -> None:
    """From any record of any release."""
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        part = tmp_path / f"{count}.jsonl"
        part.write_bytes(b"".join(lines[:count]))
        with FileJournal(part, resume=True) as journal:
            *_, last = journal.records()
            assert journal.epoch == last.epoch + 1
            journal.append(Record(count + 1, last.at, journal.epoch, journal.head, RunResumed("sha256:0")))
        assert len(list(read_journal_file(part))) == count + 1


@pytest.mark.parametrize("shape", SHAPES)
def test_run_shape_writes_the_same_journal_every_time(shape: str) -> None:
    one, two = SHAPES[shape](), SHAPES[shape]()
    assert one.finish() == two.finish()
    assert write_journal(one).text() == write_journal(two).text()


# --- cut anywhere ------------------------------------------------------------------------------------------

ALONE = [shape for shape in SHAPES if shape not in ("cancelled", "followed_up", "resumed", "slept", "with_child")]
"""Shapes in which nothing comes from outside by itself."""


def interrupted_forms(shape: str) -> Iterator[tuple[int, str]]:
    """The canonical form of a run that loses its owner after each record but the last."""
    whole = SHAPES[shape]()
    whole.finish()
    for count in range(1, len(whole.records)):
        run = SHAPES[shape]()
        run.records, run.state = [], State()
        for record in whole.records[:count]:
            run.now = record.at
            run.add(record.fact)
        del run.answers[: sum(isinstance(fact, ModelReplied | ModelFailed) for fact in run.facts)]
        run.add(RunResumed("sha256:0"))
        for fact in lost_work(run.state):
            run.add(fact)
        _finish(run)
        yield count, canonical(write_journal(run).records())


def _finish(run: Run) -> None:
    try:
        run.finish()
    except RunWaits as stuck:
        for call in stuck.wait.waits_for:
            run.add(CallSettled(call, "retry", "me"))
        run.finish()


@pytest.mark.parametrize("shape", ALONE)
def test_crash_after_any_record_gives_the_same_canonical_form(shape: str) -> None:
    whole = SHAPES[shape]()
    whole.finish()
    for count, text in interrupted_forms(shape):
        assert text == canonical(write_journal(whole).records()), f"cut after record {count}"


def test_planted_lost_work_in_the_canonical_form_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canonical form that tells lost work too differs at every cut inside an effect, and only there."""
    whole: Any = SHAPES["parallel"]()
    whole.finish()
    monkeypatch.setattr("agentrun.journal.canonical._work_key", lambda fact: repr(id(fact)))
    same = [text == canonical(write_journal(whole).records()) for _, text in interrupted_forms("parallel")]
    assert any(same)
    assert not all(same)


# --- done in any order --------------------------------------------------------------------------------------

BUSY_AGENT = package(
    tools={"search": tool(), "read": tool(), "refund": tool()},
    policy={"default": "allow", "rules": [rule("ask", "refund", id="big")]},
    hooks=[hook("before_tool", id="guard"), hook("after_tool", id="look")],
)


@given(st.randoms(use_true_random=False))
def test_completion_order_does_not_change_the_canonical_form(random: Random) -> None:
    """Calls that pass hooks, policy and people, and end in any order, leave one canonical form."""
    batch = calls_reply("search", "refund", "read", "unknown", "search")

    def run(pick: Callable[[int], int]) -> str:
        made = Run(BUSY_AGENT, batch, text_reply("Done."), people={"refund": "approved"}, pick=pick)
        made.finish()
        return canonical(write_journal(made).records())

    assert run(random.randrange) == run(lambda count: 0)
