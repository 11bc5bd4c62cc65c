"""`decide`: the next step of a run, tested on whole runs."""

from contextlib import suppress

import pytest
from msgspec.structs import replace

from agentrun.core import model_request
from agentrun.core.decide import decide
from agentrun.core.effects import Deliver, NextStep, Wait
from agentrun.core.evolve import fold
from agentrun.core.facts import EarlierRuns, HookAsked, Inject, ModelTold, Modify, OutputRefused
from agentrun.core.fault import Fault
from agentrun.core.messages import Usage, User, text_of
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.state import State

from ..packages import ROUTE, TRIAGE, package, typed
from .script import RUN_STARTED, SINK, Run, calls_reply, hook, rule, text_reply, tool
from .shape_parts import ALLOW, BAD, GOOD, LONG, OVERFLOW, TALKATIVE, policy
from .shapes import SHAPES


def test_text_answer_completes_the_run() -> None:
    run = Run(package(), text_reply("Call the fire brigade."))
    assert run.finish() == Outcome(
        run="run-1",
        agent="triage",
        status="completed",
        replayed=False,
        answer="Call the fire brigade.",
        label=None,
        turns=1,
        usage=Usage(20, 5, 0, 0),
        tokens=25,
        cost=0,
        tool_calls=0,
        fault=None,
        attempt=1,
        seq=5,
    )
    assert run.kinds() == ["run_started", "model_asked", "model_replied", "answer_reached", "run_stopped"]


def test_decide_waits_before_the_run_starts() -> None:
    assert decide(package(), State()) == Wait()


def test_first_request_has_route_instructions_tools_and_output_schema() -> None:
    run = Run(typed(tools={"b": tool(), "a": tool()}), text_reply(GOOD))
    run.finish()
    (effect,) = run.requests
    assert (effect.id, effect.turn, effect.attempt, effect.purpose) == ("m1.1", 1, 1, "answer")
    assert (effect.gap, effect.time) == (60_000, 600_000)
    request = effect.request
    assert (request.route, request.settings) == (run.agent.model.routes[0], run.agent.model)
    assert (request.instructions, tuple(request.messages)) == (RUN_STARTED.instructions, (RUN_STARTED.input,))
    assert (request.output, [offered.name for offered in request.tools]) == (TRIAGE, ["a", "b"])


def test_valid_answer_becomes_the_output() -> None:
    outcome = Run(typed(), text_reply(GOOD)).finish()
    assert (outcome.status, outcome.answer) == ("completed", GOOD)
    assert outcome.output == {"queue": "hardware", "urgent": True}


def test_output_may_be_null() -> None:
    agent = package(output={"schema": {"type": "null"}})
    assert Run(agent, text_reply("null")).finish().output is None
    assert Run(package(), text_reply("null")).finish().output is None


def test_invalid_answers_are_repaired_in_the_same_conversation() -> None:
    run = Run(typed(), text_reply(BAD), text_reply("certainly!"), text_reply(GOOD))
    outcome = run.finish()
    assert (outcome.status, outcome.turns, outcome.usage) == ("completed", 3, Usage(60, 15, 0, 0))
    assert len(run.of(OutputRefused)) == 2
    first, second = (tuple(request.request.messages) for request in run.requests[1:])
    assert isinstance(first[-1], User)
    said_so = text_of(first[-1].parts)
    assert "/queue" in said_so
    assert '"urgent"' in said_so
    assert first[0] == RUN_STARTED.input, "the conversation goes on, it is not begun again"
    assert second[: len(first)] == first
    assert [request.id for request in run.requests] == ["m1.1", "m2.1", "m3.1"]


@pytest.mark.parametrize("repairs", [0, 1, 2])
def test_run_fails_after_the_allowed_repairs(repairs: int) -> None:
    agent = typed(output={"repairs": repairs})
    assert Run(agent, *[text_reply(BAD)] * repairs, text_reply(GOOD)).finish().status == "completed"
    outcome = Run(agent, *[text_reply(BAD)] * (repairs + 1)).finish()
    assert (outcome.status, outcome.code, outcome.turns) == ("failed", "output.invalid", repairs + 1)
    assert outcome.output is None, "no best-effort object"
    assert outcome.answer is None
    assert (outcome.fields["repairs"], outcome.fields["turn"], len(outcome.fields["errors"])) == (
        repairs,
        repairs + 1,
        2,
    )
    assert (outcome.exit_code, outcome.retry) == (6, "not_retryable")


