"""Differences for eyes, programs and pull requests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from agentrun.cli.diff_sides import Side
from agentrun.cli.known import known
from agentrun.cli.show import clean, colored, say, seen
from agentrun.redact import masked
from agentrun.report.change import Change
from agentrun.report.fields import ABSENT
from agentrun.report.markdown import LONGEST, code, markdown, text_lines
from agentrun.secret import MASK, mask, names_credential
from agentrun.spec.text import plural

_COLORS = {"new": "green", "gone": "red", "changed": "yellow", "moved": "cyan"}
_SIGNS = {"new": "+", "gone": "-", "changed": "~", "moved": "~"}


class Compared(Struct, frozen=True):
    """Two files, and how they differ."""

    side: Side
    a: Path
    b: Path
    changes: tuple[Change, ...]
    name: str = ""
    """Of files in folders: the path in them."""


def show(found: list[Compared], a: Path, b: Path, *, as_json: bool, as_markdown: bool, folders: bool) -> int:
    """Print all of it. The exit code."""
    if as_json:
        click.echo(seen(json.dumps(_folders(found, a, b) if folders else _file(found[0]), ensure_ascii=False)))
    elif as_markdown:
        click.echo(_markdown(found, a, b, folders=folders), nl=False)
    else:
        _text(found, folders=folders)
    return 1 if any(each.changes for each in found) else 0


def _text(found: list[Compared], *, folders: bool) -> None:
    for each in found:
        if folders and each.changes:
            painted(clean(each.name), bold=True)
        for change in each.changes:
            painted(f"{_SIGNS[change.how]} {clean(change.text)}", fg=_COLORS[change.how])
            for line in text_lines(change):
                painted(f"    {clean(line)}", fg={"+": "green", "-": "red"}.get(line[:1]))
    count = sum(len(each.changes) for each in found)
    files = sum(bool(each.changes) for each in found)
    within = f" in {files} of {plural(len(found), 'file')}" if folders else ""
    say(f"{plural(count, 'difference')}{within}" if count else "no differences")


def painted(text: str, *, fg: str | None = None, bold: bool = False) -> None:
    click.secho(text, fg=fg, bold=bold or None, color=colored(sys.stdout))


def _markdown(found: list[Compared], a: Path, b: Path, *, folders: bool) -> str:
    title = f"{code(clean(str(a)))} → {code(clean(str(b)))}"
    if not folders:
        return markdown(title, _cleaned(found[0].changes))
    parts: list[str] = []
    room = LONGEST
    changed = [each for each in found if each.changes]
    for each in changed:
        part = markdown(code(clean(each.name)), _cleaned(each.changes), room)
        room -= len(part)
        if room < 0:
            parts.append(f"… and {plural(len(changed) - len(parts), 'more file')}.\n")
            break
        parts.append(part)
    head = f"## {title}\n\n{plural(len(changed), 'file')} of {len(found)} changed.\n\n"
    return head + "\n".join(parts)


def _cleaned(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    from msgspec.structs import replace

    return tuple(replace(each, text=clean(each.text)) for each in changes)


def _file(compared: Compared) -> dict[str, Any]:
    return {
        "kind": compared.side,
        "a": clean(str(compared.a)),
        "b": clean(str(compared.b)),
        "same": not compared.changes,
        "changes": [_change(each) for each in compared.changes],
    }


def _folders(found: list[Compared], a: Path, b: Path) -> dict[str, Any]:
    files = [{"file": clean(each.name), **_file(each)} for each in found]
    same = not any(each.changes for each in found)
    return {"kind": "folder", "a": clean(str(a)), "b": clean(str(b)), "same": same, "files": files}


def _change(change: Change) -> dict[str, Any]:
    """Plain data. What there was not, or is not, is left out."""
    told: dict[str, Any] = {
        "kind": change.kind,
        "how": change.how,
        "text": clean(change.text),
        "run": change.run,
        "turn": change.turn,
        "call": change.call,
        "path": change.path or None,
    }
    told = {key: value for key, value in told.items() if value is not None}
    values = {"before": change.before, "after": change.after}
    return told | {key: _shown(value) for key, value in values.items() if value is not ABSENT}


def _shown(value: Any, key: str = "") -> Any:
    """Data without what nobody may see."""
    match value:
        case str():
            return MASK if names_credential(key) else masked(mask(known().text(value)))
        case dict():
            return {mask(str(name)): _shown(item, str(name)) for name, item in value.items()}
        case list() | tuple():
            return [_shown(item) for item in value]
        case None | bool() | int() | float():
            return value
    return str(value)
