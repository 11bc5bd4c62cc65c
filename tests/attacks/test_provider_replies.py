"""Attacks 32 to 37 and fault 28, provider replies that are wrong, hostile or endless, over a real socket.

Each becomes a fact with a code of the contract, or a result that the model reads. Nothing of it reaches a tool.
"""

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.core.effects import AskModel
from agentrun.core.facts import CallRefused, ModelReplied
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.engine.models import ask_over_http
from agentrun.errors import ERROR_CODES, AgentrunError
from agentrun.net.client import HttpxSender, make_client
from agentrun.providers.codec import codec_for
from agentrun.testing import stub
from agentrun.wire import HttpReply

from ..providers.exchange import GOLDEN, encode, request
from ..scripted_service import completion
from ..servers import CLOSE, LAST, STREAM, Plan, Server, chunk, head, reply_with_length, streamed
from .provider_runs import GOOD, GOOD_STREAM, events, live
from .provider_runs import STREAM as EVENTS

JSON = ("Content-Type", "application/json")


# --- 32 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 50, len(GOOD.body) - 1])
@pytest.mark.parametrize("framing", ["none", "length", "chunked"])
def test_cut_body_is_zero_output_and_retried(length: int, framing: str) -> None:
    """However the server says where the end is, and also if it does not."""
    data = GOOD.body[:length]
    fields = {
        "none": (),
        "length": (("Content-Length", str(len(GOOD.body))),),
        "chunked": (("Transfer-Encoding", "chunked"),),
    }
    piece = chunk(data) if framing == "chunked" and data else data
    done = live([head(200, JSON, *fields[framing]) + piece, CLOSE], GOOD)
    assert (done.outcome.answer, done.failures) == ("Water.", ["provider.zero_output"])


def test_complete_body_without_a_length_is_accepted() -> None:
    done = live([head(200, JSON) + GOOD.body, CLOSE])
    assert (done.outcome.answer, done.failures) == ("Water.", [])


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_stream_without_its_last_event_is_empty(kept: int) -> None:
    """It ends as HTTP says, and the protocol says that there is more."""
    done = live([STREAM, *(chunk(events(each)) for each in EVENTS[:kept]), LAST], GOOD_STREAM, stream=True)
    assert done.outcome.answer == "Water."
    assert done.failures == ["provider.empty"]


# --- 33 ---------------------------------------------------------------------------------------------------------

SSE = events(*EVENTS)


