"""The type of a package key case: two packages, a scripted run, and the value to compare."""

from collections.abc import Callable
from typing import Any, NamedTuple

from agentrun.core.facts import CallRefused, ModelAsked
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.package import Package

from .script import Run, text_reply

Changes = dict[str, Any]
Play = Callable[[Package], Run]
Look = Callable[[Run], Any]


class Key(NamedTuple):
    """Two packages that differ in one key, and what one script shows of each."""

    one: Changes
    two: Changes
    play: Play
    look: Look
    seen: tuple[Any, Any]


def run_to_end(*answers: Reply | Fault, **world: Any) -> Play:
    """A run to its end."""

    def play(agent: Package) -> Run:
        run = Run(agent, *answers, **world)
        run.finish()
        return run

    return play


def section(name: str, key: str, one: Any, two: Any, play: Play, look: Look, seen: tuple[Any, Any], **same: Any) -> Key:
    """A key of a section, the rest of which may have to be set as well."""
    rest = same.pop(name, {})
    return Key({name: {**rest, key: one}, **same}, {name: {**rest, key: two}, **same}, play, look, seen)


def code(run: Run) -> str | None:
    """What the run failed over."""
    assert run.state.stopped is not None
    return run.state.stopped.fault.code if run.state.stopped.fault else None


def answer(run: Run) -> str | None:
    outcome = run.step()
    assert outcome is not None
    return outcome.answer


def count_requests(run: Run) -> int:
    """How often the model was asked."""
    return len(run.of(ModelAsked))


def refusal_codes(run: Run) -> list[str]:
    return [fact.code for fact in run.of(CallRefused)]


DONE_REPLY = text_reply("Done.")
