"""CEL conditions: the variables they see, how they are compiled, and what a failed evaluation means.

Rule 1  A condition sees args, params, spend, calls and session, and nothing else.
Rule 2  An evaluation that fails, or gives anything but a boolean, is None: the caller decides against the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

VARIABLES: dict[str, tuple[str, ...] | None] = {
    "args": None,
    "params": None,
    "spend": ("turns", "tokens", "cost", "time", "tool_calls"),
    "calls": None,
    "session": ("runs", "turns"),
}
"""The variables of a condition, with the fields of those that have fixed ones.

spend: what this run has used so far (tokens; cost in micro-dollars; time in milliseconds). calls: how often each
tool was executed in this run. session: earlier runs and their turns."""


_ANYTHING = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
_COUNTS = cel.Type.Map(cel.Type.STRING, cel.Type.INT)
_ENVIRONMENT = cel.NewEnv(variables={name: _ANYTHING if name in ("args", "params") else _COUNTS for name in VARIABLES})


@lru_cache(maxsize=4096)
def compiled(expression: str) -> Any:
    """The compiled expression. Raises RuntimeError with positions when it is not one."""
    return _ENVIRONMENT.compile(expression)


def constant(expression: str) -> bool | None:
    """The value of a condition that reads no variable, else None."""
    return None if any(name in expression for name in VARIABLES) else holds(expression, {})


def holds(expression: str, variables: Mapping[str, Any]) -> bool | None:
    """Whether the condition holds; None when that cannot be told."""
    return _truth(compiled(expression), variables)


def _truth(expression: Any, variables: Mapping[str, Any]) -> bool | None:
    value = expression.eval(data=dict(variables))
    return bool(value.value()) if value.type() == cel.Type.BOOL else None
