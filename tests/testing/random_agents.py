"""Random agents: tools of every effect, rules at every stage, hooks at every point, and failing models.

None has a tool that cancels its siblings, and a `calm` one nothing that ends the run in the middle of a batch: there
it matters who is first.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from agentrun.core.facts import Continue, Deny, Inject, Modify
from agentrun.engine.clock import StepClock
from agentrun.testing import approving, call, fails, hook, reply, scripted, sink, stub, text
from agentrun.testing.doubles import ScriptItem
from agentrun.testing.laws import Setting

from ..core import script
from ..core.script import rule, tool, writing
from ..packages import package
from .law_shapes import Shape

TOOLS = {
    "search": tool(),
    "put": tool(effect="idempotent"),
    "pay": writing(),
    "send": writing(parallel=True),
    "strict": writing(on_denied="stop"),
}
CALM = ("search", "put", "pay", "send")
RULINGS: dict[str, Sequence[str]] = {
    "input": ("allow", "ask"),
    "model_request": ("allow", "modify"),
    "tool_call": ("allow", "ask", "modify", "deny", "interrupt"),
    "tool_result": ("allow", "modify", "deny", "interrupt"),
    "output": ("allow", "ask", "modify", "deny"),
    "delivery": ("allow", "ask", "modify", "deny"),
}
ANSWERS: dict[str, Sequence[Any]] = {
    "on_input": (Continue(), Inject("More."), Modify("Another 1.")),
    "before_model": (Continue(), Inject("More.")),
    "after_model": (Continue(), Modify("Reworded 12.")),
    "before_tool": (Continue(), Deny("no"), Modify({"q": "m"})),
    "after_tool": (Continue(), Deny("no"), Modify("Another 2.")),
    "on_output": (Continue(), Modify("Another 3.")),
    "on_stop": (Continue(),),
}
CONDITIONS = (None, None, "spend.tool_calls < 2", "calls.search < 1", "args.q == '1'")


def random_agent(seed: int, *, calm: bool) -> Shape:
    chance = Random(seed)  # noqa: S311  # to be repeated, not to be secret
    names = CALM if calm else tuple(TOOLS)
    hooks = {f"h{number}": chance.choice(list(ANSWERS)) for number in range(chance.randrange(4))}
    answers = {name: chance.choice([*ANSWERS[at], ValueError("oh")]) for name, at in hooks.items()}
    agent = package(
        tools={name: TOOLS[name] for name in names},
        policy={"default": chance.choice(["allow", "allow", "ask"]), "rules": _rules(chance, names, calm=calm)},
        hooks=[script.hook(at, id=name, on_failure=chance.choice(["deny", "continue"])) for name, at in hooks.items()],
        sinks=chance.choice([{}, {"report": script.SINK}, {"report": script.SINK | {"delivery": "optional"}}]),
        budgets={
            "turns": chance.choice([2, 3, 20]),
            "on_turns": chance.choice(["fail", "stop"]),
            "grace": chance.choice([None, 1]),
            "tool_calls": None if calm else chance.choice([None, 2, 3]),
            "time": chance.choice([None, 100_000]),
        },
        limits={
            "parallel_tools": chance.choice([2, 8]),
            "on_oversize_batch": chance.choice(["fail", "reject_all", "run_first"]),
            "on_truncated": chance.choice(["continue", "escalate"]),
        },
        guards={"empty_outcome": chance.choice([None, None, 1])},
    )
    items = [*(_item(chance, names) for _ in range(chance.randrange(4))), *[text("Answer 42."), text("Answer 43.")] * 2]
    delays = {name: chance.choice([0, 5, 20]) for name in names}
    fault = chance.choice([None, None, ValueError("full")])
    person: Any = chance.choice([None, "approved", "denied", "approved_for_session"])

    def setting(clock: StepClock) -> Setting:
        return Setting(
            model=scripted(*items),
            tools={name: stub(f"{name} 7", delay=delay, clock=clock) for name, delay in delays.items()},
            hooks={name: hook(answer) for name, answer in answers.items()},
            sinks={"report": sink(fails=fault)},
            approver=None if person is None else approving(person, delay=3, clock=clock),
            message="Hi 5.",
        )

    return Shape(agent, setting)


def _rules(chance: Random, names: Sequence[str], *, calm: bool) -> list[dict[str, Any]]:
    rules = []
    for number in range(chance.randrange(5)):
        stage = chance.choice([*RULINGS, "tool_call", "tool_call"])
        ruling = chance.choice([each for each in RULINGS[stage] if not (calm and each == "interrupt")])
        about_calls = stage in ("tool_call", "tool_result")
        changes: dict[str, Any] = {}
        if ruling == "modify":
            changes = {"set": {"q": "z"}} if stage == "tool_call" else {"mask": ["[0-9]+"]}
        if about_calls:
            changes["when"] = chance.choice(CONDITIONS)
        target = chance.choice([*names, "*"]) if about_calls else "*"
        rules.append(rule(ruling, target, id=f"r{number}", on=stage, **changes))
    return rules


def _item(chance: Random, names: Sequence[str]) -> ScriptItem:
    match chance.randrange(8):
        case 0:
            return fails(chance.choice(["provider.overloaded", "provider.rate_limited", "provider.zero_output"]))
        case 1:
            return reply("Half an", finish="length")
        case _:
            batch = (call(chance.choice(names), q=str(chance.randrange(3))) for _ in range(chance.randrange(1, 4)))
            return reply(chance.choice(["", "Let me see."]), *batch)
