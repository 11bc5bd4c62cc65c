"""`--yes`: a recording is announced, and the person at the terminal is asked once if it may do harm.

Rule 1  Nothing is sent and no tool runs before the question is answered. The answer is no, unless a person says yes.
Rule 2  Without a person to ask, a recording that needs consent needs `--yes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from agentrun.cli.approve import Shows, can_ask, has_person
from agentrun.errors import Cancelled

if TYPE_CHECKING:
    from agentrun.testing.suite.recording_preview import ApprovalSources, RecordingPreview

PROMPT = "Record? [y/N] "

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Output(Shows, Protocol):
    def say(self, text: str, tone: Any = "plain") -> None: ...

    def close(self) -> None: ...


def yes_option(command: _Command) -> _Command:
    return click.option(
        "--yes",
        is_flag=True,
        help="Record without being asked, also where a tool that is not `effect: read` may run for real.",
    )(command)


def answers_of(approve: str | None, output: Shows, *, option_first: bool) -> ApprovalSources:
    """Who answers approvals by the command line. Raises click.UsageError where `--approve ask` finds nobody."""
    from agentrun.testing.suite.recording_preview import ApprovalSources

    is_given = approve not in (None, "ask")
    return ApprovalSources(
        option=f"--approve {approve}" if is_given else None,
        is_file=is_given and approve not in ("all", "none"),
        has_person=has_person(approve, output),
        option_first=option_first,
    )


def confirm_recording(announcement: RecordingPreview, output: Output, *, yes: bool) -> None:
    """Announce a recording and ask about it. Raises click.UsageError or Cancelled if it must not start."""
    try:
        for line in announcement.lines():
            output.say(line)
        if announcement.needs_consent and not yes:
            _need_consent(announcement, output)
    except BaseException:
        output.close()
        raise


def _need_consent(announcement: RecordingPreview, output: Output) -> None:
    if not can_ask(output):
        raise click.UsageError(f"{announcement.reason()}; answer the question at a terminal, or add --yes")
    with output.aside():
        is_agreed = _ask()
    if not is_agreed:
        raise Cancelled("cancelled", "nothing was recorded")


def _ask() -> bool:
    import asyncio

    from agentrun.cli.keyboard import Keyboard

    keyboard = Keyboard()
    keyboard.begin()  # what was typed before the question does not answer it
    try:
        click.echo(PROMPT, nl=False, err=True)
        typed = asyncio.run(keyboard.line())
    finally:
        keyboard.end()
    if typed is None:
        click.echo(err=True)
    return typed is not None and typed.strip().lower() in ("y", "yes")
