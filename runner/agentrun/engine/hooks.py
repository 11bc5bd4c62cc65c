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
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_guarded, call_with_timeout, is_journalable
from agentrun.engine.ports import Clock, HookFunction
from agentrun.engine.world import World, find_hook
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
    function = find_hook(world, hook.id)
    question = HookQuestion(run, effect.point, effect.subject, effect.target, deepcopy(effect.value))

    answer: object = await call_with_timeout(
        world.clock, hook.timeout, lambda: call_hook(world.clock, hook.id, function, question)
    )
    match answer:
        case TimedOut():
            answer = _hook_failure(hook.id, f"took longer than {hook.timeout} ms", reason="timeout", limit=hook.timeout)
        case RaisedException(error):
            raise error
    return make_hook_answered(effect.id, hook, effect.subject, answer)


async def call_hook(clock: Clock, name: str, function: HookFunction, question: HookQuestion) -> HookAnswer:
    """What a hook says. What it raises, or gives that is no answer, is a failure of the hook."""

    async def call() -> Any:
        answer = await clock.aside(lambda: function(question))
        return await answer if isinstance(answer, Coroutine) else answer

    match await call_guarded(call):
        case RaisedException(CassetteError() as error):
            raise error
        case RaisedException() as raised:
            return _hook_failure(name, f"raised {raised.kind}", reason="exception", error=raised.kind)
        case answer if is_legal_answer(question.point, answer) and not is_journalable(answer):
            return _hook_failure(name, "gave an answer that cannot be written down", reason="answer")
        case answer:
            return answer_or_failure(name, question.point, answer)


def _hook_failure(name: str, what: str, **fields: Any) -> HookFailure:
    return HookFailure(Fault("policy.denied", f"the hook {name} {what}", {"hook": name, **fields}))
