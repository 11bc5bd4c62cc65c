"""How facts change state, and which cannot."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core import evolve as module
from agentrun.core.evolve import LEGAL, evolve, fold
from agentrun.core.facts import (
    Fact,
    Fault,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    OutputRefused,
    Record,
    RunStopped,
)
from agentrun.core.messages import Text, Usage, User
from agentrun.core.state import Phase, State
from agentrun.errors import StorageError

from .script import STARTED, records, said

ASKED = ModelAsked("m1.1", 1, 1, "openai/gpt", 100)
REPLIED = ModelReplied("m1.1", 1, 1, said("Hello"))
FAILED = ModelFailed("m1.1", 1, 1, Fault("provider.fatal", "no"))
REFUSED = OutputRefused(1, ("wrong",), User((Text("Again."),)))
STOPPED = RunStopped("completed")

ONE_OF_EACH: dict[type, Fact] = {type(fact): fact for fact in (STARTED, ASKED, REPLIED, FAILED, REFUSED, STOPPED)}
REACHED: dict[Phase, list[Fact]] = {
    "fresh": [],
    "thinking": [STARTED],
    "asking": [STARTED, ASKED],
    "answered": [STARTED, ASKED, REPLIED],
    "failed": [STARTED, ASKED, FAILED],
    "stopped": [STARTED, STOPPED],
}


def test_tables_are_complete() -> None:
    assert set(ONE_OF_EACH) == set(get_args(Fact))
    assert set(REACHED) == set(LEGAL) == set(get_args(Phase))


@pytest.mark.parametrize("phase", REACHED)
@pytest.mark.parametrize("kind", ONE_OF_EACH, ids=lambda kind: kind.__name__)
def test_pairs(phase: Phase, kind: type) -> None:
    """Every pair of phase and fact: legal ones change the state, the others are refused."""
    before = fold(records(REACHED[phase]))
    assert before.phase == phase
    record = Record(before.seq + 1, 0, 1, "", ONE_OF_EACH[kind])
    if kind in LEGAL[phase]:
        after = evolve(before, record)
        assert after.seq == before.seq + 1
        assert after != before
    else:
        with pytest.raises(StorageError) as caught:
            evolve(before, record)
        assert caught.value.code == "recovery.failed"
        assert caught.value.fields == {"seq": before.seq + 1}


def test_record_after_the_end() -> None:
    with pytest.raises(StorageError, match="run_stopped cannot follow while the run is stopped"):
        fold(records([STARTED, STOPPED, STOPPED]))


def test_record_after_the_end_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the table a second terminal record would pass: the table is what refuses it."""
    monkeypatch.setattr(module, "LEGAL", dict.fromkeys(LEGAL, get_args(Fact)))
    assert fold(records([STARTED, STOPPED, STOPPED])).seq == 3


@pytest.mark.parametrize(
    "fact",
    [ModelReplied("m1.2", 1, 2, said("x")), ModelFailed("m2.1", 2, 1, Fault("internal", "x"))],
)
def test_answer_to_another_question(fact: Fact) -> None:
    with pytest.raises(StorageError, match=r"m1\.1 is under way"):
        fold(records([STARTED, ASKED, fact]))


@pytest.mark.parametrize(("turn", "attempt"), [(0, 1), (2, 1), (1, 2), (1, 0)])
def test_turn_out_of_order(turn: int, attempt: int) -> None:
    with pytest.raises(StorageError, match="is not the next one"):
        fold(records([STARTED, ModelAsked("m", turn, attempt, "r", 0)]))


def test_gap() -> None:
    first, second, third = records([STARTED, ASKED, REPLIED])
    with pytest.raises(StorageError, match="record 2 is missing") as caught:
        fold([first, third])
    assert caught.value.fields == {"seq": 3}
    with pytest.raises(StorageError, match="record 3 is missing"):
        fold([first, second, second])


def test_state() -> None:
    state = fold(records([STARTED, ASKED, REPLIED, REFUSED]))
    assert (state.phase, state.seq, state.turns, state.repairs) == ("thinking", 4, 1, 1)
    assert tuple(state.transcript) == (STARTED.input, REPLIED.reply.message, REFUSED.repair)
    assert state.usage == Usage(20, 5, 0, 0)
    assert state.effect is None
    assert (state.tokens, state.reserved) == (25, 0)


@given(st.integers(0, 4))
def test_fold_in_two_steps(cut: int) -> None:
    """A fold may stop anywhere and go on later: that is what a resume does."""
    whole = records([STARTED, ASKED, REPLIED, REFUSED])
    state = fold(whole[:cut])
    for record in whole[cut:]:
        state = evolve(state, record)
    assert state == fold(whole)


def test_evolve_changes_no_state() -> None:
    before = fold(records([STARTED, ASKED]))
    one = evolve(before, Record(3, 0, 1, "", REPLIED))
    two = evolve(before, Record(3, 0, 1, "", ModelReplied("m1.1", 1, 1, said("Other"))))
    assert len(before.transcript) == 1
    assert [part.text for part in tuple(one.transcript)[1].parts] == ["Hello"]  # type: ignore[union-attr]
    assert [part.text for part in tuple(two.transcript)[1].parts] == ["Other"]  # type: ignore[union-attr]


def test_states_share_nothing_by_default() -> None:
    fold(records([STARTED]))
    assert len(State().transcript) == 0
