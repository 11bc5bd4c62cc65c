"""OpenAI Responses: decoding of replies and streams."""

import json
from typing import Any

import pytest

from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Reasoning, Reply, Text, ToolCall, Usage
from agentrun.wire import HttpReply

from . import exchange
from .openai_codecs import CODECS, REQUESTS

CODEC, REQUEST = CODECS["openai-responses"], REQUESTS["openai-responses"]
THIS_ROUTE = "openai-responses/gpt-5.4-mini"


def message(text: str = "Hi") -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(id: str = "call_a", name: str = "now", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": "{}", **more}


def response(*items: Any, status: str | None = "completed", **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "model": "m", "status": status, "output": list(items), **more}


def decode(value: Any) -> Reply | Fault:
    return CODEC.decode(HttpReply(200, (), json.dumps(value).encode()), REQUEST)


def streamed(*events: Any) -> tuple[str, Reply | Fault]:
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return exchange.streamed(CODEC, REQUEST, "".join(f"data: {line}\n\n" for line in lines).encode())


def last(value: Any, type: str = "response.completed") -> dict[str, Any]:
    return {"type": type, "response": value}


def item_done(item: Any, index: int | None = None) -> dict[str, Any]:
    event = {"type": "response.output_item.done", "item": item}
    return event if index is None else {**event, "output_index": index}


# --- in one piece ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "finish"),
    [
        (response(message()), "stop"),
        (response(message(), call()), "tool_calls"),
        (response(message(), status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (response(call(), status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (response(message(), status="incomplete", incomplete_details={"reason": "content_filter"}), "content_filter"),
        (response(message(), status="incomplete", incomplete_details={"reason": "new"}), "unknown"),
        (response(message(), status="incomplete"), "unknown"),
        (response(message(), status=None), "unknown"),
        (response(message(), status="brand_new"), "unknown"),
    ],
)
def test_status_becomes_finish(value: Any, finish: str) -> None:
    assert exchange.reply(decode(value)).finish == finish


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, Usage()),
        ({"input_tokens": 3, "input_tokens_details": {}}, Usage(input=3)),
        ({"output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 2}}, Usage(output=3, reasoning=2)),
    ],
)
def test_missing_usage_is_none(usage: Any, expected: Usage | None) -> None:
    assert exchange.reply(decode(response(message(), usage=usage))).usage == expected


@pytest.mark.parametrize(
    ("item", "opaque"),
    [
        (
            {"id": "rs_1", "encrypted_content": "gA==", "status": "completed"},
            '{"encrypted_content":"gA==","id":"rs_1","summary":[],"type":"reasoning"}',
        ),
        (
            {"id": "rs_1", "content": [{"type": "reasoning_text", "text": "Hm"}], "summary": []},
            '{"content":[{"text":"Hm","type":"reasoning_text"}],"id":"rs_1","summary":[],"type":"reasoning"}',
        ),
        ({"id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": None}, None),
        ({"encrypted_content": "gA=="}, None),
    ],
)
def test_encrypted_reasoning_is_kept(item: dict[str, Any], opaque: str | None) -> None:
    """Kept in the form in which they go back, if they can go back at all."""
    kept = (Reasoning(opaque, THIS_ROUTE),) if opaque else ()
    found = exchange.reply(decode(response({"type": "reasoning", **item}, message())))
    assert found.message == Assistant((*kept, Text("Hi")))


def test_unknown_items_are_ignored() -> None:
    other = {"type": "web_search_call", "action": 7}
    odd = {"type": "message", "content": [{"type": "brand_new"}, {"type": "output_text", "text": "Hi"}]}
    assert exchange.reply(decode(response(other, odd))).message == Assistant((Text("Hi"),))


def test_tool_calls_are_numbered_without_other_items() -> None:
    found = exchange.reply(decode(response(call("a"), message(), call("b", "docs__search", arguments=None))))
    assert found.message.calls == (ToolCall("0", "now", "{}", "a"), ToolCall("1", "docs.search", "", "b"))


@pytest.mark.parametrize("items", [[], [message("")], [{"type": "reasoning", "id": "r", "encrypted_content": "x"}]])
def test_reply_without_content_is_empty(items: list[Any]) -> None:
    found = exchange.fault(decode(response(*items, status="incomplete")))
    assert (found.code, found.fields) == ("provider.empty", {"finish": "incomplete"})


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ([], ""),
        ({}, ""),
        ({"output": {}}, "/output"),
        (response(7), "/output/0"),
        (response(message(), {"type": "function_call"}), "/output/1"),
        (response({"type": "message", "content": [{"type": "output_text", "text": 7}]}), "/output/0/content/0/text"),
        (response(message(), usage={"input_tokens": -1}), "/usage/input_tokens"),
        (response(message(), status="in_progress"), "/status"),
        (response(message(), status="queued"), "/status"),
    ],
)
def test_malformed_reply_is_a_decode_fault(value: Any, pointer: str) -> None:
    for found in (decode(value), streamed(last(value))[1]):
        assert (exchange.fault(found).code, exchange.fault(found).fields) == ("provider.decode", {"pointer": pointer})


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (response(status="failed", error={"code": "server_error", "message": "x"}), "provider.transient"),
        (response(status="failed", error={"code": "rate_limit_exceeded", "message": "x"}), "provider.rate_limited"),
        (response(status="failed", error={"code": "invalid_prompt", "message": "x"}), "provider.fatal"),
        (response(message(), status="failed"), "provider.transient"),
        (response(message(), status="cancelled"), "provider.transient"),
        ({"error": {"code": 503, "message": "x"}}, "provider.overloaded"),
    ],
)
def test_failed_response_gives_its_code(value: Any, code: str) -> None:
    assert exchange.fault(decode(value)).code == code
    if "output" in value:
        assert exchange.fault(streamed(last(value, "response.failed"))[1]).code == code


