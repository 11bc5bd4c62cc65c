"""Tells a run as it happens: the answer on standard output, the story on standard error, or all of it as JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from agentrun.cli.console import environment_redactor, escape_json, safe_text, wants_color
from agentrun.cli.plan import RunPlan
from agentrun.core.facts import ChildStarted, Fact, Record, ToolStarted, WorkLost
from agentrun.core.fault import Fault
from agentrun.core.outcome import Outcome, Parked, Suspended
from agentrun.core.package import Package
from agentrun.engine.approvals import HOW_TO_ANSWER
from agentrun.engine.fact_redaction import redact_struct
from agentrun.engine.ports import ReplyDelta, ToolProgress, TransientEvent
from agentrun.engine.run import FinishedRun
from agentrun.errors import HostError
from agentrun.report.formatting import OutputLine, make_line
from agentrun.report.run_renderer import RunTreeRenderer, outcome_summary
from agentrun.report.screen import Screen, delta_key, screen_for, show_record
from agentrun.spec.problems import escape_invisible


class RunOutput:
    """Tells one run."""

    def __init__(self, package: Package, *, as_json: bool, quiet: bool, color: bool | None, live: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._renderer = RunTreeRenderer(package)
        self._screen: Screen | None = None
        self.has_reader = not as_json and not quiet
        """Whether there is a story, for a person."""
        self.color = wants_color(sys.stderr) if color is None else color
        if self.has_reader:
            self._screen = screen_for(sys.stderr, live=live, color=color)

    def begin(self, plan: RunPlan) -> None:
        if self._as_json:
            name = None if plan.case is None else plan.case.name
            cassette = None if plan.cassette is None else plan.cassette.name
            _print_json({"start": {"mode": plan.mode, "why": plan.headline, "case": name, "cassette": cassette}})
        self.say(plan.headline)

    def say(self, text: str, tone: Any = "plain") -> None:
        """A line of our own."""
        if self._screen is not None:
            self._screen.line(OutputLine(safe_text(text), tone, 0))

    def listen(self, run: str, news: Record | TransientEvent) -> None:
        """Something was committed, or passes. What a replay is given by its user it holds as it is."""
        if isinstance(news, Record):
            news = replace(news, fact=redact_struct(environment_redactor(), news.fact))
        if self._as_json:
            match news:
                case Record():
                    _print_json({"run": run, "record": msgspec.to_builtins(news)})
                case ToolProgress():
                    _print_json({"run": run, "progress": msgspec.to_builtins(news)})
            return
        if self._screen is None:
            return
        if isinstance(news, ReplyDelta):
            self._screen.delta(delta_key(run, news.effect), news.text)
            return
        if isinstance(news, ToolProgress):
            self._screen.line(make_line(f"{news.tool}: {safe_text(news.text)}", "dim", 1))
            return
        story = self._renderer.renderer_for(run, news)
        if story is self._renderer.root and _is_cassette_fault(news.fact):
            story.render(news)
        else:
            show_record(news, story, self._screen, run, self._renderer.root)

    def write(self, line: str) -> None:
        """A line of JSON that a sink prints."""
        if self._as_json:
            _print_json({"delivery": msgspec.json.decode(line)})
        else:
            click.echo(escape_json(environment_redactor().redact_text(line)))

    def show_printed(self, tool: str, text: str) -> None:
        """What a tool printed."""
        if self._screen is not None:
            for line in text.splitlines()[:20]:
                self._screen.line(make_line(f"{tool} printed: {line}", "dim", 1))

    def aside(self) -> AbstractContextManager[None]:
        """The terminal is somebody else's for a while: what is told then waits."""
        return nullcontext() if self._screen is None else self._screen.aside()

    def close(self) -> None:
        if self._screen is not None:
            self._screen.close()

    def end(self, done: FinishedRun) -> None:
        """The answer, and how it ended."""
        self.close()
        outcome = redact_struct(environment_redactor(), done.ending)
        if self._as_json:
            kind = type(outcome).__name__.lower()
            _print_json({kind: {**msgspec.to_builtins(outcome), "tier": done.tier, "exit": done.exit_code}})
            return
        if isinstance(outcome, Suspended):
            for line in _suspension_lines(outcome, done):
                self._print_error(line)
            return
        if isinstance(outcome, Parked):
            self._print_error(f"parked: the run was left after record {outcome.seq}")
            return
        if outcome.answer is not None:
            click.echo("\n".join(map(_safe_answer_line, outcome.answer.split("\n"))))
        if outcome.fault is not None:
            for line in _fault_lines(outcome.fault):
                self._print_error(line)
        tier = "" if done.tier in (None, "exact") else f", matched {done.tier}"
        self.say(outcome_summary(outcome) + tier, "dim")

    def _print_error(self, text: str) -> None:
        """A line that also a quiet run says."""
        click.echo(safe_text(text), err=True)


