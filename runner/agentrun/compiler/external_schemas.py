"""JSON Schemas that somebody else's program gives us, as schemas that can be used here.

Servers say what their tools take in any dialect, with keywords of their own. A schema of ours is strict; one of theirs
cannot be, but what comes of it must be.

Rule 1  What means nothing here is left out: `$schema`, unknown keywords. So are patterns that are not linear: such a
        value is judged by the server alone.
Rule 2  What is said to a model in words is made visible: nothing is hidden from the person who reads the lock.
Rule 3  What comes of it passes all rules of `json_schemas.py`; references are written out. What cannot is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrun.canonical_json import pretty_json
from agentrun.compiler.json_schemas import SCHEMA_KEYWORDS, check_schema, map_subschemas, resolve_references
from agentrun.compiler.lock import MAX_TOOL_SCHEMA_BYTES, escape_invisible_json, schema_size_error
from agentrun.compiler.patterns import is_usable_in_schemas
from agentrun.spec.problems import DocumentError, Source, escape_invisible
from agentrun.spec.yaml_parser import parse_yaml_document

_MAX_EXACT_INTEGER = 2**53 - 1


class UnusableSchema(Exception):
    """Why a schema cannot be used."""


def escape_invisible_lines(text: str) -> str:
    """A text of several lines in which nothing is invisible."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(escape_invisible, line.split("\t"))) for line in lines)


def with_exact_numbers(value: Any) -> Any:
    """The same data with numbers that every reader of JSON takes for the same."""
    match value:
        case dict():
            return {key: with_exact_numbers(inner) for key, inner in value.items()}
        case list():
            return [with_exact_numbers(inner) for inner in value]
        case int() if not isinstance(value, bool) and abs(value) > _MAX_EXACT_INTEGER:
            return float(value)
        case _:
            return value


def adopt_schema(schema: Any) -> dict[str, Any]:
    """A schema that can be used in place of theirs. Raises `UnusableSchema`."""
    if not isinstance(schema, dict):
        raise UnusableSchema("is not a JSON Schema")
    try:
        why = schema_size_error(schema)
        text = (
            ""
            if why
            else escape_invisible_json(
                pretty_json(_remove_unsupported(with_exact_numbers({"type": "object", **schema})))
            )
        )
    except (TypeError, ValueError, OverflowError, RecursionError):  # half a surrogate pair; a number without end
        raise UnusableSchema("holds what JSON does not have") from None
    if why:
        raise UnusableSchema(why)
    try:
        node = parse_yaml_document(Source(Path("/schema"), "schema", text))
    except DocumentError as error:
        raise UnusableSchema(f"cannot be kept in a lock: {error.problems[0].message}") from None
    if found := check_schema(node):
        raise UnusableSchema(f"cannot be used: {found[0].message}")
    written = resolve_references(node)
    if written.get("type") != "object":
        raise UnusableSchema("is not that of an object")
    if schema_size_error(written):
        raise UnusableSchema(f"is larger than {MAX_TOOL_SCHEMA_BYTES:,} bytes when its references are written out")
    return written


def _remove_unsupported(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    known = {
        key: inner for key, inner in schema.items() if key in SCHEMA_KEYWORDS and key not in ("$schema", "$comment")
    }
    if isinstance(known.get("items"), list):  # what older dialects wrote for it
        known["prefixItems"] = known.pop("items")
    if isinstance(known.get("pattern"), str) and not is_usable_in_schemas(known["pattern"]):
        del known["pattern"]
    patterns = known.get("patternProperties")
    if isinstance(patterns, dict) and not all(map(is_usable_in_schemas, patterns)):
        known.pop("patternProperties")
        known.pop("additionalProperties", None)  # it would refuse what the patterns allow
    for key in ("title", "description"):
        if isinstance(known.get(key), str):
            known[key] = escape_invisible_lines(known[key])
    return map_subschemas(known, _remove_unsupported)
