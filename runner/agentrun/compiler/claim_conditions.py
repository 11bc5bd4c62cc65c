"""CEL expressions of cases: the variables they see, and how they are compiled.

Rule 1  An expression sees what assertions see of a run, and nothing else.
Rule 2  `output` has no value where there is no answer: an expression that reads it then cannot be evaluated.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from agentrun.core.condition import Failed, evaluate

VARIABLES: dict[str, tuple[str, ...] | None] = {
    "output": None,
    "json": None,
    "params": None,
    "calls": None,
    "rulings": None,
    "approvals": None,
    "spend": ("tokens", "cost", "turns", "time"),
    "outcome": None,
}
"""The variables, with the fields of those that have fixed ones. cost is in micro-dollars, time in milliseconds."""

_STEP = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
_ENVIRONMENT = cel.NewEnv(
    variables={
        "output": cel.Type.STRING,
        "json": cel.Type.DYN,
        "params": _STEP,
        "calls": cel.Type.List(_STEP),
        "rulings": cel.Type.List(_STEP),
        "approvals": cel.Type.List(_STEP),
        "spend": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
        "outcome": cel.Type.STRING,
    }
)


class Undecided(Exception):
    """Why an expression has no truth."""


@lru_cache(maxsize=4096)
def compiled(expression: str) -> Any:
    """The compiled expression. Raises RuntimeError with positions when it is not one."""
    return _ENVIRONMENT.compile(expression)


def truth(expression: str, variables: dict[str, Any]) -> bool:
    """Whether an expression is true. Raises `Undecided` when it cannot be evaluated, or is neither true nor false."""
    value = evaluate(expression, variables, compiled)
    if isinstance(value, Failed):
        raise Undecided(value.reason)
    return value
