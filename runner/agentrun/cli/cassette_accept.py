"""`agentrun cassette accept CASE`"""

from __future__ import annotations

import click

from agentrun.cli.console import print_stderr


@click.command("accept")
@click.argument("case", metavar="CASE")
def command(case: str) -> None:
    """Replace the cassette of CASE with the new one that was recorded for it.

    When a case fails with its new cassette, `agentrun test --record` keeps the old cassette and writes the new one
    below .agentrun/recorded. CASE is written as in the report: FILE::NAME.

    \b
    Examples:
      agentrun cassette accept specs/support.cases.yaml::default
    """
    from agentrun.testing.suite.recording import accept_new_cassette
    from agentrun.testing.suite.selection import CaseFilter, select_cases

    if "::" not in case:
        raise click.UsageError("name one case: FILE::NAME, such as specs/support.cases.yaml::default")
    (found,) = select_cases([case], CaseFilter()).cases or (None,)
    if found is None:
        file = case.partition("::")[0]
        raise click.UsageError(f"{file} cannot be read; run `agentrun validate {file}` to see why")
    print_stderr(f"replaced {accept_new_cassette(found)}; to see what changed: agentrun test {found.id}")
