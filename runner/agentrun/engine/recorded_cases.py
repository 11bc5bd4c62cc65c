"""The recorded case of a run: found by its name, or by its input, params and profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import UNSET

from agentrun.cassette.redaction import equals_except_placeholders
from agentrun.compiler.cases import cases_path
from agentrun.compiler.prompts import complete_params, render_input
from agentrun.compiler.spec_reader import Spec
from agentrun.core.package import Package
from agentrun.errors import CassetteError, RequestError
from agentrun.spec.problems import did_you_mean, quote_text
from agentrun.spec.safe_text import json_text
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.cases import Case


def find_case(cases: list[Case], name: str, *, may_be_new: bool) -> Case | None:
    """The case with this name. None: there is none, and it may be new."""
    for case in cases:
        if case.name == name:
            return case
    if may_be_new:
        return None
    names = [case.name for case in cases]
    hint = did_you_mean(name, names) or (f"the cases are {', '.join(names)}" if names else "the spec has no cases")
    raise RequestError("input.rejected", f"there is no case {quote_text(name)}", hint=hint, fields={"reason": "case"})


def refuse_conversation(spec: Path, case: Case) -> None:
    """Raise an error for a conversation, because it consists of several runs."""
    if case.turns is not UNSET:
        named = quote(f"{display_path(cases_path(spec))}::{case.name}")
        message = f"case {quote_text(case.name)} is a conversation of {len(case.turns)} messages; use `test`"
        raise RequestError("input.rejected", message, hint=f"agentrun test {named}", fields={"reason": "case"})


def require_case_values(
    spec: Path, package: Package, case: Case, message: str | None, params: Mapping[str, Any]
) -> None:
    """Raise an error if the command has another message or other params than its case.

    A case has placeholders where the command that recorded it had secrets.
    """
    own_params = complete_params(package, case.params)
    own_message = render_input(package, own_params) if case.input is UNSET else case.input
    values = [] if message is None else [("message", own_message, message)]
    values += [(f"param {name}", own_params.get(name), value) for name, value in params.items()]
    if different := [each for each in values if not equals_except_placeholders(each[1], each[2])]:
        raise other_values_error(spec, case, different)


def other_values_error(spec: Path, case: Case, different: Iterable[tuple[str, Any, Any]]) -> RequestError:
    """`different`: what is different, its value in the case and its value in the command."""

    def show(value: Any) -> str:
        return "none" if value is None else quote_text(value if isinstance(value, str) else json_text(value), most=300)

    shown = (f"{name} is {show(own)} in the case, {show(value)} in this command" for name, own, value in different)
    return RequestError(
        "input.rejected",
        f"case {quote_text(case.name)} exists and has other values: {'; '.join(shown)}",
        hint=f"use another name with --case, or edit the case in {display_path(cases_path(spec))}",
        fields={"reason": "case"},
    )


def matching_cases(
    cases: list[Case], package: Package, profile: str | None, message: str | None, params: Mapping[str, Any]
) -> list[Case]:
    """The cases with this message, params and profile. Cases have placeholders where the run has secrets; those that
    are equal without them come first."""
    values = complete_params(package, params)
    wanted = [message if message is not None else render_input(package, values), values]
    plain = [case for case in cases if case.is_plain_replay]
    own = [case for case in plain if (None if case.profile is UNSET else case.profile) == profile]
    found = [case for case in own if equals_except_placeholders(_case_input(case, package), wanted)]
    return sorted(found, key=lambda case: _case_input(case, package) != wanted)


def _case_input(case: Case, package: Package) -> list[Any] | None:
    """The message and the params of a case. None: they are not valid for the agent."""
    try:
        values = complete_params(package, case.params)
        return [render_input(package, values) if case.input is UNSET else case.input, values]
    except RequestError:
        return None


def case_cassette_path(spec: Spec, package: Package, case: Case) -> Path:
    return spec.project.cassette_directory / package.name / f"{case.cassette_name}.yaml"


def nothing_recorded_error(
    spec: Spec, cases: list[Case], folder: Path, case: Case | None, *, in_ci: bool = False
) -> CassetteError:
    """The error for a run that cannot be replayed. It names the cases that can be."""
    recorded = [one.name for one in cases if (folder / f"{one.cassette_name}.yaml").is_file()]
    shown = display_path(folder, spec.project.root)
    listed = display_path(cases_path(spec.path), spec.project.root)
    if case is not None:
        what = f"the cassette of case {quote_text(case.name)}, {shown}/{case.cassette_name}.yaml, does not exist"
    elif cases:
        what = f"no case in {listed} has this message, params and profile"
    else:
        what = f"there are no cases: {listed} does not exist"
    hint = "record a run first with --mode record"
    if recorded:
        hint = f"replay a recorded case with --case NAME: {', '.join(recorded)}"
    if in_ci:
        what += "; in CI a run is live only with --mode live"
    return CassetteError("cassette.miss", f"nothing to replay: {what}", hint=hint, fields={"recorded": recorded})
