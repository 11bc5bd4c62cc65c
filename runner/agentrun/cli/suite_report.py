"""Report the result of a suite: on standard output, as JUnit XML and to GitHub Actions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from shlex import quote
from typing import Any

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentrun.cli.console import json_line, safe_text, wants_color, write_line, write_output
from agentrun.cli.suite_result import (
    ACCEPTED_JOURNALS,
    CHANGED_TOOLS_TITLE,
    CHANGES_TITLE,
    LIVE_TITLE,
    UNMATCHED_PATHS,
    UNUSED_SNAPSHOTS,
    SuiteResult,
)
from agentrun.engine.approvals import HOW_TO_ANSWER
from agentrun.spec.safe_text import plural
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.causes import Cause
from agentrun.testing.suite.failure_text import render_failure
from agentrun.testing.suite.runner import CaseResult
from agentrun.testing.suite.selection import SelectedCases
from agentrun.testing.suite.verdict import OWN_CASSETTE_HINT, CaseFailure, CaseVerdict, suite_exit_code

MAX_CAUSES = 8
"""If there are more causes, the rest is printed only with `-v`."""
_JOURNAL = {"journal-snapshot"}
MAX_NAMED_CASES = 3
"""If there are more cases, only their number is printed."""


def print_case_list(found: SelectedCases, *, as_json: bool) -> int:
    """Print the selected cases and the problems of unreadable files, and return the exit code."""
    for located in found.cases:
        data = {"id": located.id, "file": display_path(located.file), "line": located.line, "tags": located.case.tags}
        write_line(json_line({"case": data}) if as_json else safe_text(located.id))
    for verdict in found.unreadable:
        if as_json:
            write_line(json_line({"case": msgspec.to_builtins(verdict)}))
        else:
            write_line("\n".join(safe_text(line) for line in render_failure(verdict).split("\n")), err=True)
    return suite_exit_code(list(found.unreadable))


def print_case(result: CaseResult) -> None:
    more = {
        name: getattr(result, name) for name in ("written", "unwritten", "swept") if getattr(result, name) is not None
    }
    write_line(json_line({"case": msgspec.to_builtins(result.verdict) | msgspec.to_builtins(more)}))


class ReportFormat(Struct, frozen=True, kw_only=True):
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    """Whether the details of all cases are printed, and not only those of a single one."""
    color: bool | None = None
    """None: as the terminal wants."""


def report_suite(suite_result: SuiteResult, style: ReportFormat, junit: Path | None) -> None:
    """Write the JUnit file, then print the report. The report is printed even if the file cannot be written."""
    try:
        if junit is not None:
            _write_junit(suite_result, junit)
    finally:
        _print_report(suite_result, style)


def _print_report(suite_result: SuiteResult, style: ReportFormat) -> None:
    from agentrun.cli.suite_ci import disable_commands, error_annotations, is_github

    on_github = is_github(os.environ)
    if style.as_json:
        write_line(json_line({"summary": suite_result.as_json()}))
    else:
        lines = report_lines(suite_result, style, color=wants_color(sys.stdout) if style.color is None else style.color)
        write_line("\n".join(disable_commands(lines) if on_github else lines))
    if on_github:
        for line in error_annotations(suite_result, os.environ):
            write_line(line, err=style.as_json)
        _write_summary(suite_result)


def _write_junit(suite_result: SuiteResult, path: Path) -> None:
    from agentrun.cli.suite_ci import junit_xml
    from agentrun.distribution import version
    from agentrun.files import make_user_directory

    if str(path) != "-":
        make_user_directory(path.parent)
    write_output(path, junit_xml(suite_result, version()), replaces=b"<?xml")


def _write_summary(suite_result: SuiteResult) -> None:
    from agentrun.cli.suite_ci import summary_markdown
    from agentrun.files import append_user_file

    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_user_file(Path(path), summary_markdown(suite_result).encode())


def report_lines(suite_result: SuiteResult, style: ReportFormat, *, color: bool) -> Iterator[str]:
    """The causes, each with its cases, then the details of a single failure, or with `verbose` of all."""
    bad = [verdict for verdict in suite_result.verdicts if verdict.is_bad]
    has_details = style.verbose or len(bad) <= 1
    # The details of a single case begin with its failures, so they are not listed twice.
    causes = [cause for cause in suite_result.causes if cause.is_change or len(bad) > 1]
    yield from _causes(causes, color=color, has_details=has_details, is_cut=not style.verbose)
    if has_details:
        yield from _failures(bad, color=color)
    yield from _notes(suite_result, verbose=style.verbose, color=color)
    if not style.quiet:
        yield from _skipped(suite_result)
    yield from _case_list(CHANGES_TITLE, suite_result.accepted_changes)
    yield from _case_list(CHANGED_TOOLS_TITLE, suite_result.changed_tools)
    yield from _snapshots(suite_result, color=color)
    yield from _recordings(suite_result)
    yield from _sweep_and_coverage(suite_result, color=color)
    yield from _case_list(LIVE_TITLE, suite_result.live)
    yield _paint(_counts_line(suite_result), color, fg="red" if suite_result.exit_code else "green", bold=True)
    yield from _advice(suite_result)
    if not has_details:
        yield f"  → details of each case: {_test_command(suite_result, bad)} -v"


def _paint(text: str, color: bool, **style: Any) -> str:
    return click.style(text, **style) if color else text


def _causes(causes: list[Cause], *, color: bool, has_details: bool, is_cut: bool) -> Iterator[str]:
    """The causes without the details that follow. The cases are named once for neighbours with the same cases."""
    listed = causes[:MAX_CAUSES] if is_cut else causes
    for cause, following in zip_longest(listed, listed[1:]):
        yield _paint(safe_text(cause.heading), color, fg="red", bold=True)
        if has_details:
            continue
        yield from (f"  {safe_text(line)}".rstrip() for line in cause.lines)
        yield from (f"  → {safe_text(line)}" for line in (cause.hint or "").splitlines())
        if following is None or following.verdicts != cause.verdicts:
            yield from (f"  {safe_text(line)}" for line in cause.case_lines)
            yield ""
    if len(causes) > len(listed):
        yield f"{plural(len(causes) - len(listed), 'more difference')}: add -v"
        yield ""
    elif causes and has_details:
        yield ""


def _failures(bad: list[CaseVerdict], *, color: bool) -> Iterator[str]:
    counts: dict[Any, int] = {}
    for verdict in bad:
        if verdict.status == "unreadable":
            counts[verdict.failures] = counts.get(verdict.failures, 0) + 1
            if counts[verdict.failures] > 1:
                continue
        yield _heading(verdict, color=color)
        yield from (f"  {_paint_diff_line(line, color=color)}".rstrip() for line in render_failure(verdict).split("\n"))
        yield ""
    for times in counts.values():
        if times > 1:
            yield f"{plural(times - 1, 'more case')} could not be run for the same reason"
            yield ""


def _notes(suite_result: SuiteResult, *, verbose: bool, color: bool) -> Iterator[str]:
    """A single recorded case whose journal differs from the accepted snapshot, or with `verbose` all of them."""
    changed = [verdict for verdict in suite_result.verdicts if verdict.notes]
    for verdict in changed if verbose or len(changed) == 1 else ():
        yield _heading(verdict, color=color, title="CHANGED", tint="yellow")
        text = render_failure(replace(verdict, failures=verdict.notes))
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
    kept = [result.unwritten for result in suite_result.results if result.unwritten is not None]
    lines += [f"  not written: {safe_text(each.path)}, because {safe_text(each.why)}" for each in kept]
    if lines:
        yield "Snapshots:"
        yield from lines
        yield ""
    if suite_result.unused_snapshots:
        yield _paint(UNUSED_SNAPSHOTS, color, fg="red")
        yield from (f"  {safe_text(path)}" for path in suite_result.unused_snapshots)
        yield ""
    matches = [(verdict.id, verdict.snapshot) for verdict in suite_result.verdicts if verdict.snapshot is not None]
    if several := [(case, match) for case, match in matches if match.others]:
        yield ACCEPTED_JOURNALS
        yield from (f"  {safe_text(case)}  {safe_text(match.text)}" for case, match in several)
        yield ""
    if suite_result.unmatched_paths:
        yield UNMATCHED_PATHS
        yield from (f"  {safe_text(path)}  ({safe_text(file)})" for file, path in suite_result.unmatched_paths)
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
    bad = [verdict for verdict in suite_result.verdicts if verdict.status in ("failed", "missed")]
    # `--update` accepts no journal of a case with another failure.
    journals = [v for v in suite_result.verdicts if {each.assertion for each in (*v.failures, *v.notes)} == _JOURNAL]
    missed = [
        v for v in bad if any(wrong.assertion.startswith("cassette.") and _can_record(wrong) for wrong in v.failures)
    ]
    if journals or suite_result.unused_snapshots:
        what = "accept the new journals" if journals else "remove the unused snapshots"
        yield f"  → {what}: {_test_command(suite_result, [] if suite_result.unused_snapshots else journals)} --update"
    for how in ("new", "all"):
        if chosen := [verdict for verdict in missed if _record_option(verdict) == how]:
            yield f"  → record again: {_test_command(suite_result, chosen)} --record {how}"


def _record_option(verdict: CaseVerdict) -> str:
    """`new` keeps recorded tool results. It does not help if the cassette is damaged or a part of the run was live."""
    found = [
        wrong.assertion == "cassette.damaged" or (wrong.hint or "").endswith("--record all")
        for wrong in verdict.failures
    ]
    return "all" if any(found) else "new"


def _can_record(miss: CaseFailure) -> bool:
    """Whether recording the case helps. It does not if the case reuses another cassette, or if an approval had no
    answer."""
    return not (miss.hint or "").startswith((OWN_CASSETTE_HINT, HOW_TO_ANSWER))


def _test_command(suite_result: SuiteResult, verdicts: list[CaseVerdict]) -> str:
    """The command for these cases; if there are many, the command for all."""
    paths = [verdict.id for verdict in verdicts] if 0 < len(verdicts) <= MAX_NAMED_CASES else suite_result.paths
    return " ".join(["agentrun test", *(quote(safe_text(path)) for path in paths)])
