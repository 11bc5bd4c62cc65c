"""`--imports` of `validate` and `doctor`: import the Python functions of specs, in a process of their own.

Rule 1  A spec is checked with each of its profiles, and with its sub-agents. A spec with errors is not checked.
Rule 2  The process gets few environment variables (`PROGRAM_VARIABLES`) and no standard input. Its output is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET

from agentrun.compiler.cases import CASES_FILE_SUFFIX
from agentrun.compiler.compile import compile_spec
from agentrun.compiler.spec_reader import Spec, read_spec
from agentrun.compiler.validate import document_kind
from agentrun.spec.problems import Problem, SourcePlace, sort_problems
from agentrun.spec.project import Project
from agentrun.spec.safe_text import plural
from agentrun.spec.v1.tools import AgentToolSpec
from agentrun.tools.function_imports import (
    PythonPart,
    check_environment,
    describe_failed_import,
    import_in_processes,
    python_parts,
)


class ImportCheck(NamedTuple):
    problems: list[Problem]
    functions: int
    unchecked: list[Path]
    """Specs with errors."""

    def summary(self) -> str:
        return f"{self.functions - len(self.problems)} of {plural(self.functions, 'function')} imported"


class _NamedPart(NamedTuple):
    """A function, and a place in a spec that names it."""

    part: PythonPart
    place: SourcePlace
    project: Project


def check_imports(documents: Iterable[Path]) -> ImportCheck:
    unchecked: list[Path] = []
    named: dict[tuple[PythonPart, str], _NamedPart] = {}
    for path in documents:
        if path.suffix == ".json" or path.name.endswith(CASES_FILE_SUFFIX) or document_kind(path) != "agent":
            continue
        found = list(_parts_of_spec(path))
        unchecked += [path] if None in found else []
        named |= {(each.part, str(each.place)): each for each in found if each is not None}
    problems: list[Problem] = []
    for project in dict.fromkeys(each.project for each in named.values()):
        problems += asyncio.run(_import_parts(project, [each for each in named.values() if each.project == project]))
    return ImportCheck(sort_problems(problems), len(named), unchecked)


def _parts_of_spec(path: Path) -> Iterator[_NamedPart | None]:
    """The functions of a spec. None: it has errors."""
    pending: list[tuple[Path, str | None]] = [(path, None), *((path, name) for name in read_spec(path).profiles)]
    done: set[tuple[Path, str | None]] = set()
    while pending:
        file, profile = pending.pop(0)
        if (file.resolve(), profile) in done:
            continue
        done.add((file.resolve(), profile))
        result = compile_spec(file, profile)
        if result.spec is None or result.package is None:
            yield None
            continue
        spec = result.spec
        for part in python_parts([result.package]):
            yield _NamedPart(part, _place_of(spec, part), spec.project)
        for name, tool in spec.agent.tools.items():
            if isinstance(tool, AgentToolSpec):
                pending.append((spec.sub_agent_path(name, tool.spec), None if tool.profile is UNSET else tool.profile))


def _place_of(spec: Spec, part: PythonPart) -> SourcePlace:
    if part.what == "tool":
        return spec.at("tools", part.name, "call").place
    index = next(index for index, hook in enumerate(spec.agent.hooks) if hook.id == part.name)
    return spec.at("hooks", index, "call").place


async def _import_parts(project: Project, named: list[_NamedPart]) -> list[Problem]:
    roots = [project.root / root for root in project.import_roots]
    parts = tuple(dict.fromkeys(each.part for each in named))
    failed = {each.part: each for each in await import_in_processes(parts, roots, check_environment())}
    return [
        Problem(each.place, "host.missing", describe_failed_import(failed[each.part], roots, project.root))
        for each in named
        if each.part in failed
    ]