def _is_cassette_fault(fact: Fact) -> bool:
    """A tape that does not fit is no failure of a model or a tool, and is told as the reason of the run's."""
    fault = getattr(fact, "fault", None)
    return isinstance(fault, Fault) and fault.code.startswith("cassette.")


def _fault_lines(fault: Fault) -> list[str]:
    """Why a run failed, and what can be done about it."""
    story = fault.fields.get("story")
    if not story:
        return [f"{fault.code}: {fault.message}", *([f"  → {fault.hint}"] if fault.hint else [])]
    turn = fault.fields.get("turn")
    where = f" in turn {turn}" if turn else ""
    return [f"{fault.code}{where}: {story[0]}", *(f"  {line}" for line in story[1:])]


_HARMLESS = re.compile("[\t\u00a0]|(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")
"""Signs that are part of many texts and do nothing to a terminal: tabs, spaces that do not break, and what joins or
parts the letters of a script or the pieces of a picture."""


def _safe_answer_line(line: str) -> str:
    """A line of an answer as it is, but for what would act on a terminal or hide in it."""
    kept = _HARMLESS.findall(line)
    shown = [escape_invisible(piece) for piece in _HARMLESS.split(line)]
    return shown[0] + "".join(sign + piece for sign, piece in zip(kept, shown[1:], strict=True))


def _suspension_lines(outcome: Suspended, done: FinishedRun) -> Iterator[str]:
    """What the run waits for, and what to do about a call of which nobody knows whether it took place."""
    facts = [record.fact for record in done.journal]
    names = {fact.call: f"{fact.tool} ({fact.call})" for fact in facts if isinstance(fact, ToolStarted | ChildStarted)}
    approvals = [f"an approval of {question.target}" for question in outcome.questions]
    yield f"suspended: the run waits for {', '.join([*approvals, *(names.get(id, id) for id in outcome.waits_for)])}"
    everybody = (record.fact for records in (done.journal, *done.children.values()) for record in records)
    if outcome.waits_for and any(isinstance(fact, WorkLost) for fact in everybody):
        yield "  → nobody knows whether the call took place: find out before you run it again"


def _print_json(data: dict[str, Any]) -> None:
    click.echo(escape_json(msgspec.json.encode(environment_redactor().redact_data(data)).decode()))


# --- what can be done about a run that could not start, or that found nobody at the other end -----------------


def add_start_hint(error: HostError, plan: RunPlan) -> HostError:
    """The error of a run that could not start, with what can be done without what it lacks."""
    if plan.mode == "record" and "names" in error.fields:
        return error  # what tools lack is not what a script gives
    return HostError(error.code, error.message, hint=_offline_hint(error.hint, plan), fields=error.fields)


def add_failure_hint(done: FinishedRun, plan: RunPlan) -> FinishedRun:
    """The same for a run that found nobody at the other end."""
    outcome = done.ending
    if not isinstance(outcome, Outcome) or outcome.fault is None:
        return done
    fault = outcome.fault
    if plan.mode == "replay":
        if not fault.code.startswith("provider.") or (plan.case is not None and plan.case.faults):
            return done
        hint = "this failure is on the tape; remove the cassette and record again if it is not what you want"
        return replace(done, ending=replace(outcome, fault=replace(fault, hint=hint)))
    if fault.code == "approval.unavailable":
        hint = HOW_TO_ANSWER
        return replace(done, ending=replace(outcome, fault=replace(fault, hint=hint)))
    if fault.code != "provider.transient" or fault.fields.get("status") is not None:
        return done
    hint = fault.hint or "is the server running, and its address right?"
    return replace(done, ending=replace(outcome, fault=replace(fault, hint=_offline_hint(hint, plan))))


def _offline_hint(hint: str | None, plan: RunPlan) -> str | None:
    if plan.mode == "record":
        return f"{hint}; or let a script play the model: agentrun provider --help" if hint else None
    if not plan.recorded_cases:
        return hint
    offline = f"or replay a recorded case: --case {' | '.join(plan.recorded_cases)}"
    return f"{hint}; {offline}" if hint else offline
