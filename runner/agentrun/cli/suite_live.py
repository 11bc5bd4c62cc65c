"""`agentrun test --record`, `--live-tools`, `--live-model`: cases that are run for real."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentrun.cli.approve import approver_of, person_for
from agentrun.cli.consent import answers_of, confirm_recording
from agentrun.cli.interrupt import Interrupts
from agentrun.cli.own_output import keep_output
from agentrun.cli.plan import Mode
from agentrun.cli.show import clean
from agentrun.cli.suite_progress import Progress
from agentrun.core.package import Package
from agentrun.engine.ports import Approver
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.recording import LiveCallbacks, partly_live_runner, recording_runner
from agentrun.testing.suite.recording_preview import plan_cassettes, preview_recording
from agentrun.testing.suite.replay import CaseRunner

if TYPE_CHECKING:
    from agentrun.engine.recording import Recorded
    from agentrun.engine.world import World


class _Runs:
    """Runs in real time, one after the other. Ctrl-C ends the one at hand, and then the suite."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._interrupts = Interrupts(progress)

    def run(self, work: Any) -> Any:
        self._interrupts = Interrupts(self._progress)
        came = self._interrupts.run(work)
        if self._interrupts.came:
            raise KeyboardInterrupt
        return came

    def hold(self, world: World) -> None:
        self._interrupts.hold(world)


def confirm_suite(cases: Sequence[LocatedCase], options: dict[str, Any], progress: Progress) -> None:
    """Announce what recording these cases does, and ask about it once where that is needed."""
    plans = plan_cassettes(cases)
    if plans:
        answers = answers_of(options["approve"], progress, option_first=False)
        confirm_recording(preview_recording(plans, options["record"], answers), progress, yes=options["yes"])


def live_play(
    options: dict[str, Any], progress: Progress, spent: Callable[[LocatedCase, Recorded], None]
) -> CaseRunner:
    """How cases are carried out. `spent`: told of each recording."""
    mode: Mode = "record" if options["record"] else "live-tools" if options["live_tools"] else "live-model"
    runs = _Runs(progress)
    live = LiveCallbacks(
        approver=_approver(options["approve"], mode, progress),
        on_recording=lambda found, text: _said(progress, found, text),
        on_spent=spent,
        on_printed=lambda tool, text: _printed(progress, tool, text),
        on_sink_line=lambda line: progress.say(f"delivered: {line}"),
        on_started=runs.hold,
        run=runs.run,
    )
    if options["record"]:
        return recording_runner(options["record"], live)
    return partly_live_runner("tools" if options["live_tools"] else "model", live, options["require_tier"])


def _approver(text: str | None, mode: Mode, progress: Progress) -> Callable[[Package], Approver | None]:
    """Whoever the command line names, then the person at the terminal; what a case says comes before them."""

    def of(package: Package) -> Approver | None:
        return approver_of(text, None, package, person_for(text, mode, package, None, progress))

    return of


def _said(progress: Progress, found: LocatedCase, text: str) -> None:
    is_good = text.startswith("recorded: ") and ";" not in text
    progress.say(f"{found.id}  {text}", "good" if is_good else "warn")


def _printed(progress: Progress, tool: str, text: str) -> None:
    for line in text.splitlines()[:20]:
        progress.say(f"  {tool} printed: {clean(line)}", "dim")


@contextmanager
def own_output(progress: Progress) -> Iterator[None]:
    """Standard output for the report alone, whatever tools write to it."""
    end = keep_output(lambda program, text: _printed(progress, program, clean(text)))
    try:
        yield
    finally:
        end()
