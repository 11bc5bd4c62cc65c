"""The mistakes found in one template, and their places."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

MAX_FAULTS: Final = 100
_UNSEEN: Final = re.compile("[^ -~]")


class Fault(msgspec.Struct, frozen=True, order=True):
    """One mistake in a template."""

    line: int
    """Counted from 1, in the template's own text."""
    column: int
    """Counted from 1, in characters; 1 when it cannot be told."""
    width: int
    """Characters to underline, at least 1."""
    code: str
    """template_syntax, template_unknown_name, template_forbidden or template_unknown_filter."""
    message: str
    hint: str | None
    """What to do."""


class Faults:
    """Collects mistakes: one for each place, and no more than a hostile template needs to be refused."""

    def __init__(self, source: str, found: Mapping[int, Fault] | None = None) -> None:
        self._source = source
        self._found = dict(found or {})

    def __len__(self) -> int:
        return len(self._found)

    @property
    def full(self) -> bool:
        """Whether a further mistake would be dropped."""
        return len(self._found) >= MAX_FAULTS

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        return self._source.count("\n", 0, offset) + 1, offset - self._source.rfind("\n", 0, offset)

    def find(self, word: str, offset: int) -> int:
        """Where a word stands when Jinja tells what precedes it: a name after a dot, a test after `is`."""
        found = self._source.find(word, offset, offset + len(word) + 200)
        return found if found >= 0 else offset

    def add(self, offset: int, width: int, code: str, message: str, hint: str | None) -> None:
        """Note a mistake; the first at a place stays: a forbidden tag is met by name, then as a node."""
        if not self.full and offset not in self._found:
            line, column = self.place(offset)
            self._found[offset] = Fault(line, column, max(1, min(width, 80)), code, message[:300], hint)

    def syntax(self, offset: int, width: int, message: str, hint: str | None = None) -> None:
        self.add(offset, width, "template_syntax", message, hint)

    def forbidden(self, offset: int, width: int, message: str, hint: str | None = None) -> None:
        self.add(offset, width, "template_forbidden", message, hint)

    def copy(self) -> Faults:
        """To be added to while the first ones are kept for the next reader."""
        return Faults(self._source, self._found)

    def sorted(self) -> list[Fault]:
        return [fault for _, fault in sorted(self._found.items())]


def short(name: str) -> str:
    """A name for a message: printable, and not a megabyte long."""
    shown = _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), name[:40])
    return f'"{shown}{"…" if len(name) > 40 else ""}"'


def nearest(name: str, known: Collection[str]) -> str | None:
    """A hint with the known name that is most like `name`."""
    if len(name) > 64 or not known:
        return None
    # Comparing costs 10 µs a pair; a thousand fields times a hundred mistakes would take a second.
    candidates = sorted(other for other in known if abs(len(other) - len(name)) <= 3)[:100]
    found = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    if found:
        return f'did you mean "{found[0]}"?'
    return f"known here: {', '.join(sorted(known))}" if len(known) <= 8 else None
