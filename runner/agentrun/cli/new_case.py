"""A case that was recorded for the first time is written to the cases beside its spec.

Rule 1  What stands in the file stays as it is, comments too: the case is added at the end.
Rule 2  The file is read again under the project's lock: other processes add cases too.
Rule 3  What comes of it is parsed before it is written. If the new case is not just what was added, the file is
        left alone, and the lines to add are said; so it is if what all cases of the file have in common changes it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from agentrun.compiler.cases import cases_path, complete_cases, parse_cases, read_cases_file
from agentrun.compiler.spec_reader import Spec
from agentrun.spec.problems import DocumentError, Source
from agentrun.spec.source_files import display_path, read_source
from agentrun.spec.v1.cases import Case, CasesFile
from agentrun.store.lock import lock_project_files

_HEAD = 'agentrun: "1"\ncases:\n'


def lines_of(case: Case) -> str:
    """The case as it is written in a file."""
    given = {key: value for key, value in msgspec.to_builtins(case).items() if value not in ({}, [])}
    given = {"name": given.pop("name"), **({"input": given.pop("input")} if "input" in given else {}), **given}
    text: str = yaml.safe_dump([given], sort_keys=False, allow_unicode=True, default_flow_style=False, width=100)
    return "".join(f"  {line}\n" for line in text.splitlines())


def add_case(spec: Spec, case: Case) -> str | None:
    """Add a case to the cases of a spec. None: done; otherwise what the user has to add."""
    path = cases_path(spec.path)
    with lock_project_files(spec.project):
        before = read_source(path).text if path.exists() else _HEAD
        old = read_cases_file(path)[1].cases if path.exists() else []
        if case in old:
            return None
        if any(each.name == case.name for each in old):
            return f"not added: {display_path(path)} has another case {case.name} by now:\n{lines_of(case)}"
        after = before + ("" if before.endswith("\n") else "\n") + lines_of(case)
        now = _parse(path, after)
        if now is None or now.cases != [*old, case]:
            return f"add this to {display_path(path)}:\n{lines_of(case)}"
        if changed := _changed(complete_cases(now)[-1], case):
            return f"not added: the defaults of {display_path(path)} change its {', '.join(changed)}:\n{lines_of(case)}"
        spec.project.source_tree("cases").write(path, after.encode())
    return None


def _parse(path: Path, text: str) -> CasesFile | None:
    try:
        return parse_cases(Source(path, display_path(path), text), path)[1]
    except DocumentError:
        return None


def _changed(merged: Case, case: Case) -> list[str]:
    """What a case does not mean any more among the others of its file: it was recorded without that."""
    keys = ("params", "profile", "stubs", "clock", "faults")
    return [key for key in keys if getattr(merged, key) != getattr(case, key)]
