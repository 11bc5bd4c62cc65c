"""Models that say what a script says.

scripted(calls("search", q="vcr"), text("Found 3 results."))
scripted(fails("provider.rate_limited", retry_after=3), after(500, text("Hello."), clock=clock))
replies(lambda request: text(f"You said {len(request.messages)} things."))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from agentrun.canon import compact
from agentrun.core.effects import AskModel, ModelRequest
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Assistant, Finish, Reply, Text, ToolCall, Usage
from agentrun.engine.ports import Clock

USAGE = Usage(input=10, output=5, cached=0, reasoning=0)
"""What a scripted reply says that it used."""


class Said(Struct, frozen=True):
    """A reply, whole and in the pieces in which it arrives."""

    reply: Reply
    pieces: tuple[str, ...] = ()


class Late(Struct, frozen=True):
    """Something that is said after a while."""

    milliseconds: int
    item: Item
    clock: Clock


Item: TypeAlias = "Said | Fault | Late | Callable[[ModelRequest], Item]"
"""One entry of a script."""


def call(tool: str, written: str | None = None, /, **arguments: Any) -> ToolCall:
    """A call. `written`: its arguments as the model writes them, when they are not to be JSON."""
    return ToolCall("", tool, compact(arguments).decode() if written is None else written)


def calls(first: str | ToolCall, *others: ToolCall, **arguments: Any) -> Said:
    """A reply that asks for calls: of one tool with arguments, or of several made by `call`."""
    return says("", call(first, **arguments) if isinstance(first, str) else first, *others)


def text(text: str) -> Said:
    """A reply of words."""
    return says(text)


def says(
    text: str,
    *calls: ToolCall,
    finish: Finish | None = None,
    usage: Usage | None = USAGE,
    pieces: tuple[str, ...] = (),
) -> Said:
    """A reply with everything that can be said about it."""
    parts = (*((Text(text),) if text else ()), *calls)
    finish = finish or ("tool_calls" if calls else "stop")
    return Said(Reply(Assistant(parts), finish, usage, "scripted", None), pieces)


def fails(code: str, **fields: Any) -> Fault:
    """A request that gives no reply."""
    return Fault(code, "the script says so", fields)


def after(milliseconds: int, item: Item, clock: Clock) -> Late:
    """The same, after a while on the clock."""
    return Late(milliseconds, item, clock)


class Script:
    """A model, and what it was asked."""

    def __init__(self, item: Callable[[int], Item | None]) -> None:
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
                case Said(reply, pieces):
                    for piece in pieces:
                        delta(piece)
                    return reply
                case Fault():
                    return item
                case Late(milliseconds, item, clock):
                    await clock.sleep_until(clock.now() + milliseconds)
                case function:
                    item = function(effect.request)

    def go_to(self, number: int) -> None:
        """Go on after so many requests: what a model said before its answer was lost, it says again."""
        self._next = number


def scripted(*items: Item | str) -> Script:
    """A model that gives these replies, one after the other. A text is a reply of words."""
    script = [text(item) if isinstance(item, str) else item for item in items]
    return Script(lambda number: script[number] if number < len(script) else None)


def replies(function: Callable[[ModelRequest], Item]) -> Script:
    """A model that answers every request by a function of it: for runs whose requests come in no fixed order."""
    return Script(lambda number: function)
