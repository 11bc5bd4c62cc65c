"""The providers of a live run, and the secret values that it must not show.

Rule 1  Before the run starts, every route of the package and its sub-agents is checked, also fallbacks: the provider
        exists and supports the settings, and every variable has a value that can be sent.

Importing this module takes a second, so only live runs do.
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
from agentrun.engine.world import iterate_packages, iterate_routes
from agentrun.errors import HostError
from agentrun.net import environment as net_environment
from agentrun.net.sender import HttpxSender
from agentrun.providers.registry import PROVIDER_HOMES, codec_for, refuse_unsupported
from agentrun.wire import HttpCall, Sender


def live_sender(settings: Settings) -> HttpxSender:
    """A sender with the credentials of the environment. The caller closes it."""
    return HttpxSender(settings.secret, trust_env=settings.trust_env, elsewhere=overridden_addresses(settings))


def overridden_addresses(settings: Settings) -> dict[str, str]:
    """The default addresses of providers that a variable of the environment replaces, each with the variable."""
    homes = {home.address: home.variable for home in PROVIDER_HOMES.values()}
    return {address: variable for address, variable in homes.items() if settings.has(variable)}


def live_providers(package: Package, settings: Settings, sender: Sender) -> dict[str, Provider]:
    """The models of a package, by provider. Raises `provider.not_found`, `package.invalid`, `host.missing`."""
    providers: dict[str, Provider] = {}
    for agent, route in iterate_routes(package):
        codec = codec_for(route.provider)
        refuse_unsupported(agent, route)
        _refuse_unsendable(route, _probe_call(agent, route), settings)
        providers[route.provider] = HttpProvider(codec, sender)
    return providers


def probe_calls(package: Package) -> Iterator[HttpCall]:
    """An example request for each route of a package and its sub-agents, to see which variables they need."""
    for agent, route in iterate_routes(package):
        yield _probe_call(agent, route)


def _probe_call(agent: Package, route: Route) -> HttpCall:
    return codec_for(route.provider).call(ModelRequest(route, agent.model, "", Transcript(), None), [])


def _refuse_unsendable(route: Route, call: HttpCall, settings: Settings) -> None:
    lookup, others = settings.secret, overridden_addresses(settings)
    for name in net_environment.request_variables(call):
        lookup(name)
    if not _is_address(net_environment.request_address(call, lookup, others)):
        message = f"the address of {route_name(route)} is not a valid URL"
        variable = next((name for home, name in others.items() if call.url.startswith(home + "/")), None)
        hint = f"{variable or call.url} must be of the form https://host/path"
        raise HostError("host.missing", message, hint=hint, fields={"name": call.url, "what": "address"})
    if not all(net_environment.is_header_value(value) for _, value in net_environment.request_headers(call, lookup)):
        names = sorted({*net_environment.request_variables(call)})
        message = f"a header of {route_name(route)} has characters that are not allowed in HTTP headers"
        hint = f"check the value of {', '.join(names)}"
        raise HostError("host.missing", message, hint=hint, fields={"name": route_name(route), "variables": names})


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  # raises ValueError if it is not a number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isascii() and text.isprintable()


# --- secret values --------------------------------------------------------------------------------------------


NOT_SECRET_VARIABLES = (
    *("HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
)
"""Variables that are never secrets, even if a package names them."""
_NOT_SECRET_PREFIXES = ("LC_", "XDG_")


def known_secrets(package: Package, environment: Mapping[str, str]) -> net_environment.NamedCredentials:
    """The secret values of the environment, each with its name."""
    named = {
        name
        for name in _named_variables(package)
        if name not in NOT_SECRET_VARIABLES and not name.startswith(_NOT_SECRET_PREFIXES)
    }
    return net_environment.find_credentials(environment, named)


def _named_variables(package: Package) -> Iterator[str]:
    for call in probe_calls(package):
        yield from net_environment.credential_variables(call)
    for agent in iterate_packages(package):
        for part in (*agent.tools.values(), *agent.sinks.values()):
            yield from (name for text in credential_texts(part) for name in net_environment.variables_in(text))