# --- streamed ----------------------------------------------------------------------------------------------


def test_texts_are_passed_on_immediately() -> None:
    deltas = [
        {"type": f"response.{kind}.delta", "delta": text} for kind, text in (("output_text", "H"), ("refusal", "i"))
    ]
    thought = {"type": "response.reasoning_summary_text.delta", "delta": "secret"}
    text, found = streamed({"type": "response.created"}, *deltas, thought, last(response(message())))
    assert text == "Hi"
    assert exchange.reply(found).message.text == "Hi"


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([last(response(message("a"), call()))], id="all at the end"),
        pytest.param([item_done(message("a"), 0), item_done(call(), 1), last(response())], id="nothing at the end"),
        pytest.param([item_done(call(), 1), item_done(message("a"), 0), last(response())], id="in any order"),
        pytest.param([item_done(message("a")), item_done(call()), last(response())], id="no index, as llama.cpp"),
        pytest.param([item_done(message("a"), 0), last(response(message("a"), call()))], id="more at the end"),
        pytest.param(
            [item_done(message("a")), last(response(message("a"), call())), "[DONE]", "{"], id="more after the end"
        ),
    ],
)
def test_items_are_read_from_done_events_or_the_last_event(events: list[Any]) -> None:
    found = exchange.reply(streamed(*events)[1])
    assert found.message == Assistant((Text("a"), ToolCall("0", "now", "{}", "call_a")))


def test_reasoning_is_taken_from_its_done_event() -> None:
    """The one in the last event may lack its encrypted form."""
    whole, bare = ({"type": "reasoning", "id": "rs_1", "encrypted_content": text} for text in ("gA==", None))
    found = exchange.reply(streamed(item_done(whole, 0), item_done(message(), 1), last(response(bare, message())))[1])
    assert isinstance(found.message.parts[0], Reasoning)


@pytest.mark.parametrize("events", [(), (item_done(message(), 0),), (item_done(message(), 0), "[DONE]")])
def test_stream_without_an_end_is_empty(events: tuple[Any, ...]) -> None:
    assert exchange.fault(streamed(*events)[1]).code == "provider.empty"


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "error", "code": "server_error", "message": "x", "param": None}, "provider.transient"),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "x"}, "provider.rate_limited"),
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "x"}}, "provider.fatal"),
        ({"error": {"code": 529, "message": "x"}}, "provider.overloaded"),
        ({"type": "error"}, "provider.transient"),
    ],
)
def test_error_event_is_a_fault(event: Any, code: str) -> None:
    assert exchange.fault(streamed(item_done(message(), 0), event, last(response(message())))[1]).code == code


@pytest.mark.parametrize("event", ["{", "[]", "7", {"type": 7}, {"type": "response.output_text.delta", "delta": 7}])
def test_malformed_event_is_a_decode_fault(event: Any) -> None:
    assert exchange.fault(streamed(event, last(response(message())))[1]).code == "provider.decode"


def test_last_event_without_a_response_is_a_decode_fault() -> None:
    assert exchange.fault(streamed({"type": "response.completed"})[1]).code == "provider.decode"
