"""A canonical journal as runs, turns and calls: what two of them are aligned by.

Rule 1  A journal comes from a file that anybody may have edited. What is not of its form is kept as it is, and never
        raises.
Rule 2  Every fact is in exactly one place: with its call, its turn, or the run's beginning or end.
Rule 3  What comes after the results of a turn, and before the model is asked again, belongs to the next turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct, field

from agentrun.report.fields import as_json

_AT_THE_END = frozenset(
    {"answer_reached", "delivery_started", "delivery_finished", "delivery_skipped", "run_ending", "run_stopped"}
)
_OF_A_TURN = frozenset(
    {
        "model_asked",
        "model_replied",
        "model_failed",
        "retry_planned",
        "route_switched",
        "reply_discarded",
        "output_refused",
    }
)


class Fact(NamedTuple):
    kind: str
    data: dict[str, Any]

    def get(self, *path: str) -> Any:
        return look(self.data, *path)


class Call(Struct):
    """A call that the model asked for, and what came of it."""

    id: str
    tool: str
    arguments: Any
    """As data, if they are JSON."""
    facts: list[Fact] = field(default_factory=list)


class Turn(Struct):
    number: int
    facts: list[Fact] = field(default_factory=list)
    """What concerns no single call."""
    calls: list[Call] = field(default_factory=list)
    text: str = ""
    """What the model said."""


class Run(Struct):
    started: Fact
    begin: list[Fact] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    end: list[Fact] = field(default_factory=list)

    @property
    def stopped(self) -> Fact | None:
        return next((fact for fact in reversed(self.end) if fact.kind == "run_stopped"), None)

    @property
    def has_output(self) -> bool:
        """Whether the answer was parsed."""
        return self.stopped is not None and "output" in self.stopped.data


def look(data: Any, *path: str) -> Any:
    """A value inside mappings. None: there is none."""
    for key in path:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


def said(message: Any) -> str:
    """The texts of a message."""
    return text_of(look(message, "parts"))


def text_of(parts: Any) -> str:
    found = [look(part, "text") for part in parts] if isinstance(parts, list) else []
    return "".join(text for text in found if isinstance(text, str))


def runs_of(facts: Iterable[Any]) -> list[Run]:
    """The runs of a journal: of a conversation there are several."""
    readers: list[_Reader] = []
    for entry in facts:
        fact = _fact(entry)
        if fact.kind == "run_started" or not readers:
            readers.append(_Reader(fact))
        else:
            readers[-1].take(fact)
    return [reader.done() for reader in readers]


class _Reader:
    def __init__(self, first: Fact) -> None:
        self._run = Run(first if first.kind == "run_started" else Fact("run_started", {}))
        self._calls: dict[str, Call] = {}
        self._waiting: list[Fact] = []
        """Facts of the turn that is about to begin."""
        self._open = False
        """Whether what follows belongs to the last turn."""
        if first.kind != "run_started":
            self.take(first)

    def take(self, fact: Fact) -> None:
        run, call = self._run, self._calls.get(str(fact.get("call") or fact.get("subject")))
        number = fact.get("turn")
        if call is not None:
            call.facts.append(fact)
        elif fact.kind in _AT_THE_END or run.end:
            run.end.append(fact)
        elif fact.kind in _OF_A_TURN and isinstance(number, int):
            self._of_turn(number, fact)
        elif fact.get("subject") == "input" and not run.turns:
            run.begin.append(fact)
        elif self._open:
            run.turns[-1].facts.append(fact)
            self._open = fact.kind != "results_given"
        else:
            self._waiting.append(fact)

    def done(self) -> Run:
        self._run.end[:0] = self._waiting
        self._waiting = []
        return self._run

    def _of_turn(self, number: int, fact: Fact) -> None:
        turns = self._run.turns
        if not turns or turns[-1].number != number:
            turns.append(Turn(number))
        turn = turns[-1]
        turn.facts += [*self._waiting, fact]
        self._waiting, self._open = [], True
        if fact.kind == "model_replied":
            turn.text = said(fact.get("reply", "message"))
            if calls := list(calls_of(fact.get("reply", "message", "parts"))):
                turn.calls = calls
                self._calls |= {call.id: call for call in calls}


def calls_of(parts: Any) -> Iterator[Call]:
    """The calls among the parts of a reply."""
    for part in parts if isinstance(parts, list) else []:
        if look(part, "kind") == "tool_call":
            yield Call(str(look(part, "id")), str(look(part, "tool")), as_json(look(part, "arguments")))


def _fact(entry: Any) -> Fact:
    if isinstance(entry, dict) and len(entry) == 1:
        ((kind, data),) = entry.items()
        if isinstance(data, dict):
            return Fact(str(kind), data)
    return Fact("something", {"value": entry})
