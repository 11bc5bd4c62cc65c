"""Where an agent document may refer to other files."""

from __future__ import annotations

SHARED_KEYS = ("tools", "policy", "budgets")
"""Keys that may be inline, `{file: …}`, or a list of both."""

TEXT_PATHS: tuple[tuple[str, ...], ...] = (("instructions",), ("input",), ("context", "compaction", "prompt"))
"""Keys whose text may stand in a file of its own."""

SCHEMA_PATHS: tuple[tuple[str, ...], ...] = (
    ("output", "schema"),
    ("params", "*"),
    ("tools", "*", "args"),
    ("tools", "*", "actions", "*"),
)
"""Keys that hold a JSON Schema, inline or `{file: …}`."""
