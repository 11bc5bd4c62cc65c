"""The providers of a live run, and the secret values that it must not show.

Rule 1  Before the run starts, every route of the package and its sub-agents is checked, also fallbacks: the provider
        exists and supports the settings, and every variable has a value that can be sent.

Importing this module takes a second, so only live runs do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.messages import Transcript
from agentrun.core.package import Package, Route, Sink, credential_texts
from agentrun.core.package_tools import Tool
from agentrun.credentials import NamedCredentials, find_credentials, hidden_secrets, short_credentials
from agentrun.engine.env_file import read_env_file, read_project_env_file
from agentrun.engine.models import HttpProvider
from agentrun.engine.ports import Provider
from agentrun.engine.settings import Settings, load_settings
from agentrun.engine.world import iterate_packages, iterate_routes
from agentrun.errors import HostError
from agentrun.net import environment as net_environment
from agentrun.net.client import HttpxSender
from agentrun.providers.codec import PROVIDER_HOMES, codec_for, refuse_unsupported
from agentrun.spec.safe_text import join_words
from agentrun.wire import HttpCall, Sender

NOT_SECRET_VARIABLES = (
    *("HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
)
"""Variables that are never secrets, even if a package names them."""
_NOT_SECRET_PREFIXES = ("LC_", "XDG_")


def live_settings(package: Package, root: Path, env_file: Path | None = None) -> Settings:
    """The settings of a live run, with the variables of `env_file` or else of the project's `.env`.

    Raises `host.missing`.
    """
    file = read_project_env_file(root, {*_named_variables(package)}) if env_file is None else read_env_file(env_file)
    return load_settings(file, _provider_keys(package))


def live_sender(settings: Settings, client: httpx.AsyncClient) -> HttpxSender:
    """A sender with the credentials of the environment. The caller closes the client."""
    return HttpxSender(client, settings.secret, overridden_addresses(settings))


def overridden_addresses(settings: Settings) -> dict[str, str]:
    """The default addresses of providers that a variable of the environment replaces, each with the variable."""
    homes = {home.address: home.variable for home in PROVIDER_HOMES.values()}
    return {address: variable for address, variable in homes.items() if settings.has(variable)}


def live_providers(package: Package, settings: Settings, sender: Sender) -> dict[str, Provider]:
    """The models of a package, by provider. Raises `provider.not_found`, `package.invalid`, `host.missing`."""
    providers: dict[str, Provider] = {}
    _refuse_missing_variables(package, settings)
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


def _refuse_missing_variables(package: Package, settings: Settings) -> None:
    """Raise `host.missing` with all variables of routes that are not set."""
    errors: dict[str, HostError] = {}
    for name in (name for call in probe_calls(package) for name in net_environment.request_variables(call)):
        try:
            settings.secret(name)
        except HostError as error:
            errors[name] = error
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        unset = [f"{name}=…" for name in errors if not settings.file.hint(name)]
        hints = dict.fromkeys(error.hint for name, error in errors.items() if settings.file.hint(name) and error.hint)
        hint = "; ".join([*hints, *([f"set them: export {' '.join(unset)}"] if unset else [])])
        fields = {"name": next(iter(errors)), "variables": list(errors)}
        raise HostError("host.missing", f"{join_words(list(errors))} are not set", hint=hint, fields=fields)


def _refuse_unsendable(route: Route, call: HttpCall, settings: Settings) -> None:
    lookup, others = settings.secret, overridden_addresses(settings)
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


def known_secrets(package: Package, environment: Mapping[str, str], named: Iterable[str] = ()) -> NamedCredentials:
    """The secret values of the environment, each with its name. `named`: the names that the project adds."""
    return find_credentials(environment, {*named, *_credential_names(package)}, _provider_keys(package))


def _provider_keys(package: Package) -> set[str]:
    return {call.auth.name for call in probe_calls(package) if call.auth is not None}


def hide_run_secrets(package: Package, settings: Settings) -> None:
    """Redact the secrets of a run too, with those of `.env`, in everything that this process prints from now on."""
    hidden_secrets.add(known_secrets(package, settings.variables(), settings.file.given))


def short_secrets(package: Package, environment: Mapping[str, str], named: Iterable[str] = ()) -> list[str]:
    """The secrets whose values are too short to hide, by their names."""
    return short_credentials(environment, {*named, *_credential_names(package)})


def _credential_names(package: Package) -> Iterator[str]:
    for name in _named_variables(package, addresses=False):
        if name not in NOT_SECRET_VARIABLES and not name.startswith(_NOT_SECRET_PREFIXES):
            yield name


def _named_variables(package: Package, *, addresses: bool = True) -> Iterator[str]:
    """The variables that a package names. `addresses`: with those of addresses, which are not secrets."""
    for call in probe_calls(package):
        yield from (net_environment.request_variables if addresses else net_environment.credential_variables)(call)
    for agent in iterate_packages(package):
        for part in (*agent.tools.values(), *agent.sinks.values()):
            yield from part_variables(part, addresses=addresses)


def part_variables(part: Tool | Sink, *, addresses: bool = True) -> Iterator[str]:
    """The variables that a tool or sink names."""
    for text in (getattr(part, "url", None) or "" if addresses else "", *credential_texts(part)):
        yield from net_environment.variables_in(text)
