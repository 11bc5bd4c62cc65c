"""Which codec speaks a provider's language."""

from __future__ import annotations

from collections.abc import Mapping

from agentrun.errors import HostError
from agentrun.providers.anthropic import Anthropic
from agentrun.providers.codec import Codec
from agentrun.providers.gemini import GeminiGenerate
from agentrun.providers.openai_chat import OpenAIChat
from agentrun.providers.responses import OpenAIResponses

CODECS: Mapping[str, Codec] = {
    "anthropic": Anthropic(),
    "gemini": GeminiGenerate(),
    "openai": OpenAIChat(),
    "openai-responses": OpenAIResponses(),
}


def codec_for(provider: str, codecs: Mapping[str, Codec] = CODECS) -> Codec:
    """The codec of a provider, or `provider.not_found`."""
    if provider not in codecs:
        raise HostError(
            "provider.not_found",
            f"no provider is named {provider!r}",
            hint=f"known providers: {', '.join(sorted(codecs))}",
            fields={"provider": provider},
        )
    return codecs[provider]
