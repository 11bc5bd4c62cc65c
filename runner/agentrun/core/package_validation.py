"""Validate a package before it runs: it may come from elsewhere. Values out of range are refused, never clamped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, Struct

from agentrun.canonical_json import sorted_json
from agentrun.core.condition import compile_condition
from agentrun.core.json_validation import schema_validator
from agentrun.core.package import BUDGET_KINDS, LEGAL_RULINGS, Package
from agentrun.core.package_tools import AgentTool, McpTool
from agentrun.core.policy import compile_mask
from agentrun.errors import PackageError

NUMBER_RANGES: dict[str, tuple[int, int | None]] = {
    "/model/temperature": (0, 2),
    "/model/top_p": (0, 1),
    "/model/seed": (0, 2**31 - 1),
    "/model/max_output_tokens": (1, None),
    "/model/routes/*/context_window": (1, None),
    "/model/routes/*/price/input": (0, None),
    "/model/routes/*/price/output": (0, None),
    "/model/routes/*/price/cached_input": (0, None),
    "/tools/*/timeout": (1, None),
    "/tools/*/max_bytes": (1, None),
    "/tools/*/exits/*": (0, 255),
    "/tools/*/grace": (0, None),
    "/tools/*/start_timeout": (1, None),
    "/policy/approval_timeout": (1, None),
    "/policy/rules/*/until": (0, None),
    "/policy/rules/*/wait": (1, None),
    **{f"/budgets/{name}": (kind.least, None) for name, kind in BUDGET_KINDS.items()},
    "/budgets/grace": (1, None),
    "/limits/parallel_tools": (1, None),
    "/limits/stream_gap": (1, None),
    "/limits/call_time": (1, None),
    "/limits/truncations": (0, None),
    "/limits/output_lines": (1, None),
    "/limits/output_bytes": (1, None),
    "/limits/depth": (1, 3),
    "/limits/runs": (1, 10_000),
    "/guards/repeated_call": (1, None),
    "/guards/cycle": (1, None),
    "/guards/repeated_batch": (1, None),
    "/guards/stagnation": (1, None),
    "/guards/empty_outcome": (0, None),
    "/guards/observation": (1, None),
    "/retry/attempts": (1, None),
    "/retry/first_delay": (0, None),
    "/retry/max_delay": (0, None),
    "/retry/max_wait": (0, None),
    "/context/keep": (0, None),
    "/context/failures": (1, None),
    "/admission/max_chars": (1, None),
    "/output/repairs": (0, None),
    "/output/max_bytes": (1, None),
    "/output/max_depth": (0, None),
    "/sinks/*/timeout": (1, None),
    "/hooks/*/order": (-1000, 1000),
    "/hooks/*/timeout": (1, None),
    "/session/max_runs": (1, None),
}
"""The smallest and the largest value of each number of a package, by its place. `*` is any name or index."""


def validate_package(package: Package) -> None:
    """Raises `package.invalid` for the first problem."""
    for pointer, why in _problems(package):
        raise PackageError("package.invalid", f"{pointer}: {why}", fields={"pointer": pointer})


def _problems(package: Package, paid: bool = False) -> Iterator[tuple[str, str]]:
    """`paid`: whether a cost budget of a parent agent includes this one."""
    paid = paid or package.budgets.cost is not None
    for pointer, place, value in _numbers(package, "", ""):
        least, most = NUMBER_RANGES[place]
        if not (least <= value and (most is None or value <= most)):  # NaN is in no range
            yield pointer, f"{value} is out of range"
    if not package.model.routes:
        yield "/model/routes", "there is no model"
    for index, route in enumerate(package.model.routes):
        if paid and route.price is None:
            yield f"/model/routes/{index}/price", "a cost budget needs a price"
    yield from _check_policy(package)
    yield from _check_tools(package)
    for name, schema in sorted(package.params.items()):
        yield from _check_schema(f"/params/{name}", schema)
    if package.output.schema is not None:
        yield from _check_schema("/output/schema", package.output.schema)
    for name, agent in sorted(package.agents.items()):
        yield from ((f"/agents/{name}{pointer}", why) for pointer, why in _problems(agent, paid))


def _numbers(part: Any, pointer: str, place: str) -> Iterator[tuple[str, str, int | float]]:
    """Every number of a part, with its pointer and its place. Schemas and other free data are skipped."""
    match part:
        case bool():
            return
        case int() | float():
            yield pointer, place, part
        case Struct():
            for name in part.__struct_fields__:
                each = getattr(part, name)
                if each is not None and type(each) is not str and name != "agents":  # agents are validated one by one
                    yield from _numbers(each, f"{pointer}/{name}", f"{place}/{name}")
        case tuple():
            for index, each in enumerate(part):
                yield from _numbers(each, f"{pointer}/{index}", f"{place}/*")
        case dict():
            for name, each in sorted(part.items()):
                if isinstance(each, Struct):
                    yield from _numbers(each, f"{pointer}/{name}", f"{place}/*")


def _check_policy(package: Package) -> Iterator[tuple[str, str]]:
    for index, rule in enumerate(package.policy.rules):
        where = f"/policy/rules/{index}"
        if rule.ruling not in LEGAL_RULINGS[rule.on]:
            yield f"{where}/ruling", f"{rule.ruling} is not allowed on {rule.on}"
        ends = [name for name in ("until", "wait", "person") if getattr(rule, name) is not UNSET]
        if ends and (rule.ruling != "defer" or len(ends) > 1):
            yield f"{where}/{ends[-1]}", "it is allowed only with defer, and without another end of the deferral"
        if rule.when is not None:
            yield from _check_condition(f"{where}/when", rule.when)
        for pattern in rule.mask:
            try:
                compile_mask(pattern)
            except Exception:  # noqa: BLE001  # RE2 has its own
                yield f"{where}/mask", "this is not a valid pattern"


def _check_tools(package: Package) -> Iterator[tuple[str, str]]:
    for name, tool in sorted(package.tools.items()):
        if isinstance(tool, AgentTool) and name not in package.agents:
            yield f"/agents/{name}", "the sub-agent is missing"
        if tool.visible is not None:
            yield from _check_condition(f"/tools/{name}/visible", tool.visible)
        if isinstance(tool, McpTool):
            for inner, pinned in sorted(tool.pinned.items()):
                yield from _check_schema(f"/tools/{name}/pinned/{inner}/args", pinned.args)
            continue
        yield from _check_schema(f"/tools/{name}/args", tool.args)
        actions = {} if isinstance(tool, AgentTool) else tool.actions
        for action, schema in sorted(actions.items()):
            yield from _check_schema(f"/tools/{name}/actions/{action}", schema)


def _check_condition(pointer: str, expression: str) -> Iterator[tuple[str, str]]:
    try:
        compile_condition(expression)
    except Exception:  # noqa: BLE001  # CEL has its own; half a surrogate pair has another
        yield pointer, "this is not a valid condition"


def _check_schema(pointer: str, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        schema_validator(sorted_json(schema))
    except Exception as error:  # noqa: BLE001  # several kinds, none of them ours
        why = str(error).partition("\n")[0]
        yield pointer, f"the schema cannot be used: {why or type(error).__name__}"
