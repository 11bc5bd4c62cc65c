"""Whether a package can be run at all, whoever made it.

A compiler only makes sound packages; what comes from elsewhere is looked at here before a run depends on it. Values
that are out of range are refused, never clamped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from agentrun.canon import compact
from agentrun.core.condition import compiled
from agentrun.core.package import LEGAL_RULINGS, Package
from agentrun.core.package_tools import AgentTool, McpTool
from agentrun.core.policy import compiled_mask
from agentrun.core.schemas import validator
from agentrun.errors import PackageError

RANGES: dict[str, tuple[int, int | None]] = {
    "model/max_output_tokens": (1, None),
    "policy/approval_timeout": (1, None),
    "budgets/turns": (1, None),
    "budgets/tokens": (1, None),
    "budgets/cost": (1, None),
    "budgets/time": (1, None),
    "budgets/tool_calls": (0, None),
    "budgets/grace": (1, None),
    "limits/parallel_tools": (1, None),
    "limits/stream_gap": (1, None),
    "limits/call_time": (1, None),
    "limits/truncations": (0, None),
    "limits/output_lines": (1, None),
    "limits/output_bytes": (1, None),
    "limits/depth": (1, 3),
    "guards/repeated_call": (1, None),
    "guards/cycle": (1, None),
    "guards/repeated_batch": (1, None),
    "guards/stagnation": (1, None),
    "guards/empty_outcome": (0, None),
    "guards/observation": (1, None),
    "retry/attempts": (1, None),
    "retry/first_delay": (0, None),
    "retry/max_delay": (0, None),
    "retry/max_wait": (0, None),
    "context/keep": (0, None),
    "context/failures": (1, None),
    "admission/max_chars": (1, None),
    "output/repairs": (0, None),
    "output/max_bytes": (1, None),
    "output/max_depth": (0, None),
    "session/max_runs": (1, None),
}
"""The least and the greatest value of every number of a package's sections."""


def refuse_unsound(package: Package) -> None:
    """Raises `package.invalid` for the first thing that is wrong."""
    for pointer, why in _problems(package):
        raise PackageError("package.invalid", f"{pointer}: {why}", fields={"pointer": pointer})


def _problems(package: Package) -> Iterator[tuple[str, str]]:
    yield from _ranges(package)
    yield from _model(package)
    yield from _policy(package)
    yield from _tools(package)
    if package.output.schema is not None:
        yield from _schema("/output/schema", package.output.schema)
    for name, agent in sorted(package.agents.items()):
        yield from ((f"/agents/{name}{pointer}", why) for pointer, why in _problems(agent))


def _ranges(package: Package) -> Iterator[tuple[str, str]]:
    for path, (least, most) in RANGES.items():
        section, key = path.split("/")
        value = getattr(getattr(package, section), key)
        if value is not None and (value < least or (most is not None and value > most)):
            yield f"/{path}", f"{value} is out of range"
    for where, parts in (("tools", package.tools), ("sinks", package.sinks)):
        for name, part in sorted(parts.items()):
            if part.timeout < 1:
                yield f"/{where}/{name}/timeout", f"{part.timeout} is out of range"


def _model(package: Package) -> Iterator[tuple[str, str]]:
    if not package.model.routes:
        yield "/model/routes", "there is no model to ask"
    for index, route in enumerate(package.model.routes):
        if package.budgets.cost is not None and route.price is None:
            yield f"/model/routes/{index}/price", "a budget in money needs a price"
        for key, value in _numbers(route.price) if route.price else ():
            if value < 0:
                yield f"/model/routes/{index}/price/{key}", f"{value} is out of range"


def _numbers(part: Struct) -> Iterator[tuple[str, int]]:
    yield from ((key, value) for key, value in structs.asdict(part).items() if isinstance(value, int))


def _policy(package: Package) -> Iterator[tuple[str, str]]:
    for index, rule in enumerate(package.policy.rules):
        where = f"/policy/rules/{index}"
        if rule.ruling not in LEGAL_RULINGS[rule.on]:
            yield f"{where}/ruling", f"{rule.ruling} is not legal on {rule.on}"
        if rule.when is not None:
            yield from _condition(f"{where}/when", rule.when)
        for pattern in rule.mask:
            try:
                compiled_mask(pattern)
            except Exception:  # noqa: BLE001  # RE2 has its own
                yield f"{where}/mask", "this is not a pattern"


def _tools(package: Package) -> Iterator[tuple[str, str]]:
    for name, tool in sorted(package.tools.items()):
        if isinstance(tool, AgentTool) and name not in package.agents:
            yield f"/agents/{name}", "the sub-agent is missing"
        if tool.visible is not None:
            yield from _condition(f"/tools/{name}/visible", tool.visible)
        if isinstance(tool, McpTool):
            continue
        yield from _schema(f"/tools/{name}/args", tool.args)
        actions = {} if isinstance(tool, AgentTool) else tool.actions
        for action, schema in sorted(actions.items()):
            yield from _schema(f"/tools/{name}/actions/{action}", schema)


def _condition(pointer: str, expression: str) -> Iterator[tuple[str, str]]:
    try:
        compiled(expression)
    except RuntimeError:
        yield pointer, "this is not a condition"


def _schema(pointer: str, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        validator(compact(schema))
    except Exception as error:  # noqa: BLE001  # several kinds, none of them ours
        yield pointer, f"the schema cannot be used: {str(error).splitlines()[0]}"
