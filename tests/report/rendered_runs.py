"""Runs to render, their rendered text, and hostile texts."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from agentrun.core.effects import RunChild
from agentrun.core.facts import Record
from agentrun.core.fault import Fault
from agentrun.core.messages import user_message as message
from agentrun.core.package import Package
from agentrun.core.spend import ChildSpend
from agentrun.report.formatting import OutputLine
from agentrun.report.run_renderer import RunRenderer

from ..core.script import RUN_STARTED, Run, RunWaits, agent_tool, calls_reply, rule, text_reply, tool, writing
from ..packages import ROUTE, package, typed

HOSTILE = [
    "\x1b]52;c;cm0gLXJmIH4=\x07",  # sets the clipboard
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",  # a link
    "\x1b]0;title\x07",
    "\x1b[6 q",
    "\x9b2J",  # a C1 control
    "safe\rrm -rf",  # writes over what stands there
    "a\u202egnp.exe",  # turns the direction
    "pay\u200bpal",  # nothing to see
    "\u2066x\u2069\ufeff\u00ad",
    "a\x08\x08\x7f\x00",
    "one\u2028two\u2029three\x85four\x0bfive\x0csix",
    "lone \ud800 surrogate",
    "\ue000\U000f0000 private",
    "x" * 1_000_000,
    "\x1b" * 100_000,
    "\n" * 100_000,
    "\r\n\t",
]
"""Texts that want to do something to a terminal or to its reader."""


def text_of(lines: Iterable[OutputLine]) -> str:
    return "".join(f"{'  ' * line.indent}{line.text}\n" for line in lines)


def lines_of(agent: Package, records: Iterable[Record]) -> list[OutputLine]:
    story = RunRenderer(agent)
    return [line for record in records for line in story.render(record)]


def finished(run: Run) -> Run:
    """As far as it goes."""
    with suppress(RunWaits):
        run.finish()
    return run


class RunWithChild:
    """A run and its child; `rendered_text` shows both, the child's part where it belongs."""

    def __init__(self, agent: Package, *answers: Any, **world: Any) -> None:
        self.children: dict[str, tuple[Package, list[Record]]] = {}
        world["tools"] = {**world.get("tools", {}), "billing": self._work}
        self.run = Run(agent, *answers, **world)

    def _work(self, effect: RunChild) -> tuple[str, ChildSpend]:
        begun = replace(
            RUN_STARTED, run=effect.run, agent="billing", input=message(effect.message or ""), parent=effect.parent
        )
        child = Run(effect.package, calls_reply(("pay", '{"q": "50"}')), text_reply("Paid 50."), started=begun)
        outcome = child.finish()
        self.children[effect.run] = (effect.package, child.records)
        return str(outcome.answer), ChildSpend(outcome.tokens, outcome.cost, outcome.tool_calls)

    def rendered_text(self) -> str:
        story = RunRenderer(self.run.first)
        lines: list[OutputLine] = []
        for record in self.run.records:
            lines += story.render(record)
            if (run := getattr(record.fact, "run", None)) in self.children:
                lines += lines_of(*self.children[run])
        return text_of(lines) + f"[{story.usage}]\n"


def typical() -> RunWithChild:
    """Tools, an approval, denials, a retry, a repair, another route and a child, all in one run."""
    second = {**ROUTE, "provider": "anthropic", "name": "claude-haiku-4-5"}
    price = {"input": 400_000, "output": 1_600_000, "cached_input": 100_000}
    allow = {"default": "allow", "rules": []}
    billing = package(name="billing", tools={"pay": tool()}, policy=allow)
    agent = typed(
        model={"routes": [{**ROUTE, "price": price}, {**second, "price": price}]},
        tools={"search": tool(), "refund": writing(), "mail": writing(), "billing": agent_tool()},
        agents={"billing": billing},
        policy={
            "default": "allow",
            "rules": [
                rule("ask", "refund", id="big-refunds", reason="a person signs off refunds above 50"),
                rule("deny", "mail", id="no-mail", reason="nobody is written to"),
            ],
        },
        budgets={"turns": 12, "tokens": 50_000, "cost": 250_000, "tool_calls": 20, "time": 120_000},
        retry={"attempts": 2},
    )
    busy = Fault("provider.rate_limited", "the provider answered 429: slow down", {"status": 429, "retry_after": 2})
    return RunWithChild(
        agent,
        calls_reply(
            ("search", '{"q": "1042"}'), ("search", '{\n  "q": "1043"\n}'), ("nothing", "{}"), text="I look\nthem up."
        ),
        busy,
        calls_reply(("refund", '{"q": "900"}'), ("mail", '{"q": "ada@example.com"}')),
        busy,
        busy,
        calls_reply(("billing", '{"message": "Pay 50."}')),
        text_reply('{"queue": "kitchen"}'),
        text_reply('{"queue": "hardware", "urgent": true}'),
        tools={"search": lambda effect: "late\nby two days" if effect.id == "c1.0" else Fault("tool.timeout", "slow")},
        people={"refund": "approved"},
        takes=300,
    )
