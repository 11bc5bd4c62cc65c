"""Names and ids as they are written on the wire.

Rule 1  Providers take names of letters, digits, `_` and `-`, up to 64 of them. A dot becomes `__`; a name that still
        does not fit is cut and gets a piece of its hash, so that two such names stay two.
Rule 2  A name depends on nothing but the tool's own, so what was encoded once stays true when other tools come and go.
Rule 3  Two names that are equal without their case are refused: a model mixes them up, and so does a file system.
Rule 4  The wire id of a call goes back to the route that gave it. Any other route gets the derived id.
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
    """A tool's name as providers take it."""
    name = tool.replace(".", "__")
    fit = "".join([sign if sign in _ALLOWED else "_" for sign in name])
    if name == fit and 0 < len(name) <= MAX_WIRE_NAME:
        return name
    digest = text_hash(tool.encode("utf-8", "surrogatepass")).removeprefix("sha256:")[:8]
    return f"{fit[: MAX_WIRE_NAME - 9]}_{digest}"


def tools_by_wire_name(request: ModelRequest) -> Mapping[str, str]:
    """The offered tools by their names on the wire. A name that is not among them stays as the model wrote it."""
    return {wire_name(tool.name): tool.name for tool in request.tools}


def name_clashes(tools: Iterable[str]) -> list[str]:
    """Tools that would be one tool on the wire, or that a model could take for one another, as sentences."""
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
    """The ids on the wire of all calls of a segment, by the derived ones."""
    ids: dict[str, str] = {}
    here = route_name(route)
    for message in messages:
        if isinstance(message, Assistant):
            given = [call.wire_id for call in message.calls]
            for call in message.calls:
                own = call.route == here and given.count(call.wire_id) == 1
                ids[call.id] = (call.wire_id if own else None) or derived_id(call.id)
    return ids


def derived_id(call: str) -> str:
    """c1.0 as c1_0: providers take no dots in ids."""
    return call.replace(".", "_")
