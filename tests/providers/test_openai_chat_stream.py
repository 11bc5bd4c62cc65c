"""OpenAI Chat Completions: decoding of streams, also of compatible servers."""

import json
from typing import Any

import pytest

from agentrun.core.fault import Fault
from agentrun.core.messages import Reply, Text, ToolCall, Usage

from . import exchange
from .openai_codecs import CODECS, REQUESTS


def stream(*events: Any) -> bytes:
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def chunk(text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text, **more}, "finish_reason": finish}]}


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return chunk(tool_calls=list(pieces))


def piece(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: str = ""
) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    found: dict[str, Any] = {"function": function}
    return found | ({"id": id} if id else {}) | ({} if index is None else {"index": index})


def heard(*events: Any) -> tuple[str, Reply | Fault]:
    return exchange.streamed(CODECS["openai"], REQUESTS["openai"], stream(*events))


def reply(*events: Any) -> Reply:
    return exchange.reply(heard(*events)[1])


def fault(*events: Any) -> Fault:
    return exchange.fault(heard(*events)[1])


# --- the end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "finish"),
    [
        ((chunk("a"), chunk(finish="stop"), "[DONE]"), "stop"),
        ((chunk("a"), chunk(finish="stop")), "stop"),
        ((chunk("a"), "[DONE]"), "unknown"),
        ((chunk("a", "stop"), " [DONE] "), "stop"),
        ((chunk("a"), chunk(finish="brand_new"), "[DONE]"), "unknown"),
        ((chunk("a"), chunk(finish="stop"), chunk(""), "[DONE]"), "stop"),
    ],
)
def test_finish_reason_or_done_ends_the_stream(events: tuple[Any, ...], finish: str) -> None:
    found = reply(*events)
    assert (found.message.text, found.finish, found.usage) == ("a", finish, None)


def test_stream_without_an_end_is_empty() -> None:
    assert fault(chunk("a")).code == fault().code == "provider.empty"


def test_stream_without_content_is_empty() -> None:
    found = fault(chunk(""), chunk(finish="length"), "[DONE]")
    assert (found.code, found.fields) == ("provider.empty", {"finish": "length"})


def test_data_after_the_end_is_ignored() -> None:
    assert reply(chunk("a"), "[DONE]", chunk("b"), "{", {"error": {"message": "x"}}).message.text == "a"


def test_the_last_event_needs_no_blank_line() -> None:
    whole = stream(chunk("a"), "[DONE]")
    for cut in (1, 2):
        assert exchange.streamed(CODECS["openai"], REQUESTS["openai"], whole[:-cut])[1] == reply(chunk("a"), "[DONE]")


def test_last_reported_usage_is_used() -> None:
    one = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    assert reply(chunk("a", "stop") | {"usage": None}, one, "[DONE]").usage == Usage(input=3, output=1)
    rising = [chunk("a") | {"usage": {"prompt_tokens": 3, "completion_tokens": count}} for count in (1, 2)]
    assert reply(*rising, chunk(finish="stop"), "[DONE]").usage == Usage(input=3, output=2)


def test_first_id_and_model_are_used() -> None:
    found = reply({"id": "1", "model": "m"}, chunk("a") | {"id": "2"}, chunk(finish="stop") | {"model": "n"})
    assert (found.wire_id, found.model) == ("1", "m")


def test_texts_are_passed_on_immediately() -> None:
    decoder = CODECS["openai"].stream(REQUESTS["openai"])
    assert decoder.feed(stream(chunk("Hel"))) == ["Hel"]
    assert decoder.feed(stream(chunk("lo"), chunk(refusal=" no"))) == ["lo", " no"]
    assert decoder.feed(stream(chunk(finish="stop"))) == []


# --- calls -------------------------------------------------------------------------------------------------

