"""Golden files of both OpenAI codecs, and properties of whole and damaged replies."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.messages import (
    Assistant,
    Message,
    Reasoning,
    Refusal,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    User,
    user_message,
)

from ..packages import TRIAGE
from . import exchange
from .exchange import (
    GOLDEN,
    NOTE,
    NOW,
    PDF,
    PICTURE,
    SEARCH,
    check_golden_file,
    cuts,
    damaged,
    decode,
    decoded_json,
    encode,
    fault,
    golden_names,
    is_reply_or_known_fault,
    reply_of,
    request_json,
    stream_of,
    streamed,
)
from .openai_codecs import CODECS, NAMES, REQUESTS

STORIES = [(name, story) for name in NAMES for story in golden_names(name)]
RECORDED_REPLIES = [(name, path) for name in NAMES for path in sorted((GOLDEN / name / "recorded").glob("*.re*.json"))]
LOOSE = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
"""A schema that nobody promises to keep."""


def conversation(route: str) -> tuple[Message, ...]:
    thought = '{"encrypted_content":"gAAAA==","id":"rs_1","summary":[],"type":"reasoning"}'
    here, there = (
        ToolCall("c1.0", "docs.search", '{"q": "é"}', "call_a", route),
        ToolCall("c1.1", "now", "{", "call_b", "x/y"),
    )
    return (
        User((Text("Look at this."), PICTURE, PDF, NOTE)),
        Assistant((Reasoning(thought, route), Reasoning("{}", "x/y"), Text("I look."), here, there)),
        ToolResult("c1.0", (Text("Nothing."), PICTURE)),
        ToolResult("c1.1", (PDF,)),
        user_message("Hurry."),
        Assistant((Refusal("No."),)),
        User((Text("Why"), Text("?"))),
    )


def requests(name: str) -> dict[str, Any]:
    def asked(*messages: Message, **more: Any) -> Any:
        return exchange.request(name, "gpt-5.4-mini", *messages, **more)

    options = {"metadata": {"b": "1", "a": "2"}, "user": "u"}
    route = {"base_url": "${HOST}/v1/", "api_key": "${KEY}", "headers": {"X-B": "${B}", "x-a": "1"}, "options": options}
    return {
        "plain": asked(),
        "conversation": asked(*conversation(f"{name}/gpt-5.4-mini"), tools=(SEARCH, NOW)),
        "streamed": asked(stream=True, output=TRIAGE, tools=(NOW,), tool_choice="required"),
        "settings": asked(
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=100,
            reasoning="low",
            tool_choice="docs.search",
            tools=(SEARCH,),
            output=LOOSE,
            route=route,
        ),
    }


@pytest.mark.parametrize(("name", "story"), [(name, story) for name in NAMES for story in requests(name)])
def test_request_matches_the_golden_file(name: str, story: str) -> None:
    check_golden_file(
        GOLDEN / name / f"{story}.request.json", request_json(encode(CODECS[name], requests(name)[story]))
    )


@pytest.mark.parametrize(("name", "story"), STORIES)
def test_reply_and_stream_decode_to_the_golden_file(name: str, story: str) -> None:
    """In one piece and streamed it is one reply, and its words are heard."""
    found = decode(CODECS[name], REQUESTS[name], reply_of(name, story))
    check_golden_file(GOLDEN / name / f"{story}.decoded.json", decoded_json(found))
    assert isinstance(found, Reply)
    assert streamed(CODECS[name], REQUESTS[name], stream_of(name, story)) == (found.message.text, found)


def test_chat_and_responses_decode_to_the_same_reply() -> None:
    """But for what the model thought, which only one of them hands out, and for names."""
    for story in golden_names("openai"):
        chat, responses = (decode(CODECS[name], REQUESTS[name], reply_of(name, story)) for name in NAMES)
        assert isinstance(chat, Reply)
        assert isinstance(responses, Reply)
        parts = tuple(part for part in responses.message.parts if not isinstance(part, Reasoning))
        same = replace(responses, message=Assistant(parts), model=chat.model, wire_id=chat.wire_id)
        assert same == chat


@pytest.mark.parametrize(("name", "path"), RECORDED_REPLIES, ids=lambda value: getattr(value, "stem", value))
def test_recorded_llama_cpp_reply_decodes_to_the_golden_file(name: str, path: Path) -> None:
    """What the server of llama.cpp really answered."""
    status = 400 if path.name.endswith(".refusal.json") else 200
    check_golden_file(
        path.with_suffix(".decoded"), decoded_json(decode(CODECS[name], REQUESTS[name], path.read_bytes(), status))
    )
    stream = path.with_name(path.name.replace(".reply.json", ".stream.sse"))
    if stream != path:
        check_golden_file(
            stream.with_suffix(".decoded"), decoded_json(streamed(CODECS[name], REQUESTS[name], stream.read_bytes())[1])
        )


# --- whole or broken ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "story"), STORIES)
@given(st.data())
def test_chunk_boundaries_do_not_matter(name: str, story: str, data: st.DataObject) -> None:
    whole = stream_of(name, story)
    places = data.draw(cuts(whole))
    assert streamed(CODECS[name], REQUESTS[name], whole, places) == streamed(CODECS[name], REQUESTS[name], whole)


@pytest.mark.parametrize(("name", "story"), STORIES)
def test_stream_fed_byte_by_byte_is_the_same(name: str, story: str) -> None:
    whole = stream_of(name, story)
    assert streamed(CODECS[name], REQUESTS[name], whole, list(range(len(whole)))) == streamed(
        CODECS[name], REQUESTS[name], whole
    )


@pytest.mark.parametrize(("name", "story"), STORIES)
def test_truncated_stream_is_the_whole_reply_or_none(name: str, story: str) -> None:
    """Cut anywhere, a stream gives the whole reply or none; only its usage may be missing."""
    data = stream_of(name, story)
    whole = streamed(CODECS[name], REQUESTS[name], data)[1]
    assert isinstance(whole, Reply)
    seen = set()
    for cut in range(len(data)):
        found = streamed(CODECS[name], REQUESTS[name], data[:cut])[1]
        if isinstance(found, Reply):
            assert replace(found, usage=whole.usage) == whole
            assert found.usage in (None, whole.usage)
        else:
            assert fault(found).code == "provider.empty"
        seen.add(type(found).__name__)
    assert seen == {"Reply", "Fault"}


@pytest.mark.parametrize(("name", "story"), STORIES)
@given(st.data())
def test_damaged_reply_is_a_reply_or_a_known_fault(name: str, story: str, data: st.DataObject) -> None:
    reply = data.draw(damaged(reply_of(name, story)))
    status = data.draw(st.sampled_from([200, 200, 400, 429, 500]))
    assert is_reply_or_known_fault(decode(CODECS[name], REQUESTS[name], reply, status))
    stream = data.draw(damaged(stream_of(name, story)))
    assert is_reply_or_known_fault(streamed(CODECS[name], REQUESTS[name], stream)[1])


@pytest.mark.parametrize("name", NAMES)
@given(st.binary(max_size=60), st.integers(100, 599))
def test_any_bytes_are_a_fault(name: str, data: bytes, status: int) -> None:
    assert fault(decode(CODECS[name], REQUESTS[name], data, status)).code.startswith("provider.")
    assert fault(streamed(CODECS[name], REQUESTS[name], data)[1]).code in ("provider.empty", "provider.decode")
