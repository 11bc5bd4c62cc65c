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
from agentrun.core.facts import HookAnswer, HookAnswered, HookFailure, HookPoint
from agentrun.core.fault import Fault
from agentrun.core.hooks import answer_or_failure, is_legal_answer, make_hook_answered
from agentrun.engine.attempt import Late, Raised, attempt, caught, is_plain
from agentrun.engine.ports import Clock
from agentrun.engine.ports import Hook as HookFunction
from agentrun.engine.world import World, hook_of
from agentrun.errors import CassetteError


class HookQuestion(Struct, frozen=True):
    """What a hook is asked."""

    run: str
    point: HookPoint
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

    said: object = await attempt(world.clock, hook.timeout, lambda: said_by(world.clock, hook.id, function, question))
    match said:
        case Late():
            said = _failed(hook.id, f"took longer than {hook.timeout} ms", reason="timeout", limit=hook.timeout)
        case Raised(error):
            raise error
    return make_hook_answered(effect.id, hook, effect.subject, said)


async def said_by(clock: Clock, name: str, function: HookFunction, question: HookQuestion) -> HookAnswer:
    """What a hook says. What it raises, or gives that is no answer, is a failure of the hook."""

    async def asked() -> Any:
        said = await clock.aside(lambda: function(question))
        return await said if isinstance(said, Coroutine) else said

    match await caught(asked):
        case Raised(CassetteError() as error):
            raise error
        case Raised() as raised:
            return _failed(name, f"raised {raised.kind}", reason="exception", error=raised.kind)
        case said if is_legal_answer(question.point, said) and not is_plain(said):
            return _failed(name, "gave an answer that cannot be written down", reason="answer")
        case said:
            return answer_or_failure(name, question.point, said)


def _failed(name: str, what: str, **fields: Any) -> HookFailure:
    return HookFailure(Fault("policy.denied", f"the hook {name} {what}", {"hook": name, **fields}))
