"""`--approve`: answers to approvals, given in advance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from agentrun.engine.ports import Approver
    from agentrun.spec.v1.documents import Case

ANSWERS = ("approved", "denied")

approve_option = click.option(
    "--approve",
    metavar="all|none|FILE",
    help="Answer approvals in advance: all, none, or a YAML file with `tool: approved|denied`.",
)


def approver_of(text: str | None, case: Case | None) -> Approver | None:
    """Who answers approvals: the command line, then the case. None: neither says anything."""
    from agentrun.engine.approvals import FirstOf, Given

    found: list[Approver] = []
    if text in ("all", "none"):
        found.append(Given({"*": "approved" if text == "all" else "denied"}, f"--approve {text}"))
    elif text is not None:
        found.append(Given(_read(Path(text)), f"--approve {Path(text).name}"))
    if case is not None and case.approvals:
        found.append(Given(case.approvals, f"case {case.name}"))
    return FirstOf(*found) if found else None


def _read(path: Path) -> dict[str, Any]:
    """The answers in a file, by tool."""
    from agentrun.errors import SpecError
    from agentrun.spec.document import parse
    from agentrun.spec.files import read_source
    from agentrun.spec.problems import DocumentError, Problem
    from agentrun.spec.tree import Mapping, plain

    if not path.exists():
        raise click.UsageError(f"--approve takes all, none or a file, and there is no file {path}")
    try:
        root = parse(read_source(path))
    except DocumentError as error:
        raise SpecError(error.problems) from None
    if not isinstance(root, Mapping):
        raise SpecError([Problem(root.place, "spec.wrong_type", "answers are a mapping", "write `tool: approved`")])
    wrong = [
        Problem(entry.node.place, "spec.wrong_value", f"an answer is {' or '.join(ANSWERS)}", "write `tool: approved`")
        for entry in root.entries.values()
        if plain(entry.node) not in ANSWERS
    ]
    if wrong:
        raise SpecError(wrong)
    answers: dict[str, Any] = plain(root)
    return answers
