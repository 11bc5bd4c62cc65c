"""What a package may ask for and nothing here does yet.

Running it all the same would ignore what its author wrote, so it is refused. A test lists these keys; each
leaves with the part that implements it, until the list is empty.

A spec is looked at first, because it has places to point at; a package once more, whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrun.core.package import Package
from agentrun.errors import HostError
from agentrun.spec.problems import Problem
from agentrun.spec.tree import Mapping, at, place_of, plain

UNBUILT: dict[str, Callable[[Package], bool]] = {
    "tools": lambda package: bool(package.tools),
    "policy.rules": lambda package: bool(package.policy.rules),
    "model.stream": lambda package: package.model.stream,
    "model.fallback": lambda package: len(package.model.routes) > 1,
    "budgets.cost": lambda package: package.budgets.cost is not None,
    "budgets.time": lambda package: package.budgets.time is not None,
    "budgets.grace": lambda package: package.budgets.grace is not None,
    "guards.empty_outcome": lambda package: package.guards.empty_outcome is not None,
    "context.overflow": lambda package: package.context.overflow != "fail",
    "admission.dedupe": lambda package: package.admission.dedupe,
    "sinks": lambda package: any(sink.delivery != "disabled" for sink in package.sinks.values()),
    "hooks": lambda package: bool(package.hooks),
    "replay.redact": lambda package: bool(package.replay.redact),
    "replay.volatile": lambda package: bool(package.replay.volatile),
}


def unbuilt(package: Package) -> list[str]:
    """The keys of a package that nothing implements yet."""
    return [key for key, asked in UNBUILT.items() if asked(package)]


def refuse_unbuilt(package: Package) -> None:
    if keys := unbuilt(package):
        raise HostError(
            "host.missing",
            f"this version does not implement {', '.join(keys)}",
            hint="remove it from the spec, or wait for the version that does",
            fields={"name": keys[0], "keys": keys},
        )


def unbuilt_problems(root: Mapping) -> list[Problem]:
    """The same for a spec as it was written, each key at its place."""
    return [
        Problem(
            place_of(root, path, key=True),
            "spec.not_built",
            f"{key} cannot be run by this version",
            "remove it, or wait for the version that runs it",
        )
        for key in UNBUILT
        if (node := at(root, path := key.split("."))) is not None and _asks(key, plain(node))
    ]


_ASKS_FOR_NOTHING: tuple[Any, ...] = (None, False, "fail", [], {})
"""Values that mean the same as a key that is not there. 0 is not among them: it is the strictest limit."""


def _asks(key: str, value: Any) -> bool:
    if key == "sinks":
        return any(sink.get("delivery") != "disabled" for sink in value.values())
    return not any(value == nothing and type(value) is type(nothing) for nothing in _ASKS_FOR_NOTHING)
