"""Where what came of a suite goes: standard output, a file for CI systems, and GitHub."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from agentrun.cli.known import known
from agentrun.cli.show import colored, seen
from agentrun.cli.suite_end import Ended
from agentrun.cli.suite_output import put_line
from agentrun.testing.suite.runner import CaseResult


def print_case(result: CaseResult) -> None:
    """A case as a line of JSON."""
    more = {name: getattr(result, name) for name in ("written", "swept") if getattr(result, name) is not None}
    print_json({"case": msgspec.to_builtins(result.verdict) | msgspec.to_builtins(more)})


def print_json(data: dict[str, Any]) -> None:
    put_line(seen(msgspec.json.encode(known().redact_data(data)).decode()))


def report(ended: Ended, *, as_json: bool, quiet: bool, color: bool | None, junit: Path | None) -> None:
    """Tell everybody. The report in a file is written first: a pipe may break. If it cannot be written, what came of
    the suite is still told before that is."""
    try:
        if junit is not None:
            _write_junit(ended, junit)
    finally:
        _tell(ended, as_json=as_json, quiet=quiet, color=color)


def _tell(ended: Ended, *, as_json: bool, quiet: bool, color: bool | None) -> None:
    from agentrun.cli.suite_github import is_github, muted, noted

    on_github = is_github(os.environ)
    if as_json:
        print_json({"summary": ended.as_json()})
    else:
        from agentrun.cli.suite_told import told

        lines = told(ended, quiet=quiet, color=colored(sys.stdout) if color is None else color)
        put_line("\n".join(muted(lines) if on_github else lines))
    if on_github:
        for line in noted(ended, os.environ):
            put_line(line, err=as_json)
        _write_summary(ended)


def _write_junit(ended: Ended, path: Path) -> None:
    from agentrun.cli.suite_junit import junit
    from agentrun.cli.write import write_output
    from agentrun.distribution import version
    from agentrun.files import make_user_directory

    if str(path) != "-":
        make_user_directory(path.parent)
    write_output(path, junit(ended, version()), replaces=b"<?xml")


def _write_summary(ended: Ended) -> None:
    from agentrun.cli.suite_github import summary
    from agentrun.files import append_user_file

    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_user_file(Path(path), summary(ended).encode())
