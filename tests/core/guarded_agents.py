"""Agents with guards, and checks whether a guard trips in a run."""

from collections.abc import Callable
from typing import Any

from agentrun.core.effects import RunTool
from agentrun.core.facts import RunStarted
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.errors import code_of

from ..packages import package
from .script import RUN_STARTED, Run, text_reply, tool, writing

OFF: dict[str, Any] = {"repeated_call": None, "cycle": None, "repeated_batch": None, "stagnation": None}
TOOLS = {
    **{name: tool() for name in ("search", "edit", "run", "a", "b", "c", "d")},
    **{name: writing() for name in ("w", "v")},
    "watch": tool(observation=True),
    "look": tool(observation=True),
}


def agent(*, limits: dict[str, Any] | None = None, turns: int = 200, **guard: Any) -> Package:
    """An agent with the guards of the base; `only` switches the others off."""
    return package(
        tools=TOOLS, policy={"default": "allow"}, guards=guard, limits=limits or {}, budgets={"turns": turns}
    )


def only(**guard: Any) -> Package:
    return agent(**(OFF | guard))


def by_calls(**guard: Any) -> Package:
    """Like `only`, with guards that compare tools and arguments alone."""
    return only(call_compare="calls", cycle_compare="calls", batch_compare="calls", **guard)


def changing(effect: RunTool) -> str:
    """Another result for each call."""
    return f"found at {effect.id}"


def in_order(*results: str) -> Callable[[RunTool], str]:
    """The results of the calls that run, in their order."""
    left = iter(results)
    return lambda effect: next(left)


def outcome_of_replies(
    given: Package, *replies: Reply, started: RunStarted = RUN_STARTED, result: Any = "done"
) -> Outcome:
    return Run(given, *replies, text_reply("Done."), started=started, tools=dict.fromkeys(TOOLS, result)).finish()


def trips(given: Package, *replies: Reply, code: str, started: RunStarted = RUN_STARTED, result: Any = "done") -> Fault:
    """The fault of a run that goes on to the last of these replies and no further; nothing of that reply runs."""
    run = Run(given, *replies, text_reply("Done."), started=started, tools=dict.fromkeys(TOOLS, result))
    outcome = run.finish()
    assert outcome.code == code, outcome
    assert outcome.turns == len(replies)
    assert not [id for id in run.ran if id.startswith(f"c{outcome.turns}.")], "before it runs"
    assert (code_of(code).retry, outcome.exit_code) == ("not_retryable", 5)
    assert outcome.fault is not None
    return outcome.fault


def passes(given: Package, *replies: Reply, started: RunStarted = RUN_STARTED, result: Any = "done") -> None:
    outcome = outcome_of_replies(given, *replies, started=started, result=result)
    assert outcome.status == "completed", outcome
