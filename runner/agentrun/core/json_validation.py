"""Whether an answer keeps its contract. Decided here, whatever the provider promised.

Rule 1  JSON is read strictly: no NaN, no second key of one name, no text around it, no best-effort repair.
Rule 2  Size comes first, then syntax, depth and schema; nothing expensive is done to what is refused already.
Rule 3  Schemas see no network and no file; their patterns run in linear time.
Rule 4  Errors are written for the model that has to repair the answer: where it is wrong and how, no values.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

import jsonschema_rs
import msgspec
from msgspec import Struct

from agentrun.canonical_json import sorted_json
from agentrun.core.package import OutputContract

MAX_OUTPUT_ERRORS = 10
MAX_OUTPUT_ERROR_LENGTH = 300


class Valid(Struct, frozen=True):
    """The answer keeps its contract."""

    value: Any


class Invalid(Struct, frozen=True):
    """It does not."""

    errors: tuple[str, ...]


ValidationResult: TypeAlias = Valid | Invalid


def validate_output(answer: str, contract: OutputContract) -> ValidationResult:
    """The value of an answer, or what is wrong with it. The contract must have a schema."""
    assert contract.schema is not None
    parsed = parse_strict_json(answer, max_bytes=contract.max_bytes, max_depth=contract.max_depth)
    if isinstance(parsed, Invalid):
        return parsed
    found = islice(schema_validator(sorted_json(contract.schema)).iter_errors(parsed.value), MAX_OUTPUT_ERRORS + 1)
    errors = [f"{_pointer(error.instance_path)}: {error.message}"[:MAX_OUTPUT_ERROR_LENGTH] for error in found]
    more = ["there are more errors"] if len(errors) > MAX_OUTPUT_ERRORS else []
    return Invalid((*sorted(errors[:MAX_OUTPUT_ERRORS]), *more)) if errors else parsed


def parse_strict_json(text: str, *, max_bytes: int, max_depth: int) -> ValidationResult:
    """Strict JSON within bounds."""
    size = len(text.encode("utf-8", "replace"))
    if size > max_bytes:
        return Invalid((f"the answer has {size} bytes; {max_bytes} are allowed",))
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        return Invalid((_too_deep(max_depth),))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return Invalid((f"the answer is not JSON: {error}",))
    keys, depth = _measure(value)
    if depth > max_depth:
        return Invalid((_too_deep(max_depth),))
    if keys != _count_keys(text):
        return Invalid(("an object has two keys of the same name",))
    return Valid(value)


def _too_deep(limit: int) -> str:
    return f"the answer is nested deeper than {limit} levels"


def _measure(value: Any) -> tuple[int, int]:
    """How many keys all objects of a value have together, and how deep it nests. A scalar has depth 0."""
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

    A reader keeps one of two equal keys, so fewer keys in the value than in the text means that one was lost.
    Counting is safe where comparing is not: `"a"` and its escaped form are two spellings of one key.
    """
    outside = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    return sum(piece.count(":") for piece in outside)


def _pointer(path: list[str | int]) -> str:
    return "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in path) if path else "answer"


# --- JSON Schemas as judges: no network, no file, patterns in linear time, no values in messages --------------


@lru_cache(maxsize=1024)
def schema_validator(schema: bytes) -> jsonschema_rs.Validator:
    """The judge of a schema, given as JSON. Raises ValueError for what is no schema."""
    return jsonschema_rs.validator_for(
        schema.decode(), offline=True, mask="the value", pattern_options=jsonschema_rs.RegexOptions()
    )
