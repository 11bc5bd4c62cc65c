"""`--approve`: who answers approvals, in advance or when they are asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from agentrun.errors import Cancelled

if TYPE_CHECKING:
    from agentrun.cli.plan import RunMode
    from agentrun.core.package import Package
    from agentrun.engine.ports import Approver
    from agentrun.spec.v1.cases import Case
    from agentrun.testing.suite.recording_preview import ApprovalSources, RecordingPreview


# --- `--yes`: a recording is announced, and the person at the terminal is asked once if it may do harm --------


RECORD_PROMPT = "Record? [y/N] "


class PromptOutput(Protocol):
    """Whoever has the terminal while nobody is asked."""

    has_reader: bool
    color: bool

    def aside(self) -> AbstractContextManager[None]: ...


class ConsentOutput(PromptOutput, Protocol):
    def say(self, text: str, tone: Any = "plain") -> None: ...

    def close(self) -> None: ...


def yes_option(command: _Command) -> _Command:
    return click.option(
        "--yes",
        is_flag=True,
        help="Record without being asked, also where a tool that is not `effect: read` may run for real.",
    )(command)


def approval_sources(approve: str | None, output: PromptOutput, *, option_first: bool) -> ApprovalSources:
    """Who answers approvals by the command line. Raises click.UsageError where `--approve ask` finds nobody."""
    from agentrun.testing.suite.recording_preview import ApprovalSources

    is_given = approve not in (None, "ask")
    return ApprovalSources(
        option=f"--approve {approve}" if is_given else None,
        is_file=is_given and approve not in ("all", "none"),
        has_person=is_person_asked(approve, output),
        option_first=option_first,
    )


def confirm_recording(announcement: RecordingPreview, output: ConsentOutput, *, yes: bool) -> None:
    """Announce a recording and ask about it. Raises click.UsageError or Cancelled if it must not start."""
    try:
        for line in announcement.lines():
            output.say(line)
        if announcement.needs_consent and not yes:
            _require_consent(announcement, output)
    except BaseException:
        output.close()
        raise


def _require_consent(announcement: RecordingPreview, output: ConsentOutput) -> None:
    if not can_ask_person(output):
        raise click.UsageError(f"{announcement.reason()}; answer the question at a terminal, or add --yes")
    with output.aside():
        is_agreed = _ask_consent()
    if not is_agreed:
        raise Cancelled("cancelled", "nothing was recorded")


def _ask_consent() -> bool:
    import asyncio

    from agentrun.cli.keyboard import Keyboard

    keyboard = Keyboard()
    keyboard.begin()  # what was typed before the question does not answer it
    try:
        click.echo(RECORD_PROMPT, nl=False, err=True)
        typed = asyncio.run(keyboard.read_line())
    finally:
        keyboard.end()
    if typed is None:
        click.echo(err=True)
    return typed is not None and typed.strip().lower() in ("y", "yes")


# --- `--approve`: who answers approvals, in advance or when they are asked ------------------------------------


FILE_ANSWERS = ("approved", "denied")
MAX_SUGGESTED_NAMES = 20
"""Names that are listed."""
NO_TERMINAL_MESSAGE = (
    "--approve ask needs a terminal for standard input and standard error; give answers in advance instead: "
    "--approve all, none or FILE"
)
ASKING_MODES = ("live", "record", "live-tools")
"""Modes in which approvals are no part of a tape that is played."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def approve_option(order: str) -> Callable[[_Command], _Command]:
    """The option. `order`: where the answers of a case come; those of a suite are what is tested, so they are first."""
    return click.option(
        "--approve",
        metavar="all|none|ask|FILE",
        help="Who answers approvals: all or none of them in advance, a YAML file with `tool: approved|denied`, or ask: "
        f"the person at the terminal. {order}",
    )


def make_approver(
    text: str | None, case: Case | None, package: Package, person: Approver | None = None
) -> Approver | None:
    """Who answers approvals: the command line, then the case, then the person. None: nobody says anything."""
    from agentrun.engine.approvals import ApproverChain, PresetApprover

    found: list[Approver] = []
    if text in ("all", "none"):
        found.append(PresetApprover({"*": "approved" if text == "all" else "denied"}, f"--approve {text}"))
    elif text not in (None, "ask"):
        assert text is not None
        found.append(PresetApprover(_read_answers(Path(text), package), f"--approve {Path(text).name}"))
    if case is not None and case.approvals:
        found.append(PresetApprover(case.approvals, f"case {case.name}"))
    if person is not None:
        found.append(person)
    return ApproverChain(*found) if found else None


