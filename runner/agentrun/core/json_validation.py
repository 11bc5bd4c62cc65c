"""Whether an answer matches its schema. agentrun checks this itself, whatever the provider promised.

Rule 1  JSON is parsed strictly: no NaN, no duplicate keys, no text around it, no attempt to repair it.
Rule 2  The order: size, syntax, depth, schema. Input that is refused already costs nothing more.
Rule 3  Schemas reach no network and no file. Their patterns run in linear time.
Rule 4  Errors are written for the model that has to repair the answer: without values.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

import jsonschema_rs
import msgspec
from msgspec import Struct

from agentrun.canonical_json import sorted_json
from agentrun.core import model_texts as texts
from agentrun.core.package import OutputContract

MAX_OUTPUT_ERRORS = 10
MAX_OUTPUT_ERROR_LENGTH = 300


class Valid(Struct, frozen=True):
    value: Any


class Invalid(Struct, frozen=True):
    errors: tuple[str, ...]


ValidationResult: TypeAlias = Valid | Invalid


def validate_output(answer: str, contract: OutputContract) -> ValidationResult:
    assert contract.schema is not None
    parsed = parse_strict_json(answer, max_bytes=contract.max_bytes, max_depth=contract.max_depth)
    if isinstance(parsed, Invalid):
        return parsed
    found = islice(schema_validator(sorted_json(contract.schema)).iter_errors(parsed.value), MAX_OUTPUT_ERRORS + 1)
    lines = [texts.schema_error(json_pointer(error.instance_path), error.message) for error in found]
    errors = [line[:MAX_OUTPUT_ERROR_LENGTH] for line in lines]
    more = [texts.MORE_ERRORS] if len(errors) > MAX_OUTPUT_ERRORS else []
    return Invalid((*sorted(errors[:MAX_OUTPUT_ERRORS]), *more)) if errors else parsed


def parse_strict_json(text: str, *, max_bytes: int, max_depth: int) -> ValidationResult:
    size = len(text.encode("utf-8", "replace"))
    if size > max_bytes:
        return Invalid((texts.JSON_TOO_LARGE.format(size, max_bytes),))
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        return Invalid((texts.JSON_TOO_DEEP.format(max_depth),))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return Invalid((texts.JSON_INVALID.format(error),))
    keys, depth = _measure(value)
    if depth > max_depth:
        return Invalid((texts.JSON_TOO_DEEP.format(max_depth),))
    if keys != _count_keys(text):
        return Invalid((texts.DUPLICATE_KEY,))
    return Valid(value)


def _measure(value: Any) -> tuple[int, int]:
    """The number of keys of all objects in a value, and how deep the value nests. A scalar has depth 0."""
    keys, depth, level = 0, 0, [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        below: list[Any] = []
        for item in level:
            keys += len(item) if isinstance(item, dict) else 0
            inner = item.values() if isinstance(item, dict) else item
            below += [each for each in inner if isinstance(each, dict | list)]
        level = below
    return keys, depth


def _count_keys(text: str) -> int:
    """How many keys a valid JSON text has: its colons outside of strings.

    A parser keeps one of two equal keys, so fewer keys in the value mean a duplicate. Equal keys may differ as text.
    """
    outside = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    return sum(piece.count(":") for piece in outside)


def json_pointer(path: list[str | int]) -> str:
    return "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in path) if path else ""


@lru_cache(maxsize=1024)
def schema_validator(schema: bytes) -> jsonschema_rs.Validator:
    """The validator of a schema, given as JSON. Raises ValueError if it is not a schema."""
    return jsonschema_rs.validator_for(
        schema.decode(), offline=True, mask="the value", pattern_options=jsonschema_rs.RegexOptions()
    )
