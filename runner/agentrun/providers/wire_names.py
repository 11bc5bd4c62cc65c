"""Tool names and call ids in provider requests.

Rule 1  Providers accept names of up to 64 letters, digits, `_` and `-`. A dot becomes `__`. A name that is still not
        valid is cut and gets a part of its hash, so that two such names stay different.
Rule 2  A wire name depends only on the name of its tool, so it does not change when other tools are added or removed.
Rule 3  Two names that differ only by case are refused, because models and file systems confuse them.
Rule 4  The wire id of a call is sent back only to the route that created it. Other routes get a derived id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentrun.canonical_json import text_hash
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.messages import Assistant, Message
from agentrun.core.package import Route

MAX_WIRE_NAME = 64
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def wire_name(tool: str) -> str:
    name = tool.replace(".", "__")
    valid = "".join([char if char in _ALLOWED else "_" for char in name])
    if name == valid and 0 < len(name) <= MAX_WIRE_NAME:
        return name
    digest = text_hash(tool.encode("utf-8", "surrogatepass")).removeprefix("sha256:")[:8]
    return f"{valid[: MAX_WIRE_NAME - 9]}_{digest}"


def tools_by_wire_name(request: ModelRequest) -> Mapping[str, str]:
    return {wire_name(tool.name): tool.name for tool in request.tools}


def name_clashes(tools: Iterable[str]) -> list[str]:
    problems = []
    seen: dict[str, str] = {}
    for tool in sorted(tools):
        first = seen.setdefault(wire_name(tool.lower()), tool)
        if first != tool:
            name = wire_name(tool)
            why = f"would both be called {name}" if name == wire_name(first) else "differ only by case"
            problems.append(f"tools: {first} and {tool} {why}; rename one")
    return problems


def call_ids(messages: Sequence[Message], route: Route) -> dict[str, str]:
    ids: dict[str, str] = {}
    here = route_name(route)
    for message in messages:
        if isinstance(message, Assistant):
            wire_ids = [call.wire_id for call in message.calls]
            for call in message.calls:
                own = call.route == here and wire_ids.count(call.wire_id) == 1
                ids[call.id] = (call.wire_id if own else None) or derived_id(call.id)
    return ids


def derived_id(call: str) -> str:
    """c1_0 for c1.0, because providers accept no dots in ids."""
    return call.replace(".", "_")
