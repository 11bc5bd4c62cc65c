"""`agentrun test --record`, `--live-tools` and `--live-model`: cases that run for real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from agentrun.cli.approval_options import approval_sources, confirm_recording, make_approver, terminal_approver
from agentrun.cli.console import safe_text
from agentrun.cli.interrupt import InterruptHandler
from agentrun.cli.plan import RunMode
from agentrun.cli.stdout_guard import guard_stdout
from agentrun.cli.suite_progress import SuiteProgress
from agentrun.core.package import Package
from agentrun.engine.ports import Approver
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.recording import LiveCallbacks, partly_live_runner, recording_runner
from agentrun.testing.suite.recording_preview import plan_cassettes, preview_recording
from agentrun.testing.suite.replay import CaseRunner

if TYPE_CHECKING:
    from agentrun.engine.recording import RecordingResult
    from agentrun.engine.world import World


class _RealTimeRunner:
    """Runs cases in real time, one after the other. Ctrl-C cancels the current case, then the suite."""

    def __init__(self, progress: SuiteProgress) -> None:
        self._progress = progress
        self._interrupts = InterruptHandler(progress)

    def run(self, work: Any) -> Any:
        self._interrupts = InterruptHandler(self._progress)
        result = self._interrupts.run(work)
        if self._interrupts.is_interrupted:
            raise KeyboardInterrupt
        return result

    def set_world(self, world: World) -> None:
        self._interrupts.set_world(world)


def confirm_suite(cases: Sequence[LocatedCase], options: dict[str, Any], progress: SuiteProgress) -> None:
    """Announce what recording these cases does, and ask once if it may do harm."""
    plans = plan_cassettes(cases)
    if plans:
        answers = approval_sources(options["approve"], progress, option_first=False)
        confirm_recording(preview_recording(plans, options["record"], answers), progress, yes=options["yes"])


def live_case_runner(
    options: dict[str, Any], progress: SuiteProgress, spent: Callable[[LocatedCase, RecordingResult], None]
) -> CaseRunner:
    """The function that runs a case. `spent`: called after each case that was recorded."""
    mode: RunMode = "record" if options["record"] else "live-tools" if options["live_tools"] else "live-model"
    runs = _RealTimeRunner(progress)
    live = LiveCallbacks(
        approver=_make_approver(options["approve"], mode, progress),
        on_recording=lambda found, text: _show_recording(progress, found, text),
        on_spent=spent,
        on_printed=lambda tool, text: _show_printed(progress, tool, text),
        on_sink_line=lambda line: progress.say(f"delivered: {line}"),
        on_started=runs.set_world,
        run=runs.run,
    )
    if options["record"]:
        return recording_runner(options["record"], live)
    return partly_live_runner("tools" if options["live_tools"] else "model", live, options["require_tier"])


def _make_approver(text: str | None, mode: RunMode, progress: SuiteProgress) -> Callable[[Package], Approver | None]:
    """The approvers after the answers of a case: the command line, then the person at the terminal."""
    return lambda package: make_approver(text, None, package, terminal_approver(text, mode, package, None, progress))


def _show_recording(progress: SuiteProgress, found: LocatedCase, text: str) -> None:
    is_good = text.startswith("recorded: ") and ";" not in text
    progress.say(f"{found.id}  {text}", "good" if is_good else "warn")


def _show_printed(progress: SuiteProgress, tool: str, text: str) -> None:
    for line in text.splitlines()[:20]:
        progress.say(f"  {tool} printed: {safe_text(line)}", "dim")


def guard_suite_stdout(progress: SuiteProgress) -> AbstractContextManager[None]:
    """Keep standard output for the report, whatever tools write to it."""
    return guard_stdout(lambda program, text: _show_printed(progress, program, text))
