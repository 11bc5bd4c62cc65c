"""Inject the stubs, faults and clock of a case into its runs.

Rule 1  Stubs and faults act before the cassette, in a replay and while recording. They are never recorded.
Rule 2  One object serves all runs of a case, so that counting continues in a conversation.
Rule 3  The clock is set only in replays. A recording is made in real time.
Rule 4  After the first fault that a model can read about, recorded replies are played in their order to any request,
        because the cassette has no others. To see what a model would answer, record the case with its faults.
Rule 5  The time of a fault counts once: recorded times that are already over are not waited for again.

Models:

Rule 6  Injected replies and errors are like those of the real sender, and are decoded by the codec of the model.
Rule 7  A cut reply is the recorded one: some of its pieces arrive, then the connection breaks. While recording, nothing
        arrives. A reply that is not streamed is one piece. A reply that is cut after its last piece is complete, and is
        kept. A reply with fewer pieces is not cut, and the attempt does not count.
Rule 8  A recorded reply stays on the cassette for the attempt that succeeds. If another route answers in the end, the
        reply counts as played.

Tools, approvers, hooks and sinks:

Rule 9  A stub or a fault replaces the call: nothing is run, asked or recorded. The recorded interaction counts as
        played.
Rule 10 Timeouts are those of the agent. In a replay the clock moves until the timeout. In real time there is no wait:
        the timeout is reported at once, and for a tool the clock is moved forward.
Rule 11 HTTP errors of an HTTP tool have their usual meaning: if a request must not be repeated and has no reply, its
        outcome is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from urllib.parse import urlsplit

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.cassette.player import FaultInjectionPlayer, Player
from agentrun.cassette.recorder import ChunkCallback
from agentrun.core.effects import Deliver, RunTool, SharedResult, ToolReturn
from agentrun.core.facts import ApprovalAnswer, HookAnswer, HookFailure
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.outcome import Question
from agentrun.core.package_tools import HttpTool
from agentrun.engine import cassette_encoding as form
from agentrun.engine.approvals import keeps_time, lifts_deferrals
from agentrun.engine.cassette_ports import FOREVER_MS
from agentrun.engine.clock import StepClock
from agentrun.engine.hooks import HookQuestion, call_hook
from agentrun.engine.models import HttpProvider, is_streamed_reply
from agentrun.engine.ports import Approver, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.tool_runner import TruncatingExecutor, has_recorded_result, tool_timeout_fault
from agentrun.engine.world import World, Wrapper
from agentrun.errors import ProviderError
from agentrun.spec.v1.cases import Case, FaultInjectionSpec, InjectedFaultSpec
from agentrun.spec.v1.field_types import milliseconds
from agentrun.testing.suite.stubs_and_faults import CaseFault, CaseFaults, CaseStubs, RunPath
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall, HttpReply, Sender

UNANSWERED_BY: dict[ApprovalAnswer, str] = {"timed_out": "clock", "unavailable": "nobody"}
"""The `by` of a missing answer, as the journal has it."""
_JSON = ("content-type", "application/json")
_ERROR_BODY = {"type": "error", "error": {"type": "injected", "message": "injected by the test case"}}
_EMPTY_REPLY = {
    "id": "",
    "model": "",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}],
    "type": "message",
    "role": "assistant",
    "content": [],
    "stop_reason": "end_turn",
    "candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}],
    "status": "completed",
    "output": [],
}
"""An empty reply in all wire formats at once. Each codec reads its own fields."""


class FaultInjection:
    def __init__(
        self,
        case: Case,
        player: Player | None = None,
        more: Iterable[FaultInjectionSpec] = (),
        *,
        watched: bool = False,
    ) -> None:
        """`player`: None while recording. `more`: further faults, which come before those of the case. `watched`: list
        the places that the runs reach, in `faults.places`, even for a case without stubs and faults."""
        self.by = f"case {case.name}"
        self.player = player
        self.stubs = CaseStubs(case.stubs)
        self.faults = CaseFaults([*more, *case.faults])
        self.untriggered_faults = self.faults.untriggered_places
        self.tool_runs: Counter[tuple[str, str]] = Counter()
        """How often each call reached its tool, by run and call. Counted here, not read from a journal."""
        is_active = bool(case.stubs or case.faults or more or watched)
        clock = case.clock
        self.start = None if clock.start is UNSET else _parse_time(clock.start)
        """The start of the clock in a replay, in milliseconds since 1970. None: the time of the recording."""
        self.step = None if clock.step is UNSET else milliseconds(clock.step)
        """How long each recorded exchange takes, in milliseconds. None: as long as in the recording."""
        self.wrappers: tuple[Wrapper, ...] = (self.wrap,) if is_active else ()
        if isinstance(player, FaultInjectionPlayer):
            player.is_faulted = self.faults.may_change_requests

    def wrap(self, world: World) -> World:
        injection = RunInjection(self, RunPath(world.path, world.parent_tools), world.clock, world.run)
        models = InjectingModels(injection)
        return replace(
            world,
            providers={name: _inject_into_model(each, models) for name, each in world.providers.items()},
            executors={name: injecting_tool(injection, each) for name, each in world.executors.items()},
            hooks={name: injecting_hook(injection, name, each) for name, each in world.hooks.items()},
            sinks={name: InjectingSink(injection, each) for name, each in world.sinks.items()},
            approver=None if world.approver is None else InjectingApprover(injection, world.approver),
        )


def _inject_into_model(provider: Provider, models: InjectingModels) -> Provider:
    if not isinstance(provider, HttpProvider):
        return provider
    return provider.with_sender(lambda sender: _InjectingSender(models, sender), models.note_answer)


@cache
def _parse_time(text: str) -> int:
    """Milliseconds since 1970. The form was checked with the file."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class RunInjection(Struct, frozen=True):
    case: FaultInjection
    run_path: RunPath
    clock: Clock
    run: str

    @property
    def in_real_time(self) -> bool:
        return not isinstance(self.clock, StepClock)

    def mark_played(self, call: HttpCall) -> None:
        """Mark the recorded interaction of a request as played. This takes no time."""
        if self.case.player is not None:
            self.case.player.find(call, self.run_path.path)

    async def wait_for_timeout(self) -> None:
        """Wait until the engine stops the call."""
        await self.clock.sleep_until(FOREVER_MS)


