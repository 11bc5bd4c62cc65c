"""Models that say what a script says.

scripted(calls("search", q="vcr"), text("Found 3 results."))
scripted(fails("provider.rate_limited", retry_after=3), after(500, text("Hello."), clock=clock))
replies(lambda request: text(f"You said {len(request.messages)} things."))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import AskModel, Deliver, ModelRequest, RunTool, ToolReturn
from agentrun.core.facts import ApprovalAnswer, Continue, HookAnswer, Record
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Reply, Text, ToolCall, Usage
from agentrun.core.outcome import Question
from agentrun.engine.hooks import HookQuestion
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Clock
from agentrun.errors import StorageError
from agentrun.journal.storage import MemoryJournal

DEFAULT_USAGE = Usage(input=10, output=5, cached=0, reasoning=0)
"""What a scripted reply says that it used."""


class ScriptedReply(Struct, frozen=True):
    """A reply, whole and in the pieces in which it arrives."""

    reply: Reply
    pieces: tuple[str, ...] = ()


class DelayedItem(Struct, frozen=True):
    """Something that is said after a while."""

    milliseconds: int
    item: ScriptItem
    clock: Clock


ScriptItem: TypeAlias = "ScriptedReply | Fault | DelayedItem | Callable[[ModelRequest], ScriptItem]"
"""One entry of a script."""


def call(tool: str, written: str | None = None, /, **arguments: Any) -> ToolCall:
    """A call. `written`: its arguments as the model writes them, when they are not to be JSON."""
    return ToolCall("", tool, sorted_json(arguments).decode() if written is None else written)


def calls(first: str | ToolCall, *others: ToolCall, **arguments: Any) -> ScriptedReply:
    """A reply that asks for calls: of one tool with arguments, or of several made by `call`."""
    return says("", call(first, **arguments) if isinstance(first, str) else first, *others)


def text(text: str) -> ScriptedReply:
    """A reply of words."""
    return says(text)


def says(
    text: str,
    *calls: ToolCall,
    finish: FinishReason | None = None,
    usage: Usage | None = DEFAULT_USAGE,
    pieces: tuple[str, ...] = (),
) -> ScriptedReply:
    """A reply with everything that can be said about it."""
    parts = (*((Text(text),) if text else ()), *calls)
    finish = finish or ("tool_calls" if calls else "stop")
    return ScriptedReply(Reply(Assistant(parts), finish, usage, "scripted", None), pieces)


def fails(code: str, **fields: Any) -> Fault:
    """A request that gives no reply."""
    return Fault(code, "the script says so", fields)


def after(milliseconds: int, item: ScriptItem, clock: Clock) -> DelayedItem:
    """The same, after a while on the clock."""
    return DelayedItem(milliseconds, item, clock)


class Script:
    """A model, and what it was asked."""

    def __init__(self, item: Callable[[int], ScriptItem | None]) -> None:
        self._item = item
        self._next = 0
        self.requests: list[ModelRequest] = []

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        number, self._next = self._next, self._next + 1
        self.requests.append(effect.request)
        item = self._item(number)
        while True:
            match item:
                case None:
                    message = f"the script is over: there is nothing for request {number + 1}"
                    return Fault("provider.fatal", message, {"request": number + 1})
                case ScriptedReply(reply, pieces):
                    for piece in pieces:
                        delta(piece)
                    return reply
                case Fault():
                    return item
                case DelayedItem(milliseconds, item, clock):
                    await clock.sleep_until(clock.now() + milliseconds)
                case function:
                    item = function(effect.request)

    def go_to(self, number: int) -> None:
        """Go on after so many requests: what a model said before its answer was lost, it says again."""
        self._next = number


def scripted(*items: ScriptItem | str) -> Script:
    """A model that gives these replies, one after the other. A text is a reply of words."""
    script = [text(item) if isinstance(item, str) else item for item in items]
    return Script(lambda number: script[number] if number < len(script) else None)


def replies(function: Callable[[ModelRequest], ScriptItem]) -> Script:
    """A model that answers every request by a function of it: for runs whose requests come in no fixed order."""
    return Script(lambda number: function)


# --- tools that do nothing but count --------------------------------------------------------------------------


class StubCall(Struct, frozen=True):
    """One time that a stub ran."""

    call: str
    tool: str
    key: str
    arguments: dict[str, Any]


class Stub:
    """An executor, and what it was asked to do."""

    def __init__(self, result: Any, fault: Fault | Exception | str | None, delay: int, clock: Clock | None) -> None:
        self._result = result
        self._fault = fault
        self._delay = delay
        self._clock = clock
        self.calls: list[StubCall] = []

    @property
    def count(self) -> int:
        """How often it ran."""
        return len(self.calls)

    @property
    def times(self) -> Counter[str]:
        """How often it ran under each idempotency key."""
        return Counter(call.key for call in self.calls)

    async def run(self, call: RunTool) -> ToolReturn:
        self.calls.append(StubCall(call.id, call.name, call.key, call.arguments))
        if self._clock is not None:
            await self._clock.sleep_until(self._clock.now() + self._delay)
        if isinstance(self._fault, Exception):
            raise self._fault
        if self._fault is not None:
            fault = self._fault if isinstance(self._fault, Fault) else _stub_fault(self._fault, call.name)
            return ToolReturn((Text(f"{fault.code}: {fault.message}"),), fault)
        result = self._result(**call.arguments) if callable(self._result) else self._result
        return result if isinstance(result, ToolReturn) else ToolReturn((Text(_result_text(result)),))


def stub(
    result: Any | Callable[..., Any] = "done",
    *,
    fails: Fault | Exception | str | None = None,
    delay: int = 0,
    clock: Clock | None = None,
) -> Stub:
    """A tool that gives a result, or a function of its arguments; or that fails: with a code, a fault, an exception.

    `delay` milliseconds pass on the clock before it does.
    """
    if delay and clock is None:
        raise ValueError("a stub with a delay needs the clock that it passes on")
    return Stub(result, fails, delay, clock)


def _stub_fault(code: str, tool: str) -> Fault:
    return Fault(code, "the stub fails", {"tool": tool})


def _result_text(result: Any) -> str:
    return result if isinstance(result, str) else sorted_json(result).decode()


# --- people who are asked, and answer as they were told to ----------------------------------------------------


ScriptedAnswers: TypeAlias = (
    ApprovalAnswer | Mapping[str, ApprovalAnswer] | list[ApprovalAnswer] | Callable[[Question], ApprovalAnswer]
)


class Person:
    """An approver, and what they were asked."""

    def __init__(self, answers: ScriptedAnswers, by: str, delay: int, clock: Clock | None) -> None:
        self._answers = answers
        self._by = by
        self._delay = delay
        self._clock = clock
        self.questions: list[Question] = []

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        self.questions.append(question)
        if self._clock is not None:
            await self._clock.sleep_until(self._clock.now() + self._delay)
        return self._answer(question), self._by

    def _answer(self, question: Question) -> ApprovalAnswer:
        if isinstance(self._answers, str):
            return self._answers
        if isinstance(self._answers, Mapping):
            return self._answers.get(question.target, "unavailable")
        if isinstance(self._answers, list):
            number = len(self.questions) - 1
            return self._answers[number] if number < len(self._answers) else "unavailable"
        return self._answers(question)


def approving(
    answers: ScriptedAnswers = "approved", *, by: str = "a test", delay: int = 0, clock: Clock | None = None
) -> Person:
    """Somebody who gives these answers, `delay` milliseconds after being asked."""
    if delay and clock is None:
        raise ValueError("a person who takes a while needs the clock on which it passes")
    return Person(answers, by, delay, clock)


# --- hooks that answer as they were told to, and sinks that keep what they get --------------------------------


class HookDouble:
    """A hook, and what it was asked."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.questions: list[HookQuestion] = []

    def __call__(self, question: HookQuestion) -> Any:
        self.questions.append(question)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer(question) if callable(self._answer) else self._answer


