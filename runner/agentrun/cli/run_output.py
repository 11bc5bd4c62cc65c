"""Print a run while it happens: the answer on standard output, the progress on standard error, or all of it as JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from agentrun.cli.console import (
    discard_output,
    escape_json,
    json_line,
    safe_text,
    show_problems,
    wants_color,
)
from agentrun.cli.plan import RunPlan
from agentrun.core.facts import DeliveryStarted, Fact, ModelAsked, Record
from agentrun.core.fault import Fault
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.run_end import delivery_key
from agentrun.credentials import hidden_secrets
from agentrun.engine.approvals import HOW_TO_ANSWER
from agentrun.engine.ports import ReplyDelta, ToolProgress, TransientEvent
from agentrun.engine.run import FinishedRun
from agentrun.errors import HostError
from agentrun.journal.family import call_of
from agentrun.report.formatting import OutputLine, make_line
from agentrun.report.run_renderer import RunTreeRenderer, outcome_summary
from agentrun.report.screen import PlainScreen, delta_key, screen_for, show_record
from agentrun.report.suspension import parked_lines, suspension_lines
from agentrun.spec.problems import Problem, escape_invisible

_HARMLESS = re.compile("[\t\u00a0]|(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")
"""Characters that are common and safe in a terminal: tabs, no-break spaces, and joiners of letters or emoji parts."""


class RunOutput:
    def __init__(
        self,
        package: Package,
        headline: str,
        start_line: Mapping[str, Any],
        warnings: Sequence[Problem] = (),
        *,
        is_live: bool,
        is_resumable: bool,
        as_json: bool,
        quiet: bool,
        color: bool | None,
    ) -> None:
        """`headline`: the first progress line. `start_line`: the first line of the JSON output. `warnings`: those of
        the spec. `is_resumable`: whether the run can be resumed."""
        self._headline = headline
        self._start_line = start_line
        self._is_resumable = is_resumable
        self._warnings = warnings
        self._as_json = as_json
        self._renderer = RunTreeRenderer(package)
        self._screen: PlainScreen | None = None
        self._deliveries: dict[str, str] = {}
        """The run of each delivery, by its key."""
        self.has_reader = not as_json and not quiet
        self.color = wants_color(sys.stderr) if color is None else color
        if self.has_reader:
            self._screen = screen_for(sys.stderr, live=is_live, color=color)

    def skip(self, journals: Mapping[str, Sequence[Record]]) -> None:
        """Continue after these records, which are not shown."""
        self._renderer.skip(journals)

    async def begin(self) -> None:
        """Print the first line. A run that is refused prints only why."""
        if self._as_json:
            click.echo(json_line(self._start_line))
        if self.has_reader:
            show_problems(self._warnings, as_json=False)
        self.say(self._headline)

    def say(self, text: str, tone: Any = "plain") -> None:
        """Print a line that is not about a record."""
        if self._screen is not None:
            self._screen.line(OutputLine(safe_text(text), tone, 0))

    def listen(self, run: str, news: Record | TransientEvent) -> None:
        """Show a record or a transient event. Values that the user gave to a replay are redacted here."""
        if isinstance(news, Record):
            news = replace(news, fact=hidden_secrets.redactor.redact_struct(news.fact))
        if self._as_json:
            match news:
                case Record():
                    if isinstance(news.fact, DeliveryStarted):
                        self._deliveries[delivery_key(run, news.fact.sink)] = run
                    call = call_of(news.fact)
                    names = {"run": run, "call": call} if call else {"run": run}
                    click.echo(json_line({**names, "record": msgspec.to_builtins(news)}))
                case ToolProgress():
                    click.echo(json_line({"run": run, "call": news.effect, "progress": msgspec.to_builtins(news)}))
            return
        if self._screen is None:
            return
        if isinstance(news, ReplyDelta):
            self._screen.delta(delta_key(run, news.effect), news.text)
            return
        if isinstance(news, ToolProgress):
            self._screen.line(make_line(f"{news.tool}: {safe_text(news.text)}", "dim", 1))
            return
        renderer = self._renderer.renderer_for(run, news)
        if renderer is self._renderer.root and _is_cassette_fault(news.fact):
            renderer.render(news)
        else:
            show_record(news, renderer, self._screen, run, self._renderer.root)

    def write(self, line: str) -> None:
        if self._as_json:
            delivery = msgspec.json.decode(line)
            click.echo(json_line({"run": self._deliveries[delivery["key"]], "delivery": delivery}))
        else:
            click.echo(escape_json(hidden_secrets.redactor.redact_text(line)))

    def show_printed(self, tool: str, text: str) -> None:
        """Show the first lines that a tool printed."""
        if self._screen is not None:
            for line in text.splitlines()[:20]:
                self._screen.line(make_line(f"{tool} printed: {safe_text(line)}", "dim", 1))

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext() if self._screen is None else self._screen.aside()

    def close(self) -> None:
        if self._screen is not None:
            self._screen.close()

    def end(self, done: FinishedRun) -> None:
        self.close()
        outcome = hidden_secrets.redactor.redact_struct(done.ending)
        if self._as_json:
            kind = "outcome" if outcome.is_finished else outcome.status
            data = {**outcome.as_json(), "tier": done.tier, "exit": done.exit_code}
            click.echo(json_line({"run": outcome.run, kind: data}))
            return
        if not outcome.is_finished:
            self._end_open_run(outcome, done)
            return
        if outcome.answer is not None:
            click.echo("\n".join(map(_safe_answer_line, outcome.answer.split("\n"))))
        if outcome.fault is not None:
            first, *more = _fault_lines(outcome.fault)
            self._print_error(first, fg="red")
            for line in more:
                self._print_error(line)
        tier = "" if done.tier in (None, "exact") else f", matched {done.tier}"
        self.say(outcome_summary(outcome) + tier, "dim")

    def _end_open_run(self, ending: Outcome, done: FinishedRun) -> None:
        """Print how to continue a run that is not finished. After SIGHUP there may be no terminal to print to."""
        try:
            if ending.status == "suspended":
                journals = {ending.run: done.journal, **done.children}
                for line in suspension_lines(ending.run, journals, is_resumable=self._is_resumable):
                    self._print_error(line)
            else:
                for line in parked_lines(ending, done.journal):
                    self._print_error(line)
        except OSError:
            discard_output()

    def _print_error(self, text: str, fg: str | None = None) -> None:
        """Print a line, even with --quiet."""
        click.secho(safe_text(text), fg=fg, err=True, color=self.color)


def _is_cassette_fault(fact: Fact) -> bool:
    """Whether a fact reports a cassette error. It is printed once, as the reason why the run failed."""
    fault = getattr(fact, "fault", None)
    return isinstance(fault, Fault) and fault.code.startswith("cassette.")


def _fault_lines(fault: Fault) -> list[str]:
    explanation = fault.fields.get("explanation")
    if not explanation:
        return [f"{fault.code}: {fault.message}", *([f"  → {fault.hint}"] if fault.hint else [])]
    turn = fault.fields.get("turn")
    where = f" in turn {turn}" if turn else ""
    return [f"{fault.code}{where}: {explanation[0]}", *(f"  {line}" for line in explanation[1:])]


def _safe_answer_line(line: str) -> str:
    """A line of an answer with control characters and invisible ones escaped."""
    signs = _HARMLESS.findall(line)
    shown = [escape_invisible(piece) for piece in _HARMLESS.split(line)]
    return shown[0] + "".join(sign + piece for sign, piece in zip(signs, shown[1:], strict=True))


def add_start_hint(error: HostError, plan: RunPlan) -> HostError:
    """The error of a run that could not start, with the reason why it would be live, and how to run offline."""
    if plan.mode == "record" and "names" in error.fields:
        return error  # a tool lacks something, so a scripted provider does not help
    hint = _offline_hint(error.hint, plan)
    if plan.live_because is not None:
        reason = f"{plan.live_because}, so the run would be live"
        hint = f"{reason}; {hint}" if hint else reason
    return HostError(error.code, error.message, hint=hint, fields=error.fields)


def add_failure_hint(done: FinishedRun, plan: RunPlan) -> FinishedRun:
    outcome = done.ending
    if outcome.fault is None:
        return done
    routes = [record.fact.route for record in done.journal if isinstance(record.fact, ModelAsked)]
    hint = _failure_hint(outcome.fault, plan, routes[-1].partition("/")[0] if routes else "the provider")
    return done if hint is None else replace(done, ending=replace(outcome, fault=replace(outcome.fault, hint=hint)))


def _failure_hint(fault: Fault, plan: RunPlan, provider: str) -> str | None:
    if plan.mode == "replay":
        has_faults = plan.case is not None and bool(plan.case.faults)
        if not fault.code.startswith("provider.") or has_faults:
            return None
        return "this failure was recorded; if you do not want it, delete the cassette and record again"
    if fault.code == "approval.unavailable":
        return HOW_TO_ANSWER
    hint: str | None = None
    match fault.code, fault.fields.get("status"):
        case "provider.transient", None:
            hint = "check that the server is running and that the address is right"
        case "provider.fatal", 401 | 403:
            hint = f"check the API key of {provider}"
        case "provider.fatal", 404:
            hint = f"check `model.name` and the address of {provider}"
        case "provider.decode", _:
            hint = f"check that the address is that of a server for {provider}"
    return None if hint is None else _offline_hint(fault.hint or hint, plan)


def _offline_hint(hint: str | None, plan: RunPlan) -> str | None:
    if plan.mode == "record":
        return f"{hint}; or use a scripted model: agentrun provider --help" if hint else None
    if not plan.recorded_cases:
        return hint
    offline = f"or replay a recorded case: --case {' | '.join(plan.recorded_cases)}"
    return f"{hint}; {offline}" if hint else offline
