"""`ConversationEncoder` encodes each message once and gives the same bytes as a new encoder."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import Assistant, Message, Text, ToolCall, ToolResult, Transcript, User, user_message
from agentrun.providers.codec import CODECS, Codec, ConversationEncoder, ReadBlob, codec_for, split_segments
from agentrun.providers.openai_chat import OpenAIChat

from . import exchange
from .conversations import conversations
from .exchange import BLOBS, PICTURE, encode

BLOB = BLOBS.__getitem__


def request(*messages: Message, name: str = "gpt-4.1-mini") -> ModelRequest:
    return exchange.request("openai", name, *messages)


class CountingCodec(OpenAIChat):
    """Remembers what it encodes."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        self.seen += messages
        return super().segment(messages, request, blob)


def messages_per_request(turns: int) -> list[list[Message]]:
    """What is added to the conversation before each request."""
    added: list[list[Message]] = [[user_message("Hi")]]
    for turn in range(1, turns + 1):
        call = ToolCall(f"c{turn}.0", "search", "{}")
        added.append([Assistant((Text("I look."), call)), ToolResult(call.id, (Text("found"),))])
    return added


@given(conversations())
def test_segments_begin_with_an_assistant_message(messages: list[Message]) -> None:
    found = list(split_segments(messages))
    assert [message for segment in found for message in segment] == messages
    for index, segment in enumerate(found):
        assert isinstance(segment[0], Assistant) or index == 0
        assert not any(isinstance(message, Assistant) for message in segment[1:])


@pytest.mark.parametrize("codec", [codec_for(name) for name in CODECS], ids=list(CODECS))
@given(messages=conversations(), data=st.data())
def test_reused_encoder_gives_the_same_call_as_a_new_one(
    codec: Codec, messages: list[Message], data: st.DataObject
) -> None:
    """However the conversation grew, and through whatever it was changed."""
    kept = ConversationEncoder(codec, BLOB)
    for _ in range(4):
        count = data.draw(st.integers(0, len(messages)))
        start = data.draw(st.sampled_from([0, 0, 0, 1]))
        asked = replace(request(), messages=Transcript(messages[start:count]))
        if data.draw(st.booleans()):
            asked = replace(asked, route=replace(asked.route, name="another"))
        assert kept.encode(asked) == encode(codec, asked)


def test_each_message_is_encoded_once() -> None:
    codec = CountingCodec()
    kept = ConversationEncoder(codec, BLOB)
    transcript = Transcript()
    for added in messages_per_request(30):
        transcript = transcript.plus(*added)
        asked = replace(request(), messages=transcript)
        assert kept.encode(asked) == kept.encode(asked) == encode(OpenAIChat(), asked)
    assert codec.seen == list(transcript)


def test_added_message_reencodes_only_the_last_segment() -> None:
    """A follow-up of the user after an answer."""
    codec = CountingCodec()
    kept = ConversationEncoder(codec, BLOB)
    transcript = Transcript(message for added in messages_per_request(3) for message in added)
    kept.encode(replace(request(), messages=transcript))
    codec.seen.clear()
    more = transcript.plus(user_message("And?"))
    assert kept.encode(replace(request(), messages=more)) == encode(codec, replace(request(), messages=more))
    assert codec.seen[:3] == list(more.since(len(more) - 3))


@pytest.mark.parametrize("kept_messages", range(6))
def test_compacted_conversation_is_encoded_correctly(kept_messages: int) -> None:
    """However many messages stay, and also when as many were summed up as the summary has."""
    messages = [message for added in messages_per_request(3) for message in added]
    kept = ConversationEncoder(OpenAIChat(), BLOB)
    kept.encode(replace(request(), messages=Transcript(messages)))
    summed_up = Transcript([user_message("All so far."), *messages[len(messages) - kept_messages :]])
    asked = replace(request(), messages=summed_up)
    assert kept.encode(asked) == encode(OpenAIChat(), asked)


def test_another_route_is_encoded_separately() -> None:
    """Ids of calls belong to a route."""
    messages: list[Message] = [
        user_message("Hi"),
        Assistant((ToolCall("c1.0", "x", "{}", "call_a", "openai/gpt-4.1-mini"),)),
    ]
    codec = OpenAIChat()
    kept = ConversationEncoder(codec, BLOB)
    here, there = request(*messages), request(*messages, name="another")
    for asked in (here, there, here):
        assert kept.encode(asked) == encode(codec, asked)
    assert kept.encode(here).body != kept.encode(there).body


def test_failed_encoding_leaves_no_state() -> None:
    shelf: dict[str, bytes] = {}
    kept = ConversationEncoder(OpenAIChat(), lambda blob: shelf[blob])
    asked = request(user_message("Hi"), Assistant((Text("Yes?"),)), User((PICTURE,)))
    with pytest.raises(KeyError):
        kept.encode(asked)
    shelf |= BLOBS
    assert kept.encode(asked) == encode(OpenAIChat(), asked)


class UncheckedEncoder(ConversationEncoder):
    """Never looks whether what it kept is still so."""

    def encode(self, request: ModelRequest) -> object:  # type: ignore[override]  # broken on purpose
        self._messages = request.messages.until(len(self._messages))
        return super().encode(request)


def test_planted_encoder_that_trusts_its_cache_is_detected() -> None:
    kept = UncheckedEncoder(OpenAIChat(), BLOB)
    kept.encode(request(user_message("one"), Assistant((Text("a"),))))
    asked = request(user_message("two"), Assistant((Text("a"),)))
    assert kept.encode(asked) != encode(OpenAIChat(), asked)