def hook(answer: HookAnswer | Exception | Callable[[HookQuestion], Any] = Continue()) -> HookDouble:  # noqa: B008  # frozen
    """A hook that gives an answer, or a function of its question; or that raises."""
    return HookDouble(answer)


class SinkDouble:
    """A sink, and what was delivered to it."""

    def __init__(self, fault: Fault | Exception | None) -> None:
        self._fault = fault
        self.deliveries: list[Deliver] = []

    @property
    def kept(self) -> dict[str, str]:
        """The texts that a sink has which keeps one delivery for each key."""
        return {delivery.key: delivery.text for delivery in self.deliveries}

    async def deliver(self, delivery: Deliver) -> Fault | None:
        self.deliveries.append(delivery)
        if isinstance(self._fault, Exception):
            raise self._fault
        return self._fault


def sink(*, fails: Fault | Exception | None = None) -> SinkDouble:
    """A sink that keeps what it gets, or fails."""
    return SinkDouble(fails)


# --- journals that fail, and hosts that die, at a record of one's choice --------------------------------------


class Crash(BaseException):
    """The host died here. Nothing of ours catches it."""


class FailingJournal(MemoryJournal):
    """One journal that cannot write its nth record, nor any after it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def append(self, record: Record) -> None:
        if record.seq >= self._at:
            raise _storage_error(record, first=record.seq == self._at)
        super().append(record)


class FailingJournals(MemoryJournals):
    """Journals that cannot write the nth record of all, nor any after it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at
        self.appends = 0

    def append(self, run: str, record: Record) -> None:
        self.appends += 1
        if self.appends >= self._at:
            raise _storage_error(record, first=self.appends == self._at)
        super().append(run, record)


class CrashingJournals(MemoryJournals):
    """Journals whose host dies before or after it writes the nth record of all."""

    def __init__(self, at: int, when: Literal["before", "after"]) -> None:
        super().__init__()
        self._at = at
        self._when = when
        self.appends = 0
        self.is_dead = False

    def append(self, run: str, record: Record) -> None:
        self.appends += not self.is_dead
        due = self.appends == self._at
        if self.is_dead or (due and self._when == "before"):
            self.die()
        super().append(run, record)
        if due:
            self.die()

    def die(self) -> None:
        """From now on nothing is written."""
        self.is_dead = True
        raise Crash


def _storage_error(record: Record, *, first: bool) -> StorageError:
    if first:
        return StorageError("storage.failed", "no space left on the device", fields={"path": "journal", "errno": 28})
    return StorageError("journal.poisoned", "an earlier record could not be written", fields={"seq": record.seq})
