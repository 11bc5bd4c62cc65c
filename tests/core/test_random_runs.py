"""Random runs: every run ends once, keeps its budgets and starts no harmful call twice."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.core import tool_calls
from agentrun.core.effects import AskHook, AskModel, Effect, RunChild, Wait
from agentrun.core.evolve import fold
from agentrun.core.facts import (
    ApprovalAnswered,
    CallSettled,
    ChildSuspended,
    Continue,
    Deny,
    Fact,
    Inject,
    ModelAsked,
    Modify,
    RunResumed,
    TimePassed,
    ToolStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.model_request import find_history_fault
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.spend import ChildSpend
from agentrun.core.state import pending_effects
from agentrun.errors import ERROR_CODES

from ..packages import ROUTE, package, typed
from .disturbances import cancel, crash, message, other_package
from .script import SINK, Run, agent_tool, calls_reply, hook, rule, session_messages, text_reply, tool, writing
from .shape_parts import ALLOW, BAD, GOOD, OVERFLOW, TRANSIENT, policy
from .shapes_calls import POINTS
from .untraced import untraced

QUESTIONS = ("approved", "approved_for_session", "denied", "timed_out", "cancelled", "unavailable")
NAMES = ("read", "write", "ask", "set", "no", "late", "final", "abort", "child", "missing")


def agent(chance: Random) -> Package:
    tools = {
        "read": tool(),
        "write": writing(on_denied=chance.choice(["tell", "stop"])),
        "ask": tool(effect="idempotent"),
        "set": tool(),
        "no": tool(on_denied=chance.choice(["tell", "tell", "stop"])),
        "late": tool(),
        "final": tool(terminal=True),
        "abort": tool(aborts_siblings=True),
        "child": agent_tool(),
    }
    rules = [
        rule("ask", "ask", "write"),
        rule("modify", "set", set={"q": chance.choice(["x", 5])}),
        rule("deny", "no", when="calls.no > 0"),
        rule("defer", "late", when="spend.time < 40"),
        rule("modify", "*", on="tool_result", mask=["[0-9]"]),
        rule("deny", "read", on="tool_result", when="spend.tool_calls > 4"),
        rule(chance.choice(["allow", "ask", "defer", "modify"]), on="output", mask=["e"], when="spend.turns > 1"),
        rule(chance.choice(["allow", "deny", "ask"]), "b", on="delivery"),
        rule("modify", on="model_request", mask=["secret"]),
    ]
    points = chance.sample(POINTS, chance.randint(0, 3))
    hooks = [
        hook(point, id=f"{place}.{point}", on_failure=chance.choice(["deny", "continue"]))
        for place, point in enumerate(points)
    ]
    make = typed if chance.random() < 0.5 else package
    return make(
        tools=tools,
        agents={"child": package(name="child")},
        policy=policy(*chance.sample(rules, len(rules))),
        hooks=hooks,
        sinks={"a": SINK, "b": SINK | {"delivery": "optional"}},
        budgets={
            "turns": chance.randint(1, 12),
            "on_turns": chance.choice(["fail", "stop"]),
            "grace": chance.choice([None, 1]),
            "tokens": chance.choice([None, None, 3000]),
            "tool_calls": chance.choice([None, None, 6]),
            "time": chance.choice([None, None, 300]),
        },
        limits={
            "parallel_tools": 3,
            "on_oversize_batch": chance.choice(["fail", "reject_all", "run_first"]),
            "on_truncated": chance.choice(["continue", "escalate"]),
        },
        model={"max_output_tokens": chance.choice([None, 20]), "routes": [ROUTE, {**ROUTE, "name": "second"}]},
        guards={"empty_outcome": chance.choice([None, None, 1])},
        context={"overflow": chance.choice(["fail", "compact"]), "keep": 1},
    )


def reply(chance: Random) -> Reply | Fault:
    kind = chance.randint(0, 5)
    if kind == 0:
        return chance.choice([TRANSIENT, OVERFLOW, Fault("provider.fatal", "no"), Fault("provider.empty", "")])
    if kind == 1:
        return text_reply(chance.choice([GOOD, BAD, "Yes."]), finish=chance.choice(["stop", "length", "unknown"]))
    names = chance.choices(NAMES, k=chance.randint(1, 4))
    arguments = ['{"q": "a"}', '{"q": "b"}', "{", '{"q": 1}', '{"message": "m"}']
    return calls_reply(*((name, chance.choice(arguments)) for name in names), text=chance.choice(["", "Hm."]))


class World(Run):
    """A run whose world draws what it does."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)  # noqa: S311  # a test
        results = dict.fromkeys(NAMES, self._result_of)
        super().__init__(agent(chance), tools=results, takes=10, helps=self._help, pick=self._any)
        self.hooks = {each.id: self._hook for each in self.agent.hooks}

    def _any(self, count: int) -> int:
        return self.chance.randrange(count)

    def _result_of(self, effect: Any) -> Any:
        given = [
            "12 things",
            Fault("tool.execution", "broken"),
            Fault("tool.timeout", "slow"),
            Fault("tool.denied", "no"),
        ]
        if isinstance(effect, RunChild):
            given += [ChildSuspended(effect.id, ("somebody",)), ("from the child", ChildSpend(10, 0, 1))]
        return self.chance.choice([*given, Fault("tool.fatal", "end")])

    def _hook(self, effect: AskHook) -> Any:
        texts = [
            Continue(),
            Continue(),
            Deny("no"),
            Modify("other"),
            Modify({"q": "hooked"}),
            Inject("and"),
            "nonsense",
        ]
        return self.chance.choice(texts)

    def _help(self, run: Run, wait: Wait) -> Fact | None:
        if wait.questions:
            asked = wait.questions[0]
            said = self.chance.choice(QUESTIONS)
            return ApprovalAnswered(asked.subject, asked.question, said, "somebody")  # type: ignore[arg-type]  # the test gives the right kind
        lost = next((call for call in self.state.calls if call.status == "lost"), None)
        if lost is not None:
            how = self.chance.choice(["retry", "result", "stop"])
            return CallSettled(lost.call.id, how, "somebody")  # type: ignore[arg-type]  # the test gives the right kind
        self.now += 10
        self.add(TimePassed())
        return RunResumed(self.state.package)

    def perform(self, effect: Effect) -> Fact:
        if isinstance(effect, AskModel):
            self.answers = [reply(self.chance)]
        return super().perform(effect)

    def step(self) -> Outcome | None:
        happens = self.chance.choice([None] * 80 + [crash] * 4 + [message, other_package, cancel])
        if happens is not None and self.state.phase not in ("fresh", "stopped"):
            self.disturb[len(self.records)] = happens
        return super().step()


