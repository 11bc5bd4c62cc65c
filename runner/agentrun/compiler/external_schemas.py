"""Convert JSON Schemas from MCP servers, which may have any dialect, to schemas that agentrun can use.

Rule 1  `$schema`, unknown keywords and patterns that are not linear are removed. Only the server checks such values.
Rule 2  Texts for the model are escaped, so that nothing in them is hidden from a person who reads the lock file.
Rule 3  The result passes all checks of `json_schemas.py`, with references expanded. Otherwise the schema is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrun.canonical_json import map_json, pretty_json
from agentrun.compiler.json_schemas import SCHEMA_KEYWORDS, check_schema, map_subschemas, resolve_references
from agentrun.compiler.lock_file import MAX_TOOL_SCHEMA_BYTES, escape_invisible_json, schema_size_error
from agentrun.compiler.patterns import is_usable_in_schemas
from agentrun.spec.problems import DocumentError, Source, escape_invisible
from agentrun.spec.yaml_parser import MAX_EXACT_INTEGER, parse_yaml_document


class UnusableSchema(Exception):
    """Why a schema cannot be used."""


def escape_invisible_lines(text: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(escape_invisible, line.split("\t"))) for line in lines)


def with_exact_numbers(value: Any) -> Any:
    """Convert large integers to floats, so that every JSON parser reads the same number."""
    return map_json(value, number=lambda each: float(each) if abs(each) > MAX_EXACT_INTEGER else each)


def adopt_schema(schema: Any) -> dict[str, Any]:
    """Return a schema that can replace the schema of a server. Raises `UnusableSchema`."""
    if not isinstance(schema, dict):
        raise UnusableSchema("is not a JSON Schema")
    try:
        why = schema_size_error(schema)
        supported = {} if why else _remove_unsupported(with_exact_numbers({"type": "object", **schema}))
        text = escape_invisible_json(pretty_json(supported))
    except (TypeError, ValueError, OverflowError, RecursionError):  # half a surrogate pair; an infinite number
        raise UnusableSchema("has values that JSON does not support") from None
    if why is not None:
        raise UnusableSchema(why)
    try:
        node = parse_yaml_document(Source(Path("/schema"), "schema", text))
    except DocumentError as error:
        raise UnusableSchema(f"cannot be stored in a lock file: {error.problems[0].message}") from None
    if found := check_schema(node):
        raise UnusableSchema(f"cannot be used: {found[0].message}")
    written = resolve_references(node)
    if written.get("type") != "object":
        raise UnusableSchema("is not the schema of an object")
    if schema_size_error(written):
        raise UnusableSchema(f"is larger than {MAX_TOOL_SCHEMA_BYTES:,} bytes with its references expanded")
    return written


def _remove_unsupported(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    known = {
        key: inner for key, inner in schema.items() if key in SCHEMA_KEYWORDS and key not in ("$schema", "$comment")
    }
    if isinstance(known.get("items"), list):  # the form in older dialects
        known["prefixItems"] = known.pop("items")
    if isinstance(known.get("pattern"), str) and not is_usable_in_schemas(known["pattern"]):
        del known["pattern"]
    patterns = known.get("patternProperties")
    if isinstance(patterns, dict) and not all(map(is_usable_in_schemas, patterns)):
        known.pop("patternProperties")
        known.pop("additionalProperties", None)  # it would refuse the keys that the patterns allow
    for key in ("title", "description"):
        if isinstance(known.get(key), str):
            known[key] = escape_invisible_lines(known[key])
    return map_subschemas(known, _remove_unsupported)
