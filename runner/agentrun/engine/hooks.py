"""Asks hooks.

Rule 1  A hook sees a copy: what it does to it changes nothing. Its answer alone counts, after it was journaled.
Rule 2  A hook that raises, takes too long or gives what cannot be written down has failed. Whether that is a no is
        up to `core/hooks.py`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from copy import deepcopy
from typing import Any

from msgspec import Struct

from agentrun.core.effects import AskHook
from agentrun.core.facts_base import Fault
from agentrun.core.facts_gates import Failed, HookAnswered, Point
from agentrun.core.hooks import answered, is_legal
from agentrun.core.package import Hook
from agentrun.engine.attempt import Late, Raised, attempt, is_plain
from agentrun.engine.world import World, hook_of


class HookQuestion(Struct, frozen=True):
    """What a hook is asked."""

    run: str
    point: Point
    subject: str
    """`input`, `request`, `reply`, `output`, `stop`, or a call's id."""
    target: str
    """The tool, or the subject itself."""
    value: Any
    """What it is about: arguments, or a text."""


async def ask_hook(world: World, run: str, effect: AskHook) -> HookAnswered:
    hook = effect.hook
    function = hook_of(world, hook.id)
    question = HookQuestion(run, effect.point, effect.subject, effect.target, deepcopy(effect.value))

    async def asked() -> Any:
        said = await world.clock.aside(lambda: function(question))
        return await said if isinstance(said, Coroutine) else said

    said = await attempt(world.clock, hook.timeout, asked)
    match said:
        case Late():
            said = _failed(hook, f"took longer than {hook.timeout} ms", reason="timeout", limit=hook.timeout)
        case Raised() as raised:
            said = _failed(hook, f"raised {raised.kind}", reason="exception", error=raised.kind)
        case _ if is_legal(hook.at, said) and not is_plain(said):
            said = _failed(hook, "gave an answer that cannot be written down", reason="answer")
    return answered(effect.id, hook, effect.subject, said)


def _failed(hook: Hook, what: str, **fields: Any) -> Failed:
    return Failed(Fault("policy.denied", f"the hook {hook.id} {what}", {"hook": hook.id, **fields}))
