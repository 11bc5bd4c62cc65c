"""Budget shares of sub-agents: reserved before they start, charged to the parent once when they end."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentrun.core import budget, tool_calls
from agentrun.core.budget import allowance
from agentrun.core.effects import RunChild
from agentrun.core.evolve import fold
from agentrun.core.facts import (
    CallRefused,
    CallSettled,
    CancelRequested,
    ChildStarted,
    ChildSuspended,
    Continue,
    ModelAsked,
    Parent,
    RunResumed,
    ToolFinished,
    WorkLost,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text
from agentrun.core.package import Hook, Package
from agentrun.core.spend import BudgetShare, ChildSpend

from ..packages import ROUTE, package
from .script import RUN_STARTED, Run, RunWaits, agent_tool, calls_reply, records, rule, text_reply, tool

CHILD: dict[str, Any] = msgspec.to_builtins(package(name="child"))
NAMES = ("a", "b", "c")
PRICE = {"input": 3_000_000, "output": 15_000_000, "cached_input": 300_000}


def parent(rules: tuple[dict[str, Any], ...] = (), tools: dict[str, Any] | None = None, **budgets: Any) -> Package:
    """An agent with three children and a plain tool."""
    return package(
        model={"routes": [{**ROUTE, "price": PRICE}]},
        tools={name: agent_tool() for name in NAMES} | {"search": tool()} | (tools or {}),
        agents=dict.fromkeys(NAMES, CHILD),
        policy={"default": "allow", "rules": list(rules)},
        budgets=budgets,
    )


def distinct_calls(*names: str) -> tuple[tuple[str, str], ...]:
    """Calls that all differ."""
    return tuple((name, f'{{"message":"{n}","q":"{n}"}}') for n, name in enumerate(names))


def shares(run: Run) -> list[BudgetShare]:
    return [fact.share for fact in run.of(ChildStarted)]


def spends_all(effect: RunChild) -> tuple[str, ChildSpend]:
    """A child that uses its whole share."""
    share = effect.parent.share
    return "done", ChildSpend(share.tokens or 0, share.cost or 0, share.tool_calls or 0)


def test_allowance_is_the_smaller_of_budget_and_share() -> None:
    state = fold(records([RUN_STARTED]))
    given = package(budgets={"tokens": 10, "cost": None, "time": 30, "tool_calls": 40})
    assert allowance(given, state) == given.budgets
    child = replace(RUN_STARTED, parent=Parent("run-0", "c1.0", 1, BudgetShare(20, 20, 20, None)))
    assert allowance(given, fold(records([child]))) == BudgetShare(10, 20, 20, 40), "the smaller of both"


@pytest.mark.parametrize(
    ("share", "code", "fields"),
    [
        (BudgetShare(tokens=0), "budget.tokens", {"used": 0, "limit": 0}),
        (BudgetShare(cost=0), "budget.cost", {"used": 0, "limit": 0}),
        (BudgetShare(time=5), "budget.time", {"used": 5, "reserved": 0, "limit": 5}),
        (BudgetShare(tool_calls=0), "budget.tool_calls", {"used": 0, "reserved": 1, "limit": 0}),
    ],
)
def test_child_fails_when_its_share_is_used_up(share: BudgetShare, code: str, fields: dict[str, int]) -> None:
    started = replace(RUN_STARTED, parent=Parent("run-0", "c1.0", 1, share))
    outcome = Run(parent(), calls_reply("search"), text_reply("Yes."), started=started, takes=10).finish()
    assert outcome.code == code
    assert outcome.fields.items() >= fields.items()


def test_without_budgets_the_share_is_only_the_tool_timeout() -> None:
    run = Run(parent(), calls_reply(*distinct_calls("a")), text_reply("Yes."))
    run.finish()
    assert shares(run) == [BudgetShare(time=30_000)], "the tool's own timeout"


def test_single_child_gets_all_that_is_left() -> None:
    run = Run(
        parent(tokens=1000, cost=5000, time=900, tool_calls=4),
        calls_reply(*distinct_calls("a")),
        text_reply("Yes."),
        takes=100,
    )
    run.finish()
    assert shares(run) == [BudgetShare(1000 - 25, 5000 - 135, 800, 3)], "without the call itself"


@pytest.mark.parametrize(("timeout", "time"), [(799, 799), (800, 800), (801, 800)])
def test_child_time_is_the_smaller_of_timeout_and_time_left(timeout: int, time: int) -> None:
    """The smaller of the tool's timeout and the time that is left."""
    given = parent((), {"a": agent_tool(timeout=timeout)}, time=900)
    run = Run(given, calls_reply(*distinct_calls("a")), text_reply("Yes."), takes=100)
    run.until(ChildStarted)
    assert [share.time for share in shares(run)] == [time]


