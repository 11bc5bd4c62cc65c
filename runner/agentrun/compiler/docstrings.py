"""What a docstring says about the parameters of a function, in the three forms that people write.

    Args:                    Parameters                  :param order: The order's number.
        order: The order's   ----------
            number.          order : str
                                 The order's number.

Rule 1  Each is one line of text of a sensible length. What has none of the forms says nothing.
Rule 2  However a docstring looks, reading it takes no time: its size is bounded, and patterns are linear.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import re2

from agentrun.compiler.annotations import is_text

LONGEST = 1000
"""Characters of what is said about one parameter."""
MOST_LINES = 500
MOST_CHARACTERS = 32 * 1024
"""Of a docstring no more is looked at."""


def _linear(pattern: str) -> Any:
    return re2.compile(pattern)  # type: ignore[no-untyped-call]  # it has no types


_HEADING = _linear(r"(?i)(?:(?:keyword )?arg(?:ument)?s|(?:other )?parameters):")
_UNDERLINED = _linear(r"(?i)(?:other )?parameters")
_UNDERLINE = _linear("-{3,}")
_GOOGLE = _linear(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = _linear(r"\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?")
_REST = _linear(r":(?:param|parameter|arg|argument|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")


def described(text: str, parameters: Collection[str]) -> dict[str, str]:
    """The descriptions of parameters. `text` is a docstring without its indentation."""
    lines = text[:MOST_CHARACTERS].expandtabs().splitlines()[:MOST_LINES]
    found: dict[str, str] = {}
    if not is_text(text):
        return found
    for read in (_google, _numpy, _rest):
        for name, words in read(lines):
            line = " ".join(" ".join(words).split())[:LONGEST]
            if name in parameters and line:
                found.setdefault(name, line)
    return found


def _google(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for start, line in enumerate(lines):
        if _HEADING.fullmatch(line.strip()):
            yield from _entries(list(_below(lines, start + 1, _indent(line))))


def _entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`name: text`, with the lines that stand deeper."""
    own = min((_indent(line) for line in lines if line.strip()), default=0)
    name, words = "", list[str]()
    for line in lines:
        entry = _GOOGLE.fullmatch(line.strip()) if line.strip() and _indent(line) == own else None
        if entry is None:
            words.append(line)
            continue
        yield name, words
        name, words = entry[1], [entry[2]]
    yield name, words


def _numpy(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for start in range(len(lines) - 1):
        if _UNDERLINED.fullmatch(lines[start].strip()) and _UNDERLINE.fullmatch(lines[start + 1].strip()):
            own = _indent(lines[start])
            names, words = "", list[str]()
            for place, line in enumerate(lines[start + 2 :], start + 2):
                if not line.strip() or _indent(line) > own:
                    words.append(line)
                    continue
                entry = _NUMPY.fullmatch(line.strip())
                yield from ((name.strip(), words) for name in names.split(","))
                names, words = "", []
                if entry is None or (place + 1 < len(lines) and _UNDERLINE.fullmatch(lines[place + 1].strip())):
                    break
                names = entry[1]
            yield from ((name.strip(), words) for name in names.split(","))


def _rest(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for start, line in enumerate(lines):
        if entry := _REST.fullmatch(line.strip()):
            yield entry[1], [entry[2], *_below(lines, start + 1, _indent(line))]


def _below(lines: list[str], start: int, indent: int) -> Iterator[str]:
    """The lines that stand deeper, up to the first that does not."""
    for line in lines[start:]:
        if line.strip() and _indent(line) <= indent:
            return
        yield line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
