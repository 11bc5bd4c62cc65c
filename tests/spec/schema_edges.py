"""Values at the edges of the ranges, sizes and patterns of the schemas.

The edges come from the schema, so a new key is tested without a line here; a new pattern needs examples.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from agentrun.spec.v1 import agent, cases, field_types, policy, provider, tools
from agentrun.spec.v1.agent import Agent

from ..schemas import Schema, Steps

PATTERNS: dict[str, tuple[list[str], list[str]]] = {
    field_types.NAME_PATTERN: (["a", "a" * 64, "a-b_9"], ["", "a" * 65, "A", "9a", "-a", "a b", "ä", "a.b", "а"]),  # noqa: RUF001  # the last is Cyrillic
    provider.SCRIPTED_TOOL_PATTERN: (["a", "a" * 128, "docs.search", "A-b_9"], ["", "a" * 129, "a b", "ä", "a/b"]),
    cases.DATETIME_PATTERN: (
        ["2026-01-31T09:00:00Z", "0000-00-00T00:00:00.1Z", "9999-99-99T99:99:99.999Z"],
        [
            *("", "2026-01-31", "2026-01-31T09:00Z", "2026-01-31T09:00:00", "2026-01-31 09:00:00Z"),
            *("2026-01-31T09:00:00.Z", "2026-01-31T09:00:00.1234Z", "2026-01-31T09:00:00+01:00"),
            *("26-01-31T09:00:00Z", "2026-01-31T09:00:00z"),
        ],
    ),
    cases.FAULT_PLACE_PATTERN: (
        [
            *("model", "model#1", "model#99999", "tool:a", "tool:*#2", "approval:a.b", "hook:h", "sink:s"),
            *("c1.0/model", "tool:read/find", "tool:" + "a" * 128, "c1.0/tool:A-b_c#3"),
        ],
        [
            *("", "tool", "tool:", "model:x", "model#0", "model#100000", "model#", "tool:a#b", "tool:a b"),
            *("Model", "tool:" + "a" * 129, "/model", "C1/model", "a/b/model", "tools:a", "model 2"),
        ],
    ),
    field_types.PARAM_NAME_PATTERN: (["a", "a" * 64, "a_9"], ["", "a" * 65, "a-b", "_a", "A", "9a"]),
    field_types.DURATION_PATTERN: (
        ["1ms", "1s", "1m", "1h", "1d", "9999999d"],
        ["", "1", "0s", "01s", "10000000d", "1.5s", "-1s", "1 s", "1S", "1w", "1:30", "s"],
    ),
    field_types.MAGNITUDE_PATTERN: (
        ["1k", "1.5M", "999999.999k", "999.999M", "1000M"],
        ["", "1", "0k", "0.5M", "1000000k", "1001M", "1000.1M", "1.5555k", "1K", "1m", "1e3", "-1k", "1G"],
    ),
    field_types.BYTES_PATTERN: (
        ["1KiB", "999999KiB", "999MiB"],
        ["", "1", "0KiB", "1000000KiB", "1000MiB", "1.5MiB", "1KB", "1MB", "1GiB", "1kib", "1 KiB"],
    ),
    field_types.REFERENCE_PATTERN: (
        ["m:f", "a.b.c:d_1", "_:_"],
        ["", "m", "m:", ":f", "m:f:g", "m:f.g", "9:f", "m-n:f", "m: f"],
    ),
    field_types.SECRET_PATTERN: (
        ["${A}", "${_}", "${" + "A" * 128 + "}"],
        ["", "A", "$A", "${}", "${9}", "${A}x", "${" + "A" * 129 + "}"],
    ),
    policy.TARGET_PATTERN: (
        ["a", "*", "a.b", "a" * 128, "docs.*/x-Y"],
        ["", "A", "9", ".a", "a" * 129, "a b", "a,b", "[a]"],
    ),
    policy.UNTIL_PATTERN: (
        [
            *("person", "1ms", "9999999d", "2026-12-24T08:00Z", "2026-12-24T08:00:00Z", "2026-12-24T08:00:00.5Z"),
            *("2026-12-24T08:00:00.125+01:00", "0000-00-00T00:00-99:99"),
        ],
        [
            *("", "Person", "people", "0h", "2 h", "2h30m", "2026-12-24", "2026-12-24 08:00:00Z", "2026-12-24T08:00"),
            *("2026-12-24T08:00:00", "2026-12-24T08Z", "2026-12-24T08:00:00.1234Z", "2026-12-24T08:00:00+0100"),
            *("26-12-24T08:00Z", "2026-12-24T08:00z", "person 2h"),
        ],
    ),
    tools.ENV_NAME_PATTERN: (["A", "_a9", "A" * 128], ["", "9A", "A-B", "A" * 129, "A B", "A="]),
    tools.HEADER_NAME_PATTERN: (["X", "X-Y", "!#$%&'*+.^_`|~", "x" * 128], ["", "x" * 129, "X Y", "X:", "X\r\nY", "é"]),
    tools.HOST_PATTERN: (
        ["a", "a.example", "*.a.example", "a.example:1", "a:99999", "a" * 253],
        ["", "*", ".a", "a.", "-a", "a-", "a:", "a:123456", "a b", "https://a", "a/b", "a" * 254, "**.a"],
    ),
    tools.MCP_TOOL_PATTERN: (["a", "A.b/c-d_*", "a" * 128], ["", "a" * 129, "a b", "a:b", "é"]),
    agent.MODEL_NAME_PATTERN: (["a", "A.b:c/d@e-f_g", "a" * 128], ["", "a" * 129, ".a", "a b", "é"]),
    agent.ROUTE_PATTERN: (
        ["a/b", "a/B.c:d/e@f", "a" * 64 + "/" + "b" * 128],
        ["", "a", "a/", "/b", "A/b", "a/ b", "a" * 65 + "/b", "a/" + "b" * 129],
    ),
    agent.TOOL_CHOICE_PATTERN: (["auto", "a.b-c_d", "a" * 128], ["", "a" * 129, "A", "9", "a b"]),
    field_types.FIELD_PATH_PATTERN: (
        ["a", "*", "a.*.b-c_D.9", "a" * 256],
        ["", ".", "a.", ".a", "a..b", "a b", "a[0]", "a" * 257],
    ),
}
"""What each pattern takes and what it refuses, at the edges."""


Edge = tuple[Any, bool]
"""A value, and whether it is still inside."""


def edges(says: Schema, value: Any) -> Iterator[Edge]:
    """Values at the edges of what a schema says; `value` is one that it takes."""
    kinds = says.get("type", [])
    if "integer" in kinds or "number" in kinds:
        yield from _number_edges(says, 1 if "integer" in kinds else None)
    if "pattern" in says:
        yield from _pattern_edges(says["pattern"])
    elif "string" in kinds:
        for letter in "xé😀":
            yield from _size_edges(says, "Length", letter)
    if isinstance(value, list) and value:
        yield from _size_edges(says, "Items", value[:1])
    if isinstance(value, dict) and value and "propertyNames" in says:
        inside = next(iter(value.values()))
        for name, good in _pattern_edges(says["propertyNames"]["pattern"]):
            yield {name: inside}, good


def _number_edges(says: Schema, step: int | None) -> Iterator[Edge]:
    for name, way in (("inimum", -1), ("aximum", 1)):
        if (edge := says.get(f"m{name}")) is not None:
            beyond = edge + way if step else math.nextafter(edge, way * math.inf)
            yield from ((edge, True), (beyond, False))
        if (edge := says.get(f"exclusiveM{name}")) is not None:
            within = edge - way if step else math.nextafter(edge, -way * math.inf)
            yield from ((edge, False), (within, True))


def _size_edges(says: Schema, what: str, one: Any) -> Iterator[Edge]:
    if (least := says.get(f"min{what}")) is not None:
        yield from ((one * least, True), (one * (least - 1), False))
    if (most := says.get(f"max{what}")) is not None:
        yield from ((one * most, True), (one * (most + 1), False))


def _pattern_edges(pattern: str) -> Iterator[Edge]:
    taken, refused = PATTERNS[pattern]
    yield from ((text, True) for text in taken)
    yield from ((text, False) for text in refused)


def with_value(base: Any, at: Steps, value: Any) -> Any:
    """The document with another value at a place."""
    if not at:
        return value
    document = copy.copy(base)
    document[at[0]] = with_value(document[at[0]] if len(at) > 1 else None, at[1:], value)
    return document


def models_take(document: Any, model: type = Agent) -> bool:
    try:
        msgspec.convert(document, model)
    except msgspec.ValidationError:
        return False
    return True
