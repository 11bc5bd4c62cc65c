from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.facts import Decision, Fact, Observation, Record
from agentrun.core.messages import (
    ZERO_USAGE,
    Assistant,
    File,
    Image,
    Message,
    Reasoning,
    Refusal,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    Transcript,
    Usage,
    User,
    text_of,
    user_message,
)


def user(text: str) -> User:
    return User((Text(text),))


def test_transcript_appends_and_compares() -> None:
    empty = Transcript()
    one = empty.plus(user("a"))
    two = one.plus(user("b"))
    assert [len(transcript) for transcript in (empty, one, two)] == [0, 1, 2]
    assert tuple(two) == (user("a"), user("b"))
    assert two == Transcript((user("a"), user("b")))
    assert two != one
    assert two != (user("a"), user("b"))
    assert repr(one) == f"Transcript({(user('a'),)!r})"


def test_transcript_shares_its_list_until_it_forks() -> None:
    base = Transcript().plus(user("a"))
    long = base.plus(user("b"))
    fork = base.plus(user("c"))
    assert long._messages is base._messages, "one list for a run that goes straight on"
    assert fork._messages is not base._messages
    assert tuple(long) == (user("a"), user("b"))
    assert tuple(fork) == (user("a"), user("c"))


@given(st.lists(st.text(max_size=2), max_size=6), st.integers(0, 8))
def test_since_and_until_split_a_transcript(texts: list[str], place: int) -> None:
    """A shorter transcript does not see what was said after it, from either end."""
    messages = tuple(map(user, texts))
    short = Transcript(messages)
    short.plus(user("later"))
    assert short.since(place) == messages[place:]
    assert short.until(place) == messages[:place]
    assert (*short.until(place), *short.since(place)) == messages


def test_transcripts_have_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(Transcript())


@given(st.lists(st.tuples(st.integers(0, 5), st.text(max_size=3)), max_size=12))
def test_appending_to_a_transcript_changes_no_other(steps: list[tuple[int, str]]) -> None:
    """Appending to any transcript never changes another: compared with tuples, which cannot."""
    real, model = [Transcript()], [()]
    for at, text in steps:
        index = at % len(real)
        real.append(real[index].plus(user(text)))
        model.append((*model[index], user(text)))  # type: ignore[arg-type]  # the test gives the right kind
    assert [tuple(transcript) for transcript in real] == model


def test_assistant_text_calls_and_refused() -> None:
    message = Assistant((Text("a"), ToolCall("c1.0", "t", "{}"), Refusal("b")))
    assert (message.text, message.refused) == ("ab", True)
    assert [call.tool for call in message.calls] == ["t"]
    assert not Assistant((Text("a"),)).refused


def test_call_ids_contain_the_turn() -> None:
    parts = (ToolCall("0", "a", "{}", "w0"), Text("x"), ToolCall("1", "b", "{}", "w1"))
    reply = Reply(Assistant(parts), "tool_calls", None, None, None).with_call_ids(3)
    assert [(call.id, call.wire_id) for call in reply.message.calls] == [("c3.0", "w0"), ("c3.1", "w1")]
    assert reply.message.parts[1] == Text("x")
    plain = Reply(Assistant((Text("x"),)), "stop", None, None, None)
    assert plain.with_call_ids(3) is plain


def test_usage_adds_up_and_unknown_stays_unknown() -> None:
    assert ZERO_USAGE.plus(Usage(1, 2, 3, 4)).plus(Usage(1, 1, 1, 1)) == Usage(2, 3, 4, 5)
    assert Usage(1, 2, 3, 4).plus(Usage(1, None, 3, None)) == Usage(2, None, 6, None)
    assert ZERO_USAGE.plus(None) == Usage(None, None, None, None), "unknown is not nothing"


def test_words_joins_the_text_parts() -> None:
    assert user_message("a") == user("a")
    assert text_of((Text("a"), Image("image/png", "sha256:0", 1), Text("b"))) == "ab"
    assert text_of(()) == ""


def test_reasoning_is_not_part_of_the_text() -> None:
    message = Assistant((Reasoning("secret", "openai/gpt"), Text("a")))
    assert (message.text, message.calls, message.refused) == ("a", (), False)


def test_messages_round_trip_through_json() -> None:
    messages: list[Message] = [
        User((Text("a"), Image("image/png", "sha256:0", 1), File("a.txt", "text/plain", "sha256:0", 2))),
        Assistant((Reasoning("o", "openai/gpt"), Text("b"), Refusal("c"), ToolCall("c1.0", "t", "{", "w"))),
        ToolResult("c1.0", (Text("d"), Image("image/png", "sha256:0", 1))),
    ]
    assert msgspec.json.decode(msgspec.json.encode(messages), type=list[Message]) == messages


def test_every_fact_is_frozen_tagged_and_a_decision_or_observation() -> None:
    for kind in get_args(Fact):
        assert issubclass(kind, Decision) != issubclass(kind, Observation)
        words = "".join("_" + char.lower() if char.isupper() else char for char in kind.__name__)
        assert kind.__struct_config__.tag == words.removeprefix("_")
        assert kind.__struct_config__.frozen
        assert kind.__struct_config__.forbid_unknown_fields
    assert Record.__struct_fields__ == ("seq", "at", "epoch", "prev", "fact")
