"""Which codec speaks a provider's language. Each is imported when it is first asked for."""

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
    """Where a provider is, and the variable by which its own clients are sent elsewhere."""

    address: str
    variable: str


_OPENAI = ProviderHome("https://api.openai.com/v1", "OPENAI_BASE_URL")
PROVIDER_HOMES: Mapping[str, ProviderHome] = {
    "anthropic": ProviderHome("https://api.anthropic.com", "ANTHROPIC_BASE_URL"),
    "gemini": ProviderHome("https://generativelanguage.googleapis.com", "GOOGLE_GEMINI_BASE_URL"),
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
}


def codec_for(provider: str) -> Codec:
    """The codec of a provider, or `provider.not_found`."""
    if provider not in CODECS:
        raise HostError(
            "provider.not_found",
            f"no provider is named {provider!r}",
            hint=f"known providers: {', '.join(sorted(CODECS))}",
            fields={"provider": provider},
        )
    return _codec(provider)


def refuse_unsupported(package: Package, route: Route) -> None:
    """Refuse what a provider cannot do, before a run depends on it (`package.invalid`)."""
    has_schema = package.output.schema is not None
    if problems := codec_for(route.provider).problems(package.model, route, package.tools, has_schema):
        message = f"{route_name(route)} cannot do what the package asks: {'; '.join(problems)}"
        fields = {"pointer": "/model", "route": route_name(route), "problems": problems}
        raise PackageError("package.invalid", message, fields=fields)


@cache
def _codec(provider: str) -> Codec:
    module, _, name = CODECS[provider].partition(":")
    codec: Codec = getattr(import_module(module), name)()
    return codec
