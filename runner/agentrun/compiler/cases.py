"""Cases of an agent: reading `<spec>.cases.yaml`, and what must hold between it and the spec beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.compiler.conditions import known_names
from agentrun.compiler.resolve import Spec
from agentrun.compiler.targets import Subjects
from agentrun.spec.files import project_root, read_source
from agentrun.spec.load import load
from agentrun.spec.problems import DocumentError, Problem, did_you_mean, quoted
from agentrun.spec.tree import Mapping, place_of, plain
from agentrun.spec.v1.cases import Case, CasesFile, ClockSetting, Defaults

ENDING = ".cases.yaml"
ASKING_STAGES = ("input", "output")
"""Stages at which a person may be asked about something that is no tool's call and no sink's delivery."""


def cases_path(spec: Path) -> Path:
    return spec.with_name(spec.stem + ENDING)


def spec_path(cases: Path) -> Path:
    return cases.with_name(cases.name.removesuffix(ENDING) + ".yaml")


def read_cases(path: Path) -> tuple[Mapping, list[Case]]:
    """The cases in a file. Raises DocumentError with everything wrong in it."""
    document = load(read_source(path, root=project_root(path)), "cases")
    if document.root is None or document.problems:
        raise DocumentError(document.problems)
    file = msgspec.convert(_told_apart(plain(document.root)), CasesFile)
    return document.root, [_completed(case, file.defaults) for case in file.cases]


def _told_apart(data: Any) -> Any:
    """The document with `not-` taken off the types of its assertions."""
    data = {
        **data,
        "defaults": _positive(data.get("defaults", {})),
        "cases": [_positive(each) for each in data["cases"]],
    }
    for case in data["cases"]:
        if "turns" in case:
            case["turns"] = [_positive(turn) if isinstance(turn, dict) else turn for turn in case["turns"]]
    return data


def _positive(part: dict[str, Any]) -> dict[str, Any]:
    if "assert" not in part:
        return dict(part)
    return {**part, "assert": [_claim(each) for each in part["assert"]]}


def _claim(written: dict[str, Any]) -> dict[str, Any]:
    kind: str = written["type"]
    return {**written, "type": kind.removeprefix("not-"), "negated": kind.startswith("not-")}


def _completed(case: Case, defaults: Defaults) -> Case:
    """The case with what all cases of its file have."""
    return replace(
        case,
        params=defaults.params | case.params,
        profile=defaults.profile if case.profile is UNSET else case.profile,
        approvals=defaults.approvals | case.approvals,
        stubs=defaults.stubs | case.stubs,
        clock=ClockSetting(
            start=defaults.clock.start if case.clock.start is UNSET else case.clock.start,
            step=defaults.clock.step if case.clock.step is UNSET else case.clock.step,
        ),
        faults=defaults.faults + case.faults,
        tags=list(dict.fromkeys(defaults.tags + case.tags)),
        skip=defaults.skip if case.skip is UNSET else case.skip,
        claims=defaults.claims + case.claims,
    )


def check_cases(root: Mapping, cases: list[Case], spec: Spec | None) -> Iterator[Problem]:
    """Names that are used once, and params, profiles, tools, sinks and stages that the spec has."""
    names: dict[str, int] = {}
    for index, case in enumerate(cases):
        first = names.setdefault(case.name, index)
        if first != index:
            place = place_of(root, ["cases", index, "name"])
            at = place_of(root, ["cases", first, "name"])
            message = f"{quoted(case.name)} is used twice; the first is at {at}"
            yield Problem(place, "spec.duplicate_name", message, "give one of them another name")
        if spec is not None:
            yield from _against_spec(root, index, case, spec)


def _against_spec(root: Mapping, index: int, case: Case, spec: Spec) -> Iterator[Problem]:
    for param in case.params:
        if param not in spec.agent.params:
            place = place_of(root, ["cases", index, "params", param], key=True)
            hint = did_you_mean(param, spec.agent.params) or known_names(spec.agent.params)
            yield Problem(place, "spec.unknown_param", f"param {quoted(param)} is not declared", hint)
    if case.profile is not UNSET and case.profile not in spec.agent.profiles:
        place = place_of(root, ["cases", index, "profile"])
        hint = did_you_mean(case.profile, spec.agent.profiles) or known_names(spec.agent.profiles)
        yield Problem(place, "spec.unknown_profile", f"profile {quoted(case.profile)} is not declared", hint)
    subjects = Subjects(spec.agent.tools)
    for target in case.approvals:
        if not subjects.named(target) and target not in (*ASKING_STAGES, *spec.agent.sinks):
            place = place_of(root, ["cases", index, "approvals", target], key=True)
            hint = did_you_mean(target, spec.agent.tools) or known_names(spec.agent.tools)
            yield Problem(place, "spec.unknown_tool", f"tool {quoted(target)} is not declared", hint)
