"""`agentrun cassette accept CASE`"""

from __future__ import annotations

import click

from agentrun.cli.show import say


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
    from agentrun.cassette.file import load
    from agentrun.errors import RequestError
    from agentrun.spec.files import shown_path
    from agentrun.store.staged import accept_staged, staged_path
    from agentrun.testing.suite.chosen import Picks, chosen
    from agentrun.testing.suite.prepared import Preparations

    if "::" not in case:
        raise click.UsageError("name one case: FILE::NAME, such as specs/support.cases.yaml::default")
    (found,) = chosen([case], Picks()).cases or (None,)
    if found is None:
        raise click.UsageError(f"{case.partition('::')[0]} cannot be read: see agentrun validate")
    prepared = Preparations().of(found)
    project, cassette = prepared.spec.project, prepared.cassette(found)
    staged = staged_path(project, cassette)
    if not staged.is_file():
        message = f"there is no new recording of {found.id}"
        hint = f"record one: agentrun test {found.id} --record new"
        raise RequestError("input.rejected", message, hint=hint, fields={"reason": "case"})
    load(staged, project.cassette_limit)
    accept_staged(project, cassette)
    say(f"{shown_path(cassette, project.root)} replaced; see what changed: agentrun test {found.id}")
