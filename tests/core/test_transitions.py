"""The transition tables: every listed transition occurs in some run, and no other one is accepted."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from agentrun.core import transitions
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import (
    ApprovalAnswered,
    DeliveryFinished,
    Fact,
    GateFact,
    HookAnswered,
    HookAsked,
    Inject,
    MessageQueued,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Modify,
    Record,
    ResultsGiven,
    Ruled,
    RunResumed,
    RunStopped,
    SingleCallFact,
    WorkLost,
    fact_kind,
    is_about_call,
)
from agentrun.core.fault import Fault
from agentrun.core.state import CallState, CallStatus, Phase, State
from agentrun.core.transitions import CALL_TRANSITIONS, PHASE_TRANSITIONS
from agentrun.errors import StorageError

from ..named_cases import case
from ..packages import package
from .disturbances import DISTURBANCES, everywhere
from .script import RUN_STARTED, SINK, Run, calls_reply, hook, records, rule, text_reply, tool
from .shape_parts import ALLOW, policy
from .shapes import SHAPES
from .untraced import untraced

Way = tuple[str, str, str]


def steps(records: Iterable[Record]) -> Iterator[tuple[State, Fact, State]]:
    state = State()
    for record in records:
        after = evolve(state, record)
        yield state, record.fact, after
        state = after


def changed_calls(state: State, fact: Fact, after: State) -> Iterator[tuple[CallState, CallState]]:
    """The calls that a fact is about, before and after."""
    later = {call.call.id: call for call in after.calls}
    for call in state.calls:
        then = later.get(call.call.id)
        if then is None:
            continue
        about = (
            (isinstance(fact, SingleCallFact) and fact.call == call.call.id)
            or (isinstance(fact, GateFact) and is_about_call(fact) and fact.subject == call.call.id)
            or (isinstance(fact, WorkLost) and fact.effect in (call.call.id, call.gate.hook, call.result_gate.hook))
            or (isinstance(fact, RunResumed) and call.status != then.status)
        )
        if about:
            yield call, then


class ObservedTransitions:
    """What was seen in all shapes, disturbed in every way."""

    def __init__(self) -> None:
        self.ways: set[Way] = set()
        self.call_ways: set[Way] = set()
        self.phases: dict[str, State] = {}
        """One state for each phase."""
        self.statuses: dict[str, State] = {}
        """One state for each status of a call."""
        self.facts: dict[type, Fact] = {}
        """One of each."""

    def look(self, run: Run) -> None:
        for before, fact, after in steps(run.records):
            self.facts.setdefault(type(fact), fact)
            self.ways.add((before.phase, fact_kind(fact), after.phase))
            self.phases.setdefault(before.phase, before)
            self.phases.setdefault(after.phase, after)
            for call, then in changed_calls(before, fact, after):
                self.call_ways.add((call.status, fact_kind(fact), then.status))
            if after.phase == "acting":
                for call in after.calls:
                    self.statuses.setdefault(call.status, after)


@cache
def observed() -> ObservedTransitions:
    all_of_it = ObservedTransitions()
    for name, make in SHAPES.items():
        plain = make()
        plain.finish()
        all_of_it.look(plain)
        with untraced():
            for what in DISTURBANCES.values():
                for run in everywhere(name, what):
                    all_of_it.look(run)
    return all_of_it


def transitions_in(table: Mapping[Any, Mapping[Any, Any]]) -> set[Way]:
    return {
        (source, str(fact.__struct_config__.tag), target)
        for source, leads in table.items()
        for fact, targets in leads.items()
        for target in targets
    }


def test_transition_tables_have_every_phase_and_call_status() -> None:
    assert set(PHASE_TRANSITIONS) == set(get_args(Phase))
    assert set(CALL_TRANSITIONS) == set(get_args(CallStatus))


def test_phase_transitions_are_exactly_those_that_occur() -> None:
    assert sorted(transitions_in(PHASE_TRANSITIONS) - observed().ways) == [], "in the table, and never seen"
    assert sorted(observed().ways - transitions_in(PHASE_TRANSITIONS)) == [], "seen, and not in the table"


def test_call_transitions_are_exactly_those_that_occur() -> None:
    assert sorted(transitions_in(CALL_TRANSITIONS) - observed().call_ways) == [], "in the table, and never seen"
    assert sorted(observed().call_ways - transitions_in(CALL_TRANSITIONS)) == [], "seen, and not in the table"


def refusal_message(state: State, fact: Fact) -> str:
    """Why the fact cannot follow. Nothing is changed by the attempt."""
    before = repr(state)
    with pytest.raises(StorageError) as caught:
        evolve(state, Record(state.seq + 1, state.now, 1, "", fact))
    assert (caught.value.code, caught.value.fields) == ("recovery.failed", {"seq": state.seq + 1})
    assert (caught.value.exit_code, caught.value.retry) == (7, "repair")
    assert repr(state) == before
    return caught.value.message


@pytest.mark.parametrize("phase", PHASE_TRANSITIONS)
def test_fact_that_cannot_follow_in_a_phase_is_refused(phase: Phase) -> None:
    state = observed().phases[phase]
    for kind in (each for each in get_args(Fact) if each not in PHASE_TRANSITIONS[phase]):
        with case(kind.__name__):
            assert "cannot follow while the run is" in refusal_message(state, observed().facts[kind])


def about(fact: Any, call: str) -> Fact:
    """The same fact about a call on its way in, or its result."""
    if isinstance(fact, HookAsked | HookAnswered):
        return replace(fact, subject=call, point="before_tool")
    if isinstance(fact, GateFact):
        return (
            replace(fact, subject=call, stage="tool_call") if isinstance(fact, Ruled) else replace(fact, subject=call)
        )
    return WorkLost(call) if isinstance(fact, WorkLost) else replace(fact, call=call)


CALL_FACTS = (*get_args(SingleCallFact), *get_args(GateFact), WorkLost)


@pytest.mark.parametrize("status", CALL_TRANSITIONS)
def test_fact_that_cannot_follow_in_a_call_status_is_refused(status: CallStatus) -> None:
    state = observed().statuses[status]
    (id, *_) = [call.call.id for call in state.calls if call.status == status]
    for kind in (each for each in CALL_FACTS if each not in CALL_TRANSITIONS[status]):
        with case(kind.__name__):
            assert id in refusal_message(state, about(observed().facts[kind], id))


@pytest.mark.parametrize("kind", [*get_args(SingleCallFact), *get_args(GateFact)], ids=lambda kind: kind.__name__)
def test_fact_about_an_unknown_call_is_refused(kind: type) -> None:
    assert "there is no call c9.9" in refusal_message(observed().statuses["new"], about(observed().facts[kind], "c9.9"))


def test_missing_record_is_refused() -> None:
    run = SHAPES["text"]()
    run.finish()
    first, second, third, *_ = run.records
    with pytest.raises(StorageError, match="record 2 is missing") as caught:
        fold([first, third])
    assert caught.value.fields == {"seq": 3}
    with pytest.raises(StorageError, match="record 3 is missing"):
        fold([first, second, second])
    with pytest.raises(StorageError, match="record 1 is missing"):
        fold([second])


def test_reply_to_another_request_is_refused() -> None:
    run = Run(package(), text_reply("Yes."))
    run.until(ModelAsked)
    why = "it answers m1.2, but m1.1 is running"
    assert why in refusal_message(run.state, ModelReplied("m1.2", 1, 2, text_reply("x")))
    assert why in refusal_message(run.state, ModelFailed("m1.2", 1, 2, Fault("internal", "x")))


@pytest.mark.parametrize(("turn", "attempt"), [(0, 1), (2, 1), (1, 2), (1, 0)])
def test_request_with_a_wrong_turn_or_attempt_is_refused(turn: int, attempt: int) -> None:
    state = fold(records([RUN_STARTED]))
    assert "is not the next one" in refusal_message(state, ModelAsked("m", turn, attempt, "r", 0))
    assert evolve(state, Record(2, 0, 1, "", ModelAsked("m", 1, 1, "r", 0))).phase == "asking"


def test_results_given_with_a_missing_result_is_refused() -> None:
    run = Run(package(tools={"a": tool()}, policy=ALLOW), calls_reply("a", "a"), text_reply("Done."))
    run.until(Ruled)
    assert "c1.0 has no result" in refusal_message(run.state, ResultsGiven(1))


def test_delivery_finished_without_a_start_is_refused() -> None:
    run = Run(package(sinks={"a": SINK, "b": SINK}), text_reply("Yes."))
    run.until(DeliveryFinished)
    assert "no delivery to a is running" in refusal_message(run.state, DeliveryFinished("a"))
    assert "the answer is being delivered" in refusal_message(run.state, MessageQueued("q", some_message()))


def some_message() -> Any:
    assert RUN_STARTED.input is not None
    return RUN_STARTED.input


def test_hook_answer_without_a_question_is_refused() -> None:
    run = Run(package(hooks=[hook("on_input")]), text_reply("Yes."))
    asked = run.until(HookAsked)
    assert isinstance(asked, HookAsked)
    assert "is being asked" in refusal_message(run.state, replace(asked, effect="h.other"))
    good = HookAnswered(asked.effect, "watch", "on_input", "input", Inject("x"))
    assert "h.other was not asked" in refusal_message(run.state, replace(good, effect="h.other"))
    assert "the answer is not allowed at on_input" in refusal_message(
        run.state, replace(good, answer=Modify({"q": "x"}))
    )
    run.add(good)
    assert "was not asked" in refusal_message(run.state, good), "once"


@pytest.mark.parametrize("point", ["after_model", "on_output", "on_stop"])
def test_hook_of_another_phase_is_refused(point: Any) -> None:
    """The point of a hook belongs to a phase; asked elsewhere it would take the run there."""
    state = fold(records([RUN_STARTED]))
    assert "cannot follow while the run is starting" in refusal_message(state, HookAsked("h", "watch", point, "input"))


@pytest.mark.parametrize("stage", ["run_start", "output", "delivery"])
def test_ruling_of_another_phase_is_refused(stage: Any) -> None:
    state = fold(records([RUN_STARTED]))
    assert "cannot follow while the run is starting" in refusal_message(state, Ruled("input", stage, "allow", ()))


def test_answer_to_a_closed_question_is_refused() -> None:
    agent = package(tools={"a": tool()}, policy=policy(rule("ask")))
    run = Run(agent, calls_reply("a"), text_reply("Done."), people={"a": "approved"})
    run.until(ApprovalAnswered)
    first = run.of(ApprovalAnswered)[0]
    assert "cannot follow while c1.0 is ready" in refusal_message(run.state, first), "the first answer wins"
    run = Run(agent, calls_reply("a", "a"), text_reply("Done."), people={"a": "approved"})
    run.until(ApprovalAnswered)
    other = replace(run.of(ApprovalAnswered)[0], subject="c1.1")
    assert "the question is not open" in refusal_message(run.state, other), "it is about another call"


def test_record_after_the_end_is_refused() -> None:
    run = SHAPES["text"]()
    run.finish()
    assert "while the run is stopped" in refusal_message(run.state, RunStopped("completed"))
    assert "while the run is stopped" in refusal_message(run.state, RunResumed("sha256:0"))


def test_planted_empty_table_accepts_a_record_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the table a second terminal record would pass: the table is what refuses it."""
    monkeypatch.setattr(
        transitions, "PHASE_TRANSITIONS", dict.fromkeys(PHASE_TRANSITIONS, dict.fromkeys(get_args(Fact), ()))
    )
    assert fold(records([RUN_STARTED, RunStopped("completed"), RunStopped("completed")])).seq == 3


def test_missing_or_extra_transition_is_detected() -> None:
    less = {**PHASE_TRANSITIONS, "waiting": {**PHASE_TRANSITIONS["waiting"], ModelAsked: ()}}
    assert ("waiting", "model_asked", "asking") in observed().ways - transitions_in(less)
    more = {**PHASE_TRANSITIONS, "waiting": {**PHASE_TRANSITIONS["waiting"], ModelAsked: ("asking", "ending")}}
    assert transitions_in(more) - observed().ways == {("waiting", "model_asked", "ending")}
