"""What a package may ask for and nothing here does yet.

Running it all the same would ignore what its author wrote, so it is refused. A test lists these keys; each
leaves with the part that implements it, until the list is empty.

A spec is looked at first: every key that is written counts, whatever its value. A package is looked at once more,
whoever made it: there only values count that would change the run.
"""

from __future__ import annotations

from collections.abc import Callable

from agentrun.core.package import Package
from agentrun.errors import HostError
from agentrun.spec.problems import Place, Problem
from agentrun.spec.tree import Mapping, plain

UNBUILT: dict[str, Callable[[Package], bool]] = {
    "tools": lambda package: bool(package.tools),
    "policy.rules": lambda package: bool(package.policy.rules),
    "model.stream": lambda package: package.model.stream,
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


BUILT: dict[str, tuple[str, ...] | None] = {
    "agentrun": None,
    "name": None,
    "description": None,
    "params": None,
    "profiles": None,
    "instructions": None,
    "input": None,
    "model": (
        *("provider", "name", "base_url", "options", "temperature", "top_p", "seed", "stop"),
        *("max_output_tokens", "reasoning", "fallback", "price", "context_window"),
    ),
    "budgets": None,
    "limits": ("call_time", "on_truncated", "truncations"),
    "guards": ("stagnation", "empty_outcome", "nudge"),
    "retry": None,
    "context": None,
    "admission": ("max_chars",),
    "output": ("schema", "repairs", "max_bytes", "max_depth"),
}
"""The keys of a spec that are acted on, and inside a key those of its own (None: all of them)."""


def unbuilt_problems(root: Mapping) -> list[Problem]:
    """Every key that is written in a spec and that nothing implements yet, at its place."""
    problems = []
    for key, entry in root.entries.items():
        if key not in BUILT:
            problems += [] if plain(entry.node) in ({}, []) else [_problem(key, entry.key_place)]
            continue
        inner = BUILT[key]
        if inner is not None and isinstance(entry.node, Mapping):
            for name, below in entry.node.entries.items():
                if name not in inner:
                    problems.append(_problem(f"{key}.{name}", below.key_place))
    return problems


def _problem(key: str, place: Place) -> Problem:
    message = f"{key} cannot be run by this version"
    return Problem(place, "spec.not_built", message, "remove it, or wait for the version that runs it")
