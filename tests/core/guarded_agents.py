"""Agents with guards, and checks whether a guard trips in a run."""

from typing import Any

from agentrun.core.facts import RunStarted
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.errors import code_of

from ..packages import package
from .script import STARTED, Run, said, tool

OFF: dict[str, Any] = {"repeated_call": None, "cycle": None, "repeated_batch": None, "stagnation": None}
TOOLS = {
    **{name: tool() for name in ("search", "edit", "run", "a", "b", "c", "d")},
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


def outcome_of_replies(given: Package, *replies: Reply, started: RunStarted = STARTED) -> Outcome:
    return Run(given, *replies, said("Done."), started=started).finish()


def trips(given: Package, *replies: Reply, code: str, started: RunStarted = STARTED) -> Fault:
    """The fault of a run that goes on to the last of these replies and no further; nothing of that reply runs."""
    run = Run(given, *replies, said("Done."), started=started)
    outcome = run.finish()
    assert outcome.code == code, outcome
    assert outcome.turns == len(replies)
    assert not [id for id in run.ran if id.startswith(f"c{outcome.turns}.")], "before it runs"
    assert (code_of(code).retry, outcome.exit_code) == ("not_retryable", 5)
    assert outcome.fault is not None
    return outcome.fault


def passes(given: Package, *replies: Reply, started: RunStarted = STARTED) -> None:
    outcome = outcome_of_replies(given, *replies, started=started)
    assert outcome.status == "completed", outcome
