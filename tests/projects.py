"""Small projects on disk, and the problems that are found in their specs.

`agent("params: {}")` is a whole spec whose first lines are the ones given, so that lines and columns can be read off.
"""

import re
from pathlib import Path
from typing import NamedTuple

from agentrun.compiler.compile import compile_spec
from agentrun.compiler.validate import validate_document
from agentrun.spec.problems import Problem, sort_problems

from .locks import lock_for

REST = {
    "agentrun": 'agentrun: "1"',
    "name": "name: a",
    "model": "model: {provider: openai, name: m}",
    "instructions": "instructions: Be brief.",
    "budgets": "budgets: {tokens: 5k}",
}
"""What every agent needs, added below the lines under test."""

TOOL = "{kind: shell, description: d, argv: [x]}"
"""The smallest tool."""


class FoundProblem(NamedTuple):
    """A problem as a test compares it."""

    at: str
    """file:line:column"""
    code: str
    message: str
    hint: str | None


def agent(text: str = "") -> str:
    """A spec that begins with these lines and has all that is needed."""
    missing = [line for key, line in REST.items() if not re.search(rf"^{key}:", text, re.MULTILINE)]
    return "\n".join([*([text.rstrip("\n")] if text else []), *missing, ""])


def write_project(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Writes the files of a project; gives the path of its spec. Without a lock the tools of its servers are pinned."""
    spec = files.get("spec.yaml")
    if isinstance(spec, str) and "kind: mcp" in spec and "spec.lock" not in files and (lock := lock_for(spec)):
        files = {**files, "spec.lock": lock}
    (folder / ".git").mkdir(exist_ok=True)  # the root of the project
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "spec.yaml"


def problems(folder: Path, text: str, files: dict[str, str | bytes] | None = None) -> list[Problem]:
    """All problems that `validate_document` finds in a spec that begins with these lines."""
    return validate_document(write_project(folder, {"spec.yaml": agent(text), **(files or {})}))


def find_problems(folder: Path, text: str, files: dict[str, str | bytes] | None = None) -> list[FoundProblem]:
    """The same, to be compared."""
    return [found_problem(problem, folder) for problem in problems(folder, text, files)]


def found_problem(problem: Problem, folder: Path) -> FoundProblem:
    return FoundProblem(place(problem, folder), problem.code, problem.message, problem.hint)


def place(problem: Problem, folder: Path) -> str:
    """file:line:column, the file as seen from the project."""
    path = problem.place.source.path
    name = path.relative_to(folder) if path.is_absolute() else path
    return f"{name}:{problem.line}:{problem.column}"


def codes(folder: Path, text: str, files: dict[str, str | bytes] | None = None) -> list[str]:
    """The codes alone, in the order of the document."""
    return [problem.code for problem in problems(folder, text, files)]


def compile_problems(folder: Path, text: str, *settings: str, profile: str | None = None) -> list[FoundProblem]:
    """The problems of compiling a spec with a profile and settings."""
    result = compile_spec(write_project(folder, {"spec.yaml": agent(text)}), profile, settings)
    assert (result.package is None) == bool(result.errors)
    return [found_problem(problem, folder) for problem in sort_problems(result.problems)]


def remove_marks(text: str) -> tuple[str, list[str]]:
    """A text without its « signs, and the places (line:column) at which they stood."""
    places = []
    while (at := text.find("«")) >= 0:
        text = text[:at] + text[at + 1 :]
        places.append(f"{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}")
    return text, places