A, B = ToolCall("0", "docs.search", '{"q":1}', "a"), ToolCall("1", "now", "{}", "b")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [
                calls(piece(0, "a", "docs__search"), piece(1, "b", "now")),
                calls(piece(1, arguments="{"), piece(0, arguments='{"q"')),
                calls(piece(0, arguments=":1}"), piece(1, arguments="}")),
            ],
            id="by index",
        ),
        pytest.param(
            [calls(piece(1, "b", "now", "{}")), calls(piece(0, "a", "docs__search", '{"q":1}'))], id="in any order"
        ),
        pytest.param(
            [calls(piece(0, "a", "docs__search", '{"q":1}')), calls(piece(0, "b", "now", "{}"))],
            id="one index for all, as Ollama",
        ),
        pytest.param(
            [
                calls(piece(0, "a", "docs__search")),
                calls(piece(0, arguments='{"q":1}')),
                calls(piece(0, "b", "now", "{")),
                calls(piece(0, arguments="}")),
            ],
            id="one index for all, in pieces",
        ),
        pytest.param(
            [calls(piece(None, "a", "docs__search", '{"q":1}'), piece(None, "b", "now", "{}"))],
            id="no index, as Gemini",
        ),
        pytest.param(
            [
                calls(piece(None, "a", "docs__search")),
                calls(piece(None, arguments='{"q":1}')),
                calls(piece(None, "b", "now")),
                calls(piece(None, arguments="{}")),
            ],
            id="no index, in pieces",
        ),
        pytest.param(
            [
                calls(piece(0, "a", "docs__search")),
                calls(piece(arguments='{"q":1}')),
                calls(piece(1, "b", "now", "{}")),
            ],
            id="an index at the beginning only",
        ),
        pytest.param(
            [
                calls(piece(0, "a", "docs__search", '{"q"')),
                calls(piece(0, "a", "docs__search", ":1}")),
                calls(piece(1, "b", "now", "{}")),
            ],
            id="id and name with every piece",
        ),
        pytest.param(
            [calls(piece(0, "a", "docs__")), calls(piece(0, None, "search", '{"q":1}'), piece(1, "b", "now", "{}"))],
            id="a name in pieces",
        ),
    ],
)
def test_tool_calls_are_joined_from_chunks(events: list[Any]) -> None:
    assert reply(chunk("Well"), *events, chunk(finish="tool_calls"), "[DONE]").message.parts == (Text("Well"), A, B)


def test_tool_calls_without_ids_are_numbered() -> None:
    found = reply(calls(piece(None, None, "now", "{}"), piece(None, None, "now", "{}")), chunk(finish="tool_calls"))
    assert found.message.parts == (ToolCall("0", "now", "{}"), ToolCall("1", "now", "{}"))


def test_tool_call_without_a_name_is_a_decode_fault() -> None:
    assert fault(calls(piece(0, "a", None, "{}")), chunk(finish="tool_calls"), "[DONE]").code == "provider.decode"


def test_a_thousand_tool_calls_keep_their_ids() -> None:
    found = reply(*(calls(piece(index, f"id{index}", "now", "{}")) for index in range(1000)), "[DONE]")
    assert [call.wire_id for call in found.message.calls] == [f"id{index}" for index in range(1000)]


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "x", "type": "server_error"}, "provider.transient"),
        ({"message": "x", "code": "rate_limit_exceeded"}, "provider.rate_limited"),
        ({"message": "x", "code": 502}, "provider.transient"),
        ("words alone", "provider.transient"),
        ([], "provider.transient"),
    ],
)
def test_error_chunk_is_a_fault(error: Any, code: str) -> None:
    text, found = heard(chunk("half"), {"error": error, **chunk(finish="error")}, chunk("more"), "[DONE]")
    assert text == "half"
    assert exchange.fault(found).code == code


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("{", {"offset": 1}),
        ("[]", {"pointer": ""}),
        ({"choices": [{"index": 1, "delta": {"content": "b"}}]}, {"pointer": "/choices"}),
        ({"choices": [{"delta": {"content": 7}}]}, {"pointer": "/choices/0/delta/content"}),
        ({"choices": [], "usage": {"prompt_tokens": -1}}, {"pointer": "/usage/prompt_tokens"}),
    ],
)
def test_malformed_chunk_is_a_decode_fault(event: Any, fields: dict[str, Any]) -> None:
    """The first error is the result, whatever follows."""
    found = fault(chunk("a"), event, chunk(finish="stop"), {"error": {"message": "x", "code": 500}}, "[DONE]")
    assert (found.code, found.fields) == ("provider.decode", fields)
