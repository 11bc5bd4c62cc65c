"""`agentrun show RUN|FILE`"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.console import json_line, json_option, wants_color
from agentrun.cli.run_files import (
    exit_code,
    journal_argument,
    load_packages,
    package_option,
    read_run,
    redact_family,
    show_run_error,
)
from agentrun.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentrun.core.facts import Record
    from agentrun.journal.family import RunFamily


@click.command("show")
@journal_argument
@package_option
@click.option("--no-color", is_flag=True, help="Print no colours, even in a terminal.")
@json_option
def command(run: str, packages: tuple[Path, ...], no_color: bool, as_json: bool) -> int:
    """Show a run of the store, or of the journal FILE: turns, calls, rulings with reasons, spend and outcome.

    Sub-agents are shown where the run started them. Nothing is sent, and no tool runs. The package of the run is not
    needed; with it, the limits of budgets and retries are shown too. If the journal is damaged, the records before the
    damage are shown, and the exit code is 7.

    \b
    --json prints one object per record, and then the outcome of a finished run:
      {"run", "call", "seq", "at", "epoch", "fact"}
      {"run", "outcome"}
    "call" is left out if a record is not about one call.

    \b
    Examples:
      agentrun show -
      agentrun show 5f0c
      agentrun show run.jsonl --package specs/support.yaml
      agentrun show run.jsonl --json | jq 'select(.fact.type == "ruled").fact.reason'
    """
    from agentrun.report.run_story import render_story
    from agentrun.report.screen import PlainScreen

    family, beside = read_run(run)
    if family.root.records:
        if as_json:
            for line in _json_lines(family):
                click.echo(json_line(line))
        else:
            screen = PlainScreen(sys.stdout, color=wants_color(sys.stdout) and not no_color)
            for each in render_story(redact_family(family), load_packages(beside, packages)):
                screen.line(each)
    for journal in family.journals:
        if journal.error is not None:
            show_run_error(journal.run, journal.error, as_json=as_json)
    return exit_code(family)


def _json_lines(family: RunFamily) -> Iterator[dict[str, Any]]:

    from agentrun.core.evolve import fold
    from agentrun.core.outcome import outcome_of
    from agentrun.journal.family import call_of

    for journal in family.journals:
        for record in journal.records:
            call = call_of(record.fact)
            yield {"run": journal.run, **({"call": call} if call else {}), **_plain_record(record)}
    if family.root.is_finished:
        with suppress(StorageError):  # without a state if there is a fact that this release does not know
            yield {"run": family.root.run, "outcome": outcome_of(fold(family.root.records)).as_json()}


def _plain_record(record: Record) -> dict[str, Any]:
    import msgspec

    from agentrun.core.facts import UnknownFact

    fact: Any = record.fact
    plain = {"type": fact.kind, **fact.data} if isinstance(fact, UnknownFact) else msgspec.to_builtins(fact)
    return {"seq": record.seq, "at": record.at, "epoch": record.epoch, "fact": plain}
