"""The values that a live run knows and must not show: credentials of the environment.

Rule 1  Every variable that the package names for a credential, a header or a command counts, and the usual one of each
        provider. What every machine has does not: a command's results are full of its HOME, and mean something.
Rule 2  So does whatever else in the environment is a credential (`net/environment.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentrun.core.package import Package
from agentrun.core.package_lookup import credential_texts
from agentrun.engine.live import calls_of
from agentrun.engine.world import packages_of
from agentrun.net.environment import NamedCredentials, credential_variables, find_credentials, variables_in

PLAIN = ("HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables that are no secrets, whoever names them."""
_PLAIN = ("LC_", "XDG_")
"""How others of these begin."""


def known_values(package: Package, environment: Mapping[str, str]) -> NamedCredentials:
    """The name of each value, and the value."""
    named = {name for name in _named(package) if name not in PLAIN and not name.startswith(_PLAIN)}
    return find_credentials(environment, named)


def _named(package: Package) -> Iterator[str]:
    for call in calls_of(package):
        yield from credential_variables(call)
    for agent in packages_of(package):
        for part in (*agent.tools.values(), *agent.sinks.values()):
            yield from (name for text in credential_texts(part) for name in variables_in(text))
