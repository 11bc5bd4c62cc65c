"""`agentrun test [PATH...]`"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.approval_options import approve_option, check_approve_option, yes_option
from agentrun.cli.console import json_option
from agentrun.cli.options import check_file_name
from agentrun.engine.ci import in_ci

if TYPE_CHECKING:
    from agentrun.cli.suite_progress import SuiteProgress
    from agentrun.cli.suite_result import SuiteResult
    from agentrun.testing.suite.coverage import CoverageCollector
    from agentrun.testing.suite.runner import CaseResult, SuiteOptions
    from agentrun.testing.suite.selection import CaseFilter, SelectedCases


# --- options of `agentrun test`: what they may be, and which do not go together -------------------------------


MAX_WORKERS = 256
MAX_SHARDS = 10_000
MAX_REPEATS = 10_000


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


def parse_record_option(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """`--record new|all|from:N`"""
    if value is None or value in ("new", "all"):
        return value
    word, _colon, number = value.partition(":")
    if word != "from" or not (number.isascii() and number.isdigit()) or int(number[:9]) < 1:
        raise click.BadParameter("it is new, all or from:N, where N is the number of an interaction from 1")
    return value


def _parse_whole_number(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise click.BadParameter(f"{text!r} is not a whole number from 1 to {most}")
    return int(text)


def refuse_conflicting_options(options: dict[str, Any]) -> None:
    """Raises click.UsageError for what does not go together, and for what must not happen in CI by accident."""
    for name in ("update", "record"):
        if options[name] and in_ci():
            raise click.UsageError(
                f"--{name} does nothing with CI set: what a suite is judged by is changed by people, who look at it"
            )
    live = [f"--{name.replace('_', '-')}" for name in ("record", "live_tools", "live_model") if options[name]]
    if len(live) > 1:
        raise click.UsageError(f"{' and '.join(live)} do not go together")
    if options["yes"] and not options["record"]:
        raise click.UsageError("--yes goes with --record")
    if not live:
        if options["approve"] is not None:
            raise click.UsageError(
                "--approve goes with --record, --live-tools or --live-model: a replay has its answers"
            )
        return
    check_approve_option(options["approve"])
    if options["count"] > 1:
        raise click.UsageError(f"{live[0]} runs for real, one case after the other: not with -n")
    if options["sweep"]:
        raise click.UsageError(f"--sweep is for replays, not for {live[0]}")
    if live[0] != "--record" and options["update"]:
        raise click.UsageError(f"--update is for replays, not for {live[0]}")
    if live[0] == "--record" and options["repeat"] > 1:
        raise click.UsageError("--record records once: not with --repeat")


# --- `agentrun test [PATH...]` --------------------------------------------------------------------------------


@click.command("test")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-k", "keyword", metavar="EXPR", help="Only cases whose id or tags fit: words with and, or, not, ( ).")
@click.option("--tag", "tags", metavar="NAME", multiple=True, help="Only cases with this tag; again: or that one.")
@click.option(
    "-n",
    "count",
    metavar="N|auto",
    default="1",
    show_default=True,
    callback=parse_workers,
    help="Run in so many processes. The output is the same.",
)
@click.option(
    "--shard", metavar="I/N", callback=parse_shard, help="Only the I-th of N parts, made by a hash of each case's id."
)
@click.option(
    "--repeat", metavar="R", default="1", callback=parse_repeat, help="Run each case R times: all must be equal."
)
@click.option("--update", is_flag=True, help="Accept the journals as they are now. Never with CI set.")
@click.option(
    "--record",
    metavar="new|all|from:N",
    callback=parse_record_option,
    help="Record the cases: what the tapes lack, everything, or from interaction N on. Never with CI set.",
)
@click.option("--live-tools", is_flag=True, help="Replay the model, run the tools for real.")
@click.option("--live-model", is_flag=True, help="Replay the tools, ask the model for real.")
@approve_option("A case's own answers come before these, but never with --live-tools.")
@yes_option
@click.option(
    "--require-tier",
    type=click.Choice(["exact", "normalised"]),
    default="normalised",
    show_default=True,
    help="The weakest match of a request with the tape that counts.",
)
@click.option("--sweep", is_flag=True, help="Put every fault at every place of each case: what must hold always?")
@click.option("--coverage", is_flag=True, help="Say which parts of the specs no case exercises.")
@click.option("--coverage-min", metavar="PERCENT", callback=parse_percent, help="Fail if less than this is covered.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_file_name,
    help="Write the verdicts as JUnit XML, for CI systems.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first case that is not well.")
@click.option("-q", "--quiet", is_flag=True, help="No progress: only what is wrong, what changed, and the counts.")
@click.option("--no-color", is_flag=True, help="No colours, also in a terminal.")
@json_option
def command(paths: tuple[str, ...], **options: Any) -> int:
    """Run cases against their recordings, offline, and say what their agents now do differently.

    PATH is a folder, a file of cases, the spec beside one, or one case, FILE::NAME; absent: all that is in the working
    directory. Progress goes to standard error; what is wrong, what changed and the counts to standard output.

    \b
    passed      all that it claims holds
    failed      something it claims does not
    missed      its recording does not fit any more, or there is none
    unreadable  its spec or its file is wrong
    skipped, xfailed   as the case itself says

    \b
    Examples:
      agentrun test                                       all cases here
      agentrun test specs/support.yaml -k "refund and not retry"
      agentrun test specs/support.cases.yaml::default     one case
      agentrun test --update                              accept journals that changed, look at the diff
      agentrun test --record new -k refund                record what changed, keep recorded tool results, judge
      agentrun test --record all --yes -k refund          record all of it again, without a question
      agentrun test -n auto --junit report.xml            for CI; --shard 1/4 for one job of four
      agentrun test --sweep --coverage --coverage-min 80  what must always hold, and what no case shows

    Exit codes: 0 all well, 1 an assertion failed, else 3 a recording does not fit, else 2 something cannot be read.
    """
    from agentrun.testing.suite.selection import select_cases

    refuse_conflicting_options(options)
    paths = paths or (".",)
    found = select_cases(paths, _selection_filter(options))
    _refuse_empty_selection(found, options)
    from agentrun.cli.suite_progress import make_progress
    from agentrun.cli.suite_report import report_suite
    from agentrun.cli.suite_result import SuiteResult

    color = False if options["no_color"] else None
    progress = make_progress(shown=not options["quiet"] and not options["as_json"], color=color)
    suite_result = SuiteResult(paths=paths, results=[], cases=len(found.cases), min_coverage=options["coverage_min"])
    if options["record"]:
        from agentrun.cli.suite_live import confirm_suite

        confirm_suite(found.cases, options, progress)
    _run_cases(found, suite_result, options, progress)
    if not suite_result.was_interrupted:
        _handle_unclaimed(found, suite_result, update=options["update"])
    report_suite(suite_result, as_json=options["as_json"], quiet=options["quiet"], color=color, junit=options["junit"])
    return suite_result.exit_code


def _selection_filter(options: dict[str, Any]) -> CaseFilter:
    from agentrun.testing.suite.selection import CaseFilter, KeywordSyntaxError, parse_keyword

    try:
        fits = parse_keyword(options["keyword"]) if options["keyword"] else None
    except KeywordSyntaxError as wrong:
        raise click.UsageError(f"-k: {wrong}") from None
    return CaseFilter(keyword=fits, tags=frozenset(options["tags"]), shard=options["shard"])


def _refuse_empty_selection(found: SelectedCases, options: dict[str, Any]) -> None:
    """A selection that selects nothing is a slip of the hand; an empty shard is not."""
    if found.cases or found.unreadable or not found.seen or options["shard"]:
        return
    given = {"-k": options["keyword"], "--tag": " or ".join(options["tags"])}
    words = " and ".join(f"{name} {value}" for name, value in given.items() if value)
    raise click.UsageError(f"none of {found.seen} cases fits {words}")


def _run_cases(
    found: SelectedCases, suite_result: SuiteResult, options: dict[str, Any], progress: SuiteProgress
) -> None:
    """Run the cases; each is told as its turn comes. An interrupt ends it with what is known so far."""
    from agentrun.cli.suite_report import print_case
    from agentrun.cli.suite_result import redact_result
    from agentrun.testing.suite.coverage import CoverageCollector
    from agentrun.testing.suite.runner import relaxed_garbage_collection

    began, covering = monotonic(), CoverageCollector()
    progress.begin(len(found.cases))
    results = _case_results(found, suite_result, options, progress, covering)
    try:
        with (
            relaxed_garbage_collection(),
            _guard_stdout(options, progress),
            stop_on_signal(at_once=_mostly_waits(options)) as stop,
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
    if count > 1:
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
        require=options["require_tier"],
        repeat=options["repeat"],
        sweep=options["sweep"],
        coverage=options["coverage"] or options["coverage_min"] is not None,
    )


def _mostly_waits(options: dict[str, Any]) -> bool:
    """Whether this process mostly waits: for others, or for what is real."""
    return options["count"] > 1 or _is_live(options)


def _is_live(options: dict[str, Any]) -> bool:
    return bool(options["record"] or options["live_tools"] or options["live_model"])


@contextmanager
def _guard_stdout(options: dict[str, Any], progress: SuiteProgress) -> Iterator[None]:
    """Standard output for the report alone, also while tools run in this process."""
    if not _is_live(options):
        yield
        return
    from agentrun.cli.suite_live import guard_suite_stdout

    with guard_suite_stdout(progress):
        yield


def _handle_unclaimed(found: SelectedCases, suite_result: SuiteResult, *, update: bool) -> None:
    """Snapshots that no case claims: removed when journals are accepted, else told."""
    from agentrun.spec.source_files import display_path
    from agentrun.testing.suite.snapshots import find_unused_snapshots, remove_snapshot

    for case, path in find_unused_snapshots(found.complete_files):
        if update:
            remove_snapshot(case, path)
            suite_result.removed.append(display_path(path))
        else:
            suite_result.unclaimed.append(display_path(path))


# --- ctrl-C while a suite runs: what is known by then is told -------------------------------------------------


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self.is_requested = False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._at_once or self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True


@contextmanager
def stop_on_signal(*, at_once: bool) -> Iterator[StopSignal]:
    """Listens to signals. Not in a thread, where there are none to hear."""
    stop = StopSignal(at_once=at_once)
    try:
        before = [(number, signal.signal(number, stop.handle)) for number in _SIGNALS]
    except ValueError:
        before = []
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
