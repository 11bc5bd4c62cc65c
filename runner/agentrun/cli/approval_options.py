"""`--approve` decides who answers approvals. `--yes` records without asking.

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
from agentrun.errors import Cancelled, SpecError
from agentrun.spec.problems import Problem, did_you_mean, quote_text

if TYPE_CHECKING:
    from agentrun.cli.plan import RunMode
    from agentrun.core.package import Package
    from agentrun.engine.ports import Approver
    from agentrun.spec.v1.cases import Case
    from agentrun.testing.suite.recording_preview import ApprovalSources, RecordingPreview


APPROVAL_ORDER = (
    "Approvals are answered by this option, then by the case (never where tools run for real and nothing is recorded), "
    "then by the person at the terminal."
)
RECORD_PROMPT = "Record? [y/N] "
NOTHING_RECORDED = "nothing was recorded"
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
        help="Record without asking for confirmation, even if tools that are not `effect: read` may run for real.",
    )(command)


def approval_sources(approve: str | None, output: ProgressOutput) -> ApprovalSources:
    """Who answers approvals. Raises click.UsageError if `--approve ask` is used without a terminal."""
    from agentrun.testing.suite.recording_preview import ApprovalSources

    is_given = approve not in (None, "ask")
    return ApprovalSources(
        option=f"--approve {approve}" if is_given else None,
        is_file=is_given and approve not in ("all", "none"),
        has_person=is_person_asked(approve, output),
    )


def refuse_without_consent(preview: RecordingPreview, output: ProgressOutput, *, yes: bool) -> None:
    """Raise click.UsageError if a recording may do harm and there is no one to agree to it."""
    if preview.needs_consent and not yes and not can_ask_person(output):
        raise click.UsageError(f"{preview.reason()}; confirm it at a terminal, or add --yes")


async def confirm_recording(preview: RecordingPreview, output: ProgressOutput, *, yes: bool) -> None:
    """Announce a recording, and ask if it may do harm. Raises Cancelled if the person does not agree."""
    for line in preview.lines():
        output.say(line)
    if preview.needs_consent and not yes:
        with output.aside():
            is_agreed = await _ask_consent()
        if not is_agreed:
            raise Cancelled("cancelled", NOTHING_RECORDED)


async def _ask_consent() -> bool:
    from agentrun.cli.keyboard import Keyboard

    keyboard, typed = Keyboard(), None
    keyboard.begin()  # discards everything typed before the question
    try:
        click.echo(RECORD_PROMPT, nl=False, err=True)
        typed = await keyboard.read_line()
    finally:
        keyboard.end()
        if typed is None:
            click.echo(err=True)
    return typed is not None and typed.strip().lower() in ("y", "yes")


def approve_option(command: _Command) -> _Command:
    return click.option(
        "--approve",
        metavar="all|none|ask|FILE",
        help="Answer approvals: approve `all` or `none`, `ask` at the terminal, or read a YAML FILE with "
        f"`tool: approved|denied`. {APPROVAL_ORDER}",
    )(command)


def detach_option(command: _Command) -> _Command:
    return click.option(
        "--detach",
        is_flag=True,
        help="Ask no one at the terminal: a question suspends the run, with exit code 8, until `agentrun approve` or "
        "`agentrun deny` answers it.",
    )(command)


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
    text: str | None,
    mode: RunMode,
    package: Package,
    session: str | None,
    output: ProgressOutput,
    *,
    detach: bool = False,
) -> Approver | None:
    """The person at the terminal. None: approvals come from a cassette, or a program reads the output.

    Raises click.UsageError if `--approve ask` is used without a terminal, or with `--detach`.
    """
    if text == "ask" and detach:
        raise click.UsageError("--approve ask asks at the terminal, and --detach does not: use one of them")
    if detach or mode not in ASKING_MODES or not is_person_asked(text, output):
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
    for name, hint in _unknown_names(root.entries, package):
        message = f"there is no tool, sink or stage {quote_text(name)}"
        problems.append(Problem(root.entries[name].key_place, "spec.unknown_tool", message, hint))
    if problems:
        raise SpecError(problems)
    answers: dict[str, Any] = plain_data(root)
    return answers


def _unknown_names(names: Iterable[str], package: Package) -> Iterator[tuple[str, str]]:
    """Names that no approval can be about, each with a suggestion. A wrong name would leave a question unanswered."""
    from agentrun.core.package import argument_schemas, matches_pattern
    from agentrun.engine.approvals import APPROVAL_STAGES
    from agentrun.engine.world import iterate_packages

    known = [*APPROVAL_STAGES]
    for each in iterate_packages(package):
        known += [*argument_schemas(each.tools), *each.sinks]
    for name in names:
        if not any(matches_pattern(name, each) for each in known):
            names = ", ".join(sorted(set(known))[:MAX_SUGGESTED_NAMES])
            yield name, did_you_mean(name, known) or f"use one of {names}"