class InjectingModels:
    def __init__(self, injection: RunInjection) -> None:
        self.injection = injection
        self.failed_calls: list[HttpCall] = []
        """Requests of the current call that got a fault."""
        self.sent: HttpCall | None = None

    def note_answer(self, answer: Reply | Fault) -> None:
        code = answer.code if isinstance(answer, Fault) else None
        self.injection.case.faults.note_model_answer(self.injection.run_path, code)
        if isinstance(answer, Reply):
            answered = None if self.sent is None else (self.sent.url, self.sent.body)
            for key, call in {(each.url, each.body): each for each in self.failed_calls}.items():
                if key != answered:
                    self.injection.mark_played(call)
            self.failed_calls, self.sent = [], None


class _InjectingSender(Struct, frozen=True):
    models: InjectingModels
    sender: Sender

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: ChunkCallback | None = None) -> HttpReply:
        injection = self.models.injection
        fault = injection.case.faults.next_for_model(injection.run_path)
        if fault is None:
            return await self._send_unchanged(call, gap, time, heard)
        if fault.inject.cut_after_chunk is not UNSET:
            return await self._send_cut(fault, fault.inject.cut_after_chunk, call, gap, time, heard)
        fault.was_triggered = True
        self.models.failed_calls.append(call)
        streamed = heard is not None
        return await simulate_failure(fault.inject, call, injection.clock, gap=gap, time=time, streamed=streamed)

    async def _send_cut(
        self, fault: CaseFault, after: int, call: HttpCall, gap: int, time: int, heard: ChunkCallback | None
    ) -> HttpReply:
        injection = self.models.injection
        recorded = None if injection.case.player is None else injection.case.player.peek(call, injection.run_path.path)
        pieces = (0,) if recorded is None else recorded.chunks or (len(recorded.reply.body),)
        if recorded is None or after < len(pieces):
            fault.was_triggered = True
            self.models.failed_calls.append(call)
            raise simulate_cut(b"" if recorded is None else recorded.reply.body, pieces, after, heard)
        if after > len(pieces):
            fault.give_back(injection.run_path)
            return await self._send_unchanged(call, gap, time, heard)
        fault.was_triggered = True
        reply = await self._send_unchanged(call, gap, time, heard)
        if heard is None or not is_streamed_reply(reply):
            return reply
        raise simulate_cut(reply.body, pieces, after, None)

    async def _send_unchanged(self, call: HttpCall, gap: int, time: int, heard: ChunkCallback | None) -> HttpReply:
        self.models.sent = call
        pieces = 0

        def hear(data: bytes) -> None:
            nonlocal pieces
            pieces += 1
            assert heard is not None
            heard(data)

        injection = self.models.injection
        reply = await self.sender.send(call, gap=gap, time=time, heard=None if heard is None else hear)
        injection.case.faults.note_reply_pieces(injection.run_path, max(pieces, 1))
        return reply