def makes_more_requests_than(limit: int, agent: Package) -> bool:
    """Whether a run of an agent that never answers well makes more than `limit` calls."""
    run = Run(agent, *[text_reply(BAD)] * 50)
    with suppress(AssertionError):
        run.finish()
    return len(run.requests) > limit


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_run_fails_after_the_allowed_turns(turns: int) -> None:
    agent = typed(budgets={"turns": turns}, output={"repairs": 10})
    assert Run(agent, *[text_reply(BAD)] * (turns - 1), text_reply(GOOD)).finish().status == "completed"
    run = Run(agent, *[text_reply(BAD)] * turns)
    outcome = run.finish()
    assert (outcome.status, outcome.code, outcome.exit_code, outcome.retry) == ("failed", "budget.turns", 5, "user")
    assert outcome.fields == {"used": turns, "reserved": 1, "limit": turns}
    assert outcome.fault is not None
    assert outcome.fault.hint == "raise budgets.turns, or set budgets.on_turns: stop"
    assert not makes_more_requests_than(turns, agent)


def test_planted_off_by_one_in_turns_makes_one_more_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that counts a turn too few is noticed."""
    agent = typed(budgets={"turns": 2}, output={"repairs": 10})
    real = model_request._out_of_turns

    def generous(package: Package, state: State) -> NextStep:
        return (
            model_request._send_or_compact(package, state)
            if state.turns == package.budgets.turns
            else real(package, state)
        )

    assert not makes_more_requests_than(2, agent)
    monkeypatch.setattr(model_request, "_out_of_turns", generous)
    assert makes_more_requests_than(2, agent)


def test_on_turns_stop_completes_with_the_last_text() -> None:
    agent = typed(budgets={"turns": 2, "on_turns": "stop"})
    outcome = Run(agent, text_reply(BAD), text_reply("almost")).finish()
    assert (outcome.status, outcome.label, outcome.code) == ("completed", "budget.turns", None)
    assert outcome.answer == "almost"
    assert outcome.output is None, "a broken answer is no output, whatever ends the run"
    assert outcome.exit_code == 0
    outcome = Run(typed(budgets={"turns": 2, "on_turns": "stop"}), text_reply(BAD), text_reply(GOOD)).finish()
    assert (outcome.label, outcome.output) == (None, {"queue": "hardware", "urgent": True})


def test_on_turns_stop_joins_truncated_replies() -> None:
    """What was said so far is the answer, once."""
    agent = package(budgets={"turns": 2, "on_turns": "stop"})
    outcome = Run(agent, text_reply("One ", finish="length"), text_reply("two ", finish="length")).finish()
    assert (outcome.answer, outcome.label) == ("One two ", "budget.turns")


def test_on_turns_stop_fails_when_a_hook_keeps_injecting() -> None:
    agent = package(budgets={"turns": 2, "on_turns": "stop"}, hooks=[hook("on_output")])
    run = Run(agent, text_reply("One."), text_reply("Two."), hooks={"watch": Inject("More.")})
    outcome = run.finish()
    assert (outcome.code, len(run.requests), len(run.of(HookAsked))) == ("budget.turns", 2, 3)


def test_on_turns_stop_skips_the_schema_but_applies_hooks_and_policy() -> None:
    agent = typed(
        budgets={"turns": 1, "on_turns": "stop"},
        hooks=[hook("on_output")],
        policy=policy(rule("modify", on="output", mask=["almost"])),
        sinks={"first": SINK},
    )
    run = Run(agent, text_reply("almost"), hooks={"watch": lambda effect: Modify(effect.value + "!")})
    outcome = run.finish()
    assert (outcome.status, outcome.answer, outcome.label) == ("completed", "***!", "budget.turns")
    assert [effect.text for effect in run.effects if isinstance(effect, Deliver)] == ["***!"]


@pytest.mark.parametrize("grace", [1, 2, 3])
def test_wrap_up_message_is_sent_when_grace_turns_are_left(grace: int) -> None:
    """One message, when so many turns are left."""
    agent = package(budgets={"turns": 3, "grace": grace}, tools={"a": tool()}, policy=ALLOW)
    run = Run(agent, *(calls_reply(("a", f'{{"q": "{turn}"}}')) for turn in range(2)), text_reply("Done."))
    run.finish()
    (fact,) = run.of(ModelTold)
    assert (fact.why, text_of(fact.messages[0].parts).partition(" left")[0]) == (
        "wrap_up",
        "You have 1 turn" if grace == 1 else f"You have {grace} turns",
    )
    told_first = next(request.turn for request in run.requests if fact.messages[0] in tuple(request.request.messages))
    assert told_first == 3 - grace + 1


def test_without_grace_no_wrap_up_message_is_sent() -> None:
    agent = package(budgets={"turns": 1}, tools={"a": tool()}, policy=ALLOW)
    run = Run(agent, text_reply("Done."))
    run.finish()
    assert run.of(ModelTold) == []


def test_fatal_provider_fault_fails_the_run() -> None:
    fault = Fault("provider.fatal", "no", {"status": 401}, "look at the key")
    run = Run(package(), fault)
    outcome = run.finish()
    assert (outcome.status, outcome.code, outcome.exit_code, outcome.retry) == ("failed", "provider.fatal", 6, "user")
    assert outcome.fields == {"status": 401, "turn": 1, "attempts": 1}
    assert outcome.fault is not None
    assert outcome.fault.hint == "look at the key"
    assert run.kinds() == ["run_started", "model_asked", "model_failed", "run_stopped"]


def test_fatal_provider_fault_names_its_turn() -> None:
    outcome = Run(typed(), text_reply(BAD), Fault("provider.fatal", "no")).finish()
    assert (outcome.code, outcome.fields) == ("provider.fatal", {"turn": 2, "attempts": 1})
    assert outcome.usage == Usage(20, 5, 0, 0)


def test_context_overflow_falls_back_to_the_next_route() -> None:
    run = Run(package(model={"routes": [ROUTE, {**ROUTE, "name": "second"}]}), OVERFLOW, text_reply("Yes."))
    assert run.finish().answer == "Yes."
    assert [request.request.route.name for request in run.requests] == ["gpt-4.1-mini", "second"]
    outcome = Run(package(model={"routes": [ROUTE, {**ROUTE, "name": "second"}]}), OVERFLOW, OVERFLOW).finish()
    assert (outcome.code, outcome.retry, outcome.exit_code) == ("provider.context_overflow", "repair", 6)


def test_summary_that_does_not_fit_ends_the_run() -> None:
    """It is not asked for again and again."""
    agent = package(tools={"a": tool()}, policy=ALLOW, context={"overflow": "compact", "keep": 1})
    run = Run(agent, calls_reply("a"), OVERFLOW, OVERFLOW, tools={"a": LONG}, started=TALKATIVE)
    assert run.finish().code == "provider.context_overflow"
    assert [request.purpose for request in run.requests] == ["answer", "answer", "compact"]


def test_earlier_history_without_results_fails() -> None:
    earlier = EarlierRuns(messages=(calls_reply("a").with_call_ids(1).message,))
    outcome = Run(package(), started=replace(RUN_STARTED, earlier=earlier)).finish()
    assert (outcome.code, outcome.fields, outcome.exit_code) == (
        "provider.inconsistent_history",
        {"calls": ["c1.0"]},
        6,
    )


def test_decide_is_a_function_of_the_records() -> None:
    """What comes next is a function of the records so far: the heart of resume and audit."""
    for name in SHAPES:
        run = SHAPES[name]()
        run.finish()
        for length in range(len(run.records)):
            state = fold(run.records[:length])
            assert decide(run.agent, state) == decide(run.agent, state)
