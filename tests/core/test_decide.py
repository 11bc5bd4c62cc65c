"""What a run does next, seen through whole runs of the pure core."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from agentrun.core import decide as module
from agentrun.core.decide import Commit, Wait, decide
from agentrun.core.evolve import fold
from agentrun.core.facts import Fault, Label, RunStopped
from agentrun.core.messages import Finish, Refusal, Text, ToolCall, Usage, User
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.errors import CODES

from ..packages import TRIAGE, package, typed
from ..worlds import BAD, GOOD
from .script import STARTED, Run, records, said


def test_text() -> None:
    run = Run(package(), said("Call the fire brigade."))
    assert run.finish() == Outcome(
        run="run-1",
        agent="triage",
        status="completed",
        replayed=False,
        answer="Call the fire brigade.",
        label=None,
        turns=1,
        usage=Usage(20, 5, 0, 0),
        fault=None,
    )
    assert run.kinds() == ["run_started", "model_asked", "model_replied", "run_stopped"]


def test_nothing_before_the_start() -> None:
    assert decide(package(), State()) == Wait()


def test_request() -> None:
    run = Run(typed(), said(GOOD))
    run.finish()
    (effect,) = run.requests
    assert (effect.id, effect.turn, effect.attempt) == ("m1.1", 1, 1)
    assert effect.request.route == run.agent.model.routes[0]
    assert effect.request.settings == run.agent.model
    assert effect.request.instructions == STARTED.instructions
    assert tuple(effect.request.messages) == (STARTED.input,)
    assert effect.request.output == TRIAGE


def test_output() -> None:
    outcome = Run(typed(), said(GOOD)).finish()
    assert (outcome.status, outcome.answer) == ("completed", GOOD)
    assert outcome.output == {"queue": "hardware", "urgent": True}


def test_output_may_be_null() -> None:
    agent = package(output={"schema": {"type": "null"}})
    assert Run(agent, said("null")).finish().output is None
    assert Run(package(), said("null")).finish().output is UNSET


def test_repair() -> None:
    run = Run(typed(), said(BAD), said("certainly!"), said(GOOD))
    outcome = run.finish()
    assert (outcome.status, outcome.turns, outcome.usage) == ("completed", 3, Usage(60, 15, 0, 0))
    assert run.kinds().count("output_refused") == 2
    first, second = (tuple(request.request.messages) for request in run.requests[1:])
    told = first[-1]
    assert isinstance(told, User)
    assert "/queue" in told.parts[0].text
    assert '"urgent"' in told.parts[0].text
    assert first[0] == STARTED.input, "the conversation goes on, it is not begun again"
    assert second[: len(first)] == first
    assert [request.id for request in run.requests] == ["m1.1", "m2.1", "m3.1"]


@pytest.mark.parametrize("repairs", [0, 1, 2])
def test_repairs(repairs: int) -> None:
    agent = typed(output={"repairs": repairs})
    assert Run(agent, *[said(BAD)] * repairs, said(GOOD)).finish().status == "completed"
    outcome = Run(agent, *[said(BAD)] * (repairs + 1)).finish()
    assert (outcome.status, outcome.code, outcome.turns) == ("failed", "output.invalid", repairs + 1)
    assert outcome.output is UNSET, "no best-effort object"
    assert outcome.answer is None
    assert outcome.fields["repairs"] == repairs
    assert len(outcome.fields["errors"]) == 2
    assert (outcome.exit_code, outcome.retry) == (6, "not_retryable")


def exceeds(limit: int, agent: Package) -> bool:
    """Whether a run of an agent that never answers well makes more than `limit` calls."""
    run = Run(agent, *[said(BAD)] * 50)
    run.finish()
    return len(run.requests) > limit


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turns(turns: int) -> None:
    agent = typed(budgets={"turns": turns}, output={"repairs": 10})
    assert Run(agent, *[said(BAD)] * (turns - 1), said(GOOD)).finish().status == "completed"
    run = Run(agent, *[said(BAD)] * turns)
    outcome = run.finish()
    assert (outcome.status, outcome.code, outcome.exit_code) == ("failed", "budget.turns", 5)
    assert outcome.fields == {"used": turns, "limit": turns}
    assert not exceeds(turns, agent)


def test_turns_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `decide` that never runs out of turns is noticed."""
    agent = typed(budgets={"turns": 2}, output={"repairs": 10})
    real = module._ask
    generous = typed(output={"repairs": 10})
    monkeypatch.setattr(module, "_ask", lambda package, state: real(generous, state))
    assert exceeds(2, agent)