class InjectingTool:
    """Runs a call, or returns a stub or a fault."""

    def __init__(self, injection: RunInjection, executor: Executor) -> None:
        self._injection = injection
        self._executor = executor
        self._replaced: set[str] = set()
        """Calls that got a stub or a fault."""

    async def run(self, call: RunTool) -> ToolReturn:
        if call.shared is not None:
            return await self._replay_own_result(call, call.shared)
        injection = self._injection
        injection.case.tool_runs[injection.run, call.id] += 1
        inject = injection.case.faults.next_for_port(injection.run_path, "tool", call.name)
        if inject is not None:
            await self._mark_played(call)
            return await self._run_with_fault(inject, call)
        stub = injection.case.stubs.next(injection.run_path, call)
        if stub is not None:
            await self._mark_played(call)
            return stub
        return await self._executor.run(call)

    def has_recorded_result(self, call: RunTool) -> bool:
        return has_recorded_result(self._executor, call)

    async def _replay_own_result(self, call: RunTool, shared: SharedResult) -> ToolReturn:
        """The result of a call that an earlier release recorded, unless the call that it repeats was replaced."""
        if shared.source not in self._replaced:
            return await self._executor.run(call)
        await self._mark_played(call)
        return shared.returned

    async def _run_with_fault(self, inject: InjectedFaultSpec, call: RunTool) -> ToolReturn:
        if inject.error is not UNSET:
            return ToolReturn(fault=Fault("tool.execution", inject.error, {"tool": call.name}))
        if inject.fatal is not UNSET:
            return ToolReturn(fault=Fault("tool.fatal", inject.fatal, {"tool": call.name}))
        # The engine stops a call at its timeout, but a call that must not be repeated ends by itself.
        if isinstance(call.tool, HttpTool) and (inject.timeout is UNSET or call.tool.effect == "at_most_once"):
            return await HttpTools(_FailingSender(inject, self._injection)).run(call)
        if self._injection.in_real_time:
            advance_real_clock(self._injection.clock, call.tool.timeout)
        else:
            await self._injection.wait_for_timeout()
        return ToolReturn(fault=tool_timeout_fault(call))

    async def _mark_played(self, call: RunTool) -> None:
        self._replaced.add(call.id)
        if isinstance(call.tool, HttpTool):
            await HttpTools(_CassetteSender(self._injection)).run(call)
        else:
            self._injection.mark_played(form.encode_tool_call(call))


class InjectingCuttingTool(InjectingTool, TruncatingExecutor):
    """The same for an executor that truncates its results itself."""


def injecting_tool(injection: RunInjection, executor: Executor) -> Executor:
    kind = InjectingCuttingTool if isinstance(executor, TruncatingExecutor) else InjectingTool
    return kind(injection, executor)


class _FailingSender(Struct, frozen=True):
    """Replaces the endpoint of an HTTP tool for all attempts of one call."""

    inject: InjectedFaultSpec
    injection: RunInjection

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: ChunkCallback | None = None) -> HttpReply:  # noqa: ARG002  # tools do not stream
        return await simulate_failure(self.inject, call, self.injection.clock, gap=gap, time=time)


class _CassetteSender(Struct, frozen=True):
    """Replays the requests of an HTTP tool at once, so that all requests of a call are marked as played."""

    injection: RunInjection

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: ChunkCallback | None = None) -> HttpReply:  # noqa: ARG002  # tools do not stream
        player, path = self.injection.case.player, self.injection.run_path.path
        interaction = None if player is None else (player.find(call, path) or (0, None))[1]
        if interaction is None or interaction.stopped:
            raise ProviderError("provider.fatal", "the request is not on the cassette", fields={"status": None})
        if (failure := interaction.failure) is not None:
            raise ProviderError(failure.code, failure.message, fields=failure.fields)
        return interaction.reply


