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

from agentrun.core.budget import allowance
from agentrun.core.evolve import evolve
from agentrun.core.facts import (
    CallFact,
    ChildStarted,
    Fact,
    GateFact,
    ModelFact,
    ModelReplied,
    ModelTold,
    OutputRefused,
    Record,
    ReplyDiscarded,
    ResultsGiven,
    RunEnding,
    RunFact,
    RunStarted,
    RunStopped,
    ToolFinished,
)
from agentrun.core.gate import has_gate
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.package_lookup import find_tool
from agentrun.core.state import State
from agentrun.errors import StorageError
from agentrun.report.formatting import OutputLine, Tone, format_count, format_dollars, format_duration, make_paragraph
from agentrun.report.render_facts import (
    render_call,
    render_end,
    render_gate,
    render_model,
    render_requested_call,
    render_result,
    render_run,
    tool_of_call,
    warn_empty_result,
)
from agentrun.spec.safe_text import plural

__all__ = ["OutputLine", "RunRenderer", "Tone", "outcome_summary"]


CHILD_INDENT = 2
"""How much deeper the story of a child stands."""

FactRenderer: TypeAlias = Callable[[Package, State, Any], tuple[OutputLine, ...]]
FACT_RENDERERS: Mapping[type[Fact], FactRenderer] = {
    **dict.fromkeys(get_args(RunFact), render_run),
    **dict.fromkeys(get_args(ModelFact), render_model),
    **dict.fromkeys(get_args(GateFact), render_gate),
    **dict.fromkeys(get_args(CallFact), render_call),
}
"""Who tells a fact. Each looks at the state before it."""


class RunRenderer:
    """Told record by record, from the first on. A child has a story of its own, which stands deeper."""

    def __init__(self, package: Package, *, tells_failure: bool = True) -> None:
        """`tells_failure`: whether it says why the run failed. Not where that is said after the story."""
        self._package = package
        self._tells_failure = tells_failure
        self._state = State()
        self._depth = 0
        self._held: tuple[OutputLine, ...] = ()
        """What may turn out to be the answer."""
        self._looked_at: tuple[str, ...] = ()
        """Calls whose results are still looked at by hooks and rules."""
        self._ended = False

    def render(self, record: Record) -> tuple[OutputLine, ...]:
        """What the reader hears of a record."""
        lines = self._render_fact(record.fact)
        with suppress(StorageError, AssertionError):  # Rule 4: no journal that a run has written, but it is told
            self._state = evolve(self._state, record)
        return tuple(replace(line, indent=line.indent + self._depth) for line in lines)

    @property
    def usage(self) -> str:
        """What was used of what is allowed."""
        return format_usage(self._package, self._state)

    def _render_fact(self, fact: Fact) -> tuple[OutputLine, ...]:
        match fact:
            case RunStarted(parent=parent):
                self._depth = CHILD_INDENT * parent.depth if parent else 0
            case ModelReplied():
                return self._render_reply(fact)
            case ToolFinished(fault=None):
                return self._render_tool_result(fact)
            case ResultsGiven():
                return self._render_passed_results()
            case ReplyDiscarded() | OutputRefused() | ModelTold(why="nudge" | "follow_up"):
                return self._release_held() + self._render_plain(fact)
            case RunEnding(stop=stop) | (RunStopped() as stop):
                return self._end(stop)
        return self._render_plain(fact)

    def _render_plain(self, fact: Fact) -> tuple[OutputLine, ...]:
        return FACT_RENDERERS[type(fact)](self._package, self._state, fact)

    def _render_reply(self, fact: ModelReplied) -> tuple[OutputLine, ...]:
        asking, message, budgets = self._state.requests.asking, fact.reply.message, self._package.budgets
        if asking is not None and asking.purpose == "compact":
            return ()
        text = make_paragraph(message.text, indent=1)
        calls = tuple(render_requested_call(message.calls, call) for call in message.calls)
        last = budgets.on_turns == "stop" and fact.turn >= budgets.turns
        if calls and not last:
            return text + calls
        self._hold(text)
        return calls

    def _render_tool_result(self, fact: ToolFinished) -> tuple[OutputLine, ...]:
        """The result of a call. That of a terminal tool is the answer, if nothing stands against it."""
        doubts = warn_empty_result(self._package, self._state, fact.call, fact.parts)
        if has_gate(self._package, "after_tool", "tool_result"):
            self._looked_at += (fact.call,)
            return doubts
        line = render_result(self._state, fact.call, fact.parts, fact.spent)
        tool = find_tool(self._package, tool_of_call(self._state, fact.call))
        if tool is None or not tool.terminal:
            return (line, *doubts)
        self._hold((line,))
        return doubts

    def _render_passed_results(self) -> tuple[OutputLine, ...]:
        """The results as the model reads them, where hooks and rules have looked at them."""
        looked_at, self._looked_at = self._looked_at, ()
        return tuple(
            render_result(self._state, call.call.id, call.parts)
            for call in self._state.calls
            if call.call.id in looked_at and call.status == "finished" and not self._is_terminal(call.call.tool)
        )

    def _is_terminal(self, name: str) -> bool:
        tool = find_tool(self._package, name)
        return tool is not None and tool.terminal

    def _hold(self, lines: tuple[OutputLine, ...]) -> None:
        if not has_gate(self._package, "on_output", "output"):
            self._held += lines

    def _release_held(self) -> tuple[OutputLine, ...]:
        """It was not the answer."""
        kept, self._held = self._held, ()
        return kept

    def _end(self, stop: RunStopped) -> tuple[OutputLine, ...]:
        if self._ended:
            return ()
        self._ended = True
        kept = self._release_held()
        if stop.status == "completed":
            return render_end(stop, is_child=self._depth > 0)
        return kept + (render_end(stop) if self._tells_failure else ())


