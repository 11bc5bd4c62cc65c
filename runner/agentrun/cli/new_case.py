"""A case that was recorded for the first time is written to the cases beside its spec.

Rule 1  What stands in the file stays as it is, comments too: the case is added at the end.
Rule 2  What comes of it is read again before it is written. If the new case is not just what was added, the file is
        left alone, and the lines to add are said; so it is if what all cases of the file have in common changes it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import yaml

from agentrun.compiler.cases import cases_path, read_cases, read_file
from agentrun.errors import StorageError
from agentrun.spec.files import shown_path
from agentrun.spec.problems import DocumentError
from agentrun.spec.v1.cases import Case

_HEAD = 'agentrun: "1"\ncases:\n'


def lines_of(case: Case) -> str:
    """The case as it is written in a file."""
    given = {key: value for key, value in msgspec.to_builtins(case).items() if value not in ({}, [])}
    given = {"name": given.pop("name"), **({"input": given.pop("input")} if "input" in given else {}), **given}
    text: str = yaml.safe_dump([given], sort_keys=False, allow_unicode=True, default_flow_style=False, width=100)
    return "".join(f"  {line}\n" for line in text.splitlines())


def add_case(spec: Path, case: Case) -> str | None:
    """Add a case to the cases of a spec. None: done; otherwise what the user has to add."""
    path = cases_path(spec)
    before = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    old = read_file(path)[1].cases if path.exists() else []
    after = before + ("" if before.endswith("\n") else "\n") + lines_of(case)
    trial = path.with_name(f".{path.name}.new")
    try:
        trial.write_text(after, encoding="utf-8")
        if not _holds(trial, [*old, case]):
            trial.unlink()
            return f"add this to {shown_path(path)}:\n{lines_of(case)}"
        if changed := _changed(read_cases(trial)[1][-1], case):
            trial.unlink()
            return f"not added: the defaults of {shown_path(path)} change its {', '.join(changed)}:\n{lines_of(case)}"
        os.replace(trial, path)
    except OSError as error:
        fields = {"path": "cases", "errno": error.errno}
        raise StorageError("storage.failed", f"{path} cannot be written: {error.strerror}", fields=fields) from error
    return None


def _holds(path: Path, cases: list[Case]) -> bool:
    try:
        return read_file(path)[1].cases == cases
    except DocumentError:
        return False


def _changed(merged: Case, case: Case) -> list[str]:
    """What a case does not mean any more among the others of its file: it was recorded without that."""
    keys = ("params", "profile", "stubs", "clock", "faults")
    return [key for key in keys if getattr(merged, key) != getattr(case, key)]