def budgets_kept(run: Run) -> bool:
    """No request was sent, and no call begun, beyond what the budgets leave."""
    budgets = run.agent.budgets
    for record in run.records:
        fact, before = record.fact, fold(run.records[: record.seq - 1])
        if isinstance(fact, ModelAsked):
            if fact.turn > budgets.turns:
                return False
            if budgets.tokens is not None and before.meter.tokens + fact.reserved > budgets.tokens:
                return False
        if isinstance(fact, ToolStarted) and budgets.tool_calls is not None:
            counted = next(call.counted for call in before.calls if call.call.id == fact.call)
            if not counted and before.meter.tool_calls + 1 > budgets.tool_calls:
                return False
    return True


def no_harmful_call_started_twice(run: Run) -> bool:
    """No call that can harm was begun twice, unless somebody said so."""
    again = {fact.call for fact in run.of(CallSettled) if fact.how == "retry"}
    begun = [fact.call for fact in run.of(ToolStarted) if fact.tool == "write" and fact.call not in again]
    return len(begun) == len(set(begun))


@settings(max_examples=400)
@given(st.integers(0, 2**32))
def test_random_run_ends_once_and_keeps_its_budgets(seed: int) -> None:
    with untraced():
        run = World(seed)
        outcome = run.finish()
        assert (outcome.status == "completed") == (outcome.code is None) == (outcome.exit_code == 0)
        assert outcome.code is None or outcome.code in ERROR_CODES
        assert budgets_kept(run)
        assert no_harmful_call_started_twice(run)
        assert pending_effects(run.state) == ()
        assert find_history_fault(session_messages(run.state)) is None, "a later run can read on"


def test_planted_missing_tool_call_budget_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that never says no is noticed."""
    agent = package(tools={"a": tool()}, policy=ALLOW, budgets={"tool_calls": 1, "tokens": 300})
    run = Run(
        agent, calls_reply("a"), calls_reply(("a", '{"q": "b"}')), calls_reply(("a", '{"q": "c"}')), text_reply("Done.")
    )
    run.finish()
    assert budgets_kept(run)
    monkeypatch.setattr(tool_calls, "tool_calls_fault", lambda *_: None)
    run = Run(agent, calls_reply("a", ("a", '{"q": "b"}')), text_reply("Done."))
    run.finish()
    assert not budgets_kept(run)
