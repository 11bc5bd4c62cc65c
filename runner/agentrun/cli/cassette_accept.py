"""`agentrun cassette accept CASE`"""

from __future__ import annotations

import click

from agentrun.cli.console import print_stderr


@click.command("accept")
@click.argument("case", metavar="CASE")
def command(case: str) -> None:
    """Put the new recording of CASE in place of its cassette.

    When a case fails on its new recording, `agentrun test --record` leaves the cassette as it was and keeps the new
    recording below .agentrun/recorded. CASE is named as in the report: FILE::NAME.

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
        raise click.UsageError(f"{case.partition('::')[0]} cannot be read: see agentrun validate")
    print_stderr(f"{accept_new_cassette(found)} replaced; see what changed: agentrun test {found.id}")
