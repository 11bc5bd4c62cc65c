"""What a caller from Python gives must be meant for something.

Whoever misspells a tool that is to be replaced must hear of it: the real one would run instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from agentrun.core.package import Package
from agentrun.core.package_tools import McpTool
from agentrun.engine.sealed import SINK_KINDS, TOOL_KINDS
from agentrun.engine.world import packages_of
from agentrun.errors import HostError
from agentrun.spec.problems import did_you_mean, quote_text


def refuse_unknown_words(given: Collection[str], known: Collection[str]) -> None:
    """Raises TypeError, as Python does, for a keyword that there is not."""
    for word in given:
        if word not in known:
            hint = did_you_mean(word, known)
            raise TypeError(f"there is no keyword {word!r}" + (f": {hint}" if hint else ""))


def refuse_unknown_names(package: Package, given: Mapping[str, Any]) -> None:
    """Raises `host.missing` for a tool, hook or sink that neither the package nor a sub-agent has, or that is none."""
    packages = tuple(packages_of(package))
    known = {
        "tools": {*TOOL_KINDS, *(name for each in packages for name in _tools(each))},
        "hooks": {hook.id for each in packages for hook in each.hooks},
        "sinks": {*SINK_KINDS, *(name for each in packages for name in each.sinks)},
    }
    for key, names in known.items():
        if not isinstance(given.get(key, {}), Mapping):
            message = f"`{key}` is given by name: a mapping, not a value of {type(given[key]).__name__}"
            raise HostError("host.missing", message, fields={"name": key, "what": key})
        for name in given.get(key, ()):
            if name not in names:
                what = key.removesuffix("s")
                hint = did_you_mean(name, names) or f"give only what the spec names under `{key}`"
                message = f"the agent has no {what} {quote_text(name)}"
                raise HostError("host.missing", message, hint=hint, fields={"name": name, "what": what})
    _refuse_useless(given)


def _refuse_useless(given: Mapping[str, Any]) -> None:
    """Raises `host.missing` for what cannot do what it is given for: a plain function as a tool, say."""
    needed = {
        "model": ("ask", "effect, delta -> Reply | Fault"),
        "tools": ("run", "call -> Returned"),
        "sinks": ("deliver", "delivery -> Fault | None"),
    }
    for key, (method, form) in needed.items():
        parts = given.get(key, {})
        for name, part in (parts if isinstance(parts, Mapping) else {"": parts}).items():
            if not callable(getattr(part, method, None)):
                what = key.removesuffix("s")
                called = f"{what} {quote_text(name)}" if name else what
                message = f"what is given as the {called} has no method `{method}`: {form}"
                raise HostError("host.missing", message, fields={"name": name, "what": what})


def _tools(package: Package) -> Iterator[str]:
    for name, tool in package.tools.items():
        yield name
        if isinstance(tool, McpTool):
            yield from (f"{name}.{inner}" for inner in tool.pinned)
