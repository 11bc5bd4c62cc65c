"""`agentrun test --record`, `--live-tools` and `--live-model`: cases that run for real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from agentrun.cli.approval_options import (
    approval_sources,
    confirm_recording,
    make_approver,
    refuse_without_consent,
    terminal_approver,
)
from agentrun.cli.console import safe_text
from agentrun.cli.interrupt import InterruptHandler
from agentrun.cli.plan import RunMode
from agentrun.cli.stdout_guard import guard_stdout
from agentrun.cli.suite_progress import SuiteProgress
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.recording import LiveCallbacks, partly_live_runner, recording_runner
from agentrun.testing.suite.recording_preview import plan_cassettes, preview_recording
from agentrun.testing.suite.replay import CaseRunner

if TYPE_CHECKING:
    from agentrun.core.package import Package
    from agentrun.engine.recording import RecordingResult
    from agentrun.engine.settings import Settings


def confirm_suite(cases: Sequence[LocatedCase], options: dict[str, Any], progress: SuiteProgress) -> None:
    """Announce what recording these cases does, and ask once if it may do harm."""
    plans = plan_cassettes(cases)
    if plans:
        from agentrun.engine.live_providers import live_settings  # late: the import takes a second

        for plan in plans:
            _show_settings(progress, options, plan.package, live_settings(plan.package, plan.project.root))
        answers = approval_sources(options["approve"], progress)
        preview, yes = preview_recording(plans, options["record"], answers), options["yes"]
        refuse_without_consent(preview, progress, yes=yes)
        try:
            asyncio.run(confirm_recording(preview, progress, yes=yes))
        except BaseException:
            progress.close()
            raise


def live_case_runner(
    options: dict[str, Any], progress: SuiteProgress, spent: Callable[[LocatedCase, RecordingResult], None]
) -> CaseRunner:
    """The function that runs a case. `spent`: called after each case that was recorded."""
    mode: RunMode = "record" if options["record"] else "live-tools" if options["live_tools"] else "live-model"
    interrupts, text = InterruptHandler(progress), options["approve"]

    def run(work: Any) -> Any:
        result = interrupts.run(work)
        if interrupts.is_interrupted:  # Ctrl-C cancels the current case, then the suite
            raise KeyboardInterrupt
        return result

    live = LiveCallbacks(
        approver=lambda package, case: make_approver(
            text, case, package, terminal_approver(text, mode, package, None, progress)
        ),
        on_recording=lambda found, text: _show_recording(progress, found, text),
        on_spent=spent,
        on_printed=lambda tool, text: _show_printed(progress, tool, text),
        on_sink_line=lambda line: progress.say(f"delivered: {line}"),
        on_settings=partial(_show_settings, progress, options),
        on_started=interrupts.set_world,
        run=run,
    )
    if options["record"]:
        return recording_runner(options["record"], live)
    return partly_live_runner("tools" if options["live_tools"] else "model", live, options["require_tier"])


def _show_settings(progress: SuiteProgress, options: dict[str, Any], package: Package, settings: Settings) -> None:
    """Print what a `.env` file gives and what is not redacted, once."""
    from agentrun.engine.live_providers import hide_run_secrets  # late: the import takes a second

    hide_run_secrets(package, settings)
    shown, headline = options.setdefault("shown_settings", set()), settings.headline
    if headline and headline not in shown:
        shown.add(headline)
        progress.say(headline)


def _show_recording(progress: SuiteProgress, found: LocatedCase, text: str) -> None:
    is_good = text.startswith("recorded: ") and ";" not in text
    progress.say(f"{found.id}  {text}", "good" if is_good else "warn")


def _show_printed(progress: SuiteProgress, tool: str, text: str) -> None:
    for line in text.splitlines()[:20]:
        progress.say(f"  {tool} printed: {safe_text(line)}", "dim")


def guard_suite_stdout(progress: SuiteProgress) -> AbstractContextManager[None]:
    return guard_stdout(lambda program, text: _show_printed(progress, program, text))
