"""Fields of a JSON document, by dotted paths such as `user.email` or `messages.*.content`.

Rule 1  A step is a key, the number of a list's item, or a pattern in which `*` stands for anything.
Rule 2  A path may begin with `body.`, to say that it is the body that is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

Place: TypeAlias = tuple[Any, Any]
"""A container, and the key or index in it."""


def places(data: Any, path: str) -> Iterator[Place]:
    """Where in a document a path leads."""
    steps = path.split(".")
    yield from _below(data, steps)
    if steps[0] == "body" and len(steps) > 1:
        yield from _below(data, steps[1:])


def _below(data: Any, steps: list[str]) -> Iterator[Place]:
    first, *rest = steps
    for key, value in _items(data, first):
        if rest:
            yield from _below(value, rest)
        else:
            yield data, key


def _items(data: Any, step: str) -> Iterator[tuple[Any, Any]]:
    if isinstance(data, dict):
        yield from ((key, data[key]) for key in sorted(data) if key == step or ("*" in step and fnmatchcase(key, step)))
    elif isinstance(data, list):
        yield from ((index, item) for index, item in enumerate(data) if fnmatchcase(str(index), step))
