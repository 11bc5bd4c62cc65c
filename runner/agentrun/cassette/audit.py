"""What can be wrong with a recording."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

Kind: TypeAlias = Literal["damaged", "secret", "miss", "unused", "stale", "orphan", "model", "old", "foreign"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""From the worst to what is only worth knowing."""
FAILING: tuple[Kind, ...] = ("damaged", "secret", "miss", "unused")
"""The kinds that fail an audit unless something else is asked for."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with one recording."""

    file: str
    line: int = 1
    kind: Kind
    message: str
    fix: str

    def as_json(self, *, fails: bool) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.line,
            "kind": self.kind,
            "message": self.message,
            "fix": self.fix,
            "fails": fails,
        }
