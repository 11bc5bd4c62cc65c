"""Render a run as progress lines: for each record of its journal no line, one line or a few.

Rule 1  Lines come from committed records only. The same journal always gives the same lines.
Rule 2  The answer is never rendered, because it goes to standard output. A reply that may be the answer is held back
        until it is known not to be; if hooks or rules check answers, it is not rendered at all. If they check tool
        results, a result is rendered as they changed it.
Rule 3  A record that does not fit the state is rendered anyway. Checking a journal is not done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, get_args

from msgspec.structs import replace

from agentrun.core import facts
from agentrun.core.budget import allowance, used_budgets
from agentrun.core.evolve import evolve
from agentrun.core.gate import has_gate
from agentrun.core.outcome import Outcome
from agentrun.core.package import HookPoint, Package, Stage, find_tool
from agentrun.core.state import State
from agentrun.errors import StorageError
from agentrun.report import render_facts
from agentrun.report.formatting import OutputLine, format_budget, format_dollars, make_line, make_paragraph
from agentrun.spec.safe_text import plural, short_text

CHILD_INDENT = 2

FactRenderer: TypeAlias = Callable[[Package | None, State, Any], tuple[OutputLine, ...]]
FACT_RENDERERS: Mapping[type[facts.Fact], FactRenderer] = {
    **dict.fromkeys(get_args(facts.RunFact), render_facts.render_run),
    **dict.fromkeys(get_args(facts.ModelFact), render_facts.render_model),
    **dict.fromkeys(get_args(facts.GateFact), render_facts.render_gate),
    **dict.fromkeys(get_args(facts.CallFact), render_facts.render_call),
}
"""The function that renders a fact. It gets the state before the fact."""


class RunRenderer:
    """Renders the records of one run, from the first one on. Each child has its own renderer."""

    def __init__(self, package: Package | None, *, shows_failure: bool = True, details: bool = False) -> None:
        """`package`: None if it is not known. `shows_failure`: whether to render why the run failed. False if the
        caller prints that. `details`: also render rulings that allow, and what each reply used."""
        self.package = package
        self._shows_failure = shows_failure
        self._details = details
        self._state = State()
        self._depth = 0
        self._held: tuple[OutputLine, ...] = ()
        """Lines that may turn out to be the answer."""
        self._checked_calls: tuple[str, ...] = ()
        """Calls whose results hooks and rules are still checking."""
        self._ended = False

    def render(self, record: facts.Record) -> tuple[OutputLine, ...]:
        lines = self._render_fact(record.fact)
        with suppress(StorageError, AssertionError):  # Rule 3: no run writes such a journal
            self._state = evolve(self._state, record)
        return tuple(replace(line, indent=line.indent + self._depth) for line in lines)

    @property
    def usage(self) -> str:
        assert self.package is not None
        return format_usage(self.package, self._state)

    @property
    def state(self) -> State:
        return self._state

    def _render_fact(self, fact: facts.Fact | facts.UnknownFact) -> tuple[OutputLine, ...]:
        match fact:
            case facts.UnknownFact():
                return (make_line(f"{short_text(fact.kind)}, which this release of agentrun does not know", "warn", 1),)
            case facts.RunStarted(parent=parent):
                self._depth = CHILD_INDENT * parent.depth if parent else 0
            case facts.ModelReplied():
                return self._render_reply(fact) + (render_facts.render_usage(fact) if self._details else ())
            case facts.Ruled() if self._details:
                return render_facts.render_any_ruling(self._state, fact)
            case facts.ToolFinished(fault=None):
                return self._render_tool_result(fact)
            case facts.ResultsGiven():
                return self._render_passed_results()
            case facts.ReplyDiscarded() | facts.OutputRefused() | facts.ModelTold(why="nudge" | "follow_up"):
                return self._release_held() + self._render_plain(fact)
            case facts.RunEnding(stop=stop) | (facts.RunStopped() as stop):
                return self._end(stop)
        return self._render_plain(fact)

    def _render_plain(self, fact: facts.Fact) -> tuple[OutputLine, ...]:
        return FACT_RENDERERS[type(fact)](self.package, self._state, fact)

    def _render_reply(self, fact: facts.ModelReplied) -> tuple[OutputLine, ...]:
        asking, message = self._state.requests.asking, fact.reply.message
        budgets = None if self.package is None else self.package.budgets
        if asking is not None and asking.purpose == "compact":
            return ()
        earlier = self._state.replies.earlier_text
        if earlier:  # this reply continues one that was cut off: they are one text
            self._held = ()
        text = make_paragraph(earlier + message.text, indent=1)
        calls = tuple(render_facts.render_requested_call(message.calls, call) for call in message.calls)
        last = budgets is not None and budgets.on_turns == "stop" and fact.turn >= budgets.turns
        if calls and not last:
            return text + calls
        self._hold(text)
        return calls

    def _render_tool_result(self, fact: facts.ToolFinished) -> tuple[OutputLine, ...]:
        """The result of a call. The result of a terminal tool may be the answer."""
        warnings = render_facts.warn_empty_result(self.package, self._state, fact.call, fact.parts)
        if self._has_gate("after_tool", "tool_result"):
            self._checked_calls += (fact.call,)
            return warnings
        line = render_facts.render_result(self._state, fact.call, fact.parts, fact.spent)
        if not self._is_terminal(render_facts.tool_of_call(self._state, fact.call)):
            return (line, *warnings)
        self._hold((line,))
        return warnings

    def _render_passed_results(self) -> tuple[OutputLine, ...]:
        """The results as the model gets them, after hooks and rules have checked them."""
        checked, self._checked_calls = self._checked_calls, ()
        return tuple(
            render_facts.render_result(self._state, call.call.id, call.parts)
            for call in self._state.calls
            if call.call.id in checked and call.status == "finished" and not self._is_terminal(call.call.tool)
        )

    def _is_terminal(self, name: str) -> bool:
        tool = None if self.package is None else find_tool(self.package, name)
        return tool is not None and tool.terminal

    def _hold(self, lines: tuple[OutputLine, ...]) -> None:
        if not self._has_gate("on_output", "output"):
            self._held += lines

    def _has_gate(self, point: HookPoint, stage: Stage) -> bool:
        return self.package is not None and has_gate(self.package, point, stage)

    def _release_held(self) -> tuple[OutputLine, ...]:
        """Return the lines that were held back: they are not the answer."""
        lines, self._held = self._held, ()
        return lines

    def _end(self, stop: facts.RunStopped) -> tuple[OutputLine, ...]:
        if self._ended:
            return ()
        self._ended = True
        lines = self._release_held()
        if stop.status == "completed":
            return render_facts.render_end(stop, is_child=self._depth > 0)
        return lines + (render_facts.render_end(stop) if self._shows_failure else ())


def outcome_summary(outcome: Outcome) -> str:
    """The last line: the status, the tokens and the cost."""
    usage = outcome.usage
    label = f", {outcome.label}" if outcome.label else ""
    read = "an unknown number of" if usage.input is None else usage.input
    written = "an unknown number" if usage.output is None else usage.output
    texts = [f"{outcome.status}{label} in {plural(outcome.turns, 'turn')}", f"{read} tokens in", f"{written} out"]
    below = outcome.tokens - (usage.input or 0) - (usage.output or 0)
    if outcome.runs and None not in (usage.input, usage.output):
        texts.append(f"{below} more in {plural(outcome.runs, 'sub-agent')}")
    if outcome.tool_calls:
        texts.append(plural(outcome.tool_calls, "tool call"))
    if outcome.cost:
        texts.append(format_dollars(outcome.cost))
    return ", ".join(texts) + (" (replayed)" if outcome.replayed else "")


def format_usage(package: Package, state: State) -> str:
    """`turn 2 of 12 · 1.2k of 50k tokens · $0.0031 of $0.25`, without amounts that are neither limited nor used."""
    limits, texts = allowance(package, state), [f"turn {state.turns} of {package.budgets.turns}"]
    for name, used in used_budgets(state, state.meter).items():
        limit = None if name == "turns" else getattr(limits, name)
        amount = max(used, 0) // 1000 * 1000 if name == "time" else used
        if name == "tokens" or (name != "turns" and (amount or limit is not None)):
            texts.append(format_budget(name, amount, limit))
    return " · ".join(texts)


class RunTreeRenderer:
    """The renderers of a run and of its children, which run at the same time."""

    def __init__(self, package: Package, *, shows_failure: bool = False) -> None:
        self.root = RunRenderer(package, shows_failure=shows_failure)
        self._renderers: dict[str, RunRenderer] = {}

    def skip(self, journals: Mapping[str, Iterable[facts.Record]]) -> None:
        """Take note of what happened before, without lines. `journals`: of the run, then of its sub-agents."""
        for run, records in journals.items():
            for record in records:
                self.renderer_for(run, record).render(record)

    def renderer_for(self, run: str, record: facts.Record) -> RunRenderer:
        """The renderer of a record. The first run is the root; a journal announces a child before the child starts."""
        if not self._renderers:
            self._renderers[run] = self.root
        renderer, fact = self._renderers[run], record.fact
        if isinstance(fact, facts.ChildStarted):
            assert renderer.package is not None
            self._renderers.setdefault(fact.run, RunRenderer(renderer.package.agents[fact.tool]))
        return renderer
