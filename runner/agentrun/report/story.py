"""A run as a story: what each record of a journal says to a reader, in a line or a few, or not at all.

Rule 1  The story is told from committed records alone: the same journal gives the same story, live and years later.
Rule 2  The answer is never told: it goes to standard output. A reply that may be the answer is kept back until it is
        known not to be one, and for good when hooks or rules look at answers. A result is told as they let it pass.
Rule 3  What only prepares something else has no line: the reader hears of what happened, not of the machinery.
Rule 4  A record that does not fit is still told. Whether a journal is whole is for others to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, get_args

from msgspec.structs import replace

from agentrun.core.evolve import evolve
from agentrun.core.facts import (
    Fact,
    ModelFact,
    ModelReplied,
    ModelTold,
    OutputRefused,
    Record,
    ReplyDiscarded,
    RunEnding,
    RunFact,
    RunStarted,
    RunStopped,
)
from agentrun.core.facts_calls import CallFact, ResultsGiven, ToolFinished
from agentrun.core.facts_gates import GateFact
from agentrun.core.gate import is_guarded
from agentrun.core.names import find_tool
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.errors import StorageError
from agentrun.report.amounts import dollars
from agentrun.report.line import Line, Tone, paragraph
from agentrun.report.spend import used
from agentrun.report.tell_calls import called, gave, missed, tell_call, tool_of
from agentrun.report.tell_gates import tell_gate
from agentrun.report.tell_run import ended, tell_model, tell_run
from agentrun.spec.text import plural

__all__ = ["Line", "Story", "Tone", "summary"]

DEEPER = 2
"""How much deeper the story of a child stands."""

Tell: TypeAlias = Callable[[Package, State, Any], tuple[Line, ...]]
FAMILIES: Mapping[type[Fact], Tell] = {
    **dict.fromkeys(get_args(RunFact), tell_run),
    **dict.fromkeys(get_args(ModelFact), tell_model),
    **dict.fromkeys(get_args(GateFact), tell_gate),
    **dict.fromkeys(get_args(CallFact), tell_call),
}
"""Who tells a fact. Each looks at the state before it."""


class Story:
    """Told record by record, from the first on. A child has a story of its own, which stands deeper."""

    def __init__(self, package: Package, *, tells_failure: bool = True) -> None:
        """`tells_failure`: whether it says why the run failed. Not where that is said after the story."""
        self._package = package
        self._tells_failure = tells_failure
        self._state = State()
        self._depth = 0
        self._kept: tuple[Line, ...] = ()
        """What may turn out to be the answer."""
        self._looked_at: tuple[str, ...] = ()
        """Calls whose results are still looked at by hooks and rules."""
        self._ended = False

    def tell(self, record: Record) -> tuple[Line, ...]:
        """What the reader hears of a record."""
        lines = self._tell(record.fact)
        with suppress(StorageError, AssertionError):  # Rule 4: no journal that a run has written, but it is told
            self._state = evolve(self._state, record)
        return tuple(replace(line, indent=line.indent + self._depth) for line in lines)

    @property
    def spend(self) -> str:
        """What was used of what is allowed."""
        return used(self._package, self._state)

    def _tell(self, fact: Fact) -> tuple[Line, ...]:
        match fact:
            case RunStarted(parent=parent):
                self._depth = DEEPER * parent.depth if parent else 0
            case ModelReplied():
                return self._replied(fact)
            case ToolFinished(fault=None):
                return self._gave(fact)
            case ResultsGiven():
                return self._passed()
            case ReplyDiscarded() | OutputRefused() | ModelTold(why="nudge" | "follow_up"):
                return self._given_back() + self._plainly(fact)
            case RunEnding(stop=stop) | (RunStopped() as stop):
                return self._end(stop)
        return self._plainly(fact)

    def _plainly(self, fact: Fact) -> tuple[Line, ...]:
        return FAMILIES[type(fact)](self._package, self._state, fact)

    def _replied(self, fact: ModelReplied) -> tuple[Line, ...]:
        asking, message, budgets = self._state.requests.asking, fact.reply.message, self._package.budgets
        if asking is not None and asking.purpose == "compact":
            return ()
        text = paragraph(message.text, indent=1)
        calls = tuple(called(message.calls, call) for call in message.calls)
        last = budgets.on_turns == "stop" and fact.turn >= budgets.turns
        if calls and not last:
            return text + calls
        self._keep(text)
        return calls

    def _gave(self, fact: ToolFinished) -> tuple[Line, ...]:
        """The result of a call. That of a terminal tool is the answer, if nothing stands against it."""
        doubts = missed(self._package, self._state, fact.call, fact.parts)
        if is_guarded(self._package, "after_tool", "tool_result"):
            self._looked_at += (fact.call,)
            return doubts
        line = gave(self._state, fact.call, fact.parts, fact.spent)
        tool = find_tool(self._package, tool_of(self._state, fact.call))
        if tool is None or not tool.terminal:
            return (line, *doubts)
        self._keep((line,))
        return doubts

    def _passed(self) -> tuple[Line, ...]:
        """The results as the model reads them, where hooks and rules have looked at them."""
        looked_at, self._looked_at = self._looked_at, ()
        return tuple(
            gave(self._state, call.call.id, call.parts)
            for call in self._state.calls
            if call.call.id in looked_at and call.status == "finished" and not self._is_terminal(call.call.tool)
        )

    def _is_terminal(self, name: str) -> bool:
        tool = find_tool(self._package, name)
        return tool is not None and tool.terminal

    def _keep(self, lines: tuple[Line, ...]) -> None:
        if not is_guarded(self._package, "on_output", "output"):
            self._kept += lines

    def _given_back(self) -> tuple[Line, ...]:
        """It was not the answer."""
        kept, self._kept = self._kept, ()
        return kept

    def _end(self, stop: RunStopped) -> tuple[Line, ...]:
        if self._ended:
            return ()
        self._ended = True
        kept = self._given_back()
        if stop.status == "completed":
            return ended(stop, is_child=self._depth > 0)
        return kept + (ended(stop) if self._tells_failure else ())


def summary(outcome: Outcome) -> str:
    """The last line: how it ended and what it took."""
    usage = outcome.usage
    label = f", {outcome.label}" if outcome.label else ""
    read = "an unknown number of" if usage.input is None else usage.input
    written = "an unknown number" if usage.output is None else usage.output
    said = [f"{outcome.status}{label} in {plural(outcome.turns, 'turn')}", f"{read} tokens in", f"{written} out"]
    below = outcome.tokens - (usage.input or 0) - (usage.output or 0)
    if outcome.runs and None not in (usage.input, usage.output):
        said.append(f"{below} more in {plural(outcome.runs, 'sub-agent')}")
    if outcome.tool_calls:
        said.append(plural(outcome.tool_calls, "tool call"))
    if outcome.cost:
        said.append(dollars(outcome.cost))
    return ", ".join(said) + (" (replayed)" if outcome.replayed else "")
