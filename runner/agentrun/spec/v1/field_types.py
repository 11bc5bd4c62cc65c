"""The types of single fields (names, durations, sizes, references, paths), and what their values mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from fnmatch import fnmatchcase
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from agentrun.canonical_json import NOT_JSON

NAME_PATTERN = "^[a-z][a-z0-9_-]{0,63}$"
NAME_RULE = "use at most 64 lowercase letters, digits, - and _, starting with a letter"
PARAM_NAME_PATTERN = "^[a-z][a-z0-9_]{0,63}$"
DURATION_PATTERN = "^[1-9][0-9]{0,6}(ms|s|m|h|d)$"
MAGNITUDE_PATTERN = "^([1-9][0-9]{0,5}(\\.[0-9]{1,3})?k|([1-9][0-9]{0,2}(\\.[0-9]{1,3})?|1000)M)$"
BYTES_PATTERN = "^([1-9][0-9]{0,5}KiB|[1-9][0-9]{0,2}MiB)$"
REFERENCE_PATTERN = "^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
DIALECT_URL = "https://json-schema.org/draft/2020-12/schema"
FIELD_PATH_PATTERN = "^[A-Za-z0-9_*-]+(\\.[A-Za-z0-9_*-]+)*$"
SECRET_PATTERN = "^\\$\\{[A-Za-z_][A-Za-z0-9_]{0,127}\\}$"

Name: TypeAlias = Annotated[str, Meta(pattern=NAME_PATTERN)]
ParamName: TypeAlias = Annotated[str, Meta(pattern=PARAM_NAME_PATTERN)]
Duration: TypeAlias = Annotated[str, Meta(pattern=DURATION_PATTERN)]
CountField: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)] | Annotated[str, Meta(pattern=MAGNITUDE_PATTERN)]
Size: TypeAlias = Annotated[int, Meta(ge=1, le=1_073_741_824)] | Annotated[str, Meta(pattern=BYTES_PATTERN)]
EnvText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]
"""Text in which ${NAME} is replaced by an environment variable when the run starts."""
TemplateText: TypeAlias = Annotated[str, Meta(max_length=262_144)]
Condition: TypeAlias = Annotated[str, Meta(min_length=1, max_length=8192)]
"""A CEL expression that is true or false."""
Pattern: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024)]
Reference: TypeAlias = Annotated[str, Meta(pattern=REFERENCE_PATTERN, max_length=256)]
FieldPath: TypeAlias = Annotated[str, Meta(pattern=FIELD_PATH_PATTERN, max_length=256)]
"""A dotted path into JSON data; * matches any key or index (`replace_at_path`)."""
SecretRef: TypeAlias = Annotated[str, Meta(pattern=SECRET_PATTERN)]
JsonSchemaField: TypeAlias = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/$defs/JsonSchema"})]
"""A JSON Schema (draft 2020-12), inline or {file: …}. References to other files or hosts are not allowed."""
_MILLISECONDS_PER_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAGNITUDES = {"k": 1000, "M": 1_000_000}
_BYTES_PER_UNIT = {"KiB": 1024, "MiB": 1024 * 1024}


class FileRef(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file inside the project."""

    file: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The path of the file, relative to this document. It must be inside the project, even after symbolic links."""


def is_valid_name(text: str) -> bool:
    """Whether a text is a name as in a spec, which can also be the name of a file or a folder."""
    return re.fullmatch(NAME_PATTERN, text) is not None and not text.endswith("\n")


def milliseconds(duration: str) -> int:
    """`2m` → 120000."""
    number = duration.rstrip("smhd")
    return int(number) * _MILLISECONDS_PER_UNIT[duration[len(number) :]]


def parse_count(value: int | str) -> int:
    """`50k` → 50000, `1.5M` → 1500000."""
    return value if isinstance(value, int) else int(Decimal(value[:-1]) * _MAGNITUDES[value[-1]])


def parse_size(value: int | str) -> int:
    """`50KiB` → 51200."""
    return value if isinstance(value, int) else int(value[:-3]) * _BYTES_PER_UNIT[value[-3:]]


def micro_dollars(dollars: float) -> int:
    """`0.25` → 250000. Rounded up, so that a price is never understated."""
    return int((Decimal(str(dollars)) * 1_000_000).to_integral_value(ROUND_CEILING))


def replace_at_path(data: Any, path: str, value: str, *, in_json_texts: bool = False) -> int:
    """Replace the values that a dotted path selects, in place. Returns how many there are.

    A step is a key, the position of a list item, or a pattern in which `*` matches any text. Where a path leads
    nowhere, nothing is selected. With `in_json_texts` it may lead into a text that is JSON, such as the arguments of a
    call in a journal.
    """
    return _replace(data, path.split("."), value, in_json_texts)


def _replace(data: Any, steps: list[str], value: str, in_json_texts: bool) -> int:
    first, *rest = steps
    count = 0
    for key, item in list(_items(data, first)):
        if not rest:
            data[key] = value
            count += 1
        elif not isinstance(item, str):
            count += _replace(item, rest, value, in_json_texts)
        elif in_json_texts:
            data[key], found = _replace_in_text(item, rest, value)
            count += found
    return count


def _replace_in_text(text: str, steps: list[str], value: str) -> tuple[str, int]:
    """The text, as it is written unless it is JSON in which the steps select something."""
    if not text.lstrip().startswith(("{", "[")):
        return text, 0
    try:
        data = msgspec.json.decode(text.encode())
    except (*NOT_JSON, UnicodeEncodeError):
        return text, 0
    found = _replace(data, steps, value, True)
    return (msgspec.json.encode(data).decode(), found) if found else (text, 0)


def _items(data: Any, step: str) -> Iterator[tuple[Any, Any]]:
    if isinstance(data, dict):
        yield from ((key, data[key]) for key in sorted(data) if key == step or ("*" in step and fnmatchcase(key, step)))
    elif isinstance(data, list):
        yield from ((index, item) for index, item in enumerate(data) if fnmatchcase(str(index), step))
