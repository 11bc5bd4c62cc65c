"""The world behind a tape: what a run asks for is played from it, or happens and is recorded on it.

Rule 1  What is played is not done: there is nothing behind a `Playing` tape.
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
from agentrun.engine import tape_forms as form
from agentrun.engine.clean import cleaned
from agentrun.engine.clock import StepClock
from agentrun.engine.hooks import HookQuestion, said_by
from agentrun.engine.models import WireProvider
from agentrun.engine.ports import Approver, Clock, Executor, Hook, Provider, SinkPort
from agentrun.engine.sinks import handed
from agentrun.engine.toolbox import Cuts, shortened, tried
from agentrun.engine.world import World, Wrapper
from agentrun.errors import AgentrunError, CassetteError, ProviderError
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall, HttpReply, Sender

Heard: TypeAlias = Callable[[bytes], None]
Live: TypeAlias = Callable[[Heard | None], Coroutine[Any, Any, HttpReply]]
"""Does it for real."""

FOREVER = 2**62


class Tape(Protocol):
    async def through(self, call: HttpCall, path: str, live: Live, heard: Heard | None = None) -> HttpReply:
        """The reply to a request, from wherever it comes. Raises what the request raises, or `cassette.miss`."""

    def pass_over(self, url: str, path: str) -> None:
        """Whatever it holds next of this address is not wanted."""

    def overrule(self, call: HttpCall, path: str, said: tuple[ApprovalAnswer, str]) -> None:
        """A question is answered by somebody else: the answer that it holds does not count."""


class Playing:
    """Everything comes from the tape. Without a clock of ours real time goes on beside it."""

    def __init__(self, player: Player, clock: StepClock | None, step: int | None = None) -> None:
        """`step`: how long each exchange takes, in milliseconds. None: as long as it took."""
        self._player = player
        self._clock = clock
        self._step = step

    async def through(self, call: HttpCall, path: str, live: Live, heard: Heard | None = None) -> HttpReply:  # noqa: ARG002  # nothing is done
        interaction = self._player.play(call, path)
        if self._clock is not None:
            await _pass(self._clock, interaction, self._step)
        elif interaction.stopped:
            await _never()
        return given(interaction, heard)

    def pass_over(self, url: str, path: str) -> None:
        self._player.play_next(url, path)

    def overrule(self, call: HttpCall, path: str, said: tuple[ApprovalAnswer, str]) -> None:
        """Where the recorded answer is another, that explains a later miss."""
        recorded = self._player.peek(call, path)
        answer = None if recorded is None else form.recorded_answer(recorded)
        if answer is not None and answer != said[0]:
            self._player.overruled = _overruled(call.url.partition("://")[2], said, answer)


class Recording:
    """Everything happens, and is recorded. What `kept` has, up to so many interactions, is played instead."""

    def __init__(self, recorder: Recorder, kept: Player | None = None, until: int | None = None) -> None:
        """`until`: the first so many come from the tape, and must fit. None: whatever is there does."""
        self._recorder = recorder
        self._kept = kept
        self._until = until

    async def through(self, call: HttpCall, path: str, live: Live, heard: Heard | None = None) -> HttpReply:
        kept = self._look(call, path)
        if kept is not None:
            self._recorder.reuse(kept)
            if kept.stopped:
                await _never()
            return given(kept, heard)
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

    def pass_over(self, url: str, path: str) -> None:
        """Only what is asked for is kept anyway."""

    def overrule(self, call: HttpCall, path: str, said: tuple[ApprovalAnswer, str]) -> None:
        """What is overruled was left out before: see `overruled_answers`."""

    def _look(self, call: HttpCall, path: str) -> Interaction | None:
        if self._kept is None or (self._until is not None and self._recorder.count >= self._until):
            return None
        if self._until is not None:
            return self._kept.play(call, path)
        found = self._kept.find(call, path)
        return found[1] if found is not None and not found[1].stopped else None


def _overruled(target: str, said: tuple[ApprovalAnswer, str], recorded: ApprovalAnswer) -> OverruledAnswer:
    if said == approvals.NOBODY:
        why = f"there was nobody to ask about {target}, and the cassette has {recorded}"
        return OverruledAnswer(why, approvals.TO_ANSWER)
    return OverruledAnswer(f"the answer about {target} is {said[0]} by {said[1]}, but the cassette has {recorded}")


def given(interaction: Interaction, heard: Heard | None) -> HttpReply:
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


async def _pass(clock: StepClock, interaction: Interaction, step: int | None) -> None:
    if interaction.stopped:
        await clock.sleep_until(FOREVER)
    if step is not None:
        await clock.sleep_until(clock.now() + step)
    elif interaction.end is not None:
        end = clock.start + interaction.end
        took = interaction.end - (interaction.start if interaction.start is not None else interaction.end)
        await clock.rest(end, min(clock.now() + took, end))


async def _never() -> None:
    from asyncio import Event  # late: only real time needs it

    await Event().wait()


# --- the ports of one run ---------------------------------------------------------------------------------------


def tape_models(tape: Tape) -> Wrapper:
    """Puts a cassette before the models of a world."""

    def wrapper(world: World) -> World:
        providers = {name: _taped_model(each, tape, world.path) for name, each in world.providers.items()}
        return replace(world, providers=providers)

    return wrapper


def tape_others(tape: Tape, approver: Approver | None = None) -> Wrapper:
    """Puts a cassette before tools, hooks, sinks and people. `approver`: who answers instead of the cassette, if they
    have anything to say."""

    def wrapper(world: World) -> World:
        path = world.path
        return replace(
            world,
            executors={name: _taped_tool(tape, path, each, world) for name, each in world.executors.items()},
            hooks={name: _taped_hook(tape, path, name, each, world.clock) for name, each in world.hooks.items()},
            sinks={name: _TapedSink(tape, path, each) for name, each in world.sinks.items()},
            approver=None if world.approver is None else _TapedApprover(tape, path, world.approver, approver),
        )

    return wrapper


def compare_answers(tape: Playing) -> Wrapper:
    """Compares what people say with what the cassette has, to explain a miss. The answers of the cassette count for
    nothing."""

    def wrapper(world: World) -> World:
        asked = world.approver
        return world if asked is None else replace(world, approver=_ComparedApprover(tape, world.path, asked))

    return wrapper


def _taped_model(provider: Provider, tape: Tape, path: str) -> Provider:
    if not isinstance(provider, WireProvider):
        return provider
    return provider.over(lambda sender: _TapedSender(tape, path, sender))


class _TapedSender:
    def __init__(self, tape: Tape, path: str, sender: Sender) -> None:
        self._tape = tape
        self._path = path
        self._sender = sender

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: Heard | None = None) -> HttpReply:
        return await self._tape.through(
            call, self._path, lambda hear: self._sender.send(call, gap=gap, time=time, heard=hear), heard
        )


def _in_turn(error: CassetteError, call: str) -> CassetteError:
    """The error with its place. Calls are named after their turn: c2.0; what is no call has none."""
    place = parse_effect_id(call)
    error.fields.update({"call": call, "turn": place.turn} if isinstance(place, CallId) else {})
    return error


def _taped_tool(tape: Tape, path: str, executor: Executor, world: World) -> Executor:
    if isinstance(executor, HttpTools):
        return _TapedHttp(executor.with_sender(lambda sender: _TapedSender(tape, path, sender)))
    return _TapedTool(tape, path, executor, world)


class _TapedHttp:
    """What an HTTP tool asks and gets is HTTP already, and stands on the tape as it is; what is made of it does not."""

    def __init__(self, tools: HttpTools) -> None:
        self._tools = tools

    async def run(self, call: RunTool) -> ToolReturn:
        try:
            return await self._tools.run(call)
        except CassetteError as error:
            raise _in_turn(error, call.id) from None


class _TapedTool(Cuts):
    """On the tape is what the model reads: where a text is cut depends on what is hidden in it."""

    def __init__(self, tape: Tape, path: str, executor: Executor, world: World) -> None:
        self._tape = tape
        self._path = path
        self._executor = executor
        self._blobs = world.blobs
        self._redactor = world.redactor

    async def run(self, call: RunTool) -> ToolReturn:
        async def live(_: Heard | None) -> HttpReply:
            returned = await tried(self._executor, call)
            cut = shortened(cleaned(self._redactor, returned), self._blobs, call)
            return form.tool_reply(returned if cut.whole is None else cut, self._blobs)

        try:
            reply = await self._tape.through(form.tool_call(call), self._path, live)
        except CassetteError as error:
            raise _in_turn(error, call.id) from None
        return form.tool_result(reply, self._blobs)


class _TapedApprover:
    def __init__(self, tape: Tape, path: str, approver: Approver, instead: Approver | None) -> None:
        self._tape = tape
        self._path = path
        self._approver = approver
        self._instead = instead
        self.keeps_time = approvals.keeps_time(approver)

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        said = await (self._instead or approvals.Nobody()).answer(question)
        if said == approvals.NOBODY:
            return await self._taped(question)
        self._tape.overrule(form.approval_call(question), self._path, said)
        try:  # the recorded answer is used up, if there is one, but does not count
            await self._taped(question)
        except CassetteError:  # it was asked in other words
            self._tape.pass_over(form.approval_call(question).url, self._path)
        return said

    async def _taped(self, question: Question) -> tuple[ApprovalAnswer, str]:
        async def live(_: Heard | None) -> HttpReply:
            return form.approval_reply(await approvals.said_by(self._approver, question))

        try:
            return form.approval_answer(await self._tape.through(form.approval_call(question), self._path, live))
        except CassetteError as error:
            raise _in_turn(error, question.subject) from None


class _ComparedApprover:
    """Asks for real while only the model is played, and compares: another answer explains a later miss."""

    def __init__(self, tape: Playing, path: str, approver: Approver) -> None:
        self._tape = tape
        self._path = path
        self._approver = approver
        self.keeps_time = approvals.keeps_time(approver)

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        said = await self._approver.answer(question)
        self._tape.overrule(form.approval_call(question), self._path, said)
        return said


def _taped_hook(tape: Tape, path: str, name: str, hook: Hook, clock: Clock) -> Hook:
    async def taped(question: HookQuestion) -> HookAnswer:
        async def live(_: Heard | None) -> HttpReply:
            return form.hook_reply(await said_by(clock, name, hook, question))

        return form.hook_answer(await tape.through(form.hook_call(name, question), path, live))

    return taped


class _TapedSink:
    def __init__(self, tape: Tape, path: str, sink: SinkPort) -> None:
        self._tape = tape
        self._path = path
        self._sink = sink

    async def deliver(self, delivery: Deliver) -> Fault | None:
        async def live(_: Heard | None) -> HttpReply:
            return form.sink_reply(await handed(self._sink, delivery))

        return form.sink_fault(await self._tape.through(form.sink_call(delivery), self._path, live))
