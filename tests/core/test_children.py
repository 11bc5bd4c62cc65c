"""Sub-agents: their run, depth, budget share, suspension and cancellation."""

from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core import tool_calls
from agentrun.core.effects import RunChild, Wait
from agentrun.core.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    CallCancelled,
    CallRefused,
    CancelRequested,
    ChildStarted,
    Parent,
    ResultsGiven,
    RunStarted,
    ToolFinished,
    ToolStarted,
    WorkLost,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, Usage
from agentrun.core.spend import BudgetShare, ChildSpend
from agentrun.core.state import pending_effects

from ..packages import package
from .disturbances import crash
from .script import RUN_STARTED, Run, RunWaits, agent_tool, calls_reply, rule, text_reply, tool
from .shape_parts import ALLOW, policy, resumes, sleeping

ONE, TWO, THREE = (("helper", f'{{"message": "{name}"}}') for name in ("one", "two", "three"))
CHILD = package(name="child")


def parent(
    *calls: Any, tools: Any = None, helps: Any = resumes, started: RunStarted = RUN_STARTED, **changes: Any
) -> Run:
    own = {"helper": agent_tool(params={"team": "fixed"}), "a": tool()}
    agent = package(**{"tools": own, "agents": {"helper": CHILD}, "policy": ALLOW, **changes})
    return Run(agent, calls_reply(*calls), text_reply("Done."), tools=tools, helps=helps, started=started)


def children(run: Run) -> list[RunChild]:
    return [effect for effect in run.effects if isinstance(effect, RunChild)]


def test_child_effect_has_run_id_params_share_and_limits() -> None:
    run = parent(("helper", '{"message": "one", "level": 3}'))
    run.finish()
    (child,) = children(run)
    assert (child.id, child.name, child.run, child.package) == ("c1.0", "helper", "run-1.c1.0", CHILD)
    assert (child.message, child.params) == ("one", {"level": 3, "team": "fixed"})
    assert child.parent == Parent("run-1", "c1.0", 1, BudgetShare(time=30_000))
    assert (child.max_lines, child.max_bytes) == (2000, 51_200)
    assert run.of(ChildStarted) == [ChildStarted("c1.0", "helper", "run-1.c1.0", BudgetShare(time=30_000))]


def test_model_cannot_change_fixed_params() -> None:
    run = parent(("helper", '{"message": "one", "team": "mine"}'))
    run.finish()
    assert children(run)[0].params == {"team": "fixed"}


@pytest.mark.parametrize(("depth", "code"), [(0, None), (2, None), (3, "tool.invalid_call")])
def test_child_beyond_the_depth_limit_is_refused(depth: int, code: str | None) -> None:
    """A limit of 3: a run that is two deep may have a child, one that is three deep may not."""
    above = Parent("run-0", "c1.0", depth, BudgetShare()) if depth else None
    run = parent(ONE, started=replace(RUN_STARTED, parent=above))
    run.finish()
    if code is None:
        assert children(run)[0].parent.depth == depth + 1
    else:
        (refused,) = run.of(CallRefused)
        assert (refused.code, refused.fields) == (code, {"tool": "helper", "reason": "depth", "limit": 3})
        assert children(run) == []


def test_single_child_gets_the_remaining_budget() -> None:
    run = parent(ONE, budgets={"tokens": 1000, "cost": 500, "time": 900, "tool_calls": 7})
    run.finish()
    spent = 25
    assert children(run)[0].parent.share == BudgetShare(1000 - spent, 500, 900, 6), "the child itself is a call"


def test_parallel_children_split_the_remaining_budget() -> None:
    run = parent(ONE, "a", TWO, THREE, budgets={"tokens": 1000})
    run.until(ToolStarted)
    shares = [child.parent.share.tokens for child in children(run)]
    assert shares == [325, 325, 325]
    assert sum(share or 0 for share in shares) + run.state.meter.tokens <= 1000
    run.finish()