@pytest.mark.parametrize(
    "data",
    [
        SSE,
        b"\xef\xbb\xbf" + SSE,
        SSE.replace(b"\n", b"\r\n"),
        SSE.replace(b"\n", b"\r"),
        b": hello\n\n:\n" + SSE.replace(b"\n\n", b"\nid: 7\nretry: 9\nunknown\n\n"),
        SSE.rstrip(b"\n"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_streams_with_any_line_ends_and_chunks_are_read(data: bytes, size: int) -> None:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    done = live([STREAM, *map(chunk, pieces), LAST], stream=True)
    assert (done.outcome.answer, done.failures) == ("Water.", [])


def test_line_separators_inside_a_stream_are_text() -> None:
    text = "a\u2028b\u0085c\u20acd\U0001f525"
    piece = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    data = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(piece, ensure_ascii=False).encode()
    done = live([STREAM, *(chunk(data[at : at + 1]) for at in range(len(data))), LAST], stream=True)
    assert done.outcome.answer == text


def test_invalid_utf8_in_a_stream_is_replaced_or_a_decode_error() -> None:
    done = live(streamed(b"data: \xff\xfe\n\n"), GOOD_STREAM, stream=True)
    assert done.code in (None, "provider.decode")


# --- 34 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_decompression_bomb_is_a_decode_error(stream: bool) -> None:
    bomb = gzip.compress(b" " * (65 * 1024 * 1024), 1)
    done = live(HttpReply(200, (JSON, ("Content-Encoding", "gzip")), bomb), stream=stream)
    assert (done.code, done.attempts) == ("provider.decode", [1])


def test_unrequested_gzip_reply_is_read() -> None:
    done = live(HttpReply(200, (JSON, ("Content-Encoding", "gzip")), gzip.compress(GOOD.body)))
    assert done.outcome.answer == "Water."
    assert done.requests[0].headers["accept-encoding"] == "identity"


# --- 36 ---------------------------------------------------------------------------------------------------------


def reply_with_calls(*arguments: str, tool: str = "search", id: str = "call_1") -> HttpReply:
    calls = [{"id": id, "type": "function", "function": {"name": tool, "arguments": each}} for each in arguments]
    return completion(None, "tool_calls", tool_calls=calls)


def good_reply_with(old: bytes, new: bytes) -> HttpReply:
    """A good reply with a piece of it replaced."""
    assert old in GOOD.body
    return HttpReply(200, GOOD.headers, GOOD.body.replace(old, new))


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (reply_with_calls("{"), "tool.invalid_arguments"),
        (reply_with_calls(""), "tool.missing_field"),
        (reply_with_calls('{"q": NaN}'), "tool.invalid_arguments"),
        (reply_with_calls('{"q": Infinity}'), "tool.invalid_arguments"),
        (reply_with_calls('{"q": "a", "q": "b"}'), "tool.invalid_arguments"),
        (reply_with_calls("[" * 100_000), "tool.invalid_arguments"),
        (reply_with_calls('{"q": ' * 10_000 + "1" + "}" * 10_000), "tool.invalid_arguments"),
        (reply_with_calls('{"q": ' + "9" * 5000 + "}"), "tool.invalid_arguments"),
        (reply_with_calls('{"q": "\\ud800"}'), "tool.invalid_arguments"),
        (reply_with_calls('{"__proto__": {"x": 1}, "q": "a"}'), "tool.invalid_arguments"),
        (reply_with_calls('["q"]'), "tool.invalid_arguments"),
        (reply_with_calls('"q"'), "tool.invalid_arguments"),
        (reply_with_calls("null"), "tool.invalid_arguments"),
        (reply_with_calls('{"q": 5}'), "tool.invalid_arguments"),
        (reply_with_calls("{}"), "tool.missing_field"),
        (reply_with_calls("{}", tool="rm"), "tool.unknown"),
        (reply_with_calls("{}", tool="../search"), "tool.unknown"),
    ],
)
def test_invalid_calls_are_refused_and_reach_no_tool(reply: HttpReply, code: str) -> None:
    search = stub("found")
    done = live(reply, GOOD, search=search)
    assert done.outcome.answer == "Water."
    assert [fact.code for fact in done.of(CallRefused)] == [code]
    assert search.calls == []
    told = json.loads(done.requests[1].body)["messages"][-1]
    assert told["role"] == "tool", "the model reads what was wrong"


def test_thousand_calls_in_one_reply_stop_the_run() -> None:
    search = stub("found")
    done = live(reply_with_calls(*['{"q": "a"}'] * 1000), search=search)
    assert done.code == "guard.parallel_tools"
    assert search.calls == []


def test_calls_with_the_same_id_get_different_results() -> None:
    """Ids of ours are never a provider's."""
    search = stub("found")
    done = live(reply_with_calls('{"q": "a"}', '{"q": "b"}'), GOOD, search=search)
    assert done.outcome.answer == "Water."
    assert len(search.calls) == 2
    results = [each["tool_call_id"] for each in json.loads(done.requests[1].body)["messages"] if each["role"] == "tool"]
    assert len({*results}) == 2


@pytest.mark.parametrize("finish", [None, "because", 7, []])
def test_unknown_finish_reason_is_unknown_or_a_decode_error(finish: Any) -> None:
    done = live(good_reply_with(b'"finish_reason": "stop"', b'"finish_reason": ' + json.dumps(finish).encode()))
    if done.outcome.fault is None:
        assert [fact.reply.finish for fact in done.of(ModelReplied)] == ["unknown"]
    else:
        assert done.code == "provider.decode"


@pytest.mark.parametrize("count", [b"-5", b"1e30", b"9" * 5000, b'"20"', b"null", b"0.5", b"true"])
def test_invalid_usage_is_never_negative(count: bytes) -> None:
    """It is never less than nothing, and what was not understood counts as what was reserved."""
    done = live(good_reply_with(b'"prompt_tokens": 20', b'"prompt_tokens": ' + count))
    usage = done.outcome.usage
    assert done.code in (None, "provider.decode")
    assert usage.input is None or usage.input >= 0


# --- 37 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("text/html", b"<html>Please log in</html>"),
        ("application/json", b""),
        ("text/plain", b"ok"),
        ("image/png", b"\x89"),
    ],
)
def test_status_200_without_a_model_reply_fails(kind: str, data: bytes, stream: bool) -> None:
    done = live(HttpReply(200, (("Content-Type", kind),), data), stream=stream)
    assert done.code in ("provider.decode", "provider.empty")
    assert done.outcome.exit_code == 6


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_of_a_provider_is_not_followed(status: int) -> None:
    with Server(GOOD) as other:
        done = live(HttpReply(status, (("Location", other.url),), b""))
    assert (done.code, done.attempts) == ("provider.fatal", [1])
    assert other.requests == []