def test_on_turns_stop() -> None:
    agent = typed(budgets={"turns": 2, "on_turns": "stop"})
    run = Run(agent, said(BAD), said("almost"))
    outcome = run.finish()
    assert (outcome.status, outcome.label, outcome.code) == ("completed", "budget.turns", None)
    assert outcome.answer == "almost"
    assert outcome.output is UNSET, "a broken answer is no output, whatever ends the run"
    assert outcome.exit_code == 0


def test_failure() -> None:
    fault = Fault("provider.rate_limited", "slow down", {"status": 429, "retry_after": 7}, "wait")
    run = Run(package(), fault)
    outcome = run.finish()
    assert (outcome.status, outcome.code, outcome.exit_code) == ("failed", "provider.rate_limited", 6)
    assert outcome.fields == {"status": 429, "retry_after": 7, "turn": 1, "attempts": 1}
    assert outcome.fault is not None
    assert outcome.fault.hint == "wait"
    assert outcome.retry == "retryable"
    assert run.kinds() == ["run_started", "model_asked", "model_failed", "run_stopped"]


def test_failure_in_a_later_turn() -> None:
    outcome = Run(typed(), said(BAD), Fault("provider.fatal", "no")).finish()
    assert (outcome.code, outcome.fields) == ("provider.fatal", {"turn": 2, "attempts": 1})
    assert outcome.usage == Usage(20, 5, 0, 0)


def test_tool_call() -> None:
    run = Run(package(), said("Let me see.", ToolCall("0", "search", '{"q": 1}', "call_9")))
    outcome = run.finish()
    assert (outcome.status, outcome.code, outcome.exit_code) == ("failed", "host.missing", 2)
    assert outcome.fields == {"name": "tools", "calls": ["search"]}


@pytest.mark.parametrize(
    ("finish", "label"),
    [
        ("stop", None),
        ("tool_calls", None),
        ("length", "truncated"),
        ("content_filter", "filtered"),
        ("unknown", "unknown_finish"),
    ],
)
def test_label(finish: Finish, label: Label | None) -> None:
    assert Run(package(), said("So far", finish=finish)).finish().label == label
    assert Run(typed(), said(GOOD, finish=finish)).finish().label == label


def test_refusal() -> None:
    outcome = Run(package(), said(Refusal("I will not."))).finish()
    assert (outcome.status, outcome.answer, outcome.label) == ("completed", "I will not.", "refused")
    outcome = Run(typed(output={"repairs": 0}), said(Refusal("I will not."))).finish()
    assert outcome.code == "output.invalid"


def test_usage_that_was_not_reported() -> None:
    run = Run(typed(), said(BAD), said(GOOD, usage=None))
    assert run.finish().usage == Usage(None, None, None, None)
    run = Run(typed(), said(BAD, usage=Usage(3, 4, None, 1)), said(GOOD, usage=Usage(3, 4, 2, 1)))
    assert run.finish().usage == Usage(6, 8, None, 2)


ANSWERS = st.sampled_from(
    [said(GOOD), said(BAD), said("no"), said(Text(GOOD), ToolCall("0", "t", "{}")), Fault("internal", "bug")]
)


@given(
    answers=st.lists(ANSWERS, min_size=12, max_size=12),
    turns=st.integers(1, 5),
    repairs=st.integers(0, 5),
    on_turns=st.sampled_from(["fail", "stop"]),
    with_contract=st.booleans(),
)
def test_every_run_ends(answers: list[object], turns: int, repairs: int, on_turns: str, *, with_contract: bool) -> None:
    """Whatever the model does: one terminal record, a known code, no call too many."""
    make = typed if with_contract else package
    agent = make(budgets={"turns": turns, "on_turns": on_turns}, output={"repairs": repairs})
    run = Run(agent, *answers)  # type: ignore[arg-type]
    outcome = run.finish()
    assert run.kinds().count("run_stopped") == 1
    assert run.kinds()[-1] == "run_stopped"
    assert len(run.requests) <= min(turns, repairs + 1)
    assert (outcome.status == "completed") == (outcome.code is None) == (outcome.exit_code == 0)
    assert outcome.code is None or outcome.code in CODES
    assert decide(agent, run.state) == decide(agent, run.state), "deciding changes nothing"


def prefixes(run: Run) -> Iterator[tuple[State, object]]:
    for length in range(1, len(run.facts)):
        yield fold(records(run.facts[:length])), run.facts[length]


def test_decisions_follow_from_the_journal_alone() -> None:
    """What comes next is a function of the records so far: the heart of resume and audit."""
    run = Run(typed(), said(BAD), said(GOOD))
    run.finish()
    stops = [
        (decided, fact) for state, fact in prefixes(run) if isinstance(decided := decide(run.agent, state), Commit)
    ]
    assert [decided.facts for decided, _ in stops] == [(fact,) for _, fact in stops]
    assert isinstance(stops[-1][1], RunStopped)
