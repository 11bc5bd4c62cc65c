"""The tools of MCP servers as a lock holds them: what a package takes of them, and what no lock may say.

Rule 1  The model is told of a server's tools what the lock says, and nothing else. A person can read all of it there:
        no character of a lock is invisible.
Rule 2  A server that is not in the lock, and a tool that the spec names and the lock lacks, are errors.
Rule 3  A lock is somebody else's file: names, sizes and schemas are looked at whenever it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from typing import Any

from msgspec import UNSET

from agentrun.canon import compact
from agentrun.compiler.bounds import patterns_of, too_heavy
from agentrun.compiler.contracts import check_schema, resolved
from agentrun.compiler.resolve import Spec
from agentrun.core.names import matches
from agentrun.core.package_tools import Pinned
from agentrun.spec.problems import Problem, did_you_mean, quoted, visible
from agentrun.spec.tree import Mapping, Node, Scalar, place_of, plain
from agentrun.spec.v1.tools import McpTool

MOST_TOOLS = 256
"""Tools of one server."""
LONGEST_DESCRIPTION = 16 * 1024
LARGEST_SCHEMA = 64 * 1024
DEEPEST_SCHEMA = 24
TOOL_NAME = re.compile(r"(?=.{1,128}\Z)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
"""No character that a path gives a meaning to: the name of a tool becomes part of names that are ours."""
TOOL_NAME_RULE = "a name has up to 128 letters, digits, `_` and `-`, and single dots between them"

AGAIN = "run `agentrun lock SPEC`"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_UNPLAIN = re.compile(r"[^\n\x20-\x7e]")


def chosen(tool: McpTool, pinned: MappingOf[str, Pinned]) -> dict[str, Pinned]:
    """The pinned tools of a server that an agent may see."""
    return {name: pinned[name] for name in sorted(pinned) if any(matches(pattern, name) for pattern in tool.tools)}


def unpinned(spec: Spec, servers: MappingOf[str, MappingOf[str, Pinned]]) -> Iterator[Problem]:
    """What a spec says of servers and the lock does not know."""
    for name, tool in spec.agent.tools.items():
        if not isinstance(tool, McpTool) or (tool.command is UNSET) == (tool.url is UNSET):
            continue  # no server, or none that could be asked
        place = place_of(spec.root, ["tools", name], key=True)
        pinned = servers.get(name)
        if pinned is None:
            yield Problem(place, "spec.unpinned", f"the tools of {quoted(name)} are not in the lock", AGAIN)
            continue
        missing = [(index, each) for index, each in enumerate(tool.tools) if "*" not in each and each not in pinned]
        for index, each in missing:
            message = f"{quoted(name)} had no tool {quoted(each)} when the spec was locked"
            where = place_of(spec.root, ["tools", name, "tools", index])
            yield Problem(where, "spec.unpinned", message, did_you_mean(each, pinned) or AGAIN)
        if not missing and not chosen(tool, pinned):
            yield Problem(place, "spec.unpinned", f"no tool in the lock is one that {quoted(name)} may use", AGAIN)


def plainly(text: str) -> str:
    """JSON in which nothing is invisible: such characters are written as escapes."""
    return _UNPLAIN.sub(lambda found: found[0] if visible(found[0]) == found[0] else _escaped(found[0]), text)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def written_pins(root: Node) -> dict[str, dict[str, Pinned]]:
    """The pins of a lock in which nothing is wrong."""
    return {server: {name: _pinned(tool) for name, tool in tools.items()} for server, tools in _servers(root)}


def _pinned(tool: Mapping) -> Pinned:
    return Pinned(description=_text(tool, "description"), args=resolved(_args(tool)), digest=_text(tool, "digest"))


def pin_problems(root: Node) -> Iterator[Problem]:
    """What is wrong with the servers of a lock. It is one otherwise: the parts that a lock has are all there."""
    if heavy := list(too_heavy(patterns_of(root))):
        yield from heavy
        return
    for server, tools in _servers(root):
        if len(tools) > MOST_TOOLS:
            yield _wrong(root, f"{quoted(server)} has more than {MOST_TOOLS} tools")
        for name, tool in tools.items():
            whose = f"{quoted(name)} of {quoted(server)}"
            if not TOOL_NAME.fullmatch(name):
                yield _wrong(tool, f"{whose} is not the name of a tool: {TOOL_NAME_RULE}")
            if len(_text(tool, "description").encode()) > LONGEST_DESCRIPTION:
                yield _wrong(tool, f"the description of {whose} is longer than {LONGEST_DESCRIPTION:,} bytes")
            if not _DIGEST.fullmatch(_text(tool, "digest")):
                yield _wrong(tool, f"the digest of {whose} is not one")
            yield from _schema_problems(_args(tool), whose)


def _schema_problems(args: Node, whose: str) -> Iterator[Problem]:
    schema = plain(args)
    if why := too_large(schema):
        yield _wrong(args, f"the schema of {whose} {why}")
        return
    found = check_schema(args)
    yield from found
    if not found and schema.get("type") != "object":
        yield _wrong(args, f"the schema of {whose} is not that of an object")


def too_large(schema: Any) -> str | None:
    """Why a schema is more than a tool may have."""
    if too_deep(schema):
        return f"is nested deeper than {DEEPEST_SCHEMA} levels"
    if len(compact(schema)) > LARGEST_SCHEMA:
        return f"is larger than {LARGEST_SCHEMA:,} bytes"
    return None


def too_deep(schema: Any) -> bool:
    """Found without recursion: it may be as deep as a server likes."""
    level = [schema]
    for _ in range(DEEPEST_SCHEMA + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []


def _servers(root: Node) -> Iterator[tuple[str, dict[str, Mapping]]]:
    assert isinstance(root, Mapping)
    servers = root.get("servers")
    for server, entry in servers.entries.items() if isinstance(servers, Mapping) else ():
        assert isinstance(entry.node, Mapping)
        yield server, {name: each.node for name, each in entry.node.entries.items() if isinstance(each.node, Mapping)}


def _text(tool: Mapping, key: str) -> str:
    node = tool.get(key)
    assert isinstance(node, Scalar)
    return str(node.value)


def _args(tool: Mapping) -> Node:
    node = tool.get("args")
    assert node is not None
    return node


def _wrong(node: Node, message: str) -> Problem:
    return Problem(node.place, "spec.lock", message, "write it anew with `agentrun lock SPEC`")
