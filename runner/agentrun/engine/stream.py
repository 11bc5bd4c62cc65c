"""The events of one run for an interface: `stream` and `astream`.

    async for event in agentrun.astream("specs/support.yaml", "Where is order 1042?"):
        match event:
            case agentrun.TextDelta(text=text):
                print(text, end="")
            case agentrun.RunEnded(outcome=outcome):
                print(outcome.status)

Rule 1  The last event is `RunEnded`, with the outcome. An error before the run exists is raised.
Rule 2  Closing the iterator cancels the run, and its journal says so. `break` alone closes it when Python frees it; in
        an event loop use `contextlib.aclosing` to cancel at once.
Rule 3  The text of a reply comes as it arrives. If the model does not stream, it comes as a whole. `TextWithdrawn` says
        that the text of a reply does not count, because its request is sent again.
Rule 4  The events of sub-agents are included; `run` says whose they are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from msgspec import Struct

from agentrun.core import facts
from agentrun.core.call_validation import parse_arguments
from agentrun.core.messages import text_of
from agentrun.core.outcome import Outcome
from agentrun.core.trajectory import OK_STATUS
from agentrun.engine.api import PackageSource, PreparedRun, RunArguments, prepare_run
from agentrun.engine.ports import ReplyDelta, ToolProgress, TransientEvent

if TYPE_CHECKING:
    import asyncio


class _StreamEvent(Struct, frozen=True, tag_field="type"):
    run: str
    """The run that it happened in: the run itself, or one of a sub-agent."""


class TextDelta(_StreamEvent, frozen=True, tag="text_delta"):
    """A part of a reply."""

    text: str


class TextWithdrawn(_StreamEvent, frozen=True, tag="text_withdrawn"):
    """The text of the reply so far does not count."""


class CallRequested(_StreamEvent, frozen=True, tag="call_requested"):
    """The model requests a tool call."""

    call: str
    tool: str
    args: dict[str, Any] | None
    """None: the arguments are not a JSON object."""


class CallProgressed(_StreamEvent, frozen=True, tag="call_progressed"):
    """A tool reports its progress."""

    call: str
    tool: str
    text: str


class CallFinished(_StreamEvent, frozen=True, tag="call_finished"):
    """A call ended, whether it ran or not."""

    call: str
    tool: str
    status: str
    """`ok`, or the code of the error."""
    text: str
    """What the model reads."""


class RulingMade(_StreamEvent, frozen=True, tag="ruling_made"):
    """The policy made a ruling."""

    subject: str
    """The id of a call, or the stage."""
    stage: str
    ruling: str
    rules: tuple[str, ...]
    reason: str | None


class QuestionAsked(_StreamEvent, frozen=True, tag="question_asked"):
    """A person is asked for approval. If no one answers, the run is suspended, and its outcome has the questions."""

    subject: str
    question: str
    """The hash that identifies the question."""
    target: str
    """The tool, the sink or the stage."""
    rules: tuple[str, ...]
    reason: str | None


class SpendUpdated(_StreamEvent, frozen=True, tag="spend_updated"):
    """What this run has spent so far, without its sub-agents."""

    tokens: int
    cost: int
    """Micro-dollars."""
    turns: int


class RunEnded(_StreamEvent, frozen=True, tag="run_ended"):
    """The last event."""

    outcome: Outcome


StreamEvent: TypeAlias = (
    TextDelta
    | TextWithdrawn
    | CallRequested
    | CallProgressed
    | CallFinished
    | RulingMade
    | QuestionAsked
    | SpendUpdated
    | RunEnded
)
"""What happens in a run."""


def astream(
    package: PackageSource, message: str | None = None, *, output: Any = None, **arguments: Unpack[RunArguments]
) -> AsyncGenerator[StreamEvent]:
    """Run an agent, and yield what happens. The arguments are those of `run`. Closing the iterator cancels the run."""
    return _astream(prepare_run(package, message, output, arguments))


def stream(
    package: PackageSource, message: str | None = None, *, output: Any = None, **arguments: Unpack[RunArguments]
) -> Generator[StreamEvent]:
    """Run an agent, and yield what happens. The arguments are those of `run`. Closing the iterator cancels the run. The
    run works while the caller waits for the next event. Inside an event loop use `astream`."""
    return _stream(prepare_run(package, message, output, arguments))


def _all_events(prepared: PreparedRun) -> Iterator[StreamEvent]:
    """The events of a run that takes no real time."""
    events: list[StreamEvent] = []
    reader = EventReader()
    outcome = prepared.run(lambda run, news: events.extend(reader.read(run, news)))
    yield from events
    yield RunEnded(outcome.run, outcome)


async def _astream(prepared: PreparedRun) -> AsyncGenerator[StreamEvent]:
    if not prepared.needs_loop:
        for event in _all_events(prepared):
            yield event
        return
    import asyncio  # late: a step clock needs no event loop

    reader = EventReader()
    queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue()

    def listen(run: str, news: facts.Record | TransientEvent) -> None:
        for event in reader.read(run, news):
            queue.put_nowait(event)

    task = asyncio.get_running_loop().create_task(prepared.arun(listen))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (news := await queue.get()) is not None:
            yield news
        outcome = task.result()
        yield RunEnded(outcome.run, outcome)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # it was raised above, or the run has recorded it


def _stream(prepared: PreparedRun) -> Generator[StreamEvent]:
    if not prepared.needs_loop:
        yield from _all_events(prepared)
        return
    import asyncio  # late: a step clock needs no event loop

    from agentrun.engine.event_loop import stop_other_tasks  # late: as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("agentrun.stream() cannot be used inside an event loop; use agentrun.astream(…) there")
    events = _astream(prepared)

    async def next_event() -> StreamEvent | None:
        return await anext(events, None)

    with asyncio.Runner() as runner:
        try:
            while (event := runner.run(next_event())) is not None:
                yield event
        finally:
            runner.run(events.aclose())
            runner.run(stop_other_tasks())


class EventReader:
    """Turns the records and transient events of a run and its sub-agents into events for an interface."""

    def __init__(self) -> None:
        self._streamed: set[tuple[str, str]] = set()
        """The requests whose replies were streamed, by run and effect."""
        self._tools: dict[tuple[str, str], str] = {}
        """The tool of each call, by run and call."""
        self._spent: dict[str, tuple[int, int, int]] = {}

    def read(self, run: str, news: facts.Record | TransientEvent) -> Iterator[StreamEvent]:
        match news:
            case ReplyDelta(effect=effect, text=None):
                self._streamed.discard((run, effect))
                yield TextWithdrawn(run)
            case ReplyDelta(effect=effect, text=str() as text):
                self._streamed.add((run, effect))
                yield TextDelta(run, text)
            case ToolProgress():
                yield CallProgressed(run, news.effect, news.tool, news.text)
            case facts.Record():
                yield from self._read_fact(run, news.fact)

    def _read_fact(self, run: str, fact: facts.Fact) -> Iterator[StreamEvent]:
        match fact:
            case facts.ModelReplied():
                yield from self._read_reply(run, fact)
            case facts.ReplyDiscarded():
                yield TextWithdrawn(run)
            case facts.ToolFinished():
                status = OK_STATUS if fact.fault is None else fact.fault.code
                yield self._finished(run, fact.call, status, text_of(fact.parts))
            case facts.CallRefused():
                yield self._finished(run, fact.call, fact.code, fact.told)
            case facts.CallCancelled():
                yield self._finished(run, fact.call, "tool.aborted", fact.told)
            case facts.Ruled():
                yield RulingMade(run, fact.subject, fact.stage, fact.ruling, fact.rules, fact.reason)
            case facts.ApprovalAsked():
                yield QuestionAsked(run, fact.subject, fact.question, fact.target, fact.rules, fact.reason)

    def _read_reply(self, run: str, fact: facts.ModelReplied) -> Iterator[StreamEvent]:
        message, usage = fact.reply.message, fact.reply.usage
        if message.text and (run, fact.effect) not in self._streamed:
            yield TextDelta(run, message.text)
        tokens, cost, turns = self._spent.get(run, (0, 0, 0))
        tokens += 0 if usage is None else (usage.input or 0) + (usage.output or 0)
        self._spent[run] = tokens, cost + fact.cost, turns + 1
        yield SpendUpdated(run, *self._spent[run])
        for call in message.calls:
            self._tools[run, call.id] = call.tool
            yield CallRequested(run, call.id, call.tool, parse_arguments(call.arguments))

    def _finished(self, run: str, call: str, status: str, text: str) -> CallFinished:
        return CallFinished(run, call, self._tools.get((run, call), ""), status, text)
