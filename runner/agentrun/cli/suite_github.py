"""A suite on GitHub Actions: an annotation for each case that is not well, and a table for the summary of the step.

Rule 1  Only what is written here is a command to the runner: in everything else commands are off.
Rule 2  Model and tool text is data: it is escaped for where it stands, and mentions nobody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from secrets import token_hex

from agentrun.cli.show import clean
from agentrun.cli.suite_end import Ended
from agentrun.testing.suite.verdict import CaseVerdict

MOST_ROWS = 200
LONGEST = 300
"""Characters of what is said of one case in the table."""
_MARKUP = re.compile(r"([\\`*_{}\[\]#+!|<>~$&@:])")


def is_github(environment: Mapping[str, str]) -> bool:
    return environment.get("GITHUB_ACTIONS") == "true"


def muted(lines: Iterator[str]) -> Iterator[str]:
    """Lines in which nothing is a command: a model may have written one."""
    token = token_hex(16)
    yield f"::stop-commands::{token}"
    yield from lines
    yield f"::{token}::"


def noted(ended: Ended, environment: Mapping[str, str]) -> Iterator[str]:
    """One for each case that is not well, and for each snapshot that no case claims."""
    for verdict in ended.verdicts:
        if verdict.is_bad:
            wrong = verdict.complaints[0]
            text = "\n".join(f"{each.claim}: {clean(each.message)}" for each in verdict.complaints)
            hint = f"\n→ {clean(wrong.hint)}" if wrong.hint else ""
            title = f"{verdict.status}: {verdict.id.partition('::')[2] or verdict.id}"
            yield _command(verdict.file, verdict.line, title, text + hint, environment)
    for path in ended.unclaimed:
        yield _command(path, 1, "unused snapshot", "no case claims this snapshot", environment)


def _command(file: str, line: int, title: str, text: str, environment: Mapping[str, str]) -> str:
    given = {"file": _from_root(file, environment), "line": str(line), "title": clean(title)}
    properties = ",".join(f"{name}={_property(value)}" for name, value in given.items())
    return f"::error {properties}::{_data(text)}"


def _from_root(file: str, environment: Mapping[str, str]) -> str:
    """The file as the repository has it: the step may run in a folder of it."""
    root = environment.get("GITHUB_WORKSPACE")
    full = Path(os.path.abspath(file))
    return full.relative_to(root).as_posix() if root and full.is_relative_to(root) else file


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(ended: Ended) -> str:
    """Markdown: the counts, what changed, and the cases that are not well."""
    counts = ", ".join(f"{count} {status}" for status, count in ended.counts.items()) or "no cases"
    lines = ["### agentrun test", "", _escaped(counts), ""]
    if ended.changes:
        lines += ["What is different now:", ""]
        lines += [f"- {_escaped(text)} ({len(ids)})" for text, ids in list(ended.changes.items())[:MOST_ROWS]]
        lines.append("")
    if ended.live:
        lines += ["Live assertions (network: true), not replayed:", ""]
        lines += [f"- {_escaped(function)} ({len(ids)})" for function, ids in list(ended.live.items())[:MOST_ROWS]]
        lines.append("")
    bad = [verdict for verdict in ended.verdicts if verdict.is_bad]
    if bad:
        lines += ["| case | verdict | why |", "| --- | --- | --- |", *map(_row, bad[:MOST_ROWS])]
        lines += [f"| {len(bad) - MOST_ROWS} more | | |"] if len(bad) > MOST_ROWS else []
        lines.append("")
    if ended.unclaimed:
        lines += ["Snapshots that no case claims:", "", *(f"- {_escaped(path)}" for path in ended.unclaimed), ""]
    if ended.coverage is not None:
        lines += [f"Coverage: {ended.coverage.percent:g} %", ""]
    return "\n".join(lines) + "\n"


def _row(verdict: CaseVerdict) -> str:
    why = "; ".join(f"{wrong.claim}: {wrong.message}" for wrong in verdict.complaints)
    return f"| {_escaped(verdict.id)} | {verdict.status} | {_escaped(why)} |"


def _escaped(text: str) -> str:
    """Text that is nothing but text in Markdown, on one line."""
    shown = clean(" ".join(text.split()))
    shown = shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
    return _MARKUP.sub(lambda sign: f"&#{ord(sign[1])};", shown)
