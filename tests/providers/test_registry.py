import pytest

from agentrun.errors import HostError
from agentrun.providers.openai_chat import OpenAIChat
from agentrun.providers.registry import codec_for


def test_known() -> None:
    assert isinstance(codec_for("openai"), OpenAIChat)


def test_unknown() -> None:
    with pytest.raises(HostError) as caught:
        codec_for("opemai")
    assert (caught.value.code, caught.value.exit_code) == ("provider.not_found", 2)
    assert caught.value.fields == {"provider": "opemai"}
    assert caught.value.hint is not None
    assert "openai" in caught.value.hint