# --- 28 ---------------------------------------------------------------------------------------------------------

NAMES = {
    "openai": "gpt-4.1-mini",
    "openai-responses": "gpt-4.1-mini",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-2.5-flash",
}
FORMS = [(provider, form) for provider in NAMES for form in ("reply.json", "stream.sse")]


def damaged(data: bytes, step: int) -> list[bytes]:
    """Cut off, and with one bit wrong, at every so many bytes."""
    flips = [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(0, len(data), step)]
    return [data[:at] for at in range(0, len(data), step)] + flips


def answers(provider: str, stream: bool, plans: list[Plan]) -> list[Reply | Fault]:
    """What comes of these replies, each over the same connection if it lasts."""
    codec = codec_for(provider)

    async def all_of_them() -> list[Reply | Fault]:
        got = []
        with Server(*plans) as server:
            client = make_client()
            sender = HttpxSender(client, pytest.fail)
            asked = request(provider, NAMES[provider], route={"base_url": server.url}, stream=stream)
            effect = AskModel("m1.1", 1, 1, 0, 0, asked, gap=10_000, time=10_000)
            for _ in plans:
                got.append(await ask_once(codec, sender, effect))
            await client.aclose()
        return got

    return asyncio.run(all_of_them())


async def ask_once(codec: Any, sender: HttpxSender, effect: AskModel) -> Reply | Fault:
    try:
        return await ask_over_http(codec, sender, effect, encode(codec, effect.request), lambda text: None)
    except AgentrunError as error:
        return Fault(error.code, error.message, error.fields)


def check_damaged_replies(provider: str, form: str, step: int) -> None:
    stream = form == "stream.sse"
    data = (GOLDEN / provider / f"tools.{form}").read_bytes()
    kind = ("Content-Type", "text/event-stream" if stream else "application/json")
    make: Callable[[bytes], Plan] = lambda body: reply_with_length(
        HttpReply(200, (kind,), body)
    )  # a short look with a name
    whole, *others = answers(provider, stream, [make(body) for body in (data, *damaged(data, step))])
    assert isinstance(whole, Reply)
    for other in others:
        assert isinstance(other, Reply) or (other.code in ERROR_CODES and other.code.startswith("provider.")), other
    for cut in others[: len(others) // 2]:
        assert isinstance(cut, Fault) or cut.message == whole.message, "nothing partial is a reply"


@pytest.mark.parametrize(("provider", "form"), FORMS)
def test_reply_damaged_at_many_bytes_is_a_provider_fault_or_a_reply(provider: str, form: str) -> None:
    check_damaged_replies(provider, form, 23)


@pytest.mark.long
@pytest.mark.parametrize(("provider", "form"), FORMS)
def test_reply_damaged_at_every_byte_is_a_provider_fault_or_a_reply(provider: str, form: str) -> None:
    check_damaged_replies(provider, form, 1)
