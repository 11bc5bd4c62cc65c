"""Which recording answers a request: the case with this input, these params and this profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct

from agentrun.compiler.cases import cases_path, read_cases
from agentrun.compiler.prompts import complete_params, rendered_input
from agentrun.compiler.resolve import Spec
from agentrun.core.package import Package
from agentrun.errors import CassetteError, RequestError, SpecError
from agentrun.spec.files import shown_path
from agentrun.spec.problems import DocumentError, did_you_mean, quoted
from agentrun.spec.v1.documents import Case


class Recording(Struct, frozen=True):
    """A case and the cassette it is replayed from."""

    case: Case
    path: Path
    shown: str
    message: str | None
    params: dict[str, Any]


def find_recording(
    spec: Spec,
    package: Package,
    profile: str | None,
    message: str | None,
    params: Mapping[str, Any],
    name: str | None,
) -> Recording:
    """The recording to replay, or an error that says which ones there are."""
    cases = _cases(spec)
    folder = spec.project.root / spec.project.cassettes / package.name
    if name is not None and (message is not None or params):
        raise RequestError("input.rejected", "a case has its own message and params", fields={"reason": "case"})
    asked = _asked_for(cases, package, profile, message, params) if name is None else _named(cases, name)
    if asked is None or not (folder / f"{asked.name}.yaml").is_file():
        raise _nothing_recorded(spec, cases, folder, asked)
    path = folder / f"{asked.name}.yaml"
    own = None if asked.input is UNSET else asked.input
    return Recording(asked, path, shown_path(path, spec.project.root), own, asked.params)


def _cases(spec: Spec) -> list[Case]:
    path = cases_path(spec.path)
    if not path.exists():
        return []
    try:
        return read_cases(path)[1]
    except DocumentError as error:
        raise SpecError(error.problems) from None


def _named(cases: list[Case], name: str) -> Case:
    for case in cases:
        if case.name == name:
            return case
    names = [case.name for case in cases]
    hint = did_you_mean(name, names) or f"cases: {', '.join(names) or 'none'}"
    raise RequestError("input.rejected", f"there is no case {quoted(name)}", hint=hint, fields={"reason": "case"})


def _asked_for(
    cases: list[Case], package: Package, profile: str | None, message: str | None, params: Mapping[str, Any]
) -> Case | None:
    """The case whose message, params and profile are the ones asked for."""
    values = complete_params(package, params)
    wanted = (message if message is not None else rendered_input(package, values), values, profile)
    for case in cases:
        own = complete_params(package, case.params)
        text = rendered_input(package, own) if case.input is UNSET else case.input
        if (text, own, None if case.profile is UNSET else case.profile) == wanted:
            return case
    return None


def _nothing_recorded(spec: Spec, cases: list[Case], folder: Path, case: Case | None) -> CassetteError:
    recorded = [one.name for one in cases if (folder / f"{one.name}.yaml").is_file()]
    shown = shown_path(folder, spec.project.root)
    listed = shown_path(cases_path(spec.path), spec.project.root)
    if case is not None:
        what = f"case {quoted(case.name)} has no cassette {shown}/{case.name}.yaml"
    elif cases:
        what = f"no case in {listed} has this message, params and profile"
    else:
        what = f"there are no cases: {listed} does not exist"
    hint = (
        f"recorded cases: {', '.join(recorded)}; replay one with --case NAME" if recorded else "nothing is recorded yet"
    )
    return CassetteError("cassette.miss", f"nothing to replay: {what}", hint=hint, fields={"recorded": recorded})
