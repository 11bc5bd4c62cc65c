"""`agentrun cassette show FILE`"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.console import json_line, json_option
from agentrun.cli.options import ExistingPath, now_option

if TYPE_CHECKING:
    from agentrun.cassette.parsed_interaction import ParsedCassette


@click.command("show")
@click.argument("file", type=ExistingPath(exists=True, dir_okay=False, path_type=Path))
@click.option("--n", "number", metavar="N", type=click.IntRange(min=1), help="Show all of interaction N.")
@now_option
@json_option
def command(file: Path, number: int | None, now: int, as_json: bool) -> int:
    """Show the cassette in FILE as text: its metadata, then each interaction with its line in the file.

    Times are those of the recorded run: when a request was sent, and how long it took.

    \b
    Examples:
      agentrun cassette show cassettes/triage/default.yaml
      agentrun cassette show cassettes/triage/default.yaml --n 1
    """
    from agentrun.cassette.file import load_cassette
    from agentrun.cassette.parsed_interaction import parse_cassette
    from agentrun.report.cassette_text import content_lines, head_lines, interaction_lines
    from agentrun.spec.project import cassette_limit_for
    from agentrun.spec.safe_text import plural
    from agentrun.spec.source_files import display_path

    if not file.is_file():
        raise click.UsageError(f"{file} is not a regular file")
    cassette = load_cassette(file, cassette_limit_for(file))
    if number is not None and number > len(cassette.interactions):
        raise click.UsageError(f"{file} has only {plural(len(cassette.interactions), 'interaction')}")
    parsed = parse_cassette(cassette)
    if as_json:
        for line in _json_objects(parsed, number):
            click.echo(json_line(line))
        return 0
    if number is None:
        width = len(str(len(cassette.interactions)))
        head = head_lines(display_path(file), parsed, cassette.days_old(now))
        lines = chain(head, *(interaction_lines(each, width) for each in parsed.interactions))
    else:
        one = parsed.interactions[number - 1]
        lines = chain(interaction_lines(one, len(str(number))), content_lines(one))
    for text in lines:
        click.echo(text)
    return 0


def _json_objects(cassette: ParsedCassette, number: int | None) -> Iterator[dict[str, Any]]:
    """The metadata and all interactions, or one interaction with its content."""
    from agentrun.report.cassette_text import content_lines, describe_interaction

    if number is None:
        yield {"metadata": _mask_metadata(cassette.metadata)}
    for each in cassette.interactions if number is None else [cassette.interactions[number - 1]]:
        interaction, text = each.recorded, describe_interaction(each)
        line: dict[str, Any] = {
            "n": each.number,
            "line": interaction.line,
            "kind": each.kind,
            "asked": text.request,
            "answered": text.outcome,
            "start": interaction.start,
            "end": interaction.end,
            "path": interaction.path,
            "status": interaction.reply.status,
            "failure": None if interaction.failure is None else interaction.failure.code,
        }
        yield line | ({} if number is None else {"whole": list(content_lines(each))})


def _mask_metadata(value: Any, key: str = "") -> Any:
    """Metadata with everything masked that may be a secret. The loader limits how deep it is nested."""
    from agentrun.secret import MASK, find_secrets, mask

    match value:
        case dict():
            return {mask(name): _mask_metadata(item, name) for name, item in value.items()}
        case list():
            return [_mask_metadata(item, key) for item in value]
        case str():
            return MASK if find_secrets(value, key) else mask(value)
        case None | bool() | int() | float():
            return value
    return str(value)
