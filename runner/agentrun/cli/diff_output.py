"""Print differences as text, as JSON or as Markdown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from agentrun.cli.known import known
from agentrun.cli.show import clean, colored, say, seen
from agentrun.redactor import mask_except_placeholders
from agentrun.report.change import RunChange
from agentrun.report.file_diff import Comparison
from agentrun.report.markdown import changes_markdown, diff_lines, folder_markdown, inline_code
from agentrun.report.value_diff import ABSENT
from agentrun.secret import MASK, mask, names_credential
from agentrun.spec.safe_text import plural

_COLORS = {"new": "green", "gone": "red", "changed": "yellow", "moved": "cyan"}
_SIGNS = {"new": "+", "gone": "-", "changed": "~", "moved": "~"}


def show(found: list[Comparison], a: Path, b: Path, *, as_json: bool, as_markdown: bool, folders: bool) -> int:
    """Print all differences and return the exit code."""
    if as_json:
        click.echo(seen(json.dumps(_folders(found, a, b) if folders else _file(found[0]), ensure_ascii=False)))
    elif as_markdown:
        click.echo(_markdown(found, a, b, folders=folders), nl=False)
    else:
        _text(found, folders=folders)
    return 1 if any(each.changes for each in found) else 0


def _text(found: list[Comparison], *, folders: bool) -> None:
    for each in found:
        if folders and each.changes:
            paint(clean(each.name), bold=True)
        for change in each.changes:
            paint(f"{_SIGNS[change.how]} {clean(change.text)}", fg=_COLORS[change.how])
            for line in diff_lines(change):
                paint(f"    {clean(line)}", fg={"+": "green", "-": "red"}.get(line[:1]))
    count = sum(len(each.changes) for each in found)
    files = sum(bool(each.changes) for each in found)
    within = f" in {files} of {plural(len(found), 'file')}" if folders else ""
    say(f"{plural(count, 'difference')}{within}" if count else "no differences")


def paint(text: str, *, fg: str | None = None, bold: bool = False) -> None:
    click.secho(text, fg=fg, bold=bold or None, color=colored(sys.stdout))


def _markdown(found: list[Comparison], a: Path, b: Path, *, folders: bool) -> str:
    title = f"{inline_code(clean(str(a)))} → {inline_code(clean(str(b)))}"
    if not folders:
        return changes_markdown(title, _clean_changes(found[0].changes))
    changed = [(clean(each.name), _clean_changes(each.changes)) for each in found if each.changes]
    return folder_markdown(title, changed, len(found))


def _clean_changes(changes: tuple[RunChange, ...]) -> tuple[RunChange, ...]:
    return tuple(replace(each, text=clean(each.text)) for each in changes)


def _file(compared: Comparison) -> dict[str, Any]:
    return {
        "kind": compared.kind,
        "a": clean(str(compared.a)),
        "b": clean(str(compared.b)),
        "same": not compared.changes,
        "changes": [_change(each) for each in compared.changes],
    }


def _folders(found: list[Comparison], a: Path, b: Path) -> dict[str, Any]:
    files = [{"file": clean(each.name), **_file(each)} for each in found]
    same = not any(each.changes for each in found)
    return {"kind": "folder", "a": clean(str(a)), "b": clean(str(b)), "same": same, "files": files}


def _change(change: RunChange) -> dict[str, Any]:
    """A change as plain data, without the fields that do not apply."""
    data: dict[str, Any] = {
        "kind": change.kind,
        "how": change.how,
        "text": clean(change.text),
        "run": change.run,
        "turn": change.turn,
        "call": change.call,
        "path": change.path or None,
    }
    data = {key: value for key, value in data.items() if value is not None}
    values = {"before": change.before, "after": change.after}
    return data | {key: _masked_data(value) for key, value in values.items() if value is not ABSENT}


def _masked_data(value: Any, key: str = "") -> Any:
    """Plain data with secrets masked."""
    match value:
        case str():
            return MASK if names_credential(key) else mask_except_placeholders(mask(known().redact_text(value)))
        case dict():
            return {mask(str(name)): _masked_data(item, str(name)) for name, item in value.items()}
        case list() | tuple():
            return [_masked_data(item) for item in value]
        case None | bool() | int() | float():
            return value
    return str(value)
