"""What a run is to be: replayed, live, recorded, or with one axis live. Decided before anything happens.

auto      the recording of the case with this message, params and profile, if there is one; else live. A path that is
          there and is not a file is an error: it is no reason to go live
CI set    as auto, but never live
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click
from msgspec import UNSET, Struct

from agentrun.cassette.file import cassette_exists
from agentrun.cli.options import NAME_RULE, is_name
from agentrun.cli.recorded import asked_cases, cassette_of, nothing_recorded
from agentrun.compiler.prompts import complete_params
from agentrun.compiler.resolve import Spec
from agentrun.core.package import Package
from agentrun.engine.pipeline import in_ci
from agentrun.engine.world import packages_of
from agentrun.errors import RequestError
from agentrun.spec.files import shown_path
from agentrun.spec.problems import quoted
from agentrun.spec.v1.cases import Case

Mode: TypeAlias = Literal["replay", "live", "record", "live-tools", "live-model"]

FIRST_CASE = "default"


class Asked(Struct, frozen=True, kw_only=True):
    """What the command line says."""

    mode: str
    record: str | None
    """new, all or from:N."""
    case: str | None
    """The name that was given."""
    message: str | None
    params: Mapping[str, Any]
    profile: str | None
    live_tools: bool
    live_model: bool
    session: str | None = None

    @property
    def has_own_input(self) -> bool:
        return self.message is not None or bool(self.params) or self.profile is not None


class Plan(Struct, frozen=True, kw_only=True):
    """What will happen."""

    mode: Mode
    why: str
    """The first line of the story, after the mode."""
    case: Case | None
    is_new: bool = False
    """Whether the case has to be written to the cases when it is recorded."""
    cassette: Path | None = None
    has_cassette: bool = False
    """Whether it was there when the plan was made."""
    message: str | None
    params: dict[str, Any]
    recorded: tuple[str, ...] = ()
    """The cases that could be replayed."""

    @property
    def has_real_tools(self) -> bool:
        """Whether tools run for real without a recording: neither a cases file nor a cassette approves anything."""
        return self.mode in ("live", "live-tools")

    @property
    def line(self) -> str:
        words = {"live-tools": "replay with live tools", "live-model": "replay with a live model"}
        return f"{words.get(self.mode, self.mode)}: {self.why}"


def make_plan(spec: Spec, package: Package, asked: Asked, cases: list[Case], case: Case | None) -> Plan:
    """The plan. `case`: the one that was named and exists.

    Raises `cassette.miss`, `input.rejected`, `storage.failed`.
    """
    mode = _mode(asked)
    # What is asked to be live reads no cassette, whatever is at its path.
    is_recorded = Path.is_file if mode == "live" else cassette_exists
    if case is None and asked.case is None and asked.session is None:
        found = asked_cases(cases, package, asked.profile, asked.message, asked.params)
        recorded_ones = (each for each in found if is_recorded(cassette_of(spec, package, each)))
        case = next(recorded_ones, found[0] if found else None)
    folder = spec.project.cassette_directory / package.name
    path = None if case is None else cassette_of(spec, package, case)
    recorded = tuple(each.name for each in cases if cassette_of(spec, package, each).is_file())
    is_there = path is not None and is_recorded(path)
    if mode == "auto":
        mode = "replay" if is_there or in_ci() else "live"
    if mode in ("replay", "live-tools", "live-model") and not is_there:
        raise nothing_recorded(spec, cases, folder, case, in_ci=asked.mode == "auto")
    is_new = mode == "record" and case is None
    if is_new:
        case = _new_case(package, asked, cases)
        path = cassette_of(spec, package, case)
        is_there = cassette_exists(path)
    return Plan(
        mode=mode,  # type: ignore[arg-type]  # auto was resolved
        why=_why(mode, spec, package, case, path, asked),
        case=case,
        is_new=is_new,
        cassette=path,
        has_cassette=is_there,
        message=asked.message if case is None or case.input is UNSET else case.input,
        params=dict(asked.params) if case is None else case.params,
        recorded=recorded,
    )


def _mode(asked: Asked) -> str:
    if asked.session is not None:
        if asked.mode not in ("auto", "live") or asked.record or asked.case or asked.live_tools or asked.live_model:
            raise click.UsageError("a run of a session is live: what it says depends on the runs before it")
        if in_ci() and asked.mode == "auto":
            raise click.UsageError("a run of a session is live; with CI set that needs --mode live")
        return "live"
    if asked.record is not None and asked.mode not in ("auto", "record"):
        raise click.UsageError(f"--record goes with --mode record, not with --mode {asked.mode}")
    if asked.live_tools and asked.live_model:
        raise click.UsageError("--live-tools and --live-model together are --mode live")
    if asked.live_tools or asked.live_model:
        if asked.mode not in ("auto", "replay") or asked.record is not None:
            raise click.UsageError("--live-tools and --live-model are for replays")
        return "live-tools" if asked.live_tools else "live-model"
    return "record" if asked.record is not None else asked.mode


def _new_case(package: Package, asked: Asked, cases: list[Case]) -> Case:
    complete_params(package, asked.params)
    name = asked.case if asked.case is not None else None if asked.has_own_input else FIRST_CASE
    if name is None or (asked.case is None and any(each.name == name for each in cases)):
        raise RequestError(
            "input.rejected",
            "no case has this message, params and profile, so the recording needs a name",
            hint="name the new case: --case NAME",
            fields={"reason": "case"},
        )
    if not is_name(name):
        message = f"{quoted(name)} is not a name: {NAME_RULE}"
        raise RequestError("input.rejected", message, fields={"reason": "case"})
    return Case(
        name=name,
        input=UNSET if asked.message is None else asked.message,
        params=dict(asked.params),
        profile=UNSET if asked.profile is None else asked.profile,
    )


def _why(mode: str, spec: Spec, package: Package, case: Case | None, path: Path | None, asked: Asked) -> str:
    to = " and ".join(sorted({route.provider for each in packages_of(package) for route in each.model.routes}))
    name = "" if case is None else f"case {case.name}"
    shown = "" if path is None else shown_path(path, spec.project.root)
    match mode:
        case "replay":
            return f"{shown} ({name}; nothing is sent)"
        case "live-tools":
            return f"the model from {shown} ({name}); tools run for real"
        case "live-model":
            return f"tools from {shown} ({name}); requests go to {to}"
        case "record":
            return f"{shown} ({name}; requests go to {to}, tools run for real)"
    if asked.session is not None:
        return f"session {asked.session} (requests go to {to}, tools run for real)"
    if asked.mode == "live":
        return f"as asked (requests go to {to}, tools run for real)"
    reason = f"{name} has no cassette" if case else "no recorded case has this message, params and profile"
    return f"{reason} (requests go to {to}, tools run for real)"
