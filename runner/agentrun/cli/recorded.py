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


def named_case(spec: Path, name: str) -> Case:
    """The case of that name in the file beside a spec."""
    cases = _cases(spec)
    for case in cases:
        if case.name == name:
            return case
    names = [case.name for case in cases]
    hint = did_you_mean(name, names) or f"cases: {', '.join(names) or 'none'}"
    raise RequestError("input.rejected", f"there is no case {quoted(name)}", hint=hint, fields={"reason": "case"})


def asked_case(
    spec: Path, package: Package, profile: str | None, message: str | None, params: Mapping[str, Any]
) -> Case | None:
    """The case whose message, params and profile are the ones asked for."""
    values = complete_params(package, params)
    wanted = (message if message is not None else rendered_input(package, values), values, profile)
    for case in _cases(spec):
        if (None if case.profile is UNSET else case.profile) != profile or case.params.keys() - package.params.keys():
            continue
        own = complete_params(package, case.params)
        text = rendered_input(package, own) if case.input is UNSET else case.input
        if (text, own, profile) == wanted:
            return case
    return None


def recording_of(spec: Spec, package: Package, case: Case | None) -> Recording:
    """The recording of a case, or an error that says which ones there are."""
    folder = spec.project.root / spec.project.cassettes / package.name
    if case is None or not (folder / f"{case.name}.yaml").is_file():
        raise _nothing_recorded(spec, _cases(spec.path), folder, case)
    path = folder / f"{case.name}.yaml"
    own = None if case.input is UNSET else case.input
    return Recording(case, path, shown_path(path, spec.project.root), own, case.params)


def _cases(spec: Path) -> list[Case]:
    path = cases_path(spec)
    if not path.exists():
        return []
    try:
        return read_cases(path)[1]
    except DocumentError as error:
        raise SpecError(error.problems) from None


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
