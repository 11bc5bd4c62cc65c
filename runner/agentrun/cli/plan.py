"""Decide, before anything happens, whether a run is replayed, live, recorded, or live for the model or the tools only.

A cassette path that exists but is not a file is an error, and not a reason to run live.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import click
from msgspec import UNSET, Struct

from agentrun.cassette.file import cassette_exists
from agentrun.cassette.match_tiers import DEFAULT_TIER, MatchTier
from agentrun.compiler.prompts import complete_params
from agentrun.compiler.spec_reader import Spec
from agentrun.core.facts import StandIns
from agentrun.core.package import Package, Route
from agentrun.engine.ci import in_ci
from agentrun.engine.recorded_cases import (
    case_cassette_path,
    matching_cases,
    nothing_recorded_error,
    require_case_values,
)
from agentrun.engine.world import iterate_routes
from agentrun.errors import RequestError
from agentrun.spec.problems import quote_text
from agentrun.spec.safe_text import join_words
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.cases import Case
from agentrun.spec.v1.field_types import NAME_RULE, is_valid_name

if TYPE_CHECKING:
    from agentrun.engine.settings import Settings
    from agentrun.store.sessions import SessionStart

RunMode: TypeAlias = Literal["replay", "live", "record", "live-tools", "live-model"]

DEFAULT_CASE_NAME = "default"


class RunPlan(Struct, frozen=True, kw_only=True):
    mode: RunMode
    why: str
    """The first progress line, after the mode."""
    live_because: str | None = None
    """Why an `auto` run is live. Null: the command chose the mode, or the run is not live."""
    spec: Spec
    case: Case | None
    is_new: bool = False
    """Whether the case must be added to the cases file when it is recorded."""
    cassette: Path | None = None
    has_cassette: bool = False
    """Whether the cassette existed when the plan was made."""
    recorded_cases: tuple[str, ...] = ()
    record: str | None = None
    """new, all or from:N."""
    required_tier: MatchTier = DEFAULT_TIER
    journal: Path | None = None
    approve: str | None = None
    """The value of `--approve`."""
    yes: bool = False
    """Whether a recording starts without asking."""
    command: str = ""
    """The command line, for hints."""
    settings: Settings | None = None
    """The settings of a run that is not a replay."""
    grace: int | None = None
    """The milliseconds that running effects have when a signal parks the run. Null: signals cancel it."""
    session_start: SessionStart = "continue"
    """Whether the session of the run must exist."""

    @property
    def has_real_tools(self) -> bool:
        """Whether tools run for real and nothing is recorded. Then the approvals of the case do not count."""
        return self.mode in ("live", "live-tools")

    @property
    def headline(self) -> str:
        words = {"live-tools": "replay with live tools", "live-model": "replay with a live model"}
        file = "" if self.settings is None else self.settings.headline
        return f"{words.get(self.mode, self.mode)}: {self.why}{'; ' if file else ''}{file}"

    @property
    def stand_ins(self) -> StandIns | None:
        """What replaces a part of the real world in a run that is not a replay."""
        if self.mode in ("live-tools", "live-model") or (self.has_cassette and self.record not in (None, "all")):
            return "cassette"
        case = None if self.case is None else self.case.without_approvals if self.has_real_tools else self.case
        return "case" if case is not None and (case.stubs or case.faults) else None

    @property
    def is_resumable(self) -> bool:
        """Whether the run can be resumed."""
        is_whole = self.stand_ins is None or (self.mode == "record" and self.stand_ins == "cassette")
        return self.mode != "replay" and self.spec.project.stores_runs and is_whole

    @property
    def suspends(self) -> bool:
        """Whether a question that no one answers suspends the run. If not, it is `unavailable`."""
        return self.mode == "live" and self.is_resumable

    @property
    def start_line(self) -> dict[str, Any]:
        """The first line of the JSON output."""
        name = None if self.case is None else self.case.name
        cassette = None if self.cassette is None else self.cassette.name
        return {"start": {"mode": self.mode, "why": self.headline, "case": name, "cassette": cassette}}


def make_plan(
    spec: Spec,
    package: Package,
    cases: list[Case],
    case: Case | None,
    *,
    message: str | None,
    params: Mapping[str, Any],
    profile: str | None,
    options: Mapping[str, Any],
) -> tuple[RunPlan, str | None, dict[str, Any]]:
    """The plan, and the message and the params of the run. `case`: the existing case that `--case` names. Raises
    `cassette.miss`, `input.rejected`, `storage.failed`."""
    mode = _choose_mode(options)
    if case is not None:
        require_case_values(spec.path, package, case, message, params)
    # A live run reads no cassette, so anything may be at its path.
    is_recorded = Path.is_file if mode == "live" else cassette_exists
    found: list[Case] = []
    if case is None and options["case_name"] is None and options["session"] is None:
        found = matching_cases(cases, package, profile, message, params)
        recorded_ones = (each for each in found if is_recorded(case_cassette_path(spec, package, each)))
        case = next(recorded_ones, found[0] if found else None)
    folder = spec.project.cassette_directory / package.name
    path = None if case is None else case_cassette_path(spec, package, case)
    recorded = tuple(each.name for each in cases if case_cassette_path(spec, package, each).is_file())
    is_there = path is not None and is_recorded(path)
    live_because = _why_live(case, recorded) if mode == "auto" and not is_there and not in_ci() else None
    if mode == "auto":
        mode = "replay" if live_because is None else "live"
    if mode in ("replay", "live-tools", "live-model") and not is_there:
        raise nothing_recorded_error(spec, cases, folder, case, in_ci=options["mode"] == "auto")
    is_new = mode == "record" and case is None
    if is_new:
        case = _new_case(package, cases, options["case_name"], message, params, profile)
        path = case_cassette_path(spec, package, case)
        is_there = cassette_exists(path)
    plan = RunPlan(
        mode=mode,  # type: ignore[arg-type]  # auto was resolved
        why=_explain_mode(mode, spec, package, case, path, live_because, options)
        + ("" if mode == "live" else _mention_same_input([each.name for each in found if each != case])),
        live_because=live_because,
        spec=spec,
        case=case,
        is_new=is_new,
        cassette=path,
        has_cassette=is_there,
        recorded_cases=recorded,
        record=options["record"],
        required_tier=options["require_tier"],
        journal=options["journal"],
        approve=options["approve"],
        yes=options["yes"],
        command=_command_line(spec, case, options),
        session_start=options["session_start"],
    )
    if case is None or (mode != "replay" and message is not None):  # a case has placeholders instead of secrets
        return plan, message, {**({} if case is None else case.params), **params}
    return plan, message if case.input is UNSET else case.input, case.params


def _mention_same_input(others: list[str]) -> str:
    """`; cases b and c have the same input: choose with --case NAME`. Empty without other cases."""
    if not others:
        return ""
    named = f"case {others[0]} has" if len(others) == 1 else f"cases {join_words(others)} have"
    return f"; {named} the same input: choose with --case NAME"


def _command_line(spec: Spec, case: Case | None, options: Mapping[str, Any]) -> str:
    words = ["agentrun", display_path(spec.path, spec.project.root)]
    if case is not None:
        words += ["--case", case.name]
    for setting in options["settings"]:
        words += ["--set", setting]
    for path in options["attached"]:
        words += ["--attach", str(path)]
    if options["approve"] is not None:
        words += ["--approve", options["approve"]]
    return " ".join(map(quote, words))


def _choose_mode(options: Mapping[str, Any]) -> str:
    mode, record = options["mode"], options["record"]
    live_tools, live_model = options["live_tools"], options["live_model"]
    if options["session"] is not None:
        if mode not in ("auto", "live") or record or options["case_name"] or live_tools or live_model:
            used = ["--case"] if options["case_name"] else []
            used += [f"--mode {mode}"] if mode not in ("auto", "live") else []
            flags = {"--record": record, "--live-tools": live_tools, "--live-model": live_model}
            used += [name for name, value in flags.items() if value]
            flag = "--new-session" if options["session_start"] == "new" else "--session"
            text = f"{flag} cannot be combined with {' or '.join(used)}: session runs are always live"
            raise click.UsageError(text)
        if in_ci() and mode == "auto":
            raise click.UsageError("session runs are always live; in CI add --mode live to allow that")
        return "live"
    if record is not None and mode not in ("auto", "record"):
        raise click.UsageError(f"--record cannot be combined with --mode {mode}")
    if live_tools and live_model:
        raise click.UsageError("--live-tools cannot be combined with --live-model; use --mode live to run both live")
    if live_tools or live_model:
        if mode not in ("auto", "replay") or record is not None:
            other = "--record" if record is not None else f"--mode {mode}"
            flag = "--live-tools" if live_tools else "--live-model"
            raise click.UsageError(f"{flag} cannot be combined with {other}: it replays the rest of the run")
        return "live-tools" if live_tools else "live-model"
    return "record" if record is not None else str(mode)


def _new_case(
    package: Package,
    cases: list[Case],
    given_name: str | None,
    message: str | None,
    params: Mapping[str, Any],
    profile: str | None,
) -> Case:
    complete_params(package, params)
    has_own_input = message is not None or bool(params) or profile is not None
    name = given_name if given_name is not None else None if has_own_input else DEFAULT_CASE_NAME
    if name is None or (given_name is None and any(each.name == name for each in cases)):
        raise RequestError(
            "input.rejected",
            "no case has this message, params and profile, so the new case needs a name",
            hint="add --case NAME",
            fields={"reason": "case"},
        )
    if not is_valid_name(name):
        text = f"{quote_text(name)} is not a valid name for a case"
        raise RequestError("input.rejected", text, hint=NAME_RULE, fields={"reason": "case"})
    return Case(
        name=name,
        input=UNSET if message is None else message,
        params=dict(params),
        profile=UNSET if profile is None else profile,
    )


def _why_live(case: Case | None, recorded: tuple[str, ...]) -> str:
    """Why an `auto` run is not a replay. `recorded`: the names of all cases with a cassette."""
    if case is not None:
        return f"case {case.name} has no cassette"
    return "no recorded case has this message, params and profile" if recorded else "this agent has no recorded case"


def _destination(route: Route) -> str:
    """`openai`, or `openai at 127.0.0.1:8000` for a server of its own."""
    if route.base_url is None:
        return route.provider
    return f"{route.provider} at {urlsplit(route.base_url).netloc.rpartition('@')[2] or route.base_url}"


def describe_destinations(package: Package) -> str:
    """Where the requests of a live run go."""
    return " and ".join(sorted({_destination(route) for _, route in iterate_routes(package)}))


def _explain_mode(
    mode: str,
    spec: Spec,
    package: Package,
    case: Case | None,
    path: Path | None,
    live_because: str | None,
    options: Mapping[str, Any],
) -> str:
    to = describe_destinations(package)
    name = "" if case is None else f"case {case.name}"
    shown = "" if path is None else display_path(path, spec.project.root)
    match mode:
        case "replay":
            return f"{shown} ({name}; nothing is sent)"
        case "live-tools":
            return f"the model from {shown} ({name}); tools run for real"
        case "live-model":
            return f"tools from {shown} ({name}); requests go to {to}"
        case "record":
            return f"{shown} ({name}; requests go to {to}, tools run for real)"
    session = f"{'new ' * (options['session_start'] == 'new')}session {options['session']}"
    reason = live_because or ("--mode live" if options["session"] is None else session)
    return f"{reason} (requests go to {to}, tools run for real)"
