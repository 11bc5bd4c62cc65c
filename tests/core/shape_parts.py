"""Building blocks of run shapes. A shape returns a run that has just started; `finish()` runs it to the end."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from agentrun.core.effects import RunChild, RunTool, Wait
from agentrun.core.facts import CallSettled, ChildSuspended, Fact, MessageQueued, RunResumed
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, user_message

from .script import RUN_STARTED, Run

GOOD = '{"queue": "hardware", "urgent": true}'
BAD = '{"queue": "kitchen"}'
ALLOW = {"default": "allow", "rules": []}
TRANSIENT = Fault("provider.transient", "try again", {"status": 503})
OVERFLOW = Fault("provider.context_overflow", "too long")
LONG = "x" * 600
TALKATIVE = replace(RUN_STARTED, input=user_message(LONG))
SHAPES: dict[str, Callable[[], Run]] = {}


def shape(make: Callable[[], Run]) -> Callable[[], Run]:
    """A further shape, under its own name."""
    SHAPES[make.__name__] = make
    return make


def policy(*rules: dict[str, Any], default: str = "allow") -> dict[str, Any]:
    """Rules with ids of their own."""
    return {"default": default, "rules": [{**each, "id": f"r{place}"} for place, each in enumerate(rules, 1)]}


def resumes(run: Run, wait: Wait) -> Fact | None:
    """Somebody outside settles what is lost, and wakes the rest."""
    lost = next((call for call in run.state.calls if call.status == "lost"), None)
    if lost is not None:
        return CallSettled(lost.call.id, "result", "somebody", (Text("done by hand"),))
    return RunResumed(run.state.package) if len(run.of(RunResumed)) < 5 else None


def settles(how: Any) -> Callable[[Run, Wait], Fact | None]:
    def settle(run: Run, wait: Wait) -> Fact | None:
        if wait.questions or not wait.waits_for:
            return None
        return CallSettled(wait.waits_for[0], how, "somebody", (Text("by hand"),) if how == "result" else ())

    return settle


def queued(at: int) -> Callable[[Run], Run]:
    """A message that comes after so many records."""

    def disturb(run: Run) -> Run:
        run.disturb[at] = lambda run: run.add(MessageQueued("q1", user_message("And now?")))
        return run

    return disturb


def sleeping(texts: list[str]) -> Callable[[RunTool | RunChild], Any]:
    """A child that waits for somebody as long as there are texts, and then answers."""
    left = list(texts)
    return lambda effect: ChildSuspended(effect.id, (left.pop(),)) if left else "child done"


def one_of(*texts: str) -> Callable[[Any], str]:
    given: dict[str, str] = {}
    left = list(texts)
    return lambda effect: given.setdefault(effect.id, left[0] if len(left) == 1 else left.pop(0))
