"""`agentrun cassette ls [PATH...]`"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.console import json_line, json_option, print_stderr
from agentrun.cli.options import ExistingPath, now_option

if TYPE_CHECKING:
    from agentrun.cassette.selection import CaseReplays, LoadedCassette


@click.command("ls")
@click.argument("paths", nargs=-1, type=ExistingPath(exists=True, path_type=Path))
@now_option
@json_option
def command(paths: tuple[Path, ...], now: int, as_json: bool) -> int:
    """List cassettes: their interactions, age, model and state.

    PATH is a cassette, a spec, or a folder of them. Without PATH all cassettes of the project are listed.

    \b
    fresh     recorded with the current version of the spec
    stale     recorded with another version of the spec
    orphan    no case uses it
    foreign   not recorded by agentrun
    damaged   the file is not a cassette

    \b
    Examples:
      agentrun cassette ls
      agentrun cassette ls specs/support.yaml
      agentrun cassette ls --json | jq 'select(.state == "stale").file'
    """
    from agentrun.cassette.selection import load_selected, select_cassettes
    from agentrun.testing.suite.replay import SuiteReplays

    replays = SuiteReplays()
    rows = [_row(load_selected(file), replays, now) for file in select_cassettes(paths)]
    if as_json:
        for row in rows:
            click.echo(json_line(row))
        return 0
    for line in _table([_cells(row) for row in rows]):
        click.echo(line)
    if not rows:
        print_stderr("no cassettes found")
    return 0


def _row(loaded: LoadedCassette, replays: CaseReplays, now: int) -> dict[str, Any]:
    from agentrun.cassette.audit import cassette_state
    from agentrun.cassette.parsed_interaction import model_names, parse_cassette
    from agentrun.report.cassette_text import count_kinds

    cassette, owners = loaded.cassette, loaded.owners
    state, why = cassette_state(loaded, replays)
    row: dict[str, Any] = {"file": loaded.file.label, "state": state, "why": why}
    if cassette is not None:
        row |= {
            "interactions": count_kinds(parse_cassette(cassette).interactions),
            "recorded_at": cassette.recorded_at,
            "days": cassette.days_old(now),
            "models": model_names(cassette),
        }
    if owners:
        row |= {"spec": owners[0].spec_label, "case": owners[0].case.name}
    if len(owners) > 1:
        row["cases"] = [each.case.name for each in owners]
    return row


def _cells(row: dict[str, Any]) -> list[str]:
    from agentrun.report.cassette_text import age_text, kinds_text
    from agentrun.spec.problems import escape_invisible

    counts = row.get("interactions")
    if counts is None:
        return [escape_invisible(row["file"]), "", "", "", row["state"]]
    models = ", ".join(row["models"]) or "no model"
    return [escape_invisible(row["file"]), kinds_text(counts) or "empty", age_text(row["days"]), models, row["state"]]


def _table(rows: list[list[str]]) -> list[str]:
    """The rows with their columns aligned, unless the terminal is too narrow for that."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    wide = sum(widths) + 2 * (len(widths) - 1)
    if sys.stdout.isatty() and wide > shutil.get_terminal_size().columns:
        return ["  ".join(filter(None, row)) for row in rows]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
