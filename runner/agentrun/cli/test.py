"""`agentrun test [PATH...]`"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli import early_interrupts
from agentrun.cli.approval_options import approve_option, check_approve_option, yes_option
from agentrun.cli.completion import complete_tags
from agentrun.cli.console import json_option, print_stderr, safe_text
from agentrun.cli.options import check_file_name, live_options
from agentrun.credentials import hidden_secrets
from agentrun.engine.ci import in_ci
from agentrun.spec.safe_text import plural

if TYPE_CHECKING:
    from agentrun.cli.suite_progress import SuiteProgress
    from agentrun.cli.suite_result import SuiteResult
    from agentrun.testing.suite.coverage import CoverageCollector
    from agentrun.testing.suite.runner import CaseResult, SuiteOptions
    from agentrun.testing.suite.selection import CaseFilter, SelectedCases


MAX_WORKERS = 256
MAX_SHARDS = 10_000
MAX_REPEATS = 10_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def parse_workers(_: click.Context, __: click.Parameter, value: str) -> int:
    """`-n N|auto`"""
    if value == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _parse_whole_number(value, MAX_WORKERS)


def parse_repeat(_: click.Context, __: click.Parameter, value: str) -> int:
    """`--repeat R`"""
    return _parse_whole_number(value, MAX_REPEATS)


def parse_shard(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """`--shard I/N`"""
    if value is None:
        return None
    part, _slash, parts = value.partition("/")
    try:
        of = _parse_whole_number(parts, MAX_SHARDS)
        return _parse_whole_number(part, of), of
    except click.BadParameter:
        raise click.BadParameter(f"{value!r} is not I/N with I from 1 to N, such as 2/4") from None


def parse_percent(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """`--coverage-min PERCENT`"""
    if value is None:
        return None
    text = value.removesuffix("%").strip()
    digits = text.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit()) or float(text) > 100:
        raise click.BadParameter(f"{value!r} is not a number from 0 to 100")
    return float(text)


def parse_journal_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """`--add NAME`"""
    if value is not None:
        from agentrun.testing.suite.snapshots import JOURNAL_NAME_FORM, is_journal_name

        if not is_journal_name(value):
            raise click.BadParameter(f"{value!r} is not {JOURNAL_NAME_FORM}")
    return value


def _parse_whole_number(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise click.BadParameter(f"{text!r} is not a whole number from 1 to {most}")
    return int(text)


def refuse_conflicting_options(options: dict[str, Any]) -> None:
    """Raise click.UsageError for options that cannot be combined, or that must not be used in CI by accident."""
    _refuse_what_runs_cases_differently(options)
    if options["verbose"] and (options["quiet"] or options["as_json"]):
        why = "--quiet" if options["quiet"] else "--json, which has all details"
        raise click.UsageError(f"--verbose cannot be combined with {why}")
    if options["watch"] and in_ci():
        raise click.UsageError("--watch is not allowed in CI: it runs until Ctrl-C")
    for name in ("update", "record"):
        if options[name] and in_ci():
            raise click.UsageError(f"--{name} is not allowed in CI: run it on your machine and review the changes")
    live = [f"--{name.replace('_', '-')}" for name in ("record", "live_tools", "live_model") if options[name]]
    if len(live) > 1:
        raise click.UsageError(f"{live[0]} cannot be combined with {live[1]}")
    if options["add"] is not None and not options["update"]:
        raise click.UsageError("--add needs --update")
    if options["yes"] and not options["record"]:
        raise click.UsageError("--yes needs --record")
    if not live:
        if options["approve"] is not None:
            raise click.UsageError(
                "--approve needs --record, --live-tools or --live-model: a replay uses the recorded answers"
            )
        return
    check_approve_option(options["approve"])
    conflicts = {
        "-n": options["count"] > 1,
        "--sweep": options["sweep"],
        "--update": options["update"] and live[0] != "--record",
        "--repeat": options["repeat"] > 1 and live[0] == "--record",
    }
    if other := _first_used(conflicts):
        raise click.UsageError(f"{live[0]} cannot be combined with {other}: it runs each case once, for real")


def _refuse_what_runs_cases_differently(options: dict[str, Any]) -> None:
    """Refuse the options that have no meaning with `--list`, which runs nothing, or with `--watch`, which replays."""
    always = {
        "--update": options["update"],
        "--record": options["record"],
        "--live-tools": options["live_tools"],
        "--live-model": options["live_model"],
        "--sweep": options["sweep"],
        "--coverage": options["coverage"],
        "--coverage-min": options["coverage_min"] is not None,
        "--junit": options["junit"],
        "--repeat": options["repeat"] > 1,
    }
    with_list = {"-n": options["count"] > 1, "-x": options["fail_fast"], "-v": options["verbose"]}
    with_watch = {"--list": options["list_only"], "--lf": options["last_failed"], "--shard": options["shard"]}
    if options["watch"] and (other := _first_used(always | with_watch)):
        raise click.UsageError(f"--watch cannot be combined with {other}: it replays the cases that a change affects")
    if options["list_only"] and (other := _first_used(always | with_list)):
        raise click.UsageError(f"--list cannot be combined with {other}: it prints ids and runs no case")


def _first_used(options: dict[str, Any]) -> str | None:
    return next((name for name, is_used in options.items() if is_used), None)


@click.command("test")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-k", "keyword", metavar="EXPR", help="Select cases by id or tag: words with and, or, not and ( ).")
@click.option(
    "--tag",
    "tags",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_tags,
    help="Select cases with this tag; can be repeated.",
)
@click.option(
    "-n",
    "count",
    metavar="N|auto",
    default="1",
    show_default=True,
    callback=parse_workers,
    help="Run the cases in N processes. The output is the same.",
)
@click.option(
    "--shard", metavar="I/N", callback=parse_shard, help="Run part I of N; a hash of the id selects the cases."
)
@click.option(
    "--repeat", metavar="R", default="1", callback=parse_repeat, help="Run each case R times and compare the journals."
)
@click.option("--update", is_flag=True, help="Accept the new journals as snapshots. Not allowed in CI.")
@click.option(
    "--add",
    metavar="NAME",
    callback=parse_journal_name,
    help="With --update: accept the new journals in addition to the others, as CASE.NAME.journal.",
)
@live_options
@approve_option
@yes_option
@click.option("--sweep", is_flag=True, help="Inject every fault at every call and check the invariants.")
@click.option("--coverage", is_flag=True, help="Report which parts of the specs no case covers.")
@click.option("--coverage-min", metavar="PERCENT", callback=parse_percent, help="Fail if the coverage is lower.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_file_name,
    help="Write the results as JUnit XML, for CI systems.",
)
@click.option("-x", "--fail-fast", is_flag=True, help="Stop at the first case that does not pass.")
@click.option(
    "--lf", "last_failed", is_flag=True, help="Run only the cases that did not pass last time; if there are none, all."
)
@click.option("--list", "list_only", is_flag=True, help="Print the ids of the selected cases, and run nothing.")
@click.option("--watch", is_flag=True, help="After the run, wait for file changes and rerun the affected cases.")
@click.option("-q", "--quiet", is_flag=True, help="Print only failures, changes and counts.")
@click.option("-v", "--verbose", is_flag=True, help="Print the details of every case that does not pass.")
@click.option("--no-color", is_flag=True, help="Print no colours, even in a terminal.")
@json_option
def command(paths: tuple[str, ...], **options: Any) -> int:
    """Run test cases against their cassettes, offline, and report what the agents now do differently.

    PATH is a folder, a file of cases, a spec, or one case written FILE::NAME. Without PATH all cases below the working
    directory run. The progress goes to standard error; failures, changes and counts go to standard output. Cases that
    fail for the same reason are reported together; the details follow if only one case failed, or with -v.

    \b
    passed      every assertion is true
    failed      an assertion is false
    missed      the cassette is missing or out of date
    unreadable  the spec or the file of cases has mistakes
    skipped, xfailed   the case has `skip` or `xfail`

    \b
    Examples:
      agentrun test                                       run all cases
      agentrun test specs/support.yaml -k "refund and not retry"
      agentrun test specs/support.cases.yaml::default     run one case
      agentrun test -x                                    stop at the first failure
      agentrun test -v                                    show the details of every failure
      agentrun test --lf                                  run only what failed last time
      agentrun test --list -k refund                      print the ids of the cases, and run nothing
      agentrun test --watch specs/support.yaml            rerun the cases that a change affects; Ctrl-C stops
      agentrun test --update                              accept changed journals; then review the diff
      agentrun test --update --add other                  accept one more journal of a case, as CASE.other.journal
      agentrun test --record new -k refund                record what changed and keep recorded tool results
      agentrun test --record all --yes -k refund          record everything again, without asking
      agentrun test -n auto --junit report.xml            run in CI; add --shard 1/4 for one job of four
      agentrun test --sweep --coverage --coverage-min 80  inject faults, and require 80 % coverage

    Exit codes: 0 all passed, 1 an assertion failed, 3 a cassette is missing or out of date, 2 a file is unreadable. If
    several apply, the first of 1, 3 and 2 counts.
    """
    if not _is_live(options):
        hidden_secrets.ignore_environment()
    refuse_conflicting_options(options)
    paths = paths or (".",)
    if options["watch"]:
        from agentrun.cli.suite_watch import watch_suite

        return watch_suite(
            lambda: _select_suite(paths, options),
            lambda found: _run_suite(found, paths, options),
            as_json=options["as_json"],
            quiet=options["quiet"],
        )
    found = _select_suite(paths, options)
    if options["list_only"]:
        from agentrun.cli.suite_report import print_case_list

        return print_case_list(found, as_json=options["as_json"])
    return _run_suite(found, paths, options).exit_code


def _select_suite(paths: tuple[str, ...], options: dict[str, Any]) -> SelectedCases:
    from agentrun.testing.suite.selection import select_cases

    found = select_cases(paths, _selection_filter(options))
    _refuse_empty_selection(found, options)
    return _keep_last_failed(found, options) if options["last_failed"] else found


def _run_suite(found: SelectedCases, paths: tuple[str, ...], options: dict[str, Any]) -> SuiteResult:
    """Run the cases, remember which failed, and print the report."""
    from agentrun.cli.suite_progress import make_progress
    from agentrun.cli.suite_report import ReportFormat, report_suite
    from agentrun.cli.suite_result import SuiteResult
    from agentrun.testing.suite.selection import remember_failures

    color = False if options["no_color"] else None
    progress = make_progress(shown=not options["quiet"] and not options["as_json"], color=color)
    suite_result = SuiteResult(paths=paths, results=[], cases=len(found.cases), min_coverage=options["coverage_min"])
    if options["record"]:
        from agentrun.cli.suite_live import confirm_suite

        confirm_suite(found.cases, options, progress)
    _run_cases(found, suite_result, options, progress)
    for error in remember_failures(found.cases, suite_result.verdicts):
        print_stderr(f"--lf will not know these results: {safe_text(error.message)}")
    if not suite_result.was_interrupted:
        _handle_unused_snapshots(found, suite_result, update=options["update"])
    style = ReportFormat(as_json=options["as_json"], quiet=options["quiet"], verbose=options["verbose"], color=color)
    report_suite(suite_result, style, options["junit"])
    return suite_result


def _selection_filter(options: dict[str, Any]) -> CaseFilter:
    from agentrun.testing.suite.selection import CaseFilter, KeywordSyntaxError, parse_keyword

    try:
        fits = parse_keyword(options["keyword"]) if options["keyword"] else None
    except KeywordSyntaxError as wrong:
        raise click.UsageError(f"-k: {wrong}") from None
    return CaseFilter(keyword=fits, tags=frozenset(options["tags"]), shard=options["shard"])


def _refuse_empty_selection(found: SelectedCases, options: dict[str, Any]) -> None:
    """Raise click.UsageError if no case was selected. A shard may be empty."""
    if found.cases or found.unreadable or not found.seen or options["shard"]:
        return
    filters = {"-k": options["keyword"], "--tag": " or ".join(options["tags"])}
    words = " and ".join(f"{name} {value}" for name, value in filters.items() if value)
    raise click.UsageError(f"no case matches {words}; without it {plural(found.seen, 'case')} would run")


def _keep_last_failed(found: SelectedCases, options: dict[str, Any]) -> SelectedCases:
    from agentrun.testing.suite.selection import select_last_failed

    failed = select_last_failed(found)
    if failed.cases or not found.cases:
        return failed
    if not options["quiet"] and not options["as_json"]:
        print_stderr("--lf: none of these cases failed last time, so all are selected")
    return found


def _run_cases(
    found: SelectedCases, suite_result: SuiteResult, options: dict[str, Any], progress: SuiteProgress
) -> None:
    """Run the cases and report each one when it is done. After an interrupt the results so far are kept."""
    from agentrun.cli.suite_report import print_case
    from agentrun.cli.suite_result import redact_result
    from agentrun.testing.suite.coverage import CoverageCollector
    from agentrun.testing.suite.runner import relaxed_garbage_collection

    began, covering = monotonic(), CoverageCollector()
    mostly_waits = options["count"] > 1 or options["watch"] or _is_live(options)  # for workers, or for live runs
    progress.begin(len(found.cases))
    results = _case_results(found, suite_result, options, progress, covering)
    try:
        with (
            relaxed_garbage_collection(),
            _guard_stdout(options, progress),
            stop_on_signal(at_once=mostly_waits) as stop,
        ):
            for result in results:
                suite_result.results.append(redact_result(result))
                progress.end_case(result.verdict)
                if options["as_json"]:
                    print_case(suite_result.results[-1])
                suite_result.was_interrupted = stop.is_requested
                if suite_result.was_interrupted or (options["fail_fast"] and result.verdict.is_bad):
                    break
    except KeyboardInterrupt:
        suite_result.was_interrupted = True
    finally:
        results.close()
        progress.close()
        suite_result.seconds = monotonic() - began
    if _suite_options(options).coverage and not suite_result.was_interrupted:
        suite_result.coverage = covering.report()


def _case_results(
    found: SelectedCases,
    suite_result: SuiteResult,
    options: dict[str, Any],
    progress: SuiteProgress,
    covering: CoverageCollector,
) -> Generator[CaseResult, None, None]:
    from agentrun.testing.suite.runner import CaseResult, SuiteRunner

    yield from (CaseResult(verdict=verdict) for verdict in found.unreadable)
    orders, count = _suite_options(options), min(options["count"], len(found.cases))
    if count > 1 or options["watch"]:  # a new process imports the present code of assertions
        from agentrun.testing.suite.workers import Workers

        yield from Workers(found.cases, orders, count, covering).results()
        return
    play = None
    if _is_live(options):
        from agentrun.cli.suite_live import live_case_runner

        play = live_case_runner(options, progress, suite_result.add_recorded)
    suite = SuiteRunner(orders, play, covering)
    yield from map(suite.run_case, found.cases)


def _suite_options(options: dict[str, Any]) -> SuiteOptions:
    from agentrun.testing.suite.runner import SuiteOptions

    return SuiteOptions(
        update=options["update"],
        add=options["add"],
        require=options["require_tier"],
        repeat=options["repeat"],
        sweep=options["sweep"],
        coverage=options["coverage"] or options["coverage_min"] is not None,
    )


def _is_live(options: dict[str, Any]) -> bool:
    return bool(options["record"] or options["live_tools"] or options["live_model"])


def _guard_stdout(options: dict[str, Any], progress: SuiteProgress) -> AbstractContextManager[None]:
    if not _is_live(options):
        return nullcontext()
    from agentrun.cli.suite_live import guard_suite_stdout

    return guard_suite_stdout(progress)


def _handle_unused_snapshots(found: SelectedCases, suite_result: SuiteResult, *, update: bool) -> None:
    """Remove snapshots that no case uses with `--update`, or report them. Report paths to ignore that match nothing."""
    from agentrun.spec.source_files import display_path
    from agentrun.testing.suite.snapshots import find_unmatched_paths, find_unused_snapshots, remove_snapshot

    for case, path in find_unused_snapshots(found.complete_files):
        if update:
            remove_snapshot(case, path)
            suite_result.removed.append(display_path(path))
        else:
            suite_result.unused_snapshots.append(display_path(path))
    ignored = {verdict.id: verdict.ignored for verdict in suite_result.verdicts}
    for file, field_path in find_unmatched_paths(found.complete_files, ignored):
        suite_result.unmatched_paths.append((display_path(file), field_path))


class StopSignal:
    """Ctrl-C while a suite runs. The first one stops after the current case, so that the results are reported."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self.is_requested = False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._at_once or self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True


@contextmanager
def stop_on_signal(*, at_once: bool) -> Iterator[StopSignal]:
    """Handle signals inside the context. Outside the main thread nothing is handled, because Python forbids it."""
    stop = StopSignal(at_once=at_once)
    try:
        before = [(number, signal.signal(number, stop.handle)) for number in _SIGNALS]
    except ValueError:
        before = []
    try:
        if early_interrupts:
            early_interrupts.clear()
            raise KeyboardInterrupt
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
