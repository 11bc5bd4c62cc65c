"""Time and tool-call budgets: the limit passes, one more fails."""

import pytest

from agentrun.core.decide import decide
from agentrun.core.effects import Perform, Wait
from agentrun.core.facts import HookAsked, ModelAsked
from agentrun.core.fault import Fault
from agentrun.core.package import Package

from ..packages import package
from .script import Run, RunWaits, calls_reply, hook, text_reply, tool


def agent(**budgets: int) -> Package:
    tools = {"search": tool(), "slow": tool(parallel=False)}
    return package(tools=tools, policy={"default": "allow"}, budgets=budgets)


# time


def test_run_longer_than_the_time_budget_fails() -> None:
    assert Run(agent(time=1000), text_reply("Yes."), takes=1000).finish().status == "completed"
    outcome = Run(agent(time=1000), text_reply("Yes."), takes=1001).finish()
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("budget.time", 5, "user")
    assert outcome.fields == {"used": 1000, "reserved": 0, "limit": 1000}
    assert outcome.fault is not None
    assert outcome.fault.hint == "raise budgets.time"


def test_deadline_is_the_first_moment_beyond_the_time_budget() -> None:
    """The first moment at which the run is over is waited for, and at it the run ends."""
    run = Run(agent(time=1000), text_reply("Yes."))
    run.until(ModelAsked)
    step = decide(run.agent, run.state)
    assert isinstance(step, Wait)
    assert step.deadline == 1001
    first = decide(agent(time=1000), Run(agent(time=1000)).state)
    assert isinstance(first, Perform)
    assert first.deadline == 1001
    free = decide(agent(), run.state)
    assert isinstance(free, Wait)
    assert free.deadline is None


def test_hooks_at_the_end_have_their_own_time() -> None:
    """The time of the run does not end them: their own timeouts do."""
    run = Run(package(hooks=[hook("on_stop")], budgets={"time": 1000}), text_reply("Yes."))
    run.until(HookAsked)
    step = decide(run.agent, run.state)
    assert isinstance(step, Wait)
    assert step.inflight
    assert step.deadline is None


def test_waiting_for_a_retry_counts_as_time() -> None:
    busy = Fault("provider.overloaded", "busy")
    assert Run(agent(time=1000), busy, text_reply("Yes.")).finish().status == "completed"
    outcome = Run(agent(time=700), busy, text_reply("Yes.")).finish()
    assert (outcome.code, outcome.fields["used"]) == ("budget.time", 700)


@pytest.mark.parametrize(("takes", "code"), [(500, None), (501, "budget.time")])
def test_waiting_for_approval_does_not_count_as_time(takes: int, code: str | None) -> None:
    given = package(tools={"search": tool()}, policy={"default": "ask"}, budgets={"time": 1500})
    run = Run(given, calls_reply("search"), text_reply("Yes."), takes=takes)
    with pytest.raises(RunWaits):
        run.finish()
    run.now += 10**9
    run.people["search"] = "approved"
    assert run.finish().code == code


# tool_calls


@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.parametrize("name", ["search", "slow"])
def test_tool_call_beyond_the_budget_fails_the_run(name: str, limit: int) -> None:
    calls = [calls_reply((name, f'{{"q":"{n}"}}')) for n in range(limit + 1)]
    assert Run(agent(tool_calls=limit), *calls[:limit], text_reply("Yes.")).finish().tool_calls == limit
    run = Run(agent(tool_calls=limit), *calls, text_reply("Yes."))
    outcome = run.finish()
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("budget.tool_calls", 5, "user")
    assert outcome.fields == {"used": limit, "reserved": 1, "limit": limit}
    assert outcome.fault is not None
    assert outcome.fault.hint == "raise budgets.tool_calls"
    assert outcome.fault.message == f"the budget of {limit} tool call{'' if limit == 1 else 's'} is used up"
    assert len(run.ran) == limit


def test_parallel_calls_of_a_reply_are_counted_together() -> None:
    three = calls_reply(*[("search", f'{{"q":"{n}"}}') for n in range(3)])
    assert Run(agent(tool_calls=3), three, text_reply("Yes.")).finish().tool_calls == 3
    run = Run(agent(tool_calls=2), three, text_reply("Yes."))
    outcome = run.finish()
    assert outcome.fields == {"used": 0, "reserved": 3, "limit": 2}
    assert outcome.fault is not None
    assert outcome.fault.message == "the next step may need 3 tool calls, but the budget has only 2 of 2 left"
    assert run.ran == [], "what runs together is counted together"


def test_refused_calls_do_not_count() -> None:
    run = Run(agent(tool_calls=0), calls_reply("nobody"), calls_reply(("search", "{")), text_reply("Yes."))
    outcome = run.finish()
    assert (outcome.status, outcome.tool_calls) == ("completed", 0)
