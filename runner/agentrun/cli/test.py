"""`agentrun test [PATH...]`"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.approve import approve_option
from agentrun.cli.consent import yes_option
from agentrun.cli.options import file_name
from agentrun.cli.show import json_option
from agentrun.cli.suite_options import numbered, percent, record_how, refuse_mixtures, shard, workers

if TYPE_CHECKING:
    from agentrun.cli.suite_end import Ended
    from agentrun.cli.suite_progress import Progress
    from agentrun.testing.suite.coverage import CoverageCollector
    from agentrun.testing.suite.runner import CaseResult, SuiteOptions
    from agentrun.testing.suite.selection import CaseFilter, SelectedCases


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
    callback=workers,
    help="Run in so many processes. The output is the same.",
)
@click.option(
    "--shard", metavar="I/N", callback=shard, help="Only the I-th of N parts, made by a hash of each case's id."
)
@click.option("--repeat", metavar="R", default="1", callback=numbered, help="Run each case R times: all must be equal.")
@click.option("--update", is_flag=True, help="Accept the journals as they are now. Never with CI set.")
@click.option(
    "--record",
    metavar="new|all|from:N",
    callback=record_how,
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
@click.option("--coverage-min", metavar="PERCENT", callback=percent, help="Fail if less than this is covered.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=file_name,
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

    refuse_mixtures(options)
    paths = paths or (".",)
    found = select_cases(paths, _picks(options))
    _refuse_nothing(found, options)
    from agentrun.cli.suite_end import Ended
    from agentrun.cli.suite_progress import progress_for
    from agentrun.cli.suite_report import report

    color = False if options["no_color"] else None
    progress = progress_for(shown=not options["quiet"] and not options["as_json"], color=color)
    ended = Ended(paths=paths, results=[], cases=len(found.cases), least=options["coverage_min"])
    if options["record"]:
        from agentrun.cli.suite_live import confirm_suite

        confirm_suite(found.cases, options, progress)
    _carry_out(found, ended, options, progress)
    if not ended.was_interrupted:
        _clear_away(found, ended, update=options["update"])
    report(ended, as_json=options["as_json"], quiet=options["quiet"], color=color, junit=options["junit"])
    return ended.exit_code


def _picks(options: dict[str, Any]) -> CaseFilter:
    from agentrun.testing.suite.selection import CaseFilter, KeywordSyntaxError, parse_keyword

    try:
        fits = parse_keyword(options["keyword"]) if options["keyword"] else None
    except KeywordSyntaxError as wrong:
        raise click.UsageError(f"-k: {wrong}") from None
    return CaseFilter(keyword=fits, tags=frozenset(options["tags"]), shard=options["shard"])


def _refuse_nothing(found: SelectedCases, options: dict[str, Any]) -> None:
    """A selection that selects nothing is a slip of the hand; an empty shard is not."""
    if found.cases or found.unreadable or not found.seen or options["shard"]:
        return
    given = {"-k": options["keyword"], "--tag": " or ".join(options["tags"])}
    words = " and ".join(f"{name} {value}" for name, value in given.items() if value)
    raise click.UsageError(f"none of {found.seen} cases fits {words}")


def _carry_out(found: SelectedCases, ended: Ended, options: dict[str, Any], progress: Progress) -> None:
    """Run the cases; each is told as its turn comes. An interrupt ends it with what is known so far."""
    from agentrun.cli.suite_end import cleaned
    from agentrun.cli.suite_report import print_case
    from agentrun.cli.suite_stop import stopping
    from agentrun.testing.suite.coverage import CoverageCollector
    from agentrun.testing.suite.runner import relaxed_garbage_collection

    began, covering = monotonic(), CoverageCollector()
    progress.begin(len(found.cases))
    results = _results(found, ended, options, progress, covering)
    try:
        with relaxed_garbage_collection(), _own_output(options, progress), stopping(at_once=_waits(options)) as stop:
            for result in results:
                ended.results.append(cleaned(result))
                progress.ended(result.verdict)
                if options["as_json"]:
                    print_case(ended.results[-1])
                ended.was_interrupted = stop.is_asked
                if ended.was_interrupted or (options["fail_fast"] and result.verdict.is_bad):
                    break
    except KeyboardInterrupt:
        ended.was_interrupted = True
    finally:
        results.close()
        progress.close()
        ended.seconds = monotonic() - began
    if _orders(options).coverage and not ended.was_interrupted:
        ended.coverage = covering.report()


def _results(
    found: SelectedCases, ended: Ended, options: dict[str, Any], progress: Progress, covering: CoverageCollector
) -> Generator[CaseResult, None, None]:
    from agentrun.testing.suite.runner import CaseResult, SuiteRunner

    yield from (CaseResult(verdict=verdict) for verdict in found.unreadable)
    orders, count = _orders(options), min(options["count"], len(found.cases))
    if count > 1:
        from agentrun.testing.suite.workers import Workers

        yield from Workers(found.cases, orders, count, covering).results()
        return
    play = None
    if _is_live(options):
        from agentrun.cli.suite_live import live_play

        play = live_play(options, progress, ended.add_recorded)
    suite = SuiteRunner(orders, play, covering)
    yield from map(suite.run_case, found.cases)


def _orders(options: dict[str, Any]) -> SuiteOptions:
    from agentrun.testing.suite.runner import SuiteOptions

    return SuiteOptions(
        update=options["update"],
        require=options["require_tier"],
        repeat=options["repeat"],
        sweep=options["sweep"],
        coverage=options["coverage"] or options["coverage_min"] is not None,
    )


def _waits(options: dict[str, Any]) -> bool:
    """Whether this process mostly waits: for others, or for what is real."""
    return options["count"] > 1 or _is_live(options)


def _is_live(options: dict[str, Any]) -> bool:
    return bool(options["record"] or options["live_tools"] or options["live_model"])


@contextmanager
def _own_output(options: dict[str, Any], progress: Progress) -> Iterator[None]:
    """Standard output for the report alone, also while tools run in this process."""
    if not _is_live(options):
        yield
        return
    from agentrun.cli.suite_live import own_output

    with own_output(progress):
        yield


def _clear_away(found: SelectedCases, ended: Ended, *, update: bool) -> None:
    """Snapshots that no case claims: removed when journals are accepted, else told."""
    from agentrun.spec.source_files import display_path
    from agentrun.testing.suite.snapshots import find_unused_snapshots, remove_snapshot

    for case, path in find_unused_snapshots(found.complete_files):
        if update:
            remove_snapshot(case, path)
            ended.removed.append(display_path(path))
        else:
            ended.unclaimed.append(display_path(path))
