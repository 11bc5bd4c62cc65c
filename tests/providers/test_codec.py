import pytest

from agentrun.errors import HostError
from agentrun.providers.codec import CODECS, codec_for
from agentrun.providers.openai_chat import OpenAIChat
from agentrun.providers.openai_responses import OpenAIResponses


def test_registered_codecs() -> None:
    assert sorted(CODECS) == ["anthropic", "gemini", "openai", "openai-responses"]
    assert isinstance(codec_for("openai"), OpenAIChat)
    assert isinstance(codec_for("openai-responses"), OpenAIResponses)


def test_unknown_provider_is_refused_with_a_hint() -> None:
    with pytest.raises(HostError) as caught:
        codec_for("opemai")
    assert (caught.value.code, caught.value.exit_code) == ("provider.not_found", 2)
    assert caught.value.fields == {"provider": "opemai"}
    assert caught.value.hint is not None
    assert "openai" in caught.value.hint