class InjectingApprover:
    def __init__(self, injection: RunInjection, approver: Approver) -> None:
        self._injection = injection
        self._approver = approver
        self.keeps_time = keeps_time(approver)
        self.lifts_deferrals = lifts_deferrals(approver)

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        injection = self._injection
        inject = injection.case.faults.next_for_port(injection.run_path, "approval", question.target)
        if inject is None:
            return await self._approver.answer(question)
        injection.mark_played(form.encode_question(question))
        answer: ApprovalAnswer = "timed_out" if inject.answer is UNSET else inject.answer
        if answer == "timed_out" and not (injection.in_real_time or self.keeps_time):
            await injection.wait_for_timeout()
        return answer, UNANSWERED_BY.get(answer, injection.case.by)


def injecting_hook(injection: RunInjection, name: str, hook: HookFunction) -> HookFunction:
    async def ask(question: HookQuestion) -> HookAnswer:
        inject = injection.case.faults.next_for_port(injection.run_path, "hook", name)
        if inject is None:
            return await call_hook(injection.clock, name, hook, question)
        injection.mark_played(form.encode_hook_question(name, question))
        if inject.error is not UNSET:
            raise RuntimeError(inject.error)
        if not injection.in_real_time:
            await injection.wait_for_timeout()
        return HookFailure(
            Fault("policy.denied", f"the hook {name} took too long", {"hook": name, "reason": "timeout"})
        )

    return ask


class InjectingSink(Struct, frozen=True):
    injection: RunInjection
    sink: SinkPort

    async def deliver(self, delivery: Deliver) -> Fault | None:
        injection = self.injection
        inject = injection.case.faults.next_for_port(injection.run_path, "sink", delivery.name)
        if inject is None:
            return await self.sink.deliver(delivery)
        injection.mark_played(form.encode_delivery(delivery))
        if inject.error is not UNSET:
            raise RuntimeError(inject.error)
        if not injection.in_real_time:
            await injection.wait_for_timeout()
        fields = {"sink": delivery.name, "reason": "timeout"}
        message = f"the sink {delivery.name} took longer than {delivery.sink.timeout} ms"
        return Fault("delivery.failed", message, fields)


async def simulate_failure(
    inject: InjectedFaultSpec, call: HttpCall, clock: Clock, *, gap: int, time: int, streamed: bool = False
) -> HttpReply:
    """The reply or error of an injected fault. Not for a cut reply, see `simulate_cut`."""
    if inject.status is not UNSET:
        return _status_reply(inject, call)
    if inject.empty is not UNSET:
        return HttpReply(200, (_JSON,), sorted_json(_EMPTY_REPLY))
    if inject.timeout is not UNSET:
        limit, what = (gap, "a pause in the reply") if streamed and gap < time else (time, "the reply")
        if isinstance(clock, StepClock):
            await clock.sleep_until(clock.now() + limit)
        else:
            advance_real_clock(clock, limit)
        message = f"{what} took longer than {limit} ms"
        raise ProviderError("provider.timeout", message, fields=_error_fields(call, sent=True, limit=limit))
    host = urlsplit(call.url).netloc.rpartition("@")[2] or call.url
    message = f"no reply came from {host}: the connection was refused"
    raise ProviderError("provider.transient", message, fields=_error_fields(call, sent=False, reason="refused"))


def advance_real_clock(clock: Clock, milliseconds: int) -> None:
    """Move a real clock forward without waiting."""
    from agentrun.engine.event_loop import SystemClock  # late: replays need no event loop

    if isinstance(clock, SystemClock):
        clock.skip_forward(milliseconds)


def _error_fields(call: HttpCall, *, sent: bool, **more: int | str) -> dict[str, object]:
    """The fields of the error. For a tool they include whether the request may have been sent."""
    return {"status": None, **more} if call.reach is None else {"status": None, **more, "sent": sent}


def _status_reply(inject: InjectedFaultSpec, call: HttpCall) -> HttpReply:
    assert inject.status is not UNSET
    wait = () if inject.retry_after is UNSET else (("retry-after", str(inject.retry_after)),)
    if call.reach is not None:
        return HttpReply(inject.status, wait, b"")
    return HttpReply(inject.status, (_JSON, *wait), sorted_json(_ERROR_BODY))


def simulate_cut(
    body: bytes, pieces: tuple[int, ...], after: int, heard: Callable[[bytes], None] | None
) -> ProviderError:
    """The error of a reply that breaks off after some of its pieces, which are passed on first."""
    start = 0
    for size in pieces[:after]:
        if heard is not None:
            heard(body[start : start + size])
        start += size
    message = f"the reply was cut off after {start} bytes"
    return ProviderError("provider.zero_output", message, fields={"status": None, "received": start})