def test_children_that_start_together_split_the_budget() -> None:
    run = Run(
        parent(tokens=1025, cost=1135, tool_calls=13), calls_reply(*distinct_calls("a", "b", "c")), text_reply("Yes.")
    )
    run.until(ToolFinished)
    assert [share.tokens for share in shares(run)] == [333, 333, 334]
    assert [share.cost for share in shares(run)] == [333, 333, 334]
    assert [share.tool_calls for share in shares(run)] == [3, 3, 4]


@pytest.mark.parametrize("pick", [0, 1, 2])
def test_hook_order_does_not_change_the_shares(pick: int) -> None:
    """Whichever is let in first, it does not have what the others need."""
    hook = Hook("careful", "before_tool", "m", "f", "sha256:0", 0, 1000, "deny")
    run = Run(
        replace(parent(tokens=1025), hooks=(hook,)),
        calls_reply(*distinct_calls("a", "b", "c")),
        text_reply("Yes."),
        tools=dict.fromkeys(NAMES, spends_all),
        hooks={"careful": Continue()},
        pick=lambda count: min(pick, count - 1),
    )
    run.finish()
    assert sorted(share.tokens or 0 for share in shares(run)) == [333, 333, 334]


def test_child_that_waits_for_approval_keeps_its_share() -> None:
    given = parent((rule("ask", "b"),), tokens=1025, tool_calls=12)
    run = Run(
        given,
        calls_reply(*distinct_calls("a", "b")),
        text_reply("Yes."),
        people={"b": "approved"},
        tools={"a": spends_all},
    )
    run.finish()
    assert [share.tokens for share in shares(run)] == [500, 500]
    assert [share.tool_calls for share in shares(run)] == [5, 5]


