"""Call hooks.

A hook gets a copy of the value, so it cannot change it. `core/hook_answers.py` decides whether a failed hook denies.
"""

from __future__ import annotations

from collections.abc import Coroutine
from copy import deepcopy
from typing import Any

from msgspec import Struct

from agentrun.core.effects import AskHook
from agentrun.core.facts import HookAnswer, HookAnswered, HookFailure
from agentrun.core.fault import Fault
from agentrun.core.hook_answers import answer_or_failure, is_legal_answer, make_hook_answered
from agentrun.core.package import HookPoint
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_guarded, call_with_timeout, is_journalable
from agentrun.engine.ports import Clock, HookFunction
from agentrun.engine.world import World, find_hook
from agentrun.errors import CassetteError


class HookQuestion(Struct, frozen=True):
    """The argument of a hook function."""

    run: str
    """The id of the run."""
    point: HookPoint
    """Where the run is: `before_tool`, `on_output`, …"""
    subject: str
    """`input`, `request`, `reply`, `output`, `stop`, or the id of a call."""
    target: str
    """The tool of a call, otherwise the subject."""
    value: Any
    """The arguments of a call, including defaults, or a text."""
    value_without_defaults: dict[str, Any] | None = None
    """The arguments of a call without the defaults that were filled in. None: there were none to fill in."""
    effect: str = ""
    """The id of the effect."""


async def ask_hook(world: World, effect: AskHook) -> HookAnswered:
    hook = effect.hook
    function = find_hook(world, hook.id)
    values = deepcopy((effect.value, effect.value_without_defaults))
    question = HookQuestion(world.run, effect.point, effect.subject, effect.target, *values, effect.id)
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

    async def call() -> Any:
        answer = await clock.aside(lambda: function(question))
        return await answer if isinstance(answer, Coroutine) else answer

    match await call_guarded(call):
        case RaisedException(CassetteError() as error):
            raise error
        case RaisedException() as raised:
            return _hook_failure(name, f"raised {raised.kind}", reason="exception", error=raised.kind)
        case answer if is_legal_answer(question.point, answer) and not is_journalable(answer):
            return _hook_failure(name, "returned a value that is not JSON", reason="answer")
        case answer:
            return answer_or_failure(name, question.point, answer)


def _hook_failure(name: str, what: str, **fields: Any) -> HookFailure:
    return HookFailure(Fault("policy.denied", f"the hook {name} {what}", {"hook": name, **fields}))
