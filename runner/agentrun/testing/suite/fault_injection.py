"""What a case lays over its recording: stubs, faults, and the clock.

    laid = LaidOver(case, player)
    replay_run(request, player, start=laid.start, step=laid.step, wrappers=laid.wrappers)      # every run of the case
    laid.unmet()                                                                # the faults that never happened

Rule 1  It stands before the tape, in a replay and while a recording is made: none of it gets onto one.
Rule 2  One for a case, also for a conversation: counting goes on from run to run.
Rule 3  The clock is set for replays alone. A recording is made in real time.
Rule 4  From the first fault on that a model may read about, recorded replies are played in their order to whatever it
        is asked: the recording has no others. Who wants to know what it would say records the case with its faults.
Rule 5  What a fault takes of time is taken once: a recorded moment that is over by then is not waited for again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import cache

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.cassette.player import FaultInjectionPlayer, Player
from agentrun.cassette.recorder import ChunkCallback
from agentrun.core.effects import Deliver, RunTool, ToolReturn
from agentrun.core.facts import ApprovalAnswer, HookAnswer, HookFailure
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.outcome import Question
from agentrun.core.package_tools import HttpTool
from agentrun.engine import cassette_encoding as form
from agentrun.engine.approvals import keeps_time
from agentrun.engine.cassette_ports import FOREVER_MS
from agentrun.engine.clock import StepClock
from agentrun.engine.hooks import HookQuestion, call_hook
from agentrun.engine.models import HttpProvider, is_streamed_reply
from agentrun.engine.ports import Approver, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.tool_runner import TruncatingExecutor, tool_timeout_fault
from agentrun.engine.world import World, Wrapper
from agentrun.errors import ProviderError
from agentrun.spec.v1.cases import Case, FaultInjectionSpec, InjectedFaultSpec
from agentrun.spec.v1.field_types import milliseconds
from agentrun.testing.suite import stubs_and_faults
from agentrun.testing.suite.http_faults import advance_real_clock, simulate_cut, simulate_failure
from agentrun.testing.suite.stubs_and_faults import CaseFaults, CaseStubs, FaultPlace, RunPath
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall, HttpReply, Sender


class FaultInjection:
    """What is laid over the runs of one case."""

    def __init__(
        self,
        case: Case,
        player: Player | None = None,
        more: Iterable[FaultInjectionSpec] = (),
        *,
        watched: bool = False,
    ) -> None:
        """`player`: plays the recording; None: it is being made. `more`: further faults, which come before its own.
        `watched`: `places` is wanted, also of a case that lays nothing over its recording."""
        self._by = f"case {case.name}"
        self._player = player
        self._stubs = CaseStubs(case.stubs)
        self._faults = CaseFaults([*more, *case.faults])
        self.tool_runs: Counter[tuple[str, str]] = Counter()
        """How often each call reached its tool: by run and call. It is no journal's word."""
        self._is_active = bool(case.stubs or case.faults or more or watched)
        clock = case.clock
        self.start = None if clock.start is UNSET else _parse_time(clock.start)
        """When the clock of a replay begins, in milliseconds since 1970. None: when the recording was made."""
        self.step = None if clock.step is UNSET else milliseconds(clock.step)
        """How long each recorded exchange takes, in milliseconds. None: as long as it took."""
        self.wrappers: tuple[Wrapper, ...] = (self.wrap,) if self._is_active else ()
        if isinstance(player, FaultInjectionPlayer):
            player.is_faulted = self._faults.may_change_requests

    def untriggered_faults(self) -> tuple[str, ...]:
        """The places of faults that never happened."""
        return self._faults.untriggered_places()

    def was_triggered(self, fault: FaultInjectionSpec) -> bool:
        """Whether one of the further faults happened."""
        return self._faults.was_triggered(fault.inject)

    @property
    def places(self) -> tuple[FaultPlace, ...]:
        """Where somebody was asked, in order. Nothing if nothing is laid over and nobody watches."""
        return tuple(self._faults.places)

    def wrap(self, world: World) -> World:
        """The world of one run with all of it before the ports."""
        member = RunPath(world.path, world.parent_tools)
        layer = RunInjection(
            member, self._faults, self._stubs, world.clock, self._player, self._by, world.run, self.tool_runs
        )
        models = InjectingModels(layer)
        return replace(
            world,
            providers={name: _inject_into_model(each, models) for name, each in world.providers.items()},
            executors={name: _inject_into_tool(layer, each) for name, each in world.executors.items()},
            hooks={name: injecting_hook(layer, name, each) for name, each in world.hooks.items()},
            sinks={name: InjectingSink(layer, each) for name, each in world.sinks.items()},
            approver=None if world.approver is None else InjectingApprover(layer, world.approver),
        )


def _inject_into_model(provider: Provider, models: InjectingModels) -> Provider:
    return (
        provider.with_sender(models.wrap_sender, models.note_answer) if isinstance(provider, HttpProvider) else provider
    )


