"""`--approve`: who answers approvals, in advance or when they are asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from agentrun.cli.plan import Mode
    from agentrun.core.package import Package
    from agentrun.engine.ports import Approver
    from agentrun.spec.v1.cases import Case

ANSWERS = ("approved", "denied")
MANY = 20
"""Names that are listed."""
NO_TERMINAL = (
    "--approve ask needs a terminal for standard input and standard error; give answers in advance instead: "
    "--approve all, none or FILE"
)
ASKING = ("live", "record", "live-tools")
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


class Shows(Protocol):
    """Whoever has the terminal while nobody is asked."""

    tells: bool
    color: bool

    def aside(self) -> AbstractContextManager[None]: ...


def approver_of(
    text: str | None, case: Case | None, package: Package, person: Approver | None = None
) -> Approver | None:
    """Who answers approvals: the command line, then the case, then the person. None: nobody says anything."""
    from agentrun.engine.approvals import FirstOf, Given

    found: list[Approver] = []
    if text in ("all", "none"):
        found.append(Given({"*": "approved" if text == "all" else "denied"}, f"--approve {text}"))
    elif text not in (None, "ask"):
        assert text is not None
        found.append(Given(_read(Path(text), package), f"--approve {Path(text).name}"))
    if case is not None and case.approvals:
        found.append(Given(case.approvals, f"case {case.name}"))
    if person is not None:
        found.append(person)
    return FirstOf(*found) if found else None


def person_for(text: str | None, mode: Mode, package: Package, session: str | None, teller: Shows) -> Approver | None:
    """The person at the terminal, if one is asked: in a run that is real, and not by a program that reads its output.

    What a tape holds is not asked again. `--approve ask` insists: it is a mistake where nobody can be asked.
    """
    if mode not in ASKING or not has_person(text, teller):
        return None
    from agentrun.cli.ask import Terminal

    lasting = "run" if session is None else "session"
    return Terminal(package.name, lasting, sys.stderr, teller.aside, color=teller.color)


def has_person(text: str | None, teller: Shows) -> bool:
    """Whether a person at the terminal is asked. Raises click.UsageError where `--approve ask` finds nobody."""
    if text in ("all", "none"):
        return False
    if text == "ask" and not is_at_terminal():
        raise click.UsageError(NO_TERMINAL)
    return text == "ask" or can_ask(teller)


def can_ask(teller: Shows) -> bool:
    """Whether there is a person who reads what is said and can answer."""
    from agentrun.engine.pipeline import in_ci

    return teller.tells and not in_ci() and is_at_terminal()


def refuse_nobody(text: str | None) -> None:
    """Raises click.UsageError where `--approve` names who cannot be asked, whatever the package."""
    if text == "ask" and not is_at_terminal():
        raise click.UsageError(NO_TERMINAL)
    if text not in (None, "all", "none", "ask") and not Path(str(text)).exists():
        raise click.UsageError(f"--approve takes all, none, ask or a file, and there is no file {text}")


def is_at_terminal() -> bool:
    from agentrun.cli.keyboard import Keyboard

    return Keyboard().is_there() and sys.stderr is not None and sys.stderr.isatty()


def _read(path: Path, package: Package) -> dict[str, Any]:
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
        Problem(entry.node.place, "spec.wrong_value", f"an answer is {' or '.join(ANSWERS)}", "write `tool: approved`")
        for entry in root.entries.values()
        if plain_data(entry.node) not in ANSWERS
    ]
    wrong += [
        Problem(root.entries[name].key_place, "spec.unknown_tool", f"nothing is called {quote_text(name)} here", hint)
        for name, hint in _unknown(root.entries, package)
    ]
    if wrong:
        raise SpecError(wrong)
    answers: dict[str, Any] = plain_data(root)
    return answers


def _unknown(names: Iterable[str], package: Package) -> Iterator[tuple[str, str]]:
    """Names that no question can be about, and what may be meant: an answer to nothing is a question without one."""
    from agentrun.core.package_lookup import argument_schemas, matches_pattern
    from agentrun.engine.approvals import STAGES
    from agentrun.engine.world import packages_of
    from agentrun.spec.problems import did_you_mean

    known = [*STAGES]
    for each in packages_of(package):
        known += [*argument_schemas(each.tools), *each.sinks]
    for name in names:
        if not any(matches_pattern(name, each) for each in known):
            yield name, did_you_mean(name, known) or f"there are {', '.join(sorted(set(known))[:MANY])}"
