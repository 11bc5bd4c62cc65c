"""The codecs and addresses of providers. A codec is imported when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from msgspec import Struct

from agentrun.core.effects import route_name
from agentrun.core.package import Package, Route
from agentrun.errors import HostError, PackageError
from agentrun.providers.codec import Codec

CODECS: Mapping[str, str] = {
    "anthropic": "agentrun.providers.anthropic:Anthropic",
    "gemini": "agentrun.providers.gemini:GeminiGenerate",
    "openai": "agentrun.providers.openai_chat:OpenAIChat",
    "openai-responses": "agentrun.providers.openai_responses:OpenAIResponses",
}


class ProviderHome(Struct, frozen=True):
    """The default address of a provider, and the environment variable that replaces it, as in the provider's SDKs."""

    address: str
    variable: str


_OPENAI = ProviderHome("https://api.openai.com/v1", "OPENAI_BASE_URL")
PROVIDER_HOMES: Mapping[str, ProviderHome] = {
    "anthropic": ProviderHome("https://api.anthropic.com", "ANTHROPIC_BASE_URL"),
    "gemini": ProviderHome("https://generativelanguage.googleapis.com", "GOOGLE_GEMINI_BASE_URL"),
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
}


@cache
def codec_for(provider: str) -> Codec:
    """Raises `provider.not_found`."""
    if provider not in CODECS:
        message, hint = f"there is no provider {provider!r}", f"known providers: {', '.join(sorted(CODECS))}"
        raise HostError("provider.not_found", message, hint=hint, fields={"provider": provider})
    module, _, name = CODECS[provider].partition(":")
    codec: Codec = getattr(import_module(module), name)()
    return codec


def provider_url(route: Route) -> str:
    """The base URL of a route, without a slash at the end."""
    return (route.base_url or PROVIDER_HOMES[route.provider].address).rstrip("/")


def refuse_unsupported(package: Package, route: Route) -> None:
    """Raise `package.invalid` for settings that the provider does not support."""
    has_schema = package.output.schema is not None
    if problems := codec_for(route.provider).problems(package.model, route, package.tools, has_schema):
        message = f"{route_name(route)} does not support the settings of the package: {'; '.join(problems)}"
        fields = {"pointer": "/model", "route": route_name(route), "problems": problems}
        raise PackageError("package.invalid", message, fields=fields)