def _inject_into_tool(layer: RunInjection, executor: Executor) -> Executor:
    return (
        InjectingCuttingTool(layer, executor)
        if isinstance(executor, TruncatingExecutor)
        else InjectingTool(layer, executor)
    )


@cache
def _parse_time(text: str) -> int:
    """Milliseconds since 1970. That it is a date was checked with the file."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


# --- what is laid over one run of a family, and what stands behind it -----------------------------------------


class RunInjection(Struct, frozen=True):
    run_path: RunPath
    faults: CaseFaults
    stubs: CaseStubs
    clock: Clock
    player: Player | None
    """Plays the recording. None: there is none, or it is being made."""
    by: str
    """Who answers in place of a person."""
    run: str
    """The run's id."""
    tool_runs: Counter[tuple[str, str]]
    """How often each call reached its tool, or what stands before it: by run and call."""

    @property
    def in_real_time(self) -> bool:
        return not isinstance(self.clock, StepClock)

    def mark_played(self, call: HttpCall) -> None:
        """What the recording has of a request counts as played. It takes no time."""
        if self.player is not None:
            self.player.find(call, self.run_path.path)

    async def wait_for_timeout(self) -> None:
        """Until whoever keeps the time says that it is over."""
        await self.clock.sleep_until(FOREVER_MS)


# --- the models of a run with faults before them --------------------------------------------------------------


class InjectingModels:
    """The models of one run, whatever route is taken to them."""

    def __init__(self, layer: RunInjection) -> None:
        self.injection = layer
        self._failed_calls: list[HttpCall] = []
        """Requests of the call under way that something was injected for."""
        self._sent: HttpCall | None = None
        """The latest request that went through."""

    def wrap_sender(self, sender: Sender) -> Sender:
        return _InjectingSender(self, sender)

    def note_failed(self, call: HttpCall) -> None:
        self._failed_calls.append(call)

    def note_sent(self, call: HttpCall) -> None:
        self._sent = call

    def note_answer(self, answer: Reply | Fault) -> None:
        """Told what the codec made of a reply."""
        self.injection.faults.note_model_answer(
            self.injection.run_path, answer.code if isinstance(answer, Fault) else None
        )
        if isinstance(answer, Reply):
            through = None if self._sent is None else (self._sent.url, self._sent.body)
            for key, call in {(each.url, each.body): each for each in self._failed_calls}.items():
                if key != through:
                    self.injection.mark_played(call)
            self._failed_calls, self._sent = [], None


class _InjectingSender:
    def __init__(self, models: InjectingModels, sender: Sender) -> None:
        self._models = models
        self._sender = sender

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: ChunkCallback | None = None) -> HttpReply:
        layer = self._models.injection
        fault = layer.faults.next_for_model(layer.run_path)
        if fault is None:
            return await self._send_unchanged(call, gap, time, heard)
        if fault.inject.cut_after_chunk is not UNSET:
            return await self._send_cut(fault, fault.inject.cut_after_chunk, call, gap, time, heard)
        fault.was_triggered = True
        self._models.note_failed(call)
        return await simulate_failure(fault.inject, call, layer.clock, gap=gap, time=time, streamed=heard is not None)

    async def _send_cut(
        self,
        fault: stubs_and_faults.CaseFault,
        after: int,
        call: HttpCall,
        gap: int,
        time: int,
        heard: ChunkCallback | None,
    ) -> HttpReply:
        layer = self._models.injection
        kept = None if layer.player is None else layer.player.peek(call, layer.run_path.path)
        pieces = (0,) if kept is None else kept.chunks or (len(kept.reply.body),)
        if kept is None or after < len(pieces):
            fault.was_triggered = True
            self._models.note_failed(call)
            raise simulate_cut(b"" if kept is None else kept.reply.body, pieces, after, heard)
        if after > len(pieces):
            fault.give_back(layer.run_path)
            return await self._send_unchanged(call, gap, time, heard)
        fault.was_triggered = True
        reply = await self._send_unchanged(call, gap, time, heard)
        if heard is None or not is_streamed_reply(reply):
            return reply
        raise simulate_cut(reply.body, pieces, after, None)

    async def _send_unchanged(self, call: HttpCall, gap: int, time: int, heard: ChunkCallback | None) -> HttpReply:
        """As if nothing were laid over it."""
        self._models.note_sent(call)
        pieces = 0

        def hear(data: bytes) -> None:
            nonlocal pieces
            pieces += 1
            assert heard is not None
            heard(data)

        layer = self._models.injection
        reply = await self._sender.send(call, gap=gap, time=time, heard=None if heard is None else hear)
        layer.faults.note_reply_pieces(layer.run_path, max(pieces, 1))
        return reply


# --- tools, people, hooks and sinks with stubs and faults before them -----------------------------------------


UNANSWERED_BY: dict[ApprovalAnswer, str] = {"timed_out": "clock", "unavailable": "nobody"}
"""Answers that are the lack of one, and who gives them."""


