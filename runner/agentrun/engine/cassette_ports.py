"""Ports with a cassette: exchanges are replayed from it, or happen and are recorded to it.

Rule 1  A `ReplayExchanger` never calls the real port.
Rule 2  Each run has a path on the cassette: empty for the top-level run, and the ids of the calls for a sub-agent.
Rule 3  On a step clock a recorded exchange takes as long as it took. In real time it takes no time.
Rule 4  A mismatch with the cassette is not a fault of a tool, approver or hook: the `CassetteError` is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.miss_context import OverruledAnswer
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import ChunkCallback
from agentrun.compiler.url_templates import UnusableUrl
from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.core.effects import Deliver, RunTool, ToolReturn
from agentrun.core.facts import ApprovalAnswer, HookAnswer
from agentrun.core.fault import Fault
from agentrun.core.outcome import Question
from agentrun.engine import approvals
from agentrun.engine import cassette_encoding as encoding
from agentrun.engine.clock import StepClock
from agentrun.engine.hooks import HookQuestion, call_hook
from agentrun.engine.models import HttpProvider
from agentrun.engine.perform import call_sink
from agentrun.engine.ports import Approver, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.tool_runner import TruncatingExecutor, call_executor, truncate_result
from agentrun.engine.world import World, Wrapper
from agentrun.errors import AgentrunError, CassetteError, ProviderError
from agentrun.tools.http import HttpTools, build_request
from agentrun.wire import HttpCall, HttpReply, Sender

LiveCall: TypeAlias = Callable[[ChunkCallback | None], Coroutine[Any, Any, HttpReply]]

FOREVER_MS = 2**62


class CassetteExchanger(Protocol):
    async def exchange(
        self, call: HttpCall, path: str, live: LiveCall, heard: ChunkCallback | None = None
    ) -> HttpReply:
        """The reply to a request. Raises the error of the request, or `cassette.miss`."""

    def has_repeat(self, call: HttpCall, path: str) -> bool:
        """Whether the same request was recorded once more in the current turn."""

    def skip_next(self, url: str, path: str) -> None:
        """Skip the next interaction with this address."""

    def note_overruled(self, call: HttpCall, path: str, new_answer: tuple[ApprovalAnswer, str]) -> None:
        """An approver answers instead of the cassette."""


class ReplayExchanger(Struct, frozen=True):
    """Replays everything from the cassette. Without a step clock, real time passes during the replay."""

    _player: Player
    _clock: StepClock | None
    _step: int | None = None
    """The duration of each exchange in milliseconds. None: as recorded."""

    async def exchange(
        self,
        call: HttpCall,
        path: str,
        live: LiveCall,  # noqa: ARG002  # rule 1
        heard: ChunkCallback | None = None,
    ) -> HttpReply:
        interaction = self._player.play(call, path)
        if self._clock is not None:
            await _wait_as_recorded(self._clock, interaction, self._step)
        elif interaction.stopped:
            await wait_forever()
        return replay_reply(interaction, heard)

    def has_repeat(self, call: HttpCall, path: str) -> bool:
        return self._player.has_repeat(call, path)

    def skip_next(self, url: str, path: str) -> None:
        self._player.play_next(url, path)

    def note_overruled(self, call: HttpCall, path: str, new_answer: tuple[ApprovalAnswer, str]) -> None:
        """A different recorded answer explains a later miss."""
        recorded = self._player.peek(call, path)
        answer = None if recorded is None else encoding.recorded_answer(recorded)
        if answer is not None and answer != new_answer[0]:
            self._player.overruled = _describe_overruled(encoding.approval_target(call) or "", new_answer, answer)


def _describe_overruled(
    target: str, new_answer: tuple[ApprovalAnswer, str], recorded: ApprovalAnswer
) -> OverruledAnswer:
    if new_answer == approvals.NO_ANSWER:
        why = f"{target} needs approval, but there is no terminal and no --approve; the cassette has {recorded}"
        return OverruledAnswer(why, approvals.HOW_TO_ANSWER)
    return OverruledAnswer(
        f"the approval of {target} is now {new_answer[0]} (by {new_answer[1]}), but the cassette has {recorded}"
    )


def replay_reply(interaction: Interaction, heard: ChunkCallback | None) -> HttpReply:
    """Replay the chunks of an interaction, and return its reply or raise its failure."""
    reply = interaction.reply
    if heard is not None and reply.status == 200:
        start = 0
        for size in interaction.chunks or (len(reply.body),):
            heard(reply.body[start : start + size])
            start += size
    if interaction.failure is None:
        return reply
    failure = interaction.failure
    kind = ProviderError if failure.code.startswith("provider.") else AgentrunError
    raise kind(failure.code, failure.message, fields=failure.fields)


async def _wait_as_recorded(clock: StepClock, interaction: Interaction, step: int | None) -> None:
    if interaction.stopped:
        await clock.sleep_until(FOREVER_MS)
    if step is not None:
        await clock.sleep_until(clock.now() + step)
    elif interaction.end is not None:
        end = clock.start + interaction.end
        took = interaction.end - (interaction.start if interaction.start is not None else interaction.end)
        await clock.sleep_with_due(end, min(clock.now() + took, end))


async def wait_forever() -> None:
    from asyncio import Event  # late: only real time needs it

    await Event().wait()


def models_wrapper(exchanger: CassetteExchanger) -> Wrapper:

    def wrapper(world: World) -> World:
        providers = {name: _wrap_model(each, exchanger, world.path) for name, each in world.providers.items()}
        return replace(world, providers=providers)

    return wrapper


def other_ports_wrapper(exchanger: CassetteExchanger, approver: Approver | None = None) -> Wrapper:
    """Wraps tools, hooks, sinks and the approver with a cassette. `approver`: its answers replace the recorded ones."""

    def wrapper(world: World) -> World:
        path = world.path
        return replace(
            world,
            executors={name: _wrap_tool(exchanger, path, each, world) for name, each in world.executors.items()},
            hooks={name: _wrap_hook(exchanger, path, name, each, world.clock) for name, each in world.hooks.items()},
            sinks={name: _CassetteSink(exchanger, path, each) for name, each in world.sinks.items()},
            approver=None if world.approver is None else _CassetteApprover(exchanger, path, world.approver, approver),
        )

    return wrapper


def answer_comparison_wrapper(exchanger: ReplayExchanger) -> Wrapper:
    """Compares the answers of the approver with the recorded ones, to explain a later miss."""

    def wrapper(world: World) -> World:
        approver = world.approver
        if approver is None:
            return world
        return replace(world, approver=_ComparingApprover(exchanger, world.path, approver))

    return wrapper


def _wrap_model(provider: Provider, exchanger: CassetteExchanger, path: str) -> Provider:
    if not isinstance(provider, HttpProvider):
        return provider
    return provider.with_sender(lambda sender: _CassetteSender(exchanger, path, sender))


class _CassetteSender:
    def __init__(self, exchanger: CassetteExchanger, path: str, sender: Sender) -> None:
        self._exchanger = exchanger
        self._path = path
        self._sender = sender

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: ChunkCallback | None = None) -> HttpReply:
        return await self._exchanger.exchange(
            call, self._path, lambda hear: self._sender.send(call, gap=gap, time=time, heard=hear), heard
        )


def _with_call(error: CassetteError, call: str) -> CassetteError:
    """Add the call and its turn to the error. The id of a call contains its turn: c2.0."""
    effect = parse_effect_id(call)
    error.fields.update({"call": call, "turn": effect.turn} if isinstance(effect, CallId) else {})
    return error


def _wrap_tool(exchanger: CassetteExchanger, path: str, executor: Executor, world: World) -> Executor:
    if isinstance(executor, HttpTools):
        tools = executor.with_sender(lambda sender: _CassetteSender(exchanger, path, sender))
        return _CassetteHttpTools(tools, exchanger, path)
    return _CassetteTool(exchanger, path, executor, world)


class _CassetteHttpTools(Struct, frozen=True):
    """The requests and replies of an HTTP tool are recorded as they are, before they become a tool result."""

    _tools: HttpTools
    _exchanger: CassetteExchanger
    _path: str

    async def run(self, call: RunTool) -> ToolReturn:
        try:
            return await self._tools.run(call)
        except CassetteError as error:
            raise _with_call(error, call.id) from None

    def has_recorded_result(self, call: RunTool) -> bool:
        try:
            return self._exchanger.has_repeat(build_request(call), self._path)
        except UnusableUrl:
            return False


class _CassetteTool(TruncatingExecutor):
    """Records the result as the model reads it, because the place of truncation depends on the redacted secrets."""

    def __init__(self, exchanger: CassetteExchanger, path: str, executor: Executor, world: World) -> None:
        self._exchanger = exchanger
        self._path = path
        self._executor = executor
        self._blobs = world.blobs
        self._redactor = world.redactor

    async def run(self, call: RunTool) -> ToolReturn:
        async def live(_: ChunkCallback | None) -> HttpReply:
            returned = await call_executor(self._executor, call)
            cut = truncate_result(self._redactor.redact_struct(returned), self._blobs, call)
            return encoding.encode_tool_result(returned if cut.whole is None else cut, self._blobs)

        try:
            reply = await self._exchanger.exchange(encoding.encode_tool_call(call), self._path, live)
        except CassetteError as error:
            raise _with_call(error, call.id) from None
        return encoding.decode_tool_result(reply, self._blobs)

    def has_recorded_result(self, call: RunTool) -> bool:
        return self._exchanger.has_repeat(encoding.encode_tool_call(call), self._path)


class _CassetteApprover:
    lifts_deferrals = True

    def __init__(self, exchanger: CassetteExchanger, path: str, approver: Approver, instead: Approver | None) -> None:
        self._exchanger = exchanger
        self._path = path
        self._approver = approver
        self._instead = instead
        self.keeps_time = approvals.keeps_time(approver)

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        new_answer = await (self._instead or approvals.NoApprover()).answer(question)
        if new_answer == approvals.NO_ANSWER:
            return await self._exchange_answer(question)
        self._exchanger.note_overruled(encoding.encode_question(question), self._path, new_answer)
        try:  # consume the recorded answer, if there is one, and ignore it
            await self._exchange_answer(question)
        except CassetteError:  # the recorded question has other words
            self._exchanger.skip_next(encoding.encode_question(question).url, self._path)
        return new_answer

    async def _exchange_answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        async def live(_: ChunkCallback | None) -> HttpReply:
            return encoding.encode_answer(await approvals.call_approver(self._approver, question))

        try:
            return encoding.decode_answer(
                await self._exchanger.exchange(encoding.encode_question(question), self._path, live)
            )
        except CassetteError as error:
            raise _with_call(error, question.subject) from None


class _ComparingApprover:
    """Asks the real approver while the model is replayed, and compares its answer with the recorded one."""

    def __init__(self, exchanger: ReplayExchanger, path: str, approver: Approver) -> None:
        self._exchanger = exchanger
        self._path = path
        self._approver = approver
        self.keeps_time = approvals.keeps_time(approver)

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        new_answer = await self._approver.answer(question)
        self._exchanger.note_overruled(encoding.encode_question(question), self._path, new_answer)
        return new_answer


def _wrap_hook(exchanger: CassetteExchanger, path: str, name: str, hook: HookFunction, clock: Clock) -> HookFunction:
    async def hook_through_cassette(question: HookQuestion) -> HookAnswer:
        async def live(_: ChunkCallback | None) -> HttpReply:
            return encoding.encode_hook_answer(await call_hook(clock, name, hook, question))

        return encoding.decode_hook_answer(
            await exchanger.exchange(encoding.encode_hook_question(name, question), path, live)
        )

    return hook_through_cassette


class _CassetteSink(Struct, frozen=True):
    _exchanger: CassetteExchanger
    _path: str
    _sink: SinkPort

    async def deliver(self, delivery: Deliver) -> Fault | None:
        async def live(_: ChunkCallback | None) -> HttpReply:
            return encoding.encode_delivery_fault(await call_sink(self._sink, delivery))

        return encoding.decode_delivery_fault(
            await self._exchanger.exchange(encoding.encode_delivery(delivery), self._path, live)
        )