def test_planted_independent_shares_exceed_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that do not know of each other are too much together, and an audit sees that they depend on order."""
    monkeypatch.setattr(
        tool_calls,
        "child_share",
        lambda package, state, held, among: BudgetShare(tokens=(1000 - state.meter.tokens) // among),
    )
    run = parent(ONE, TWO, THREE, budgets={"tokens": 1000})
    run.until(ChildStarted)
    assert sum(child.parent.share.tokens or 0 for child in children(run)) > 1000


def test_child_spend_is_charged_once_after_a_crash() -> None:
    spent: Any = ("answer", ChildSpend(100, 7, 2))
    for at in (None, 6, 7):
        run = parent(ONE, tools={"helper": spent})
        if at:
            run.disturb[at] = crash
        outcome = run.finish()
        assert (outcome.tokens, outcome.cost, outcome.tool_calls) == (150, 7, 3)
        assert outcome.usage == Usage(40, 10, 0, 0), "usage is what this run's own requests used"


def test_failed_child_is_charged() -> None:
    given = ToolFinished("", (Text("no"),), Fault("tool.execution", "no"), spent=ChildSpend(100, 7, 2))
    outcome = parent(ONE, tools={"helper": given}).finish()
    assert (outcome.answer, outcome.tokens) == ("Done.", 150)


def test_aborted_child_is_charged_its_share() -> None:
    """What it used is not known, so it used all it was given."""
    own = {"helper": agent_tool(), "enough": tool(aborts_siblings=True)}
    budgets = {"tokens": 1000, "cost": 50, "tool_calls": 9}
    run = parent(ONE, "enough", tools={}, budgets=budgets)
    run = Run(
        replace(run.agent, tools=package(tools=own).tools), calls_reply(ONE, "enough"), pick=lambda count: count - 1
    )
    run.until(ResultsGiven)
    meter = run.state.meter
    share = children(run)[0].parent.share
    assert (meter.tokens, meter.cost) == (25 + (share.tokens or 0), 50)
    assert meter.tool_calls == 2 + (share.tool_calls or 0)
    assert run.finish().code == "budget.tokens"


def test_child_that_did_not_start_costs_nothing() -> None:
    own = {"helper": agent_tool(parallel=False), "enough": tool(aborts_siblings=True)}
    run = parent(ONE, "enough")
    run = Run(replace(run.agent, tools=package(tools=own).tools), calls_reply(ONE, "enough"), text_reply("Done."))
    outcome = run.finish()
    assert (outcome.tokens, outcome.tool_calls, children(run)) == (50, 1, [])


def test_suspended_child_suspends_its_parent() -> None:
    run = parent(ONE, tools={"helper": sleeping(["c1.0"])}, helps=lambda run, wait: None, budgets={"tokens": 1000})
    with pytest.raises(RunWaits) as caught:
        run.finish()
    assert caught.value.wait == Wait(waits_for=("c1.0",))
    assert run.state.calls[0].status == "asleep"
    run.crash()
    outcome = run.finish()
    one, two = children(run)
    assert one == two, "the same run with the same share"
    assert (outcome.answer, outcome.tool_calls) == ("Done.", 1)


def test_other_calls_run_while_a_child_is_suspended() -> None:
    run = parent(ONE, "a", tools={"helper": sleeping(["x"])}, helps=lambda run, wait: None)
    with pytest.raises(RunWaits):
        run.finish()
    assert [call.status for call in run.state.calls] == ["asleep", "finished"]


def test_share_of_a_suspended_child_stays_reserved() -> None:
    own = {"helper": agent_tool(), "later": agent_tool()}
    agent = package(
        tools=own,
        agents={"helper": CHILD, "later": CHILD},
        policy=policy(rule("ask", "later")),
        budgets={"tokens": 1000},
    )
    calls = calls_reply(ONE, ("later", '{"message": "x"}'))
    run = Run(agent, calls, text_reply("Done."), tools={"helper": sleeping(["x"])})
    with pytest.raises(RunWaits):
        run.finish()
    first = children(run)[0].parent.share.tokens or 0
    run.crash()
    run.add(ApprovalAnswered("c1.1", run.of(ApprovalAsked)[0].question, "approved", "somebody"))
    assert [call.status for call in run.state.calls] == ["ready", "ready"]
    run.finish()
    shares = {child.id: child.parent.share.tokens or 0 for child in children(run)}
    assert shares["c1.0"] == first
    assert sum(shares.values()) + 25 <= 1000


def test_lost_child_is_started_again_with_the_same_share() -> None:
    run = parent(ONE, budgets={"tokens": 1000})
    run.until(ChildStarted)
    run.crash()
    run.finish()
    one, two = children(run)
    assert one == two
    assert run.of(WorkLost) == [WorkLost("c1.0")]


def test_cancel_ends_the_call_of_a_child() -> None:
    run = parent(ONE)
    run.until(ChildStarted)
    run.add(CancelRequested("me"))
    assert run.finish().code == "cancelled"
    assert [fact.call for fact in run.of(CallCancelled)] == ["c1.0"]
    assert pending_effects(run.state) == ()


def test_policy_rules_apply_to_sub_agents() -> None:
    run = parent(ONE, policy=policy(rule("deny", "helper")))
    run.finish()
    assert [fact.code for fact in run.of(CallRefused)] == ["tool.denied"]


def test_child_fails_at_the_limit_of_its_share() -> None:
    share = BudgetShare(tokens=100, cost=None, time=None, tool_calls=0)
    started = replace(RUN_STARTED, parent=Parent("run-0", "c1.0", 1, share))
    agent = package(tools={"a": tool()}, policy=ALLOW, budgets={"tokens": 10_000, "tool_calls": 9})
    outcome = Run(agent, calls_reply("a"), started=started).finish()
    assert outcome.code in ("budget.tool_calls", "budget.tokens")
    assert outcome.fields["limit"] in (0, 100)
