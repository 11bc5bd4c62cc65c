"""The values that a live run knows and must not show: credentials of the environment.

Rule 1  Every variable that the package names for a credential or a header counts, and the usual one of each provider.
Rule 2  So does whatever else in the environment is a credential (`net/credentials.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentrun.core.credentials import credential_texts
from agentrun.core.package import Package
from agentrun.engine.live import calls_of
from agentrun.engine.world import packages_of
from agentrun.net.credentials import Known, credentials
from agentrun.net.environment import credentials_in, named_in


def known_values(package: Package, environment: Mapping[str, str]) -> Known:
    """The name of each value, and the value."""
    return credentials(environment, set(_named(package)))


def _named(package: Package) -> Iterator[str]:
    for call in calls_of(package):
        yield from credentials_in(call)
    for agent in packages_of(package):
        for part in (*agent.tools.values(), *agent.sinks.values()):
            yield from (name for text in credential_texts(part) for name in named_in(text))
