"""`agentrun cassette show FILE`"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.cassette_options import now_option
from agentrun.cli.show import json_option, seen

if TYPE_CHECKING:
    from agentrun.cassette.tape import Cassette, Interaction


@click.command("show")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--n", "number", metavar="N", type=click.IntRange(min=1), help="Show interaction N whole.")
@now_option
@json_option
def command(file: Path, number: int | None, now: int, as_json: bool) -> int:
    """Tell the recording in FILE in words: what it was made of, then each interaction with its line in the file.

    Times are those of the recording: when a request was sent, and how long it took.

    \b
    Examples:
      agentrun cassette show cassettes/triage/default.yaml
      agentrun cassette show cassettes/triage/default.yaml --n 1
    """
    from agentrun.cassette.file import load
    from agentrun.spec.project import cassette_limit_near

    if not file.is_file():
        raise click.UsageError(f"{file} is not a plain file")
    tape = load(file, cassette_limit_near(file))
    if number is not None and number > len(tape.interactions):
        raise click.UsageError(f"{file} has {len(tape.interactions)} interactions")
    numbers = range(1, len(tape.interactions) + 1) if number is None else [number]
    shown = [(each, tape.interactions[each - 1]) for each in numbers]
    if as_json:
        for line in _as_json(tape, shown, whole=number is not None):
            click.echo(seen(json.dumps(line, ensure_ascii=False)))
        return 0
    for text in _head(file, tape, now) if number is None else ():
        click.echo(text)
    for each, interaction in shown:
        for text in _lines(each, interaction, len(str(numbers[-1])), whole=number is not None):
            click.echo(text)
    return 0


def _head(file: Path, tape: Cassette, now: int) -> Iterator[str]:
    from agentrun.cli.cassette_words import age_text, counted, kind_of
    from agentrun.spec.files import shown_path
    from agentrun.spec.text import plural, short

    about = tape.metadata
    kinds = counted([kind_of(each) for each in tape.interactions])
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    total = plural(len(tape.interactions), "interaction")
    yield f"{short(shown_path(file), 300)}: {total}" + (f" ({listed})" if listed else "")
    if "case" in about:
        profile = f", profile {short(str(about['profile']), 60)}" if about.get("profile") else ""
        yield f"  case {short(str(about['case']), 60)} of {short(str(about.get('spec')))}{profile}"
    if about.get("params"):
        yield f"  params {_json(about['params'])}"
    age = age_text(tape.days_old(now))
    ago = age if age == "today" else f"{age} ago"
    when = f"{short(str(about['recorded_at']), 60)} ({ago})" if tape.recorded_at else "at a time that it does not say"
    by = f" by agentrun {short(str(about['agentrun']), 60)}" if "agentrun" in about else ""
    yield f"  recorded {when}{by}"
    for key, words in (("where", "from"), ("note", "note:"), ("fingerprint", "fingerprint")):
        values = about.get(key, [])
        for value in (values if isinstance(values, list) else [values])[:20]:
            yield f"  {words} {short(str(value), 200)}"
    history = about.get("history")
    for line in (history if isinstance(history, list) else [])[:100]:
        yield f"  changed {_json(line)}"
    yield ""


def _lines(number: int, interaction: Interaction, width: int, *, whole: bool) -> Iterator[str]:
    from agentrun.cli.cassette_whole import whole_lines
    from agentrun.cli.cassette_words import words_of
    from agentrun.spec.text import short

    words = words_of(interaction)
    inner = "  " * _depth(interaction.path)
    path = f"in {short(interaction.path, 60)}: " if interaction.path else ""
    when = _when(interaction)
    yield f"{inner}{number:>{width}}  line {interaction.line}{f', {when}' if when else ''}: {path}{words.asked}"
    yield f"{inner}{' ' * width}  → {words.answered}"
    if whole:
        yield from whole_lines(interaction)


def _when(interaction: Interaction) -> str:
    if interaction.start is None:
        return ""
    took = "" if interaction.end is None else f" for {(interaction.end - interaction.start) / 1000:.3f}s"
    return f"at {interaction.start / 1000:.3f}s{took}"


def _depth(path: str) -> int:
    """How deep the sub-agent is that asked: `c2.0` is one of the run's own, `c2.0.c1.0` one of its."""
    return min(8, path.count("c"))


def _json(value: Any) -> str:
    from agentrun.spec.text import short

    return short(json.dumps(value, ensure_ascii=False, default=str), 200)


def _as_json(tape: Cassette, shown: list[tuple[int, Interaction]], *, whole: bool) -> Iterator[dict[str, Any]]:
    from agentrun.cli.cassette_whole import whole_lines
    from agentrun.cli.cassette_words import words_of

    if not whole:
        yield {"metadata": _masked(tape.metadata)}
    for number, interaction in shown:
        words = words_of(interaction)
        line: dict[str, Any] = {
            "n": number,
            "line": interaction.line,
            "kind": words.kind,
            "asked": words.asked,
            "answered": words.answered,
            "start": interaction.start,
            "end": interaction.end,
            "path": interaction.path,
            "status": interaction.reply.status,
            "failure": None if interaction.failure is None else interaction.failure.code,
        }
        yield line | ({"whole": list(whole_lines(interaction))} if whole else {})


def _masked(value: Any, key: str = "") -> Any:
    """Metadata without what may be a secret. It is not nested deeply, or it would not have been read."""
    from agentrun.secret import MASK, find_secrets, mask

    match value:
        case dict():
            return {mask(name): _masked(item, name) for name, item in value.items()}
        case list():
            return [_masked(item, key) for item in value]
        case str():
            return MASK if find_secrets(value, key) else mask(value)
        case None | bool() | int() | float():
            return value
    return str(value)
