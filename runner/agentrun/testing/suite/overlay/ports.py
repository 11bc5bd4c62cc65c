"""Tools, people, hooks and sinks with stubs and faults before them.

Rule 1  What is laid over happens instead of what is behind it: nothing is run, nobody is asked, nothing is recorded.
Rule 2  What the recording has of it counts as played, so that nothing is left over.
Rule 3  Limits are the agent's own: who does not answer is late on the clock of the replay. In real time nobody waits
        for that: it is said at once, and for a tool the clock is put forward.
Rule 4  What happens to an HTTP tool on the wire means what it always means there: a request that must not be repeated
        and has no reply leaves nobody knowing.
"""

from __future__ import annotations

from msgspec import UNSET

from agentrun.core.effects import Deliver, Returned, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.facts_gates import Answer, Failed, HookAnswer
from agentrun.core.outcome import Question
from agentrun.core.package_tools import HttpTool
from agentrun.engine import tape_forms as form
from agentrun.engine.approvals import keeps_time
from agentrun.engine.hooks import HookQuestion, said_by
from agentrun.engine.ports import Approver, Executor, Hook, SinkPort
from agentrun.engine.taped import Heard
from agentrun.engine.toolbox import Cuts, late
from agentrun.errors import ProviderError
from agentrun.spec.v1.cases import Inject
from agentrun.testing.suite.overlay.layer import Layer
from agentrun.testing.suite.overlay.wire_faults import failing, put_forward
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall, HttpReply

BY_NOBODY: dict[Answer, str] = {"timed_out": "clock", "unavailable": "nobody"}
"""Answers that are the lack of one, and who gives them."""


class LaidTool:
    """Runs the calls of tools, or does not."""

    def __init__(self, layer: Layer, executor: Executor) -> None:
        self._layer = layer
        self._executor = executor

    async def run(self, call: RunTool) -> Returned:
        layer = self._layer
        layer.carried_out[layer.run, call.id] += 1
        inject = layer.faults.of_other(layer.member, "tool", call.name)
        if inject is not None:
            await self._use_up(call)
            return await self._faulty(inject, call)
        stub = layer.stubs.next(layer.member, call)
        if stub is not None:
            await self._use_up(call)
            return stub
        return await self._executor.run(call)

    async def _faulty(self, inject: Inject, call: RunTool) -> Returned:
        if inject.error is not UNSET:
            return Returned(fault=Fault("tool.execution", inject.error, {"tool": call.name}))
        if inject.fatal is not UNSET:
            return Returned(fault=Fault("tool.fatal", inject.fatal, {"tool": call.name}))
        if isinstance(call.tool, HttpTool) and not (inject.timeout is not UNSET and _is_stopped(call.tool)):
            return await HttpTools(_Wire(inject, self._layer)).run(call)
        if self._layer.in_real_time:
            put_forward(self._layer.clock, call.tool.timeout)
        else:
            await self._layer.wait()
        return Returned(fault=late(call))

    async def _use_up(self, call: RunTool) -> None:
        if isinstance(call.tool, HttpTool):
            await HttpTools(_Spent(self._layer)).run(call)
        else:
            self._layer.use_up(form.tool_call(call))


def _is_stopped(tool: HttpTool) -> bool:
    """Whether a call is stopped from outside when its time is over. One that must not be repeated gives up itself."""
    return tool.effect != "at_most_once"


class LaidCuts(LaidTool, Cuts):
    """The same before one whose results are what the model reads."""


class _Wire:
    """What an HTTP tool meets in place of its endpoint, each time it tries in one call."""

    def __init__(self, inject: Inject, layer: Layer) -> None:
        self._inject = inject
        self._layer = layer

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: Heard | None = None) -> HttpReply:  # noqa: ARG002  # tools do not stream
        return await failing(self._inject, call, self._layer.clock, gap=gap, time=time)


class _Spent:
    """Gives an HTTP tool what the recording has, at once, so that it asks for all that belongs to the call."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: Heard | None = None) -> HttpReply:  # noqa: ARG002  # tools do not stream
        found = None if self._layer.player is None else self._layer.player.find(call, self._layer.member.path)
        if found is None or found[1].stopped:
            raise ProviderError("provider.fatal", "it is not on the tape", fields={"status": None})
        if found[1].failure is not None:
            failure = found[1].failure
            raise ProviderError(failure.code, failure.message, fields=failure.fields)
        return found[1].reply


class LaidApprover:
    def __init__(self, layer: Layer, approver: Approver) -> None:
        self._layer = layer
        self._approver = approver
        self.keeps_time = keeps_time(approver)

    async def answer(self, question: Question) -> tuple[Answer, str]:
        layer = self._layer
        inject = layer.faults.of_other(layer.member, "approval", question.target)
        if inject is None:
            return await self._approver.answer(question)
        layer.use_up(form.approval_call(question))
        answer: Answer = "timed_out" if inject.answer is UNSET else inject.answer
        if answer == "timed_out" and not (layer.in_real_time or self.keeps_time):
            await layer.wait()
        return answer, BY_NOBODY.get(answer, layer.by)


def laid_hook(layer: Layer, name: str, hook: Hook) -> Hook:
    async def laid(question: HookQuestion) -> HookAnswer:
        inject = layer.faults.of_other(layer.member, "hook", name)
        if inject is None:
            return await said_by(layer.clock, name, hook, question)
        layer.use_up(form.hook_call(name, question))
        if inject.error is not UNSET:
            raise RuntimeError(inject.error)
        if not layer.in_real_time:
            await layer.wait()
        return Failed(Fault("policy.denied", f"the hook {name} took too long", {"hook": name, "reason": "timeout"}))

    return laid


class LaidSink:
    def __init__(self, layer: Layer, sink: SinkPort) -> None:
        self._layer = layer
        self._sink = sink

    async def deliver(self, delivery: Deliver) -> Fault | None:
        layer = self._layer
        inject = layer.faults.of_other(layer.member, "sink", delivery.name)
        if inject is None:
            return await self._sink.deliver(delivery)
        layer.use_up(form.sink_call(delivery))
        if inject.error is not UNSET:
            raise RuntimeError(inject.error)
        if not layer.in_real_time:
            await layer.wait()
        fields = {"sink": delivery.name, "reason": "timeout"}
        message = f"the sink {delivery.name} took longer than {delivery.sink.timeout} ms"
        return Fault("delivery.failed", message, fields)
