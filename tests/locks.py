"""Lock files that pin the tools of MCP servers, for specs whose servers need not exist."""

import json
import re
from collections.abc import Iterable
from typing import Any

DIGEST = "sha256:" + "0" * 64
_SERVER = re.compile(r"([a-z][\w-]{0,63}): \{kind: mcp(.*)")
_NAME = re.compile(r"[\w./*-]+")


def pin(**changes: Any) -> dict[str, Any]:
    """One tool of a server, as it is pinned."""
    return {"description": "Does something.", "args": {"type": "object"}, "digest": DIGEST} | changes


def lock_of(servers: dict[str, Iterable[str]], routes: dict[str, Any] | None = None) -> str:
    """A lock that pins these tools of servers."""
    pinned = {server: {name: pin() for name in names} for server, names in servers.items()}
    return json.dumps({"agentrun_lock": "1", "origin": "a test", "routes": routes or {}, "servers": pinned})


def lock_for(text: str) -> str | None:
    """A lock with all tools that the servers of a spec may have; None when it has no servers."""
    servers: dict[str, Iterable[str]] = {}
    for name, rest in _SERVER.findall(text):
        listed = re.search(r"tools: \[([^\]]*)\]", rest)
        names = _NAME.findall(listed[1]) if listed else ["*"]
        servers[name] = [each.replace("*", "any") for each in names]
    return lock_of(servers) if servers else None
