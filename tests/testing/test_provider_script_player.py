"""The script player: which turn answers a request, expectations, and requests a provider would refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.compiler.validate import parse_script
from agentrun.core.messages import Assistant, Message, Reasoning, Text, ToolCall, ToolResult, user_message
from agentrun.providers.codec import codec_for
from agentrun.spec.problems import Source
from agentrun.testing.provider.script_player import ScriptPlayer, ServerReply
from agentrun.testing.provider.server import format_of
from agentrun.testing.provider.wire_format import reasoning_signature
from agentrun.wire import HttpReply

from .provider_requests import PROVIDERS, call_of, model_request, script


def player_of(*turns: dict[str, Any], order: str = "conversation") -> ScriptPlayer:
    return ScriptPlayer(parse_script(Source(Path("s.yaml"), "s.yaml", script(*turns, order=order))))


def answer(play: ScriptPlayer, provider: str = "openai", *messages: Message, stream: bool = False) -> ServerReply:
    call = call_of(model_request(provider, messages or (user_message("Hi"),), stream=stream))
    format = format_of(call.url)
    assert format is not None
    return play.reply_to(format, call.url, call.body)


def message(answer: ServerReply) -> str:
    return str(json.loads(b"".join(answer.pieces))["error"]["message"])


def turn(number: int, *calls: str) -> Assistant:
    made = [ToolCall(f"c{number}.{index}", tool, "{}") for index, tool in enumerate(calls)]
    return Assistant((Text("Yes."), *made))


def results(number: int, *texts: str) -> list[ToolResult]:
    return [ToolResult(f"c{number}.{index}", (Text(text),)) for index, text in enumerate(texts)]


LATER: list[Message] = [
    user_message("Hi"),
    turn(1, "search", "search"),
    *results(1, "one", "two"),
    turn(2),
    user_message("Go on."),
]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_turn_follows_the_turns_in_the_request(provider: str) -> None:
    play = player_of({"text": "a"}, {"text": "b"}, {"text": "c"})
    asked_for = [answer(play, provider, *LATER[:1]), answer(play, provider, *LATER), answer(play, provider, *LATER[:4])]
    assert [(one.turn, one.status, one.is_turn) for one in asked_for] == [
        (1, 200, True),
        (3, 200, True),
        (2, 200, True),
    ]


def test_arrival_order_gives_turns_one_after_the_other() -> None:
    play = player_of({"text": "a", "faults": [{"status": 500}, {"delay": "1ms"}]}, {"text": "b"}, order="arrival")
    assert [answer(play).turn for _ in range(3)] == [1, 1, 2]
    over = answer(play)
    assert over.status == 400
    assert "the script has 2 turns, but this request needs turn" in message(over)


def test_turn_with_times_counts_several_times() -> None:
    play = player_of({"text": "a", "times": 2}, {"text": "b"})
    assert play.length == 3
    assert answer(play, "openai", *LATER).turn == 3


@pytest.mark.parametrize("provider", PROVIDERS)
def test_request_beyond_the_script_is_refused(provider: str) -> None:
    over = answer(player_of({"text": "a"}), provider, *LATER)
    assert (over.status, over.is_turn) == (400, False)
    assert "the script has 1 turn, but this request needs turn" in message(over)


def test_faults_come_first_and_in_order() -> None:
    play = player_of({"text": "a", "faults": [{"status": 500, "times": 2}, {"status": 429}]}, {"text": "b"})
    assert [answer(play).status for _ in range(5)] == [500, 500, 429, 200, 200]
    assert answer(play, "openai", *LATER[:4]).status == 200


EXPECTATIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"model": "m-1"}, {"model": "m-2"}),
    ({"instructions": "brief"}, {"instructions": "long"}),
    ({"contains": ["one", "two"]}, {"contains": ["one", "Hi"]}),
    ({"results": ["one", "two"]}, {"results": ["two", "one"]}),
    ({"results": ["", "tw"]}, {"results": ["one"]}),
    ({"tools": ["docs.read", "search"]}, {"tools": ["search"]}),
]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("right", "wrong"), EXPECTATIONS, ids=lambda given: next(iter(given)))
def test_failed_expectation_refuses_the_request(provider: str, right: dict[str, Any], wrong: dict[str, Any]) -> None:
    first = {"text": "a"}
    assert answer(player_of(first, {"text": "b", "expect": right}), provider, *LATER[:4]).status == 200
    refused = answer(player_of(first, {"text": "b", "expect": wrong}), provider, *LATER[:4])
    assert refused.status == 400
    assert message(refused).startswith("turn 2 of the script expects ")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_expected_reasoning_must_be_sent_back(provider: str, stream: bool) -> None:
    """Our codec sends it back; a history without it is refused where the format has a place for it."""
    play = player_of({"reasoning": "Hm.", "text": "a"}, {"text": "b", "expect": {"reasoning": True}})
    request = model_request(provider, stream=stream)
    call = call_of(request)
    format = format_of(call.url)
    assert format is not None
    first = play.reply_to(format, call.url, call.body)
    decoder = codec_for(provider).stream(request)
    if stream:
        decoder.feed(b"".join(first.pieces))
        reply = decoder.end()
    else:
        reply = codec_for(provider).decode(HttpReply(200, (), b"".join(first.pieces)), request)
    kept = [*model_request(provider).messages, reply.message, user_message("Go on.")]
    assert answer(play, provider, *kept).status == 200
    parts = tuple(part for part in kept[1].parts if not isinstance(part, Reasoning))
    lost = answer(play, provider, kept[0], Assistant(parts), kept[2])
    assert lost.status == (200 if provider == "openai" else 400)
    assert (
        reasoning_signature(0)
        not in call_of(model_request(provider, [kept[0], Assistant(parts), kept[2]])).body.decode()
    )


INCONSISTENT_HISTORIES = {
    "missing": [user_message("Hi"), turn(1, "search", "search"), *results(1, "one"), user_message("Go on.")],
    "doubled": [user_message("Hi"), turn(1, "search"), *results(1, "one"), *results(1, "one")],
    "loose": [user_message("Hi"), *results(1, "one")],
    "none": [user_message("Hi"), turn(1, "search"), user_message("Go on.")],
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("messages", INCONSISTENT_HISTORIES.values(), ids=INCONSISTENT_HISTORIES)
def test_history_without_results_is_refused(provider: str, messages: list[Message]) -> None:
    refused = answer(player_of({"text": "a"}, {"text": "b"}), provider, *messages)
    assert refused.status == 400
    assert "result for" in message(refused)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "m"}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/messages", {"model": "m", "messages": []}),
        ("/v1/models/m:generateContent", {}),
        ("/v1/models/m:streamGenerateContent", {"contents": []}),
        ("/v1/messages", []),
    ],
)
def test_malformed_request_is_refused(path: str, body: Any) -> None:
    format = format_of(path)
    assert format is not None
    assert player_of({"text": "a"}).reply_to(format, path, json.dumps(body).encode()).status == 400
    assert player_of({"text": "a"}).reply_to(format, path, b"\xff{").status == 400


def test_format_is_recognised_by_the_end_of_the_path() -> None:
    assert format_of("/openai/deployments/x/chat/completions?api-version=1") is not None
    assert format_of("/v1/models/a:generateContent") is not None
    for path in ("/", "/v1/completions", "/v1/models", "/v1/messages/batches", "/v1/models/a:countTokens"):
        assert format_of(path) is None
