"""Test doubles for models, tools, approvers, hooks, sinks and journals.

scripted(calls("search", q="vcr"), text("Found 3 results."))
scripted(fails("provider.rate_limited", retry_after=3), after(500, text("Hello."), clock=clock))
replies(lambda request: text(f"You sent {len(request.messages)} messages."))

stub("3 results")
stub(lambda a, b: a + b, delay=200, clock=clock)
stub(fails="tool.execution")

approving("approved")                                  # every question
approving({"refund": "denied", "search": "approved"})  # by tool
approving(["denied", "approved"])                      # in this order; later questions get no answer
approving(lambda question: "approved" if question.value["amount"] < 100 else "denied")

hooks={"guard": hook(Deny("not today"))}, sinks={"report": sink()}
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
from agentrun.errors import StorageError, poisoned_journal_error
from agentrun.journal.storage import MemoryJournal

DEFAULT_USAGE = Usage(input=10, output=5, cached=0, reasoning=0)


class ScriptedReply(Struct, frozen=True):
    """A reply, and the pieces in which it is streamed."""

    reply: Reply
    pieces: tuple[str, ...] = ()


class DelayedItem(Struct, frozen=True):
    """An entry with a delay before it."""

    milliseconds: int
    item: ScriptItem
    clock: Clock


ScriptItem: TypeAlias = "ScriptedReply | Fault | DelayedItem | Callable[[ModelRequest], ScriptItem]"


def call(tool: str, written: str | None = None, /, **arguments: Any) -> ToolCall:
    """A call. `written`: its raw arguments, to test arguments that are not JSON."""
    return ToolCall("", tool, sorted_json(arguments).decode() if written is None else written)


def calls(first: str | ToolCall, *others: ToolCall, **arguments: Any) -> ScriptedReply:
    """A reply with calls: of one tool with arguments, or several made by `call`."""
    return reply("", call(first, **arguments) if isinstance(first, str) else first, *others)


def text(text: str) -> ScriptedReply:
    """A reply with a text."""
    return reply(text)


def reply(
    text: str,
    *calls: ToolCall,
    finish: FinishReason | None = None,
    usage: Usage | None = DEFAULT_USAGE,
    pieces: tuple[str, ...] = (),
) -> ScriptedReply:
    """A reply with text, calls, finish reason, usage and pieces."""
    parts = (*((Text(text),) if text else ()), *calls)
    finish = finish or ("tool_calls" if calls else "stop")
    return ScriptedReply(Reply(Assistant(parts), finish, usage, "scripted", None), pieces)


def fails(code: str, **fields: Any) -> Fault:
    """A request that fails."""
    return Fault(code, "the script says so", fields)


def after(milliseconds: int, item: ScriptItem, clock: Clock) -> DelayedItem:
    """The same entry, after a delay on the clock."""
    return DelayedItem(milliseconds, item, clock)


class Script:
    """A model that plays a script and keeps its requests."""

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
                    message = f"the script has no reply for request {number + 1}"
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
        """Continue with this entry, to repeat replies that were lost in a crash."""
        self._next = number


def scripted(*items: ScriptItem | str) -> Script:
    """A model that gives these replies in order. A string is a reply with this text."""
    script = [text(item) if isinstance(item, str) else item for item in items]
    return Script(lambda number: script[number] if number < len(script) else None)


def replies(function: Callable[[ModelRequest], ScriptItem]) -> Script:
    """A model that answers every request with a function, for runs whose requests have no fixed order."""
    return Script(lambda number: function)


# --- Tools -----------------------------------------------------------------------------------------------------


class StubCall(Struct, frozen=True):
    call: str
    tool: str
    key: str
    arguments: dict[str, Any]


class Stub:
    """A tool that does nothing but keep its calls."""

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
            code = self._fault
            fault = code if isinstance(code, Fault) else Fault(code, "the stub fails", {"tool": call.name})
            return ToolReturn((Text(f"{fault.code}: {fault.message}"),), fault)
        result = self._result(**call.arguments) if callable(self._result) else self._result
        if isinstance(result, ToolReturn):
            return result
        return ToolReturn((Text(result if isinstance(result, str) else sorted_json(result).decode()),))


def stub(
    result: Any | Callable[..., Any] = "done",
    *,
    fails: Fault | Exception | str | None = None,
    delay: int = 0,
    clock: Clock | None = None,
) -> Stub:
    """A tool with a result, a function of its arguments, or a failure: a code, a fault or an exception.

    It takes `delay` milliseconds on the clock.
    """
    if delay and clock is None:
        raise ValueError("a stub with a delay needs a clock")
    return Stub(result, fails, delay, clock)


# --- Approvers -------------------------------------------------------------------------------------------------


ScriptedAnswers: TypeAlias = (
    ApprovalAnswer | Mapping[str, ApprovalAnswer] | list[ApprovalAnswer] | Callable[[Question], ApprovalAnswer]
)


class Person:
    """An approver that gives scripted answers and keeps its questions."""

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
    """An approver that gives these answers, each after `delay` milliseconds on the clock."""
    if delay and clock is None:
        raise ValueError("an approver with a delay needs a clock")
    return Person(answers, by, delay, clock)


# --- Hooks and sinks -------------------------------------------------------------------------------------------


class HookDouble:
    """A hook that gives scripted answers and keeps its questions."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.questions: list[HookQuestion] = []

    def __call__(self, question: HookQuestion) -> Any:
        self.questions.append(question)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer(question) if callable(self._answer) else self._answer


def hook(answer: HookAnswer | Exception | Callable[[HookQuestion], Any] = Continue()) -> HookDouble:  # noqa: B008  # frozen
    """A hook with an answer, a function of its question, or an exception."""
    return HookDouble(answer)


class SinkDouble:
    """A sink that keeps its deliveries."""

    def __init__(self, fault: Fault | Exception | None) -> None:
        self._fault = fault
        self.deliveries: list[Deliver] = []

    @property
    def kept(self) -> dict[str, str]:
        """The last text of each key."""
        return {delivery.key: delivery.text for delivery in self.deliveries}

    async def deliver(self, delivery: Deliver) -> Fault | None:
        self.deliveries.append(delivery)
        if isinstance(self._fault, Exception):
            raise self._fault
        return self._fault


def sink(*, fails: Fault | Exception | None = None) -> SinkDouble:
    """A sink that keeps its deliveries, or fails."""
    return SinkDouble(fails)


# --- Journals --------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The host crashed. The engine never catches it."""


class FailingJournal(MemoryJournal):
    """A journal that fails to write its nth record and all later ones."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def append(self, record: Record) -> None:
        if record.seq >= self._at:
            raise _storage_error(record, first=record.seq == self._at)
        super().append(record)


class FailingJournals(MemoryJournals):
    """Journals that fail to write the nth record of all runs and all later ones."""

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
    """Journals whose host crashes before or after the nth record of all runs."""

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
        """Crash. From now on nothing is written."""
        self.is_dead = True
        raise Crash


def _storage_error(record: Record, *, first: bool) -> StorageError:
    if first:
        return StorageError("storage.failed", "no space left on the device", fields={"path": "journal", "errno": 28})
    return poisoned_journal_error(record.seq)