def outcome_summary(outcome: Outcome) -> str:
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
        said.append(format_dollars(outcome.cost))
    return ", ".join(said) + (" (replayed)" if outcome.replayed else "")


# --- what a run has used of what it may use, in one line ------------------------------------------------------


def format_usage(package: Package, state: State) -> str:
    """`turn 2 of 12 · 1.2k of 50k tokens · $0.0031 of $0.25`. What is neither limited nor used is not named."""
    limit, meter = allowance(package, state), state.meter
    seconds = max(state.elapsed, 0) // 1000 * 1000
    said = [
        f"turn {state.turns} of {package.budgets.turns}",
        f"{_format_amount(meter.tokens, limit.tokens, format_count)} tokens",
    ]
    if meter.cost or limit.cost is not None:
        said.append(_format_amount(meter.cost, limit.cost, format_dollars))
    if meter.tool_calls or limit.tool_calls is not None:
        one = (limit.tool_calls or meter.tool_calls) == 1
        said.append(f"{_format_amount(meter.tool_calls, limit.tool_calls, str)} {'call' if one else 'calls'}")
    if seconds or limit.time is not None:
        said.append(_format_amount(seconds, limit.time, format_duration))
    return " · ".join(said)


def _format_amount(amount: int, limit: int | None, write: Callable[[int], str]) -> str:
    return write(amount) if limit is None else f"{write(amount)} of {write(limit)}"


# --- the stories of a run and of its children, as they happen at the same time --------------------------------


class RunTreeRenderer:
    """Which story a record belongs to. Who a child is, its parent's journal says before the child begins."""

    def __init__(self, package: Package, *, tells_failure: bool = False) -> None:
        """`tells_failure`: whether the story of the run that was started says why it failed."""
        self.root = RunRenderer(package, tells_failure=tells_failure)
        self._packages: dict[str, Package] = {}
        self._stories: dict[str, RunRenderer] = {}
        self._package = package

    def renderer_for(self, run: str, record: Record) -> RunRenderer:
        """The story that a record goes on with. The first run that is heard of is the one that was started."""
        if not self._stories:
            self._packages[run], self._stories[run] = self._package, self.root
        fact = record.fact
        if isinstance(fact, ChildStarted):
            child = self._packages[run].agents[fact.tool]
            self._packages[fact.run] = child
            self._stories.setdefault(fact.run, RunRenderer(child))
        return self._stories[run]
