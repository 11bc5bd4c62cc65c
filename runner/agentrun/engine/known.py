"""The values that a live run knows and must not show: credentials of the environment.

Rule 1  Every variable that the package names for a credential or a header counts, and the usual one of each provider.
Rule 2  So does every variable of the environment whose name says that it is a credential, and what has the shape of one
        in any other: tools read the environment too.
Rule 3  A value of fewer than eight characters is none: hiding it would make holes in every text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentrun.core.package import Package
from agentrun.core.package_tools import HttpTool, McpTool
from agentrun.engine.live import calls_of
from agentrun.engine.world import packages_of
from agentrun.net.environment import SHORTEST, credentials_in, named_in
from agentrun.secret import Secret, find_secrets, names_credential

Known = list[tuple[str, Secret]]


def known_values(package: Package, environment: Mapping[str, str]) -> Known:
    """The name of each value, and the value."""
    named = set(_named(package))
    found: dict[str, str] = {}
    for name in sorted(environment):
        text = environment[name].strip()
        if name in named or names_credential(name):
            found.setdefault(text, name)
        for start, end, _ in find_secrets(text, name):
            found.setdefault(text[start:end], name)
    return [(name, Secret(value)) for value, name in found.items() if len(value) >= SHORTEST]


def _named(package: Package) -> Iterator[str]:
    for call in calls_of(package):
        yield from credentials_in(call)
    for agent in packages_of(package):
        for tool in agent.tools.values():
            if isinstance(tool, HttpTool):
                yield from (name for text in tool.headers.values() for name in named_in(text))
                yield from named_in(tool.auth.secret) if tool.auth else ()
            elif isinstance(tool, McpTool):
                yield from (name for text in (*tool.headers.values(), *tool.env.values()) for name in named_in(text))
