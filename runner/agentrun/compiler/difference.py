"""Why do two packages differ? Section by section and field by field, in words."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec import Struct

from agentrun.canon import canonical
from agentrun.compiler.fingerprint import PackageFile

Change = Literal["added", "removed", "changed"]

_MILLISECONDS = re.compile(
    r"(tools|sinks|hooks)\.[^.]+\.(timeout|grace|start_timeout)|policy\.approval_timeout|budgets\.time"
    r"|limits\.(stream_gap|call_time)|retry\.(first_delay|max_delay|max_wait)"
)
_MICRO_DOLLARS = re.compile(r"budgets\.cost|model\.routes\.(?!.*\.options\.).+\.price\.\w+")
_SUB_AGENTS = re.compile(r"(agents\.[^.]+\.)*")


class Difference(Struct, frozen=True):
    """One field that differs."""

    section: str
    path: str
    """The field inside the section, dotted; empty for the section itself."""
    change: Change
    before: Any = None
    after: Any = None

    @property
    def name(self) -> str:
        """Section and field."""
        return f"{self.section}.{self.path}" if self.path else self.section

    def words(self) -> str:
        """One difference as a sentence, or a few lines for texts."""
        if self.change != "changed":
            value = self.after if self.change == "added" else self.before
            return f"{self.name}: {self.change}{'' if isinstance(value, (dict, list)) else f' ({self._shown(value)})'}"
        if isinstance(self.before, str) and isinstance(self.after, str) and "\n" in self.before + self.after:
            return "\n".join([f"{self.name}: changed", *_lines(self.before, self.after)])
        return f"{self.name}: {self._shown(self.before)} → {self._shown(self.after)}"

    def _shown(self, value: Any) -> str:
        """A value, with the unit that a package leaves out."""
        if isinstance(value, int) and not isinstance(value, bool):
            field = _SUB_AGENTS.sub("", self.name, count=1)
            if _MILLISECONDS.fullmatch(field):
                return f"{value / 1000:.15g} s"
            if _MICRO_DOLLARS.fullmatch(field):
                return f"${value / 1_000_000:.15g}"
        return "none" if value is None else json.dumps(value, ensure_ascii=False)


def differences(before: PackageFile, after: PackageFile) -> list[Difference]:
    """Everything that differs; sections with equal fingerprints are not looked into."""
    old, new = msgspec.to_builtins(before.agent), msgspec.to_builtins(after.agent)
    old_keyed, new_keyed = _keyed(old), _keyed(new)
    found: list[Difference] = []
    for section in old:
        if before.sections[section] != after.sections[section]:
            inside = list(compared(section, "", old_keyed[section], new_keyed[section]))
            # Two things of one name are one in a mapping. The compiler makes no such package, but a file may hold it.
            found += inside or [Difference(section, "", "changed", before=old[section], after=new[section])]
    return found


def _keyed(agent: dict[str, Any]) -> dict[str, Any]:
    """Lists of things with names as mappings, so that one that moved or was added is not every one after it changed."""
    policy, model, replay = agent["policy"], agent["model"], agent["replay"]
    routes = _routes(model["routes"])
    return {
        **agent,
        "policy": {**policy, "rules": {rule["id"]: rule for rule in policy["rules"]}},
        "model": {**model, "routes": routes, "order of routes": list(routes)},
        "replay": {**replay, "redact": {one["name"]: one for one in replay["redact"]}},
        "hooks": {hook["id"]: hook for hook in agent["hooks"]},
        "agents": {name: _keyed(child) for name, child in agent["agents"].items()},
    }


def _routes(routes: list[dict[str, Any]]) -> dict[str, Any]:
    """Routes by name; one model may be reached in two ways."""
    named: dict[str, Any] = {}
    for route in routes:
        name = f"{route['provider']}/{route['name']}"
        again = sum(1 for known in named if known.partition(" ")[0] == name)
        named[f"{name} ({again + 1})" if again else name] = route
    return named


def compared(section: str, path: str, old: Any, new: Any) -> Iterator[Difference]:
    """What differs between two values, field by field."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else key
            if key not in new:
                yield Difference(section, inner, "removed", before=old[key])
            elif key not in old:
                yield Difference(section, inner, "added", after=new[key])
            else:
                yield from compared(section, inner, old[key], new[key])
    elif canonical(old) != canonical(new):  # not `==`, to which 1 and true are the same
        yield _of_texts(Difference(section, path, "changed", before=old, after=new))


def _of_texts(found: Difference) -> Difference:
    """The parts of instructions as one text, unless only the parting differs."""
    if _SUB_AGENTS.sub("", found.name, count=1) != "instructions":
        return found
    before, after = "\n\n".join(found.before), "\n\n".join(found.after)
    return found if before == after else Difference(found.section, found.path, "changed", before, after)


def _lines(before: str, after: str) -> Iterator[str]:
    diff = difflib.unified_diff(before.split("\n"), after.split("\n"), n=1, lineterm="")
    for line in islice(diff, 2, None):  # without the two lines that would name files
        yield f"    {line}"
