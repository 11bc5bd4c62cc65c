"""What changed at MCP servers since a spec was locked, in words: a person reads it before a model does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from agentrun.compiler.difference import compared
from agentrun.core.package_tools import Pinned

Servers = Mapping[str, Mapping[str, Pinned]]


def drift(before: Servers, after: Servers) -> Iterator[str]:
    """One line, or a few for a text, for each thing that differs."""
    for server in sorted({*before, *after}):
        old, new = before.get(server), after.get(server)
        if old is None:
            yield f"{server}: added"
        elif new is None:
            yield f"{server}: removed"
        else:
            yield from _of_server(server, old, new)


def _of_server(server: str, old: Mapping[str, Pinned], new: Mapping[str, Pinned]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"{server}.{name}: removed"
        elif name not in old:
            yield f"{server}.{name}: added"
        elif old[name] != new[name]:
            parts = [msgspec.to_builtins(each) for each in (old[name], new[name])]
            found = [each for each in compared(server, name, *parts) if each.path != f"{name}.digest"]
            yield from (each.words() for each in found)
            if not found:
                yield f"{server}.{name}: changed in what no model reads"
