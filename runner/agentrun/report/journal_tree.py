"""A canonical journal as a tree of runs, turns and calls, so that two journals can be aligned.

Rule 1  A journal may come from an edited file. Facts of an unknown form are kept as they are and never raise.
Rule 2  Every fact is in exactly one place: in its call, in its turn, or at the beginning or the end of the run.
Rule 3  Facts between the results of a turn and the next request to the model belong to the next turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct, field

from agentrun.report.value_diff import parse_json_text

_AT_THE_END = frozenset(
    {"answer_reached", "delivery_started", "delivery_finished", "delivery_skipped", "run_ending", "run_stopped"}
)
_OF_A_TURN = frozenset(
    {"model_asked", "model_replied", "model_failed", "retry_planned", "route_switched"}
    | {"reply_discarded", "output_refused"}
)


class FactNode(NamedTuple):
    kind: str
    data: dict[str, Any]

    def get(self, *path: str) -> Any:
        return get_path(self.data, *path)


class CallNode(Struct):
    id: str
    tool: str
    arguments: Any
    """Parsed, if they are JSON."""
    facts: list[FactNode] = field(default_factory=list)


class TurnNode(Struct):
    number: int
    facts: list[FactNode] = field(default_factory=list)
    """Facts that do not belong to a single call."""
    calls: list[CallNode] = field(default_factory=list)
    text: str = ""


class RunNode(Struct):
    started: FactNode
    begin: list[FactNode] = field(default_factory=list)
    turns: list[TurnNode] = field(default_factory=list)
    end: list[FactNode] = field(default_factory=list)

    @property
    def stop_fact(self) -> FactNode | None:
        return next((fact for fact in reversed(self.end) if fact.kind == "run_stopped"), None)

    @property
    def has_output(self) -> bool:
        return self.stop_fact is not None and "output" in self.stop_fact.data


def get_path(data: Any, *path: str) -> Any:
    """A value inside nested mappings, or None."""
    for key in path:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


def message_text(message: Any) -> str:
    return parts_text(get_path(message, "parts"))


def parts_text(parts: Any) -> str:
    found = [get_path(part, "text") for part in parts] if isinstance(parts, list) else []
    return "".join(text for text in found if isinstance(text, str))


def parse_runs(facts: Iterable[Any]) -> list[RunNode]:
    """The runs of a journal. A conversation has several."""
    readers: list[_RunBuilder] = []
    for entry in facts:
        fact = _parse_fact(entry)
        if fact.kind == "run_started" or not readers:
            readers.append(_RunBuilder(fact))
        else:
            readers[-1].take(fact)
    return [reader.done() for reader in readers]


class _RunBuilder:
    def __init__(self, first: FactNode) -> None:
        self._run = RunNode(first if first.kind == "run_started" else FactNode("run_started", {}))
        self._calls: dict[str, CallNode] = {}
        self._waiting: list[FactNode] = []
        """Facts of the next turn."""
        self._open = False
        """Whether the facts that follow belong to the last turn."""
        if first.kind != "run_started":
            self.take(first)

    def take(self, fact: FactNode) -> None:
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

    def done(self) -> RunNode:
        self._run.end[:0] = self._waiting
        self._waiting = []
        return self._run

    def _of_turn(self, number: int, fact: FactNode) -> None:
        turns = self._run.turns
        if not turns or turns[-1].number != number:
            turns.append(TurnNode(number))
        turn = turns[-1]
        turn.facts += [*self._waiting, fact]
        self._waiting, self._open = [], True
        if fact.kind == "model_replied":
            turn.text = message_text(fact.get("reply", "message"))
            if calls := list(parse_calls(fact.get("reply", "message", "parts"))):
                turn.calls = calls
                self._calls |= {call.id: call for call in calls}


def parse_calls(parts: Any) -> Iterator[CallNode]:
    for part in parts if isinstance(parts, list) else []:
        if get_path(part, "kind") == "tool_call":
            yield CallNode(
                str(get_path(part, "id")), str(get_path(part, "tool")), parse_json_text(get_path(part, "arguments"))
            )


def _parse_fact(entry: Any) -> FactNode:
    if isinstance(entry, dict) and len(entry) == 1:
        ((kind, data),) = entry.items()
        if isinstance(data, dict):
            return FactNode(str(kind), data)
    return FactNode("something", {"value": entry})
