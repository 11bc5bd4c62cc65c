"""`--approve` decides who answers approvals. `--yes` records without a question.

Rule 1  Where approvals are real, only the command line and a person at the terminal approve. A file approves only if
        `--approve` names it.
Rule 2  A recording that may do harm needs a yes: `--yes`, or an answer at the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agentrun.cli.console import ProgressOutput, document_problems
from agentrun.errors import Cancelled

if TYPE_CHECKING:
    from agentrun.cli.plan import RunMode
    from agentrun.core.package import Package
    from agentrun.engine.ports import Approver
    from agentrun.spec.v1.cases import Case
    from agentrun.testing.suite.recording_preview import ApprovalSources, RecordingPreview


RECORD_PROMPT = "Record? [y/N] "
FILE_ANSWERS = ("approved", "denied")
MAX_SUGGESTED_NAMES = 20
NO_TERMINAL_MESSAGE = (
    "--approve ask needs a terminal for standard input and standard error; answer in advance instead with "
    "--approve all, none or FILE"
)
ASKING_MODES = ("live", "record", "live-tools")
"""Modes in which approvals do not come from a cassette."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def yes_option(command: _Command) -> _Command:
    return click.option(
        "--yes",
        is_flag=True,
        help="Record without a question, even if tools that are not `effect: read` may run for real.",
    )(command)


def approval_sources(approve: str | None, output: ProgressOutput, *, option_first: bool) -> ApprovalSources:
    """Who answers approvals. Raises click.UsageError if `--approve ask` is used without a terminal."""
    from agentrun.testing.suite.recording_preview import ApprovalSources

    is_given = approve not in (None, "ask")
    return ApprovalSources(
        option=f"--approve {approve}" if is_given else None,
        is_file=is_given and approve not in ("all", "none"),
        has_person=is_person_asked(approve, output),
        option_first=option_first,
    )


def confirm_recording(announcement: RecordingPreview, output: ProgressOutput, *, yes: bool) -> None:
    """Announce a recording, and ask if it may do harm. Raises click.UsageError or Cancelled if it must not start."""
    try:
        for line in announcement.lines():
            output.say(line)
        if announcement.needs_consent and not yes:
            _require_consent(announcement, output)
    except BaseException:
        output.close()
        raise


def _require_consent(announcement: RecordingPreview, output: ProgressOutput) -> None:
    if not can_ask_person(output):
        raise click.UsageError(f"{announcement.reason()}; confirm it at a terminal, or add --yes")
    with output.aside():
        is_agreed = _ask_consent()
    if not is_agreed:
        raise Cancelled("cancelled", "nothing was recorded")


def _ask_consent() -> bool:
    import asyncio

    from agentrun.cli.keyboard import Keyboard

    keyboard = Keyboard()
    keyboard.begin()  # discards everything typed before the question
    try:
        click.echo(RECORD_PROMPT, nl=False, err=True)
        typed = asyncio.run(keyboard.read_line())
    finally:
        keyboard.end()
    if typed is None:
        click.echo(err=True)
    return typed is not None and typed.strip().lower() in ("y", "yes")


def approve_option(order: str) -> Callable[[_Command], _Command]:
    """`order`: the sentence that says whether the answers of a case come before or after this option."""
    return click.option(
        "--approve",
        metavar="all|none|ask|FILE",
        help="Answer approvals: approve `all` or `none`, `ask` at the terminal, or read a YAML FILE with "
        f"`tool: approved|denied`. {order}",
    )


def make_approver(
    text: str | None, case: Case | None, package: Package, person: Approver | None = None
) -> Approver | None:
    """The approvers in order: the command line, the case, the person. None: there are none."""
    from agentrun.engine.approvals import ApproverChain, PresetApprover

    approvers: list[Approver] = []
    if text in ("all", "none"):
        approvers.append(PresetApprover({"*": "approved" if text == "all" else "denied"}, f"--approve {text}"))
    elif text not in (None, "ask"):
        assert text is not None
        approvers.append(PresetApprover(_read_answers(Path(text), package), f"--approve {Path(text).name}"))
    if case is not None and case.approvals:
        approvers.append(PresetApprover(case.approvals, f"case {case.name}"))
    if person is not None:
        approvers.append(person)
    return ApproverChain(*approvers) if approvers else None