class InjectingTool:
    """Runs the calls of tools, or does not."""

    def __init__(self, layer: RunInjection, executor: Executor) -> None:
        self._layer = layer
        self._executor = executor

    async def run(self, call: RunTool) -> ToolReturn:
        layer = self._layer
        layer.tool_runs[layer.run, call.id] += 1
        inject = layer.faults.next_for_port(layer.run_path, "tool", call.name)
        if inject is not None:
            await self._mark_played(call)
            return await self._run_with_fault(inject, call)
        stub = layer.stubs.next(layer.run_path, call)
        if stub is not None:
            await self._mark_played(call)
            return stub
        return await self._executor.run(call)

    async def _run_with_fault(self, inject: InjectedFaultSpec, call: RunTool) -> ToolReturn:
        if inject.error is not UNSET:
            return ToolReturn(fault=Fault("tool.execution", inject.error, {"tool": call.name}))
        if inject.fatal is not UNSET:
            return ToolReturn(fault=Fault("tool.fatal", inject.fatal, {"tool": call.name}))
        if isinstance(call.tool, HttpTool) and not (inject.timeout is not UNSET and _is_stopped_by_timeout(call.tool)):
            return await HttpTools(_FailingSender(inject, self._layer)).run(call)
        if self._layer.in_real_time:
            advance_real_clock(self._layer.clock, call.tool.timeout)
        else:
            await self._layer.wait_for_timeout()
        return ToolReturn(fault=tool_timeout_fault(call))

    async def _mark_played(self, call: RunTool) -> None:
        if isinstance(call.tool, HttpTool):
            await HttpTools(_CassetteSender(self._layer)).run(call)
        else:
            self._layer.mark_played(form.encode_tool_call(call))


def _is_stopped_by_timeout(tool: HttpTool) -> bool:
    """Whether a call is stopped from outside when its time is over. One that must not be repeated gives up itself."""
    return tool.effect != "at_most_once"


class InjectingCuttingTool(InjectingTool, TruncatingExecutor):
    """The same before one whose results are what the model reads."""


class _FailingSender:
    """What an HTTP tool meets in place of its endpoint, each time it tries in one call."""

    def __init__(self, inject: InjectedFaultSpec, layer: RunInjection) -> None:
        self._inject = inject
        self._layer = layer

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: ChunkCallback | None = None) -> HttpReply:  # noqa: ARG002  # tools do not stream
        return await simulate_failure(self._inject, call, self._layer.clock, gap=gap, time=time)


class _CassetteSender:
    """Gives an HTTP tool what the recording has, at once, so that it asks for all that belongs to the call."""

    def __init__(self, layer: RunInjection) -> None:
        self._layer = layer

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: ChunkCallback | None = None) -> HttpReply:  # noqa: ARG002  # tools do not stream
        found = None if self._layer.player is None else self._layer.player.find(call, self._layer.run_path.path)
        if found is None or found[1].stopped:
            raise ProviderError("provider.fatal", "it is not on the tape", fields={"status": None})
        if found[1].failure is not None:
            failure = found[1].failure
            raise ProviderError(failure.code, failure.message, fields=failure.fields)
        return found[1].reply


class InjectingApprover:
    def __init__(self, layer: RunInjection, approver: Approver) -> None:
        self._layer = layer
        self._approver = approver
        self.keeps_time = keeps_time(approver)

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        layer = self._layer
        inject = layer.faults.next_for_port(layer.run_path, "approval", question.target)
        if inject is None:
            return await self._approver.answer(question)
        layer.mark_played(form.encode_question(question))
        answer: ApprovalAnswer = "timed_out" if inject.answer is UNSET else inject.answer
        if answer == "timed_out" and not (layer.in_real_time or self.keeps_time):
            await layer.wait_for_timeout()
        return answer, UNANSWERED_BY.get(answer, layer.by)


def injecting_hook(layer: RunInjection, name: str, hook: HookFunction) -> HookFunction:
    async def laid(question: HookQuestion) -> HookAnswer:
        inject = layer.faults.next_for_port(layer.run_path, "hook", name)
        if inject is None:
            return await call_hook(layer.clock, name, hook, question)
        layer.mark_played(form.encode_hook_question(name, question))
        if inject.error is not UNSET:
            raise RuntimeError(inject.error)
        if not layer.in_real_time:
            await layer.wait_for_timeout()
        return HookFailure(
            Fault("policy.denied", f"the hook {name} took too long", {"hook": name, "reason": "timeout"})
        )

    return laid


class InjectingSink:
    def __init__(self, layer: RunInjection, sink: SinkPort) -> None:
        self._layer = layer
        self._sink = sink

    async def deliver(self, delivery: Deliver) -> Fault | None:
        layer = self._layer
        inject = layer.faults.next_for_port(layer.run_path, "sink", delivery.name)
        if inject is None:
            return await self._sink.deliver(delivery)
        layer.mark_played(form.encode_delivery(delivery))
        if inject.error is not UNSET:
            raise RuntimeError(inject.error)
        if not layer.in_real_time:
            await layer.wait_for_timeout()
        fields = {"sink": delivery.name, "reason": "timeout"}
        message = f"the sink {delivery.name} took longer than {delivery.sink.timeout} ms"
        return Fault("delivery.failed", message, fields)
