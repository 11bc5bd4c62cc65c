"""`agentrun cassette ls [PATH...]`"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.cassette_age import age_words, days, now_option
from agentrun.cli.show import json_option, say, seen

if TYPE_CHECKING:
    from agentrun.cassette.answered import Exchange
    from agentrun.cli.cassette_replay import Loaded, Packages


@click.command("ls")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@now_option
@json_option
def command(paths: tuple[Path, ...], now: int, as_json: bool) -> int:
    """List recordings: what is on them, how old they are, which model answered, and whether they still belong.

    PATH is a cassette, a spec, or a folder of either; absent: all cassettes of the project.

    \b
    fresh     recorded with the package that its spec gives now
    stale     recorded with another one
    orphan    no case plays it
    foreign   something else recorded it
    damaged   it is no cassette

    \b
    Examples:
      agentrun cassette ls
      agentrun cassette ls specs/support.yaml
      agentrun cassette ls --json | jq 'select(.state == "stale").file'
    """
    from agentrun.cli.cassette_replay import Packages, loaded
    from agentrun.cli.cassette_shelf import shelved

    packages = Packages()
    rows = [_row(loaded(each), packages, now) for each in shelved(paths)]
    if as_json:
        for row in rows:
            click.echo(seen(json.dumps(row, ensure_ascii=False)))
        return 0
    for line in _table([_cells(row, now) for row in rows]):
        click.echo(line)
    if not rows:
        say("no cassettes found")
    return 0


def _row(found: Loaded, packages: Packages, now: int) -> dict[str, Any]:
    from agentrun.cassette.answered import exchanges
    from agentrun.cli.cassette_words import counted, kind_of

    tape, owner = found.tape, found.owner
    state, why = _state(found, packages)
    row: dict[str, Any] = {"file": found.filed.shown, "state": state, "why": why}
    if tape is not None:
        row |= {
            "interactions": counted([kind_of(each) for each in tape.interactions]),
            "recorded_at": tape.recorded_at,
            "days": days(tape.recorded_at, now),
            "models": _models(list(exchanges(tape))),
        }
    if owner is not None:
        row |= {"spec": owner.shown, "case": owner.case.name}
    if len(found.players) > 1:
        row["cases"] = [each.case.name for each in found.players]
    return row


def _models(asked: list[Exchange]) -> list[str]:
    """Who was asked, and who answered if that was another. A request that failed was answered by nobody."""
    from agentrun.spec.text import short

    answered = {each.asked for each in asked if each.answered is not None}
    found = (
        f"{short(each.asked, 60)} → {short(str(each.answered), 60)}" if each.differs else short(each.asked, 60)
        for each in asked
        if each.answered is not None or each.asked not in answered
    )
    return list(dict.fromkeys(found))


def _state(found: Loaded, packages: Packages) -> tuple[str, str | None]:
    from agentrun.spec.text import short

    if found.tape is None:
        return "damaged", None if found.error is None else short(found.error.message, 300)
    if found.owner is None:
        return "orphan", f"{found.filed.doubt} cannot be read" if found.filed.doubt else None
    if found.is_foreign:
        return "foreign", None
    changed = packages.changed(found.owner, found.tape.metadata)
    return ("fresh", None) if changed is None else ("stale", short(changed, 300))


def _cells(row: dict[str, Any], now: int) -> list[str]:
    from agentrun.spec.problems import visible

    counts = row.get("interactions")
    if counts is None:
        return [visible(row["file"]), "", "", "", row["state"]]
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    age = age_words(row["recorded_at"], now)
    return [visible(row["file"]), kinds or "empty", age, ", ".join(row["models"]) or "no model", row["state"]]


def _table(rows: list[list[str]]) -> list[str]:
    """The rows with their columns aligned, unless the terminal is too narrow for that."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    wide = sum(widths) + 2 * (len(widths) - 1)
    if sys.stdout.isatty() and wide > shutil.get_terminal_size().columns:
        return ["  ".join(filter(None, row)) for row in rows]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
