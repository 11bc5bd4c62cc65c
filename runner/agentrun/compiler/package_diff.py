"""Describe how two packages differ, section by section and field by field."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec import Struct

from agentrun.canonical_json import canonical_json
from agentrun.compiler.package_file import PackageFile
from agentrun.core.package_tools import PinnedTool

PackageChange = Literal["added", "removed", "changed"]

_MILLISECONDS = re.compile(
    r"(tools|sinks|hooks)\.[^.]+\.(timeout|grace|start_timeout)|policy\.approval_timeout|budgets\.time"
    r"|limits\.(stream_gap|call_time)|retry\.(first_delay|max_delay|max_wait)"
)
_MICRO_DOLLARS = re.compile(r"budgets\.cost|model\.routes\.(?!.*\.options\.).+\.price\.\w+")
_SUB_AGENTS = re.compile(r"(agents\.[^.]+\.)*")
PinnedServers = Mapping[str, Mapping[str, PinnedTool]]


class PackageDifference(Struct, frozen=True):
    section: str
    path: str
    """The field inside the section, dotted; empty for the section itself."""
    change: PackageChange
    before: Any = None
    after: Any = None

    @property
    def name(self) -> str:
        return f"{self.section}.{self.path}" if self.path else self.section

    def describe(self) -> str:
        """Describe one difference on one line, or on several lines for texts."""
        if self.change != "changed":
            value = self.after if self.change == "added" else self.before
            shown = "" if isinstance(value, (dict, list)) else f" ({self._format_value(value)})"
            return f"{self.name}: {self.change}{shown}"
        if isinstance(self.before, str) and isinstance(self.after, str) and "\n" in self.before + self.after:
            diff = difflib.unified_diff(self.before.split("\n"), self.after.split("\n"), n=1, lineterm="")
            lines = islice(diff, 2, None)  # without the two lines with file names
            return "\n".join([f"{self.name}: changed", *(f"    {line}" for line in lines)])
        return f"{self.name}: {self._format_value(self.before)} → {self._format_value(self.after)}"

    def _format_value(self, value: Any) -> str:
        """Format a value with its unit, which a package does not store."""
        if isinstance(value, int) and not isinstance(value, bool):
            field = _SUB_AGENTS.sub("", self.name, count=1)
            if _MILLISECONDS.fullmatch(field):
                return f"{value / 1000:.15g} s"
            if _MICRO_DOLLARS.fullmatch(field):
                return f"${value / 1_000_000:.15g}"
        return "none" if value is None else json.dumps(value, ensure_ascii=False)


def diff_packages(before: PackageFile, after: PackageFile) -> list[PackageDifference]:
    """Return all differences. Sections with equal fingerprints are skipped."""
    old, new = msgspec.to_builtins(before.agent), msgspec.to_builtins(after.agent)
    old_keyed, new_keyed = _lists_by_name(old), _lists_by_name(new)
    found: list[PackageDifference] = []
    for section in old:
        if before.sections[section] != after.sections[section]:
            inside = list(diff_fields(section, "", old_keyed[section], new_keyed[section]))
            # Two items with the same name become one. The compiler makes no such package, but a file may contain it.
            found += inside or [PackageDifference(section, "", "changed", before=old[section], after=new[section])]
    return found


def _lists_by_name(agent: dict[str, Any]) -> dict[str, Any]:
    """Convert lists of named items to mappings, so that an inserted item does not change all items after it."""
    policy, model, replay = agent["policy"], agent["model"], agent["replay"]
    routes = _routes_by_name(model["routes"])
    return {
        **agent,
        "policy": {**policy, "rules": {rule["id"]: rule for rule in policy["rules"]}},
        "model": {**model, "routes": routes, "order of routes": list(routes)},
        "replay": {**replay, "redact": {one["name"]: one for one in replay["redact"]}},
        "hooks": {hook["id"]: hook for hook in agent["hooks"]},
        "agents": {name: _lists_by_name(child) for name, child in agent["agents"].items()},
    }


def _routes_by_name(routes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the routes by name. The same model may have two routes."""
    named: dict[str, Any] = {}
    for route in routes:
        name = f"{route['provider']}/{route['name']}"
        again = sum(1 for known in named if known.partition(" ")[0] == name)
        named[f"{name} ({again + 1})" if again else name] = route
    return named


def diff_fields(section: str, path: str, old: Any, new: Any) -> Iterator[PackageDifference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else key
            if key not in new:
                yield PackageDifference(section, inner, "removed", before=old[key])
            elif key not in old:
                yield PackageDifference(section, inner, "added", after=new[key])
            else:
                yield from diff_fields(section, inner, old[key], new[key])
    elif canonical_json(old) != canonical_json(new):  # not `==`, to which 1 and true are the same
        yield _join_instructions(PackageDifference(section, path, "changed", before=old, after=new))


def _join_instructions(found: PackageDifference) -> PackageDifference:
    """Join the parts of the instructions to one text, unless only the split into parts differs."""
    if _SUB_AGENTS.sub("", found.name, count=1) != "instructions":
        return found
    before, after = "\n\n".join(found.before), "\n\n".join(found.after)
    return found if before == after else PackageDifference(found.section, found.path, "changed", before, after)


def describe_pin_changes(before: PinnedServers, after: PinnedServers) -> Iterator[str]:
    """Describe the changed tools of MCP servers, one line or a few lines for each change."""
    for server in sorted({*before, *after}):
        if server not in before or server not in after:
            yield f"{server}: {'added' if server in after else 'removed'}"
            continue
        old, new = before[server], after[server]
        for name in sorted({*old, *new}):
            if name not in old or name not in new:
                yield f"{server}.{name}: {'added' if name in new else 'removed'}"
            elif old[name] != new[name]:
                parts = msgspec.to_builtins((old[name], new[name]))
                found = [each for each in diff_fields(server, name, *parts) if each.path != f"{name}.digest"]
                yield from (each.describe() for each in found)
                if not found:
                    yield f"{server}.{name}: changed, but not in what a model reads"