def terminal_approver(
    text: str | None, mode: RunMode, package: Package, session: str | None, output: ProgressOutput
) -> Approver | None:
    """The person at the terminal. None: approvals come from a cassette, or a program reads the output.

    Raises click.UsageError if `--approve ask` is used without a terminal.
    """
    if mode not in ASKING_MODES or not is_person_asked(text, output):
        return None
    from agentrun.cli.approval_prompt import TerminalApprover

    lasting = "run" if session is None else "session"
    return TerminalApprover(package.name, lasting, sys.stderr, output.aside, color=output.color)


def is_person_asked(text: str | None, output: ProgressOutput) -> bool:
    """Whether a person at the terminal is asked. Raises click.UsageError if `--approve ask` has no terminal."""
    if text in ("all", "none"):
        return False
    if text == "ask" and not is_at_terminal():
        raise click.UsageError(NO_TERMINAL_MESSAGE)
    return text == "ask" or can_ask_person(output)


def can_ask_person(output: ProgressOutput) -> bool:
    """Whether there is a person who reads the progress and can answer."""
    from agentrun.engine.ci import in_ci

    return output.has_reader and not in_ci() and is_at_terminal()


def check_approve_option(text: str | None) -> None:
    """Raise click.UsageError if `--approve` cannot work, whatever the package is."""
    if text == "ask" and not is_at_terminal():
        raise click.UsageError(NO_TERMINAL_MESSAGE)
    if text not in (None, "all", "none", "ask"):
        _require_file(Path(str(text)))


def _require_file(path: Path) -> None:
    if not path.exists():
        raise click.UsageError(f"--approve takes all, none, ask or a file; there is no file {path}")


def is_at_terminal() -> bool:
    from agentrun.cli.keyboard import Keyboard

    return Keyboard().is_available() and sys.stderr is not None and sys.stderr.isatty()


def _read_answers(path: Path, package: Package) -> dict[str, Any]:
    """The answers in a file, by tool, sink or stage."""
    from agentrun.errors import SpecError
    from agentrun.spec.problems import Problem, quote_text
    from agentrun.spec.source_files import read_source
    from agentrun.spec.tree import MappingNode, plain_data
    from agentrun.spec.yaml_parser import parse_yaml_document

    _require_file(path)
    with document_problems():
        root = parse_yaml_document(read_source(path))
    fix = "write `tool: approved`"
    if not isinstance(root, MappingNode):
        raise SpecError([Problem(root.place, "spec.wrong_type", "the answers must be a mapping", fix)])
    problems = [
        Problem(entry.node.place, "spec.wrong_value", f"an answer must be {' or '.join(FILE_ANSWERS)}", fix)
        for entry in root.entries.values()
        if plain_data(entry.node) not in FILE_ANSWERS
    ]
    problems += [
        Problem(
            root.entries[name].key_place,
            "spec.unknown_tool",
            f"there is no tool, sink or stage {quote_text(name)}",
            hint,
        )
        for name, hint in _unknown_names(root.entries, package)
    ]
    if problems:
        raise SpecError(problems)
    answers: dict[str, Any] = plain_data(root)
    return answers


def _unknown_names(names: Iterable[str], package: Package) -> Iterator[tuple[str, str]]:
    """Names that no approval can be about, each with a suggestion. A wrong name would leave a question unanswered."""
    from agentrun.core.package_lookup import argument_schemas, matches_pattern
    from agentrun.engine.approvals import APPROVAL_STAGES
    from agentrun.engine.world import iterate_packages
    from agentrun.spec.problems import did_you_mean

    known = [*APPROVAL_STAGES]
    for each in iterate_packages(package):
        known += [*argument_schemas(each.tools), *each.sinks]
    for name in names:
        if not any(matches_pattern(name, each) for each in known):
            names = ", ".join(sorted(set(known))[:MAX_SUGGESTED_NAMES])
            yield name, did_you_mean(name, known) or f"use one of {names}"
