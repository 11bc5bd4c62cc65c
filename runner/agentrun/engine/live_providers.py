"""The providers of a live run.

Rule 1  Before the run starts every route of the package and of its sub-agents is looked at, fallbacks too: its provider
        is known and can do what is asked, and every variable that it names is set to something that can be sent.

Importing this takes a second: only what goes live does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.messages import Transcript
from agentrun.core.package import Package, Route
from agentrun.core.package_lookup import credential_texts
from agentrun.engine.models import HttpProvider
from agentrun.engine.ports import Provider
from agentrun.engine.settings import Settings
from agentrun.engine.world import iterate_packages
from agentrun.errors import HostError
from agentrun.net.environment import (
    NamedCredentials,
    credential_variables,
    find_credentials,
    is_header_value,
    request_address,
    request_headers,
    request_variables,
    variables_in,
)
from agentrun.net.sender import HttpxSender
from agentrun.providers.registry import PROVIDER_HOMES, codec_for, refuse_unsupported
from agentrun.wire import HttpCall, Sender


def live_sender(settings: Settings) -> HttpxSender:
    """Sends requests with the credentials of the environment. Close it at the end."""
    return HttpxSender(settings.secret, trust_env=settings.trust_env, elsewhere=overridden_addresses(settings))


def overridden_addresses(settings: Settings) -> dict[str, str]:
    """The providers' own addresses for which the environment names others."""
    homes = {home.address: home.variable for home in PROVIDER_HOMES.values()}
    return {address: variable for address, variable in homes.items() if settings.has(variable)}


def live_providers(package: Package, settings: Settings, sender: Sender) -> dict[str, Provider]:
    """The models that a package names, by provider. Raises `provider.not_found`, `package.invalid`, `host.missing`."""
    providers: dict[str, Provider] = {}
    for agent, route in _all_routes(package):
        codec = codec_for(route.provider)
        refuse_unsupported(agent, route)
        _refuse_unsendable(route, _probe_call(agent, route), settings)
        providers[route.provider] = HttpProvider(codec, sender)
    return providers


def probe_calls(package: Package) -> Iterator[HttpCall]:
    """A request of each route of a package and of its sub-agents, for what they name."""
    for agent, route in _all_routes(package):
        yield _probe_call(agent, route)


def _all_routes(package: Package) -> Iterator[tuple[Package, Route]]:
    for agent in iterate_packages(package):
        yield from ((agent, route) for route in agent.model.routes)


def _probe_call(agent: Package, route: Route) -> HttpCall:
    return codec_for(route.provider).call(ModelRequest(route, agent.model, "", Transcript(), None), [])


def _refuse_unsendable(route: Route, call: HttpCall, settings: Settings) -> None:
    lookup, others = settings.secret, overridden_addresses(settings)
    for name in request_variables(call):
        lookup(name)
    if not _is_address(request_address(call, lookup, others)):
        message = f"the address of {route_name(route)} is not one that can be used"
        variable = next((name for home, name in others.items() if call.url.startswith(home + "/")), None)
        hint = f"{variable or call.url} must give https://host/path"
        raise HostError("host.missing", message, hint=hint, fields={"name": call.url, "what": "address"})
    if not all(is_header_value(value) for _, value in request_headers(call, lookup)):
        message = f"a header of {route_name(route)} has characters that no header can hold"
        names = sorted({*request_variables(call)})
        raise HostError("host.missing", message, fields={"name": route_name(route), "variables": names})


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  # raises for what is no number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isascii() and text.isprintable()


# --- the values that a live run knows and must not show: credentials of the environment -----------------------


NOT_SECRET_VARIABLES = (
    "HOME",
    "HOSTNAME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "PWD",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)
"""Variables that are no secrets, whoever names them."""
_NOT_SECRET_PREFIXES = ("LC_", "XDG_")
"""How others of these begin."""


def known_secrets(package: Package, environment: Mapping[str, str]) -> NamedCredentials:
    """The name of each value, and the value."""
    named = {
        name
        for name in _named_variables(package)
        if name not in NOT_SECRET_VARIABLES and not name.startswith(_NOT_SECRET_PREFIXES)
    }
    return find_credentials(environment, named)


def _named_variables(package: Package) -> Iterator[str]:
    for call in probe_calls(package):
        yield from credential_variables(call)
    for agent in iterate_packages(package):
        for part in (*agent.tools.values(), *agent.sinks.values()):
            yield from (name for text in credential_texts(part) for name in variables_in(text))
