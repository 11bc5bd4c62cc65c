"""The world behind a tape: what a run asks for is played from it, or happens and is recorded on it.

Rule 1  What is played is not done: there is nothing behind a `ReplayExchanger` tape.
Rule 2  Each run of a family has a path on the tape: empty for the run that a user started, then the calls that led to
        a child.
Rule 3  Under a clock that is moved by hand a recorded exchange takes as long as it took. In real time it takes none.
Rule 4  A recording that does not fit is no fault of a tool, a person or a hook: it passes through all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.miss_context import OverruledAnswer
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.core.effects import Deliver, RunTool, ToolReturn
from agentrun.core.facts import ApprovalAnswer, HookAnswer
from agentrun.core.fault import Fault
from agentrun.core.outcome import Question
from agentrun.engine import approvals
from agentrun.engine import cassette_encoding as form
from agentrun.engine.clock import StepClock
from agentrun.engine.fact_redaction import redact_struct
from agentrun.engine.hooks import HookQuestion, call_hook
from agentrun.engine.models import HttpProvider
from agentrun.engine.perform import call_sink
from agentrun.engine.ports import Approver, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.tool_runner import TruncatingExecutor, call_executor, truncate_result
from agentrun.engine.world import World, Wrapper
from agentrun.errors import AgentrunError, CassetteError, ProviderError
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall, HttpReply, Sender

OnChunk: TypeAlias = Callable[[bytes], None]
LiveCall: TypeAlias = Callable[[OnChunk | None], Coroutine[Any, Any, HttpReply]]
"""Does it for real."""

FOREVER_MS = 2**62


class CassetteExchanger(Protocol):
    async def exchange(self, call: HttpCall, path: str, live: LiveCall, heard: OnChunk | None = None) -> HttpReply:
        """The reply to a request, from wherever it comes. Raises what the request raises, or `cassette.miss`."""

    def skip_next(self, url: str, path: str) -> None:
        """Whatever it holds next of this address is not wanted."""

    def note_overruled(self, call: HttpCall, path: str, new_answer: tuple[ApprovalAnswer, str]) -> None:
        """A question is answered by somebody else: the answer that it holds does not count."""


class ReplayExchanger:
    """Everything comes from the tape. Without a clock of ours real time goes on beside it."""

    def __init__(self, player: Player, clock: StepClock | None, step: int | None = None) -> None:
        """`step`: how long each exchange takes, in milliseconds. None: as long as it took."""
        self._player = player
        self._clock = clock
        self._step = step

    async def exchange(self, call: HttpCall, path: str, live: LiveCall, heard: OnChunk | None = None) -> HttpReply:  # noqa: ARG002  # nothing is done
        interaction = self._player.play(call, path)
        if self._clock is not None:
            await _wait_as_recorded(self._clock, interaction, self._step)
        elif interaction.stopped:
            await _wait_forever()
        return replay_reply(interaction, heard)

    def skip_next(self, url: str, path: str) -> None:
        self._player.play_next(url, path)

    def note_overruled(self, call: HttpCall, path: str, new_answer: tuple[ApprovalAnswer, str]) -> None:
        """Where the recorded answer is another, that explains a later miss."""
        recorded = self._player.peek(call, path)
        answer = None if recorded is None else form.recorded_answer(recorded)
        if answer is not None and answer != new_answer[0]:
            self._player.overruled = _describe_overruled(call.url.partition("://")[2], new_answer, answer)


class RecordingExchanger:
    """Everything happens, and is recorded. What `kept` has, up to so many interactions, is played instead."""

    def __init__(self, recorder: Recorder, old_player: Player | None = None, until: int | None = None) -> None:
        """`until`: the first so many come from the tape, and must fit. None: whatever is there does."""
        self._recorder = recorder
        self._old_player = old_player
        self._until = until

    async def exchange(self, call: HttpCall, path: str, live: LiveCall, heard: OnChunk | None = None) -> HttpReply:
        reused = self._find_reusable(call, path)
        if reused is not None:
            self._recorder.reuse(reused)
            if reused.stopped:
                await _wait_forever()
            return replay_reply(reused, heard)
        take = self._recorder.begin(call, path)
        try:
            reply = await live(take.record_chunks(heard))
        except AgentrunError as error:
            take.fail(error.code, error.message, error.fields)
            raise
        except BaseException:
            take.stop()
            raise
        take.end(reply)
        return reply

    def skip_next(self, url: str, path: str) -> None:
        """Only what is asked for is kept anyway."""

    def note_overruled(self, call: HttpCall, path: str, new_answer: tuple[ApprovalAnswer, str]) -> None:
        """What is overruled was left out before: see `overruled_answers`."""

    def _find_reusable(self, call: HttpCall, path: str) -> Interaction | None:
        if self._old_player is None or (self._until is not None and self._recorder.count >= self._until):
            return None
        if self._until is not None:
            return self._old_player.play(call, path)
        found = self._old_player.find(call, path)
        return found[1] if found is not None and not found[1].stopped else None


def _describe_overruled(
    target: str, new_answer: tuple[ApprovalAnswer, str], recorded: ApprovalAnswer
) -> OverruledAnswer:
    if new_answer == approvals.NO_ANSWER:
        why = f"there was nobody to ask about {target}, and the cassette has {recorded}"
        return OverruledAnswer(why, approvals.HOW_TO_ANSWER)
    return OverruledAnswer(
        f"the answer about {target} is {new_answer[0]} by {new_answer[1]}, but the cassette has {recorded}"
    )


def replay_reply(interaction: Interaction, heard: OnChunk | None) -> HttpReply:
    """What a recorded exchange gives: its pieces, and its reply or its failure."""
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


async def _wait_forever() -> None:
    from asyncio import Event  # late: only real time needs it

    await Event().wait()


# --- the ports of one run ---------------------------------------------------------------------------------------


def models_wrapper(exchanger: CassetteExchanger) -> Wrapper:
    """Puts a cassette before the models of a world."""

    def wrapper(world: World) -> World:
        providers = {name: _wrap_model(each, exchanger, world.path) for name, each in world.providers.items()}
        return replace(world, providers=providers)

    return wrapper


def other_ports_wrapper(exchanger: CassetteExchanger, approver: Approver | None = None) -> Wrapper:
    """Puts a cassette before tools, hooks, sinks and people. `approver`: who answers instead of the cassette, if they
    have anything to say."""

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
    """Compares what people say with what the cassette has, to explain a miss. The answers of the cassette count for
    nothing."""

    def wrapper(world: World) -> World:
        asked = world.approver
        return world if asked is None else replace(world, approver=_ComparingApprover(exchanger, world.path, asked))

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

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: OnChunk | None = None) -> HttpReply:
        return await self._exchanger.exchange(
            call, self._path, lambda hear: self._sender.send(call, gap=gap, time=time, heard=hear), heard
        )


def _with_call(error: CassetteError, call: str) -> CassetteError:
    """The error with its place. Calls are named after their turn: c2.0; what is no call has none."""
    place = parse_effect_id(call)
    error.fields.update({"call": call, "turn": place.turn} if isinstance(place, CallId) else {})
    return error


def _wrap_tool(exchanger: CassetteExchanger, path: str, executor: Executor, world: World) -> Executor:
    if isinstance(executor, HttpTools):
        return _CassetteHttpTools(executor.with_sender(lambda sender: _CassetteSender(exchanger, path, sender)))
    return _CassetteTool(exchanger, path, executor, world)


class _CassetteHttpTools:
    """What an HTTP tool asks and gets is HTTP already, and stands on the tape as it is; what is made of it does not."""

    def __init__(self, tools: HttpTools) -> None:
        self._tools = tools

    async def run(self, call: RunTool) -> ToolReturn:
        try:
            return await self._tools.run(call)
        except CassetteError as error:
            raise _with_call(error, call.id) from None


class _CassetteTool(TruncatingExecutor):
    """On the tape is what the model reads: where a text is cut depends on what is hidden in it."""

    def __init__(self, exchanger: CassetteExchanger, path: str, executor: Executor, world: World) -> None:
        self._exchanger = exchanger
        self._path = path
        self._executor = executor
        self._blobs = world.blobs
        self._redactor = world.redactor

    async def run(self, call: RunTool) -> ToolReturn:
        async def live(_: OnChunk | None) -> HttpReply:
            returned = await call_executor(self._executor, call)
            cut = truncate_result(redact_struct(self._redactor, returned), self._blobs, call)
            return form.encode_tool_result(returned if cut.whole is None else cut, self._blobs)

        try:
            reply = await self._exchanger.exchange(form.encode_tool_call(call), self._path, live)
        except CassetteError as error:
            raise _with_call(error, call.id) from None
        return form.decode_tool_result(reply, self._blobs)


class _CassetteApprover:
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
        self._exchanger.note_overruled(form.encode_question(question), self._path, new_answer)
        try:  # the recorded answer is used up, if there is one, but does not count
            await self._exchange_answer(question)
        except CassetteError:  # it was asked in other words
            self._exchanger.skip_next(form.encode_question(question).url, self._path)
        return new_answer

    async def _exchange_answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        async def live(_: OnChunk | None) -> HttpReply:
            return form.encode_answer(await approvals.call_approver(self._approver, question))

        try:
            return form.decode_answer(await self._exchanger.exchange(form.encode_question(question), self._path, live))
        except CassetteError as error:
            raise _with_call(error, question.subject) from None


class _ComparingApprover:
    """Asks for real while only the model is played, and compares: another answer explains a later miss."""

    def __init__(self, exchanger: ReplayExchanger, path: str, approver: Approver) -> None:
        self._exchanger = exchanger
        self._path = path
        self._approver = approver
        self.keeps_time = approvals.keeps_time(approver)

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        new_answer = await self._approver.answer(question)
        self._exchanger.note_overruled(form.encode_question(question), self._path, new_answer)
        return new_answer


def _wrap_hook(exchanger: CassetteExchanger, path: str, name: str, hook: HookFunction, clock: Clock) -> HookFunction:
    async def hook_through_cassette(question: HookQuestion) -> HookAnswer:
        async def live(_: OnChunk | None) -> HttpReply:
            return form.encode_hook_answer(await call_hook(clock, name, hook, question))

        return form.decode_hook_answer(await exchanger.exchange(form.encode_hook_question(name, question), path, live))

    return hook_through_cassette


class _CassetteSink:
    def __init__(self, exchanger: CassetteExchanger, path: str, sink: SinkPort) -> None:
        self._exchanger = exchanger
        self._path = path
        self._sink = sink

    async def deliver(self, delivery: Deliver) -> Fault | None:
        async def live(_: OnChunk | None) -> HttpReply:
            return form.encode_delivery_fault(await call_sink(self._sink, delivery))

        return form.decode_delivery_fault(
            await self._exchanger.exchange(form.encode_delivery(delivery), self._path, live)
        )
