"""Documents against their JSON Schemas: every error as a problem at its place.

Rule 1  The shipped `*.schema.json` files decide, the same ones editors use.
Rule 2  Nothing is fetched; the schemas hold everything they refer to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind

from agentrun.spec import wording
from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.spec.tree import Node, place_of, plain

Steps = list[str | int]


def schema_file(name: str) -> Path:
    """Where a schema is: beside the code in an installation, at the top of the tree in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "schemas" / f"{name}.schema.json"
    return installed if installed.exists() else package.parent.parent / "schemas" / f"{name}.schema.json"


@lru_cache
def _schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(schema_file(name).read_bytes())
    return loaded


@lru_cache
def _validator(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(_schema(name), offline=True)


def check(root: Node, name: str) -> list[Problem]:
    """Everything in the document that its schema refuses."""
    data = plain(root)
    validator = _validator(name)
    if validator.is_valid(data):
        return []
    return [problem for error in validator.iter_errors(data) for problem in _problems(root, error, name)]


def _problems(root: Node, error: jsonschema_rs.ValidationError, name: str) -> Iterator[Problem]:
    path, kind, value = error.instance_path, error.kind, error.instance
    key = quoted(str(path[-1])) if path else "the document"
    here = place_of(root, path)
    match kind:
        case Kind.AdditionalProperties():
            known = _known_keys(error.schema_path, name)
            for unexpected in kind.unexpected:
                yield _unknown_key(root, path, unexpected, known)
        case Kind.Required():
            yield _missing(root, path, kind.property, error.schema_path, name)
        case Kind.Type():
            yield Problem(here, "spec.wrong_type", *wording.wrong_type(key, value, kind.types))
        case Kind.Enum():
            yield Problem(here, "spec.wrong_value", *wording.wrong_value(key, value, kind.options))
        case Kind.Constant():
            yield Problem(here, "spec.wrong_value", *wording.wrong_value(key, value, [kind.expected_value]))
        case Kind.Pattern():
            yield Problem(here, "spec.wrong_text", *wording.wrong_text(key, value, kind.pattern))
        case Kind.PropertyNames():
            yield _wrong_key(root, path, kind.error)
        case Kind.Minimum() | Kind.ExclusiveMinimum() | Kind.Maximum() | Kind.ExclusiveMaximum():
            bound = {"Minimum": "at least", "ExclusiveMinimum": "more than", "Maximum": "at most"}
            words = f"{bound.get(type(kind).__name__, 'less than')} {kind.limit}"
            yield Problem(here, "spec.out_of_range", f"{key} must be {words}; it is {wording.shorten(value)}")
        case _:
            yield Problem(here, "spec.out_of_range", f"{key}: {_size_words(kind, error.message)}")


def _size_words(kind: Any, message: str) -> str:
    units = {"Length": "characters", "Items": "items", "Properties": "keys"}
    name = type(kind).__name__
    for ending, unit in units.items():
        if name.endswith(ending):
            return f"must have at {'least' if name.startswith('Min') else 'most'} {kind.limit} {unit}"
    return message


def _unknown_key(root: Node, path: Steps, key: str, known: list[str]) -> Problem:
    place = place_of(root, [*path, key], key=True)
    where = f"in {quoted('.'.join(map(str, path)))}" if path else "at the top of the document"
    hint = did_you_mean(key, known) or (f"known keys: {', '.join(sorted(known))}" if known else None)
    return Problem(place, "spec.unknown_key", f"key {quoted(key)} is not known {where}", hint)


def _missing(root: Node, path: Steps, key: str, schema_path: Steps, name: str) -> Problem:
    place = place_of(root, path, key=True)
    where = quoted(str(path[-1])) if path else "the document"
    text = _at_parent(schema_path, name).get("properties", {}).get(key, {}).get("description")
    return Problem(place, "spec.missing_key", f"{where} lacks the key {quoted(key)}", text)


def _wrong_key(root: Node, path: Steps, error: jsonschema_rs.ValidationError) -> Problem:
    key = str(error.instance)
    place = place_of(root, [*path, key], key=True)
    pattern = error.kind.pattern if isinstance(error.kind, Kind.Pattern) else ""
    return Problem(place, "spec.name", *wording.wrong_text("the key", key, pattern))


def _known_keys(schema_path: Steps, name: str) -> list[str]:
    return list(_at_parent(schema_path, name).get("properties", {}))


def _at_parent(schema_path: Steps, name: str) -> dict[str, Any]:
    """The part of the schema that holds the keyword at the end of the path."""
    part: Any = _schema(name)
    for step in schema_path[:-1]:
        part = part[int(step)] if isinstance(part, list) else part[str(step)]
    return part if isinstance(part, dict) else {}
