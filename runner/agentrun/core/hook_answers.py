"""The answers that hooks may give at each point.

Rule 1  An answer that is not allowed at its point, or has the wrong type, is a failure of the hook.
Rule 2  A failure denies, unless the hook is declared with `on_failure: continue`. At `before_tool` it always denies: a
        call never runs because its check is broken.

    point         deny                     modify              inject
    on_input      the run stops            the input's text    a message after the input
    before_model  the run stops            -                   a message before the request
    after_model   the run stops            the reply's text    -
    before_tool   the call is denied       its arguments       -
    after_tool    the result is withheld   its text            -
    on_output     the run stops            the answer          a message: the run continues
    on_stop       -                        -                   -
"""

from __future__ import annotations

from collections.abc import Mapping

from agentrun.core.facts import Continue, Deny, HookAnswer, HookAnswered, HookFailure, Inject, Modify
from agentrun.core.fault import Fault
from agentrun.core.package import Hook, HookPoint

LEGAL_ANSWERS: Mapping[HookPoint, tuple[type, ...]] = {
    "on_input": (Continue, HookFailure, Deny, Modify, Inject),
    "before_model": (Continue, HookFailure, Deny, Inject),
    "after_model": (Continue, HookFailure, Deny, Modify),
    "before_tool": (Continue, HookFailure, Deny, Modify),
    "after_tool": (Continue, HookFailure, Deny, Modify),
    "on_output": (Continue, HookFailure, Deny, Modify, Inject),
    "on_stop": (Continue, HookFailure),
}


def is_legal_answer(point: HookPoint, answer: object) -> bool:
    if not isinstance(answer, LEGAL_ANSWERS[point]):
        return False
    if isinstance(answer, Modify):
        return isinstance(answer.value, dict if point == "before_tool" else str)
    return True


def answer_or_failure(hook: str, point: HookPoint, answer: object) -> HookAnswer:
    if is_legal_answer(point, answer):
        return answer  # type: ignore[return-value]  # legal ones are of this union
    message = f"the hook {hook} returned {type(answer).__name__}, which is not an answer at {point}"
    return HookFailure(Fault("policy.denied", message, {"hook": hook, "point": point}))


def make_hook_answered(effect: str, hook: Hook, subject: str, answer: object) -> HookAnswered:
    checked = answer_or_failure(hook.id, hook.at, answer)
    is_ignored = hook.at == "on_stop" or (hook.on_failure == "continue" and hook.at != "before_tool")
    denies = isinstance(checked, HookFailure) and not is_ignored
    return HookAnswered(effect, hook.id, hook.at, subject, checked, closes=denies or isinstance(checked, Deny))