def terminal_approver(
    text: str | None, mode: RunMode, package: Package, session: str | None, output: PromptOutput
) -> Approver | None:
    """The person at the terminal, if one is asked: in a run that is real, and not by a program that reads its output.

    What a tape holds is not asked again. `--approve ask` insists: it is a mistake where nobody can be asked.
    """
    if mode not in ASKING_MODES or not is_person_asked(text, output):
        return None
    from agentrun.cli.approval_prompt import TerminalApprover

    lasting = "run" if session is None else "session"
    return TerminalApprover(package.name, lasting, sys.stderr, output.aside, color=output.color)


def is_person_asked(text: str | None, output: PromptOutput) -> bool:
    """Whether a person at the terminal is asked. Raises click.UsageError where `--approve ask` finds nobody."""
    if text in ("all", "none"):
        return False
    if text == "ask" and not is_at_terminal():
        raise click.UsageError(NO_TERMINAL_MESSAGE)
    return text == "ask" or can_ask_person(output)


def can_ask_person(output: PromptOutput) -> bool:
    """Whether there is a person who reads what is said and can answer."""
    from agentrun.engine.ci import in_ci

    return output.has_reader and not in_ci() and is_at_terminal()


def check_approve_option(text: str | None) -> None:
    """Raises click.UsageError where `--approve` names who cannot be asked, whatever the package."""
    if text == "ask" and not is_at_terminal():
        raise click.UsageError(NO_TERMINAL_MESSAGE)
    if text not in (None, "all", "none", "ask") and not Path(str(text)).exists():
        raise click.UsageError(f"--approve takes all, none, ask or a file, and there is no file {text}")


def is_at_terminal() -> bool:
    from agentrun.cli.keyboard import Keyboard

    return Keyboard().is_available() and sys.stderr is not None and sys.stderr.isatty()


def _read_answers(path: Path, package: Package) -> dict[str, Any]:
    """The answers in a file, by tool, sink or stage."""
    from agentrun.errors import SpecError
    from agentrun.spec.problems import DocumentError, Problem, quote_text
    from agentrun.spec.source_files import read_source
    from agentrun.spec.tree import MappingNode, plain_data
    from agentrun.spec.yaml_parser import parse_yaml_document

    if not path.exists():
        raise click.UsageError(f"--approve takes all, none, ask or a file, and there is no file {path}")
    try:
        root = parse_yaml_document(read_source(path))
    except DocumentError as error:
        raise SpecError(error.problems) from None
    if not isinstance(root, MappingNode):
        raise SpecError([Problem(root.place, "spec.wrong_type", "answers are a mapping", "write `tool: approved`")])
    wrong = [
        Problem(
            entry.node.place, "spec.wrong_value", f"an answer is {' or '.join(FILE_ANSWERS)}", "write `tool: approved`"
        )
        for entry in root.entries.values()
        if plain_data(entry.node) not in FILE_ANSWERS
    ]
    wrong += [
        Problem(root.entries[name].key_place, "spec.unknown_tool", f"nothing is called {quote_text(name)} here", hint)
        for name, hint in _unknown_names(root.entries, package)
    ]
    if wrong:
        raise SpecError(wrong)
    answers: dict[str, Any] = plain_data(root)
    return answers


def _unknown_names(names: Iterable[str], package: Package) -> Iterator[tuple[str, str]]:
    """Names that no question can be about, and what may be meant: an answer to nothing is a question without one."""
    from agentrun.core.package_lookup import argument_schemas, matches_pattern
    from agentrun.engine.approvals import APPROVAL_STAGES
    from agentrun.engine.world import iterate_packages
    from agentrun.spec.problems import did_you_mean

    known = [*APPROVAL_STAGES]
    for each in iterate_packages(package):
        known += [*argument_schemas(each.tools), *each.sinks]
    for name in names:
        if not any(matches_pattern(name, each) for each in known):
            yield name, did_you_mean(name, known) or f"there are {', '.join(sorted(set(known))[:MAX_SUGGESTED_NAMES])}"
