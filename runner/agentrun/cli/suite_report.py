"""Report the result of a suite: on standard output, as JUnit XML and to GitHub Actions.

The text has the failures, what changed, the counts, and the commands to run next.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from agentrun.cli.console import json_line, safe_text, wants_color, write_line
from agentrun.cli.suite_result import CHANGES_TITLE, LIVE_TITLE, UNUSED_SNAPSHOTS, SuiteResult
from agentrun.engine.approvals import HOW_TO_ANSWER
from agentrun.spec.safe_text import plural
from agentrun.testing.suite.failure_text import render_failure
from agentrun.testing.suite.runner import CaseResult
from agentrun.testing.suite.verdict import OWN_CASSETTE_HINT, CaseVerdict, Complaint


def print_case(result: CaseResult) -> None:
    more = {name: getattr(result, name) for name in ("written", "swept") if getattr(result, name) is not None}
    write_line(json_line({"case": msgspec.to_builtins(result.verdict) | msgspec.to_builtins(more)}))


def report_suite(
    suite_result: SuiteResult, *, as_json: bool, quiet: bool, color: bool | None, junit: Path | None
) -> None:
    """Write the JUnit file, then print the report. The report is printed even if the file cannot be written."""
    try:
        if junit is not None:
            _write_junit(suite_result, junit)
    finally:
        _print_report(suite_result, as_json=as_json, quiet=quiet, color=color)


def _print_report(suite_result: SuiteResult, *, as_json: bool, quiet: bool, color: bool | None) -> None:
    from agentrun.cli.suite_github import disable_commands, error_annotations, is_github

    on_github = is_github(os.environ)
    if as_json:
        write_line(json_line({"summary": suite_result.as_json()}))
    else:
        lines = report_lines(suite_result, quiet=quiet, color=wants_color(sys.stdout) if color is None else color)
        write_line("\n".join(disable_commands(lines) if on_github else lines))
    if on_github:
        for line in error_annotations(suite_result, os.environ):
            write_line(line, err=as_json)
        _write_summary(suite_result)


def _write_junit(suite_result: SuiteResult, path: Path) -> None:
    from agentrun.cli.output_file import write_output
    from agentrun.cli.suite_junit import junit_xml
    from agentrun.distribution import version
    from agentrun.files import make_user_directory

    if str(path) != "-":
        make_user_directory(path.parent)
    write_output(path, junit_xml(suite_result, version()), replaces=b"<?xml")


def _write_summary(suite_result: SuiteResult) -> None:
    from agentrun.cli.suite_github import summary_markdown
    from agentrun.files import append_user_file

    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_user_file(Path(path), summary_markdown(suite_result).encode())


MAX_NAMED_CASES = 3
"""If there are more cases, only their number is printed."""


def report_lines(suite_result: SuiteResult, *, quiet: bool, color: bool) -> Iterator[str]:
    yield from _failures(suite_result, color=color)
    yield from _notes(suite_result, color=color)
    if not quiet:
        yield from _skipped(suite_result)
    yield from _case_list(CHANGES_TITLE, suite_result.changes)
    yield from _snapshots(suite_result, color=color)
    yield from _recordings(suite_result)
    yield from _sweep_and_coverage(suite_result, color=color)
    yield from _case_list(LIVE_TITLE, suite_result.live)
    yield _paint(_counts_line(suite_result), color, fg="red" if suite_result.exit_code else "green", bold=True)
    yield from _advice(suite_result)


def _paint(text: str, color: bool, **style: Any) -> str:
    return click.style(text, **style) if color else text


def _failures(suite_result: SuiteResult, *, color: bool) -> Iterator[str]:
    counts: dict[Any, int] = {}
    for verdict in suite_result.verdicts:
        if not verdict.is_bad:
            continue
        if verdict.status == "unreadable":
            counts[verdict.complaints] = counts.get(verdict.complaints, 0) + 1
            if counts[verdict.complaints] > 1:
                continue
        yield _heading(verdict, color=color)
        yield from (f"  {_paint_diff_line(line, color=color)}".rstrip() for line in render_failure(verdict).split("\n"))
        yield ""
    for times in counts.values():
        if times > 1:
            yield f"{plural(times - 1, 'more case')} could not be run for the same reason"
            yield ""


def _notes(suite_result: SuiteResult, *, color: bool) -> Iterator[str]:
    """Recorded cases whose journal differs from the accepted snapshot."""
    for verdict in suite_result.verdicts:
        if verdict.notes:
            yield _heading(verdict, color=color, title="CHANGED", tint="yellow")
            text = render_failure(replace(verdict, complaints=verdict.notes))
            yield from (f"  {_paint_diff_line(line, color=color)}".rstrip() for line in text.split("\n"))
            yield ""


def _heading(verdict: CaseVerdict, *, color: bool, title: str | None = None, tint: str = "red") -> str:
    place = f"{safe_text(verdict.file)}:{verdict.line}"
    return f"{_paint(title or verdict.status.upper(), color, fg=tint, bold=True)}  {safe_text(verdict.id)}  ({place})"


def _paint_diff_line(line: str, *, color: bool) -> str:
    if line.startswith("  +"):
        return _paint(line, color, fg="green")
    return _paint(line, color, fg="red") if line.startswith("  -") else line


def _skipped(suite_result: SuiteResult) -> Iterator[str]:
    """Cases with `skip` or `xfail`, and their reasons."""
    found = False
    for verdict in suite_result.verdicts:
        if verdict.status in ("skipped", "xfailed"):
            found = True
            yield f"{verdict.status}  {safe_text(verdict.id)}  ({safe_text(verdict.reason or '')})"
    if found:
        yield ""


def _case_list(title: str, cases: dict[str, list[str]]) -> Iterator[str]:
    if cases:
        yield title
        yield from (f"  {safe_text(text)}  ({_join_case_ids(ids)})" for text, ids in cases.items())
        yield ""


def _join_case_ids(ids: list[str]) -> str:
    return ", ".join(map(safe_text, ids)) if len(ids) <= MAX_NAMED_CASES else plural(len(ids), "case")


def _snapshots(suite_result: SuiteResult, *, color: bool) -> Iterator[str]:
    written = [result.written for result in suite_result.results if result.written is not None]
    lines = [f"  {each.how:<8} {safe_text(each.path)}" for each in written]
    lines += [f"  {'removed':<8} {safe_text(path)}" for path in suite_result.removed]
    if lines:
        yield "Snapshots:"
        yield from lines
        yield ""
    if suite_result.unclaimed:
        yield _paint(UNUSED_SNAPSHOTS, color, fg="red")
        yield from (f"  {safe_text(path)}" for path in suite_result.unclaimed)
        yield ""


def _recordings(suite_result: SuiteResult) -> Iterator[str]:
    """What the recorded runs spent, and which of their tool calls failed."""
    if not suite_result.recorded:
        return
    yield f"Recording {plural(len(suite_result.recorded), 'case')} spent {suite_result.spent}."
    for each in suite_result.recorded:
        for call in each.failed_calls:
            yield f"  failed call  {safe_text(each.id)}  {safe_text(call)}"
    yield ""


def _sweep_and_coverage(suite_result: SuiteResult, *, color: bool) -> Iterator[str]:
    tried, endings = suite_result.sweep_counts
    if tried:
        ways = ", ".join(f"{count} {safe_text(how)}" for how, count in endings.items())
        yield f"Sweep: {plural(tried, 'fault')} injected; the runs ended: {ways}"
        yield ""
    if suite_result.coverage is not None:
        yield from (safe_text(line) for line in suite_result.coverage.text().split("\n"))
        if suite_result.is_below_min_coverage:
            percent, wanted = suite_result.coverage.percent, suite_result.min_coverage
            message = f"the coverage is {percent:g} %, less than --coverage-min {wanted:g}"
            yield _paint(message, color, fg="red")
        yield ""


def _counts_line(suite_result: SuiteResult) -> str:
    left = suite_result.cases - sum(verdict.id.count("::") for verdict in suite_result.verdicts)
    return f"{suite_result.counts_text}, {left} not run" if left > 0 else suite_result.counts_text


def _advice(suite_result: SuiteResult) -> Iterator[str]:
    """The commands that accept the changes."""
    bad = [verdict for verdict in suite_result.verdicts if verdict.status in ("failed", "missed")]
    journals = [
        v for v in suite_result.verdicts if any(each.claim == "journal-snapshot" for each in (*v.complaints, *v.notes))
    ]
    missed = [
        v for v in bad if any(wrong.claim.startswith("cassette.") and _can_record(wrong) for wrong in v.complaints)
    ]
    if journals or suite_result.unclaimed:
        what = "accept the new journals" if journals else "remove the unused snapshots"
        yield f"  → {what}: {_test_command(suite_result, [] if suite_result.unclaimed else journals)} --update"
    for how in ("new", "all"):
        if chosen := [verdict for verdict in missed if _record_option(verdict) == how]:
            yield f"  → record again: {_test_command(suite_result, chosen)} --record {how}"


def _record_option(verdict: CaseVerdict) -> str:
    """`new` keeps recorded tool results. It does not help if the cassette is damaged or a part of the run was live."""
    found = [
        wrong.claim == "cassette.damaged" or (wrong.hint or "").endswith("--record all") for wrong in verdict.complaints
    ]
    return "all" if any(found) else "new"


def _can_record(miss: Complaint) -> bool:
    """Whether recording the case helps. It does not if the case reuses another cassette, or if an approval had no
    answer."""
    return not (miss.hint or "").startswith((OWN_CASSETTE_HINT, HOW_TO_ANSWER))


def _test_command(suite_result: SuiteResult, verdicts: list[CaseVerdict]) -> str:
    """The command for these cases; if there are many, the command for all."""
    paths = [verdict.id for verdict in verdicts] if 0 < len(verdicts) <= MAX_NAMED_CASES else suite_result.paths
    return " ".join(["agentrun test", *(quote(safe_text(path)) for path in paths)])
