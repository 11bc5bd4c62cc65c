"""Dotted paths of fields in JSON data, such as `user.email` or `messages.*.content`.

Rule 1  A step is a key, the position of a list item, or a pattern in which `*` matches any text.
Rule 2  A path selects every value that it leads to. Where it leads nowhere, nothing is selected.
Rule 3  In the facts of a journal a path may also lead into a text that is JSON, such as the arguments of a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from agentrun.canonical_json import NOT_JSON


def replace_at_path(data: Any, path: str, value: str, *, in_json_texts: bool = False) -> int:
    """Replace the values that a path selects, in place. Returns how many there are."""
    return _replace(data, path.split("."), value, in_json_texts)


def _replace(data: Any, steps: list[str], value: str, in_json_texts: bool) -> int:
    first, *rest = steps
    count = 0
    for key, item in list(_items(data, first)):
        if not rest:
            data[key] = value
            count += 1
        elif not isinstance(item, str):
            count += _replace(item, rest, value, in_json_texts)
        elif in_json_texts:
            data[key], found = _replace_in_text(item, rest, value)
            count += found
    return count


def _replace_in_text(text: str, steps: list[str], value: str) -> tuple[str, int]:
    """The text, as it is written unless it is JSON in which the steps select something."""
    if not text.lstrip().startswith(("{", "[")):
        return text, 0
    try:
        data = msgspec.json.decode(text.encode())
    except (*NOT_JSON, UnicodeEncodeError):
        return text, 0
    found = _replace(data, steps, value, True)
    return (msgspec.json.encode(data).decode(), found) if found else (text, 0)


def _items(data: Any, step: str) -> Iterator[tuple[Any, Any]]:
    if isinstance(data, dict):
        yield from ((key, data[key]) for key in sorted(data) if key == step or ("*" in step and fnmatchcase(key, step)))
    elif isinstance(data, list):
        yield from ((index, item) for index, item in enumerate(data) if fnmatchcase(str(index), step))
