"""RUN and FILE arguments: the journals and the packages of a run, for commands that show or check it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.cli.console import json_line, print_stderr, safe_text, show_error
from agentrun.cli.options import ExistingFile
from agentrun.secret import mask

if TYPE_CHECKING:
    from agentrun.core.package import Package
    from agentrun.errors import AgentrunError
    from agentrun.journal.family import RunFamily

journal_argument = click.argument("file", type=ExistingFile)
package_option = click.option(
    "--package",
    "packages",
    type=ExistingFile,
    multiple=True,
    help="The package of the run, or the spec that it was compiled from; can be repeated. The default is package.json "
    "next to the journal.",
)


def load_packages(family: RunFamily, files: Iterable[Path]) -> dict[str, Package]:
    """The packages of a run by fingerprint, with those of its sub-agents. A file beside the journal that is not a
    package of the run is ignored. Raises `package.*`, and a SpecError."""
    from agentrun.canonical_json import fingerprint
    from agentrun.compiler.package_file import read_package
    from agentrun.engine.api import load_package_source
    from agentrun.engine.world import iterate_packages
    from agentrun.errors import PackageError

    agents = [load_package_source(file).agent for file in files]
    for file in sorted(family.root.path.parent.glob("package*.json")):
        try:
            agents.append(read_package(file).agent)
        except PackageError:
            continue
    return {fingerprint(each): each for agent in agents for each in iterate_packages(agent)}


def redact_family(family: RunFamily) -> RunFamily:
    """The journals without the credentials of this environment, which another process may not have known."""
    from msgspec.structs import replace

    from agentrun.cli.console import environment_redactor
    from agentrun.engine.fact_redaction import redact_struct
    from agentrun.journal.family import ReadJournal

    def redact(journal: ReadJournal) -> ReadJournal:
        records = (replace(each, fact=redact_struct(environment_redactor(), each.fact)) for each in journal.records)
        return replace(journal, records=tuple(records))

    return replace(
        family, root=redact(family.root), children={run: redact(each) for run, each in family.children.items()}
    )


def exit_code(family: RunFamily) -> int:
    """0, or that of the first journal that is damaged."""
    return next((journal.error.exit_code for journal in family.journals if journal.error is not None), 0)


def show_run_error(run: str | None, error: AgentrunError, *, as_json: bool, file: str | None = None) -> None:
    """Print an error about a run. Its JSON object has the run, and the call if the error is about one."""
    if not as_json:
        if file is not None:
            print_stderr(safe_text(f"{file}:"))
        show_error(error, as_json=False)
        return
    names = {"run": run, "call": error.fields.get("call"), "file": file}
    present = {name: value for name, value in names.items() if value is not None or name == "run"}
    click.echo(mask(json_line({**present, "error": error.as_json()})))
