"""JSON Schemas that somebody else's program gives us, as schemas that can be used here.

Servers say what their tools take in any dialect, with keywords of their own. A schema of ours is strict; one of theirs
cannot be, but what comes of it must be.

Rule 1  What means nothing here is left out: `$schema`, unknown keywords. So are patterns that are not linear: such a
        value is judged by the server alone.
Rule 2  What is said to a model in words is made visible: nothing is hidden from the person who reads the lock.
Rule 3  What comes of it passes all rules of `contracts.py`; references are written out. What cannot is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrun.canon import pretty
from agentrun.compiler.contracts import KEYWORDS, check_schema, resolved, with_inner
from agentrun.compiler.patterns import usable_in_schemas
from agentrun.compiler.pins import LARGEST_SCHEMA, plainly, too_large
from agentrun.spec.document import parse
from agentrun.spec.problems import DocumentError, Source, visible

_LARGEST_EXACT = 2**53 - 1


class Unusable(Exception):
    """Why a schema cannot be used."""


def visible_lines(text: str) -> str:
    """A text of several lines in which nothing is invisible."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)


def exact(value: Any) -> Any:
    """The same data with numbers that every reader of JSON takes for the same."""
    match value:
        case dict():
            return {key: exact(inner) for key, inner in value.items()}
        case list():
            return [exact(inner) for inner in value]
        case int() if not isinstance(value, bool) and abs(value) > _LARGEST_EXACT:
            return float(value)
        case _:
            return value


def adopted(schema: Any) -> dict[str, Any]:
    """A schema that can be used in place of theirs. Raises `Unusable`."""
    if not isinstance(schema, dict):
        raise Unusable("is not a JSON Schema")
    try:
        why = too_large(schema)
        text = "" if why else plainly(pretty(_tidied(exact({"type": "object", **schema}))))
    except (TypeError, ValueError, OverflowError, RecursionError):  # half a surrogate pair; a number without end
        raise Unusable("holds what JSON does not have") from None
    if why:
        raise Unusable(why)
    try:
        node = parse(Source(Path("/schema"), "schema", text))
    except DocumentError as error:
        raise Unusable(f"cannot be kept in a lock: {error.problems[0].message}") from None
    if found := check_schema(node):
        raise Unusable(f"cannot be used: {found[0].message}")
    written = resolved(node)
    if written.get("type") != "object":
        raise Unusable("is not that of an object")
    if too_large(written):
        raise Unusable(f"is larger than {LARGEST_SCHEMA:,} bytes when its references are written out")
    return written


def _tidied(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    known = {key: inner for key, inner in schema.items() if key in KEYWORDS and key not in ("$schema", "$comment")}
    if isinstance(known.get("items"), list):  # what older dialects wrote for it
        known["prefixItems"] = known.pop("items")
    if isinstance(known.get("pattern"), str) and not usable_in_schemas(known["pattern"]):
        del known["pattern"]
    patterns = known.get("patternProperties")
    if isinstance(patterns, dict) and not all(map(usable_in_schemas, patterns)):
        known.pop("patternProperties")
        known.pop("additionalProperties", None)  # it would refuse what the patterns allow
    for key in ("title", "description"):
        if isinstance(known.get(key), str):
            known[key] = visible_lines(known[key])
    return with_inner(known, _tidied)
