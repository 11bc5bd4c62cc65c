"""`agentrun test --watch`: run the cases, then those that a change touches, until Ctrl-C.

Rule 1  Files are polled. A change counts when nothing else has changed for one interval, because editors write in
        several steps.
Rule 2  A change during a run counts afterwards.
Rule 3  If standard output is a pipe and its reader closes it, there is no one to watch for, and the command ends.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep

import click

from agentrun.cli.console import json_line, safe_text, write_line
from agentrun.cli.suite_result import SuiteResult
from agentrun.errors import AgentrunError, code_of
from agentrun.spec.safe_text import plural
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.selection import SelectedCases
from agentrun.testing.suite.watched_cases import FileStates, WatchedCases, read_watched_cases

WATCH_INTERVAL = 0.25
"""Seconds between two looks at the files."""
MAX_SETTLE_POLLS = 20
"""A file that never stops changing delays a run for at most so many intervals."""
MAX_NAMED_FILES = 5


def watch_suite(
    select_suite: Callable[[], SelectedCases],
    run: Callable[[SelectedCases], SuiteResult],
    *,
    as_json: bool,
    quiet: bool,
    pause: Callable[[float], None] = sleep,
) -> int:
    """Return the exit code: that of an interrupt, or that of the last run if the reader of the output is gone."""
    output = OutputPipe()
    watched = read_watched_cases(select_suite)
    states = FileStates(watched.paths)
    try:
        result = run(watched.found)
        while not result.was_interrupted:
            if not as_json and not quiet:
                write_line(f"watching {plural(len(watched.paths), 'file')}; press Ctrl-C to stop", err=True)
            changed = _wait_for_changes(states, output, pause)
            if changed is None:
                return result.exit_code
            before, watched = watched, _read_again(select_suite, watched)
            states.watch(watched.paths)
            touched = watched.touched(before, changed)
            _print_change(watched.changed_names(before, changed), touched, as_json=as_json)
            if touched.cases or touched.unreadable:
                result = run(touched)
    except KeyboardInterrupt:
        pass
    return code_of("cancelled").exit


def _wait_for_changes(states: FileStates, output: OutputPipe, pause: Callable[[float], None]) -> set[Path] | None:
    """The files that changed. None: the reader of the output is gone."""
    while not (changed := states.find_changed()):
        if not output.has_reader:
            return None
        pause(WATCH_INTERVAL)
    for _ in range(MAX_SETTLE_POLLS):
        pause(WATCH_INTERVAL)
        more = states.find_changed()
        if not more:
            break
        changed |= more
    return changed


def _read_again(select_suite: Callable[[], SelectedCases], before: WatchedCases) -> WatchedCases:
    """The cases as they are now. If none are left, this is reported, and the former ones are watched."""
    try:
        return read_watched_cases(select_suite)
    except AgentrunError as error:
        write_line(f"{error.code}: {safe_text(error.message)}", err=True)
    except click.UsageError as error:
        write_line(f"Error: {safe_text(error.format_message())}", err=True)
    return before


def _print_change(files: list[Path], touched: SelectedCases, *, as_json: bool) -> None:
    names = [display_path(path) for path in files]
    if as_json:
        write_line(json_line({"watch": {"changed": names, "cases": [each.id for each in touched.cases]}}))
    elif names:
        more = len(names) - MAX_NAMED_FILES
        listed = ", ".join([*names[:MAX_NAMED_FILES], *([f"{more} more"] if more > 0 else [])])
        count = plural(len(touched.cases), "case") if touched.cases or touched.unreadable else "no case to run"
        write_line(f"\n{safe_text(listed)} changed: {count}")


class OutputPipe:
    """Standard output, if it is a pipe."""

    def __init__(self) -> None:
        self._identity = self._find_identity()

    @property
    def has_reader(self) -> bool:
        """Whether someone can still read. `write_line` replaces a pipe that its reader closed."""
        if self._identity is None:
            return True
        if self._identity != self._find_identity():
            return False
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))

    @staticmethod
    def _find_identity() -> tuple[int, int] | None:
        try:
            status = os.fstat(sys.stdout.fileno())
        except (AttributeError, OSError, ValueError):  # there is no standard output, or it is not a file
            return None
        return status.st_dev, status.st_ino
