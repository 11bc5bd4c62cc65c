"""Why do two packages differ? Section by section and field by field, in words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from agentrun.compiler.fingerprint import PackageFile

Change = Literal["added", "removed", "changed"]

_MILLISECONDS = {
    "timeout", "grace", "time", "approval_timeout", "stream_gap", "call_time", "first_delay", "max_delay",
    "max_wait", "start_timeout",
}  # fmt: skip


class Difference(Struct, frozen=True):
    """One field that differs."""

    section: str
    path: str
    """The field inside the section, dotted; empty for the section itself."""
    change: Change
    before: Any = None
    after: Any = None

    def words(self) -> str:
        """One difference as a sentence, or a few lines for texts."""
        name = f"{self.section}.{self.path}" if self.path else self.section
        if self.change != "changed":
            value = self.after if self.change == "added" else self.before
            return f"{name}: {self.change}{'' if isinstance(value, (dict, list)) else f' ({self._shown(value)})'}"
        if isinstance(self.before, str) and isinstance(self.after, str) and "\n" in self.before + self.after:
            return "\n".join([f"{name}: changed", *_lines(self.before, self.after)])
        return f"{name}: {self._shown(self.before)} → {self._shown(self.after)}"

    def _shown(self, value: Any) -> str:
        field = self.path.rpartition(".")[2]
        if isinstance(value, int) and not isinstance(value, bool):
            if field in _MILLISECONDS and not (self.section == "budgets" and field == "grace"):
                return f"{value / 1000:g} s"
            if self.section == "budgets" and field == "cost":
                return f"${value / 1_000_000:g}"
        return "none" if value is None else json.dumps(value, ensure_ascii=False)


def differences(before: PackageFile, after: PackageFile) -> list[Difference]:
    """Everything that differs; sections with equal fingerprints are not looked into."""
    old, new = msgspec.to_builtins(before.agent), msgspec.to_builtins(after.agent)
    found: list[Difference] = []
    for section in old:
        if before.sections.get(section) != after.sections.get(section):
            found += _compare(section, "", _keyed(section, old[section]), _keyed(section, new[section]))
    return found


def _keyed(section: str, value: Any) -> Any:
    """Lists of things with names as mappings, so that one that moved or was added is not every one after it changed."""
    match section:
        case "policy":
            return {**value, "rules": {rule["id"]: rule for rule in value["rules"]}}
        case "hooks":
            return {hook["id"]: hook for hook in value}
        case "model":
            routes = {f"{route['provider']}/{route['name']}": route for route in value["routes"]}
            return {**value, "routes": routes, "order of routes": list(routes)}
        case "instructions":
            return "\n\n".join(value)
        case "replay":
            return {**value, "redact": {one["name"]: one for one in value["redact"]}}
        case _:
            return value


def _compare(section: str, path: str, old: Any, new: Any) -> Iterator[Difference]:
    if old == new and type(old) is type(new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else key
            if key not in new:
                yield Difference(section, inner, "removed", before=old[key])
            elif key not in old:
                yield Difference(section, inner, "added", after=new[key])
            else:
                yield from _compare(section, inner, old[key], new[key])
    else:
        yield Difference(section, path, "changed", before=old, after=new)


def _lines(before: str, after: str) -> Iterator[str]:
    for line in difflib.unified_diff(before.split("\n"), after.split("\n"), n=1, lineterm=""):
        if not line.startswith(("---", "+++")):
            yield f"    {line}"
