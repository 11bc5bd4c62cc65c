"""Functions of the host program as tools, sinks and models.

Rule 1  A plain function runs in a thread, an async function on the event loop. On a step clock both run at once.
Rule 2  The parameters of a function are compared with the schema of its tool before the run, because otherwise every
        call of it would fail, and only the model would read why.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from inspect import Parameter, isawaitable, iscoroutinefunction
from typing import Any, TypeAlias

from agentrun.core.effects import AskModel, Deliver, ModelRequest, RunTool, ToolReturn
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Reply, Text
from agentrun.engine.clock import StepClock
from agentrun.engine.guarded_call import RaisedException
from agentrun.engine.ports import Clock
from agentrun.errors import AgentrunError
from agentrun.spec.problems import quote_text
from agentrun.tools.call_results import fault_from_exception
from agentrun.tools.function_calls import await_result, call_function, to_returned

ModelAnswer: TypeAlias = Reply | Assistant | Fault | str | Mapping[str, Any]
"""What a function as a model returns: a text, a message (a dict in OpenAI's chat form too), a reply or a fault."""
ModelFunction: TypeAlias = Callable[[ModelRequest], ModelAnswer | Awaitable[ModelAnswer]]
ToolFunction: TypeAlias = Callable[..., Any]
SinkFunction: TypeAlias = Callable[[Deliver], Any]


class FunctionTool:
    def __init__(self, function: ToolFunction, clock: Clock) -> None:
        self._function = function
        self._clock = clock

    async def run(self, call: RunTool) -> ToolReturn:
        name, function = call.name, self._function

        def begin() -> ToolReturn | Awaitable[object]:
            return call_function(name, function, call.arguments)

        answer = begin() if iscoroutinefunction(function) else await self._clock.aside(begin)
        if isinstance(answer, ToolReturn):
            return answer
        if not isinstance(self._clock, StepClock):
            return await await_result(name, answer)
        try:
            return to_returned(name, await answer)
        except Exception as error:  # noqa: BLE001  # user code may raise anything
            return ToolReturn(fault=fault_from_exception(name, error))


class FunctionSink:
    """An exception, or a `Fault` that the function returns, is a failed delivery."""

    def __init__(self, function: SinkFunction, clock: Clock) -> None:
        self._function = function
        self._clock = clock

    async def deliver(self, delivery: Deliver) -> Fault | None:
        answer = await _call(self._clock, self._function, delivery)
        return answer if isinstance(answer, Fault) else None


class FunctionModel:
    def __init__(self, function: ModelFunction, clock: Clock) -> None:
        self._function = function
        self._clock = clock

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:  # noqa: ARG002  # a function answers at once
        try:
            return _to_reply(await _call(self._clock, self._function, effect.request))
        except AgentrunError:
            raise
        except Exception as error:  # noqa: BLE001  # user code may raise anything
            raised = RaisedException(error)
            return Fault("provider.fatal", f"the model function failed: {raised.message}", {"error": raised.kind})


async def _call(clock: Clock, function: Callable[[Any], Any], value: Any) -> Any:
    answer = function(value) if iscoroutinefunction(function) else await clock.aside(lambda: function(value))
    return await answer if isawaitable(answer) else answer


def _to_reply(answer: object) -> Reply | Fault:
    scripted = getattr(answer, "reply", None)  # a reply of `agentrun.testing`
    match scripted if isinstance(scripted, Reply) else answer:
        case Reply() | Fault() as whole:
            return whole
        case Assistant() as message:
            pass
        case str() as text:
            message = Assistant((Text(text),))
        case Mapping() as chat:
            message = Assistant.from_dict(chat)
        case other:
            wanted = "a text, a message, a Reply or a Fault"
            raise TypeError(f"the function must return {wanted}, not {type(other).__name__}")
    return Reply(message, "tool_calls" if message.calls else "stop", None, None, None)


def check_parameters(
    label: str, function: ToolFunction, schema: Mapping[str, Any], defaults: Collection[str] = ()
) -> None:
    """Raise TypeError if a call with arguments of the schema could not be made. `label`: names the argument of `run`.
    `defaults`: arguments that are filled in."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return
    declared, required = schema.get("properties", {}), schema.get("required", ())
    named = {each.name: each for each in parameters if each.kind in _NAMED}
    if not any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        for name in declared:
            if name not in named:
                raise TypeError(f"{label} must take the argument {quote_text(name)}, which the tool declares")
    for each in parameters:
        if each.default is not Parameter.empty or each.kind in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL):
            continue
        if each.kind is Parameter.POSITIONAL_ONLY or each.name not in declared:
            raise TypeError(f"{label} has the parameter {quote_text(each.name)}, which the tool does not declare")
        is_filled_in = each.name in defaults or "default" in declared[each.name]
        if each.name not in required and not is_filled_in:
            what = f"the parameter {quote_text(each.name)}"
            raise TypeError(f"{label} needs a default for {what}, because the tool does not require it")


_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