def test_planted_undivided_shares_overshoot_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that each have all that is left overshoot together."""
    monkeypatch.setattr(tool_calls, "child_share", lambda package, state, held, among: BudgetShare(tokens=1000))
    run = Run(
        parent(tokens=1025),
        calls_reply(*distinct_calls("a", "b")),
        text_reply("Yes."),
        tools=dict.fromkeys(NAMES, spends_all),
    )
    assert run.finish().code == "budget.tokens"
    assert run.state.meter.tokens > 1025


def test_spend_of_a_child_is_charged_once() -> None:
    run = Run(
        parent(),
        calls_reply(*distinct_calls("a", "b")),
        text_reply("Yes."),
        tools={"a": ("x", ChildSpend(7, 11, 2)), "b": "x"},
    )
    outcome = run.finish()
    assert (outcome.tokens, outcome.cost, outcome.tool_calls) == (50 + 7, 270 + 11, 2 + 2)
    assert run.state.meter.calls == {"a": 1, "b": 1}, "a child's own calls are not the parent's"


def test_spend_of_a_failed_child_is_charged() -> None:
    fault = Fault("tool.execution", "the child failed")
    failed = ToolFinished("", (Text("no"),), fault, spent=ChildSpend(7, 11, 2))
    outcome = Run(parent(), calls_reply(*distinct_calls("a")), text_reply("Yes."), tools={"a": failed}).finish()
    assert (outcome.tokens, outcome.cost, outcome.tool_calls) == (57, 281, 3)


def test_parent_fails_when_a_child_spent_the_budget() -> None:
    run = Run(parent(tokens=1000), calls_reply(*distinct_calls("a")), text_reply("Yes."), tools={"a": spends_all})
    outcome = run.finish()
    assert outcome.code == "budget.tokens"
    assert outcome.fields["used"] == 1000


def test_lost_child_restarts_with_the_same_share() -> None:
    run = Run(
        parent(tokens=1000), calls_reply(*distinct_calls("a")), text_reply("Yes."), tools={"a": ("x", ChildSpend(7))}
    )
    run.until(ChildStarted)
    run.add(RunResumed("sha256:0"))
    run.add(WorkLost("c1.0"))
    outcome = run.finish()
    first, second = shares(run)
    assert first == second
    assert (outcome.tokens, outcome.tool_calls) == (57, 1), "started twice, counted once"


@pytest.mark.parametrize("how", ["sibling", "run"])
def test_abandoned_child_costs_its_whole_share(how: str) -> None:
    """What it used is not known: all that it was given."""
    tools = {"stop": tool(aborts_siblings=True)}
    given = parent((), tools, tokens=1000, cost=2000, tool_calls=9)
    names = ("a", "stop") if how == "sibling" else ("a",)
    run = Run(given, calls_reply(*distinct_calls(*names)), text_reply("Yes."), pick=lambda count: count - 1)
    run.until(ChildStarted)
    if how == "run":
        run.add(CancelRequested("somebody"))
    run.finish()
    assert shares(run) == [BudgetShare(975, 1865, 30_000, 9 - len(names))]
    meter = run.state.meter
    assert (meter.tokens, meter.cost, meter.tool_calls) == (1000, 2000, 9)


def sleeps(times: int, spent: ChildSpend) -> Any:
    """A child that waits for somebody so many times before it is done."""
    left = [times]

    def answer(effect: RunChild) -> Any:
        left[0] -= 1
        return ChildSuspended("", ("q",)) if left[0] >= 0 else ("done", spent)

    return answer


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_suspended_child_keeps_its_share_reserved(order: str) -> None:
    """c is let in when a is woken: it does not have what a holds, and has all the rest."""
    given = parent((rule("defer", "c", when="spend.time < 150"),), tokens=1025, tool_calls=13)
    world = {"a": sleeps(1, ChildSpend(100, 0, 5)), "b": ("done", ChildSpend(10, 0, 1)), "c": spends_all}
    run = Run(given, calls_reply(*distinct_calls(*order)), text_reply("Yes."), tools=world, takes=100)
    with pytest.raises(RunWaits):
        run.finish()
    assert shares(run) == [BudgetShare(500, None, 30_000, 5)] * 2
    run.add(RunResumed("sha256:0"))
    run.until(ToolFinished)
    found = {fact.tool: fact.share for fact in run.of(ChildStarted)}
    assert found["a"] == BudgetShare(500, None, 30_000, 5)
    assert found["c"] == BudgetShare(1025 - 25 - 10 - 500, None, 30_000, 13 - 3 - 1 - 5)
    assert run.finish().tool_calls <= 13


BATCH = st.lists(st.sampled_from([*NAMES, "search", "asked"]), min_size=1, max_size=6)


@given(
    names=BATCH,
    tokens=st.integers(200, 2000),
    cost=st.integers(1000, 9000),
    calls=st.integers(0, 12),
    slow=st.sets(st.sampled_from(NAMES)),
    pick=st.integers(0, 5),
)
def test_children_never_exceed_the_budget_of_the_parent(
    names: list[str], tokens: int, cost: int, calls: int, slow: set[str], pick: int
) -> None:
    """Whatever is started together, and whatever comes back first: with children that use all they have."""
    tools = {name: agent_tool(parallel=False) for name in slow} | {"asked": tool()}
    given = parent((rule("ask", "asked"),), tools, tokens=tokens, cost=cost, tool_calls=calls)
    run = Run(
        given,
        calls_reply(*distinct_calls(*names)),
        text_reply("Yes."),
        tools=dict.fromkeys(NAMES, spends_all),
        people={"asked": "approved"},
        pick=lambda count: pick % count,
    )
    outcome = run.finish()
    assert outcome.tool_calls <= calls
    own = run.of(ModelAsked)
    assert outcome.tokens <= max(tokens, 25 * len(own))
    assert outcome.cost <= max(cost, 135 * len(own))


def test_a_child_whose_result_is_supplied_is_charged_its_share() -> None:
    run = Run(parent(tokens=1025), calls_reply(*distinct_calls("a")), text_reply("Yes."))
    run.until(ChildStarted)
    for fact in (RunResumed("sha256:0"), WorkLost("c1.0")):
        run.add(fact)
    share = next(call.share for call in run.state.calls)
    assert share is not None
    before = run.state.meter.tokens
    run.add(CallSettled("c1.0", "result", "Ada", (Text("done"),)))
    assert run.state.meter.tokens - before == share.tokens


# --- runs ---------------------------------------------------------------------------------------------------------

MIDDLE: dict[str, Any] = msgspec.to_builtins(
    package(name="middle", tools={"leaf": agent_tool()}, agents={"leaf": CHILD})
)


def agent_with_grandchildren(runs: int, **below: int) -> Package:
    """An agent whose children have children; `below`: how many runs each of them may start by its own limits."""
    agents = {name: {**MIDDLE, "limits": {**MIDDLE["limits"], "runs": below.get(name, 100)}} for name in NAMES}
    return package(
        tools={name: agent_tool() for name in NAMES},
        agents=agents,
        limits={"runs": runs},
        policy={"default": "allow", "rules": []},
    )


@pytest.mark.parametrize(
    ("runs", "given"), [(1, [0]), (2, [0, 0]), (3, [0, 0, 0]), (4, [0, 0, 1]), (5, [0, 1, 1]), (9, [2, 2, 2])]
)
def test_remaining_runs_are_split_among_children(runs: int, given: list[int]) -> None:
    """Each child that begins is one of them; the rest is shared out. Calls that are too many are refused."""
    run = Run(
        agent_with_grandchildren(runs),
        calls_reply(*distinct_calls(*NAMES)),
        text_reply("Yes."),
        tools=dict.fromkeys(NAMES, starts_all),
    )
    outcome = run.finish()
    assert [share.runs for share in shares(run)] == given
    assert [fact.fields["reason"] for fact in run.of(CallRefused)] == ["runs"] * (3 - len(given))
    assert outcome.runs == min(runs, len(given) + sum(given))


def starts_all(effect: RunChild) -> tuple[str, ChildSpend]:
    return "done", ChildSpend(runs=effect.parent.share.runs or UNSET)


@given(st.integers(1, 30), st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), max_size=6))
def test_run_limit_is_never_exceeded(runs: int, turns: list[list[str]]) -> None:
    replies = [
        calls_reply(*((name, f'{{"message":"{n}.{i}"}}') for i, name in enumerate(t))) for n, t in enumerate(turns)
    ]
    run = Run(agent_with_grandchildren(runs), *replies, text_reply("Yes."), tools=dict.fromkeys(NAMES, starts_all))
    assert run.finish().runs <= runs


def test_planted_wrong_run_share_exceeds_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_child_run_limit", lambda package, state, held, among: 9)
    run = Run(
        agent_with_grandchildren(10),
        calls_reply(*distinct_calls(*NAMES)),
        text_reply("Yes."),
        tools=dict.fromkeys(NAMES, starts_all),
    )
    assert run.finish().runs > 10


@pytest.mark.parametrize(("share", "refused"), [(UNSET, 0), (2, 0), (1, 1), (0, 2)])
def test_child_calls_beyond_its_share_of_runs_are_refused(share: int | UnsetType, refused: int) -> None:
    started = replace(RUN_STARTED, parent=Parent("run-0", "c1.0", 1, BudgetShare(runs=share)))
    run = Run(agent_with_grandchildren(50), calls_reply(*distinct_calls("a", "b")), text_reply("Yes."), started=started)
    run.finish()
    assert len(run.of(CallRefused)) == refused


def test_child_without_sub_agents_has_no_share_of_runs() -> None:
    run = Run(parent(), calls_reply(*distinct_calls("a")), text_reply("Yes."))
    run.finish()
    assert shares(run)[0].runs is UNSET
