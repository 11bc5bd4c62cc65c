"""CEL conditions: the variables they see, how they are compiled, and what a failed evaluation means.

Rule 1  An evaluation that fails, raises, or gives anything but a boolean is a `FailedEvaluation` with the reason. The
        caller then decides against the call.
Rule 2  One evaluation is bounded. The CEL engine stops after 10,000 rounds of all, exists, map and filter. What `+` can
        build in these rounds is estimated first, because the engine frees no memory before it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import re2
from cel_expr_python import cel
from msgspec import Struct

from agentrun.core import model_texts as texts
from agentrun.core.package import BUDGET_KINDS

CONDITION_VARIABLES: dict[str, tuple[str, ...] | None] = {
    "args": None,
    "params": None,
    "spend": tuple(BUDGET_KINDS),
    "calls": None,
    "session": ("runs", "turns"),
    "now": None,
}
"""With the fields of those that have fixed ones. spend: what this run has used so far (cost in micro-dollars, time in
milliseconds). calls: how often each tool ran in this run. session: the number of earlier runs, and of their turns.
now: the time of the last record of the run, as a timestamp."""

MAX_ROUNDS = 10_000
"""The limit of the engine itself."""
MAX_BUILT_BYTES = 256 * 1024 * 1024
MAX_REASON_LENGTH = 300
_LOOPS = (".all(", ".exists(", ".exists_one(", ".map(", ".filter(")
_LIST_ITEM_BYTES = 32

_ANYTHING = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
_COUNTS = cel.Type.Map(cel.Type.STRING, cel.Type.INT)
CONDITION_TYPES = {**dict.fromkeys(CONDITION_VARIABLES, _COUNTS), "args": _ANYTHING, "params": _ANYTHING}
CONDITION_TYPES["now"] = cel.Type.TIMESTAMP
_VARIABLE_NAME = re2.compile(rf"\b(?:{'|'.join(CONDITION_VARIABLES)})\b")  # type: ignore[no-untyped-call]  # RE2 has no types
_TIMESTAMP = cel.NewEnv(variables={"at": cel.Type.INT}).compile(
    "timestamp(at / 1000) + duration(string(at % 1000) + 'ms')"
)
_LAST_TIME = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970."""
_ENVIRONMENT = cel.NewEnv(variables=CONDITION_TYPES)


@lru_cache(maxsize=4096)
def compile_condition(expression: str) -> Any:
    """Compile an expression. Raises RuntimeError, with positions, if it is not valid."""
    return _ENVIRONMENT.compile(expression)


def to_timestamp(milliseconds: int) -> Any:
    """A time as conditions see it, from milliseconds since 1970. The last year is 9999."""
    return _TIMESTAMP.eval(data={"at": min(max(milliseconds, 0), _LAST_TIME)}).value()


class FailedEvaluation(Struct, frozen=True):
    reason: str


def constant_condition(expression: str) -> bool | None:
    return None if _VARIABLE_NAME.search(expression) else is_met(expression, {})


def is_met(expression: str, variables: Mapping[str, Any]) -> bool | None:
    value = evaluate_condition(expression, variables)
    return None if isinstance(value, FailedEvaluation) else value


def evaluate_condition(
    expression: str, variables: Mapping[str, Any], compiled: Callable[[str], Any] = compile_condition
) -> bool | FailedEvaluation:
    """Evaluate an expression. `compiled` compiles it, if it is not a condition of a spec."""
    program = compiled(expression)
    if _largest_build(expression, variables) > MAX_BUILT_BYTES:
        return FailedEvaluation(texts.CONDITION_TOO_LARGE.format(MAX_BUILT_BYTES >> 20))
    try:
        value = program.eval(data=dict(variables))
        if value.type() == cel.Type.BOOL:
            return bool(value.value())
        failed = str(value.value()) if value.type() == cel.Type.ERROR else texts.CONDITION_NOT_BOOLEAN
    except Exception as error:  # noqa: BLE001  # native code: RuntimeError, MemoryError, ValueError, any of them
        failed = str(error) or type(error).__name__
    return FailedEvaluation(_without_status(failed)[:MAX_REASON_LENGTH])


def _without_status(message: str) -> str:
    """An error of the engine without its status: `INTERNAL: Iteration budget exceeded [INTERNAL]` has it twice."""
    status, _, words = message.partition(": ")
    return words.removesuffix(f" [{status}]") if words and status.replace("_", "").isupper() else message


def _largest_build(expression: str, variables: Mapping[str, Any]) -> int:
    """The most bytes that `+` can build in one evaluation. Never too low, often far too high."""
    loops = sum(map("".join(expression.split()).count, _LOOPS))
    additions = expression.count("+")
    if not loops or not additions:
        return 0
    items = longest = len(expression)
    waiting: list[Any] = [variables]
    while waiting:
        match waiting.pop():
            case str() as text:
                longest = max(longest, len(text.encode(errors="replace")))
            case Mapping() as mapping:
                items = max(items, len(mapping))
                waiting.extend(mapping.values())
            case list() as values:
                items = max(items, len(values))
                waiting.extend(values)
            case _:
                pass
    rounds: int = min(MAX_ROUNDS, items**loops)
    return rounds * additions * (additions + 3) // 2 * max(longest, items * _LIST_ITEM_BYTES)
