"""What a package may ask for and nothing here does yet.

Running it all the same would ignore what its author wrote, so it is refused. A test lists these keys; each
leaves with the part that implements it, until the list is empty.
"""

from __future__ import annotations

from collections.abc import Callable

from agentrun.core.package import Package
from agentrun.errors import HostError

UNBUILT: dict[str, Callable[[Package], bool]] = {
    "tools": lambda package: bool(package.tools),
    "policy.rules": lambda package: bool(package.policy.rules),
    "model.stream": lambda package: package.model.stream,
    "model.fallback": lambda package: len(package.model.routes) > 1,
    "budgets.tokens": lambda package: package.budgets.tokens is not None,
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
