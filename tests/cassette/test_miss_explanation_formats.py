"""A changed agent gets the same miss explanation in every provider format."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.cassette.match import match_key
from agentrun.cassette.miss_explanation import explain_miss
from agentrun.cassette.parsed_request import ADDRESS_SETTING, SCHEMA_SETTING, RequestMessage, RequestPart, parse_request
from agentrun.core.messages import Assistant, Message, Text, ToolCall, ToolResult, user_message
from agentrun.providers.codec import codec_for
from agentrun.wire import HttpCall

from ..core.script import tool
from ..packages import TRIAGE
from ..providers import exchange
from ..providers.conversations import conversations
from .recorded_agents import (
    AGENT,
    MODELS,
    REFUND,
    SUPPORT,
    TONE,
    Agent,
    agent,
    explanation_of_change,
    sentences,
    unplayed_interactions,
)

FORMATS = list(MODELS)
CONVERSATION: tuple[Message, ...] = (
    Assistant(
        (
            Text("I look."),
            ToolCall("c1.0", "refund", '{"order":"1042","amount":50}', None, None),
            ToolCall("c1.1", "now", "{}", None, None),
        )
    ),
    ToolResult("c1.0", (Text("paid"),)),
    ToolResult("c1.1", (Text("noon"),)),
    Assistant((Text("Paid at noon."),)),
    user_message("Thanks."),
)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_parses_to_the_same_request(format: str) -> None:
    """The four formats hold the same request."""
    run = agent(format)
    found = parse_request(run.call(*CONVERSATION))
    assert found is not None
    assert found.instructions.startswith("You help customers of Lamps & Co.\n\nAmounts are in euro.\n- Look first.\n")
    assert found.instructions.endswith("\n\nBe brief.")
    assert tuple(found.messages) == (
        RequestMessage("user", (RequestPart("text", "Where is my order?\nI live in eu."),)),
        RequestMessage(
            "assistant",
            (
                RequestPart("text", "I look."),
                RequestPart("call", {"order": "1042", "amount": 50}, "refund"),
                RequestPart("call", {}, "now"),
            ),
        ),
        RequestMessage("tool", (RequestPart("result", "paid", "refund"), RequestPart("result", "noon", "now"))),
        RequestMessage("assistant", (RequestPart("text", "Paid at noon."),)),
        RequestMessage("user", (RequestPart("text", "Thanks."),)),
    )
    assert {name: one["parameters"] for name, one in found.tools.items()} == {
        "now": run.package.tools["now"].args,  # type: ignore[union-attr]  # it is a Python tool
        "refund": REFUND,
    }
    assert found.settings["model"] == MODELS[format]
    assert found.settings[ADDRESS_SETTING].startswith("https://")


@pytest.mark.parametrize("format", FORMATS)
def test_parsed_settings_are_address_model_and_format_fields(format: str) -> None:
    found = parse_request(agent(format, model={"temperature": None}).call(*CONVERSATION))
    assert found is not None
    own = {"openai-responses": {"store"}, "anthropic": {"max_tokens"}}.get(format, set())
    assert found.settings.keys() == {ADDRESS_SETTING, "model"} | own


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-3-5-haiku-latest"])
def test_output_schema_in_the_instructions_is_parsed_as_a_setting(name: str) -> None:
    """It stands below the instructions, where no template wrote it."""
    loose = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = parse_request(agent("anthropic", route={"name": name}, output={"schema": loose}).call())
    assert found is not None
    assert found.instructions.endswith("Be brief.")
    assert found.settings.get(SCHEMA_SETTING) == loose


# What is changed: the sentences, or the beginnings of those that show how a format spells it.
CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "instructions": (
        {"instructions": [SUPPORT, TONE.replace("brief", "kind")]},
        [
            (
                'instructions line 8 is "Be kind.", but the cassette has "Be brief.", from specs/prompts/tone.md line 1'
                ", because the template changed"
            )
        ],
    ),
    "a new part": (
        {"instructions": [SUPPORT, TONE, "Sign with a name."]},
        ['instructions line 9 is new: ""', 'instructions line 10 is new: "Sign with a name."'],
    ),
    "params": (
        {"given": {"shop": "Lights"}},
        [
            (
                'instructions line 1 is "You help customers of Lights.", '
                'but the cassette has "You help customers of Lamps & Co.", '
                'from specs/prompts/support.md.j2 line 1, because params.shop changed from "Lamps & Co" to "Lights"'
            )
        ],
    ),
    "input": (
        {"input": "Where is my order?\nI am in {{ region }}."},
        [
            (
                'message line 2 is "I am in eu.", but the cassette has "I live in eu.", from specs/support.yaml line 8'
                ", because the template changed"
            )
        ],
    ),
    "a tool": ({"tools": AGENT["tools"] | {"later": tool()}}, ["tool later was added"]),
    "fewer tools": ({"tools": {"refund": AGENT["tools"]["refund"]}}, ["tool now was removed"]),
    "a tool's field": (
        {"tools": AGENT["tools"] | {"now": tool(description="Tells the time.", args={"type": "object"})}},
        ["tool now: parameters.properties was removed"],
    ),
    "a tool's words": (
        {"tools": AGENT["tools"] | {"refund": tool(description="Pays it.", args=REFUND)}},
        ['tool refund: description is "Pays it.", but the cassette has "Pays back."'],
    ),
    "temperature": ({"model": {"temperature": 0.5}}, ["temperature is 0.5, but the cassette has 0"]),
    "model": ({"route": {"name": "o-next"}}, ['model is "o-next", but the cassette has ']),
    "address": ({"route": {"base_url": "https://proxy.example"}}, ["the address is "]),
    "stream": ({"model": {"stream": True}}, ["stream is new: true"]),
    "output": ({"output": {"schema": TRIAGE}}, [""]),
}
PROVIDER_DIFFERENCES = {
    "gemini temperature": ["generationConfig.temperature is 0.5, but the cassette has 0"],
    "openai stream": ["stream is new: true", "stream_options is new: "],
    "openai output": ["response_format is new: "],
    "openai-responses output": ["text is new: "],
    "anthropic output": ["output_config is new: "],
    "gemini output": ["the schema of the answer is new: "],
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("change", CHANGES)
def test_change_is_described_the_same_in_every_format(change: str, format: str) -> None:
    changes, expected = CHANGES[change]
    now = agent(format, **changes)
    found = explanation_of_change(agent(format), now)
    expected = PROVIDER_DIFFERENCES.get(f"{format} {change}", expected)
    assert len(found.differences) == len(expected)
    for sentence, beginning in zip(sentences(found), expected, strict=True):
        assert sentence.startswith(beginning)
    assert found.nearest == 1
    section = {"a tool": "tools", "fewer tools": "tools", "a tool's field": "tools", "a tool's words": "tools"}
    section |= {"temperature": "model", "address": "model", "stream": "model", "a new part": "instructions"}
    if change == "params":
        assert found.cause == 'the package did not change, but params.shop changed from "Lamps & Co" to "Lights"'
    else:
        assert found.cause == f"the spec's section {section.get(change, change)} changed since the recording"


@pytest.mark.parametrize("format", FORMATS)
def test_changed_conversation_is_described_the_same_in_every_format(format: str) -> None:
    run = agent(format)

    def explain(*later: Message) -> list[str]:
        found = explain_miss(
            run.call(*later), unplayed_interactions(run.call(*CONVERSATION)), run.metadata(), run.here()
        )
        return sentences(found)

    asks, paid, noon, answer, thanks = CONVERSATION
    assert isinstance(asks, Assistant)
    text, refund, now = asks.parts
    more = Assistant((text, ToolCall("c1.0", "refund", '{"order":"1042","amount":60}', None, None), now))
    assert explain(more, paid, noon, answer, thanks) == [
        "message 2 (assistant): the call of refund: amount is 60, but the cassette has 50"
    ]
    other = Assistant((text, refund, ToolCall("c1.1", "refund", "{}", None, None)))
    assert explain(other, paid, noon, answer, thanks) == [
        "message 2 (assistant): it is a call of refund, but the cassette has a call of now"
    ]
    assert explain(asks, paid, ToolResult("c1.1", (Text("one"),)), answer, thanks) == [
        'message 3 (tool): the result of now is "one", but the cassette has "noon"'
    ]
    assert explain(asks, paid, noon, answer, user_message("Thank you.")) == [
        'message 5 (user): the text is "Thank you.", but the cassette has "Thanks."'
    ]
    assert explain(asks, paid, noon) == ["the conversation has 3 messages, but the cassette has 5"]


def test_model_request_is_compared_with_a_model_request() -> None:
    """A request to a model is compared with one, not with what stands nearer on the cassette."""
    lookup = HttpCall("POST", "https://shop.example/orders", (), b"{}")
    now = agent("gemini", route={"name": "gemini-2.5-pro"})
    found = explain_miss(
        now.call(), unplayed_interactions(lookup, agent("openai").call(), agent("gemini").call()), {}, None
    )
    assert (found.nearest, found.line) == (3, 30)
    assert sentences(found) == ['model is "gemini-2.5-pro", but the cassette has "gemini-2.5-flash"']


# --- there is always a difference to tell


def request(format: str, messages: list[Message]) -> HttpCall:
    made = exchange.request(format, MODELS[format], *messages, tools=(exchange.NOW,))
    return exchange.encode(codec_for(format), made)


@given(st.sampled_from(FORMATS), conversations(), conversations())
def test_miss_always_names_a_difference(format: str, one: list[Message], two: list[Message]) -> None:
    was, now = request(format, one), request(format, two)
    found = explain_miss(now, unplayed_interactions(was), {}, None)
    assert found.differences
    if match_key(was) != match_key(now):
        assert "nothing that can be told" not in found.message()
        assert json.loads(json.dumps(found.fields())) == found.fields()


@given(st.sampled_from(FORMATS), conversations())
def test_requests_of_our_codecs_are_parsed(format: str, messages: list[Message]) -> None:
    assert parse_request(request(format, messages)) is not None


def test_call_ids_are_reported_if_nothing_else_differs() -> None:
    def call(id: str) -> HttpCall:
        body = {"messages": [{"role": "tool", "tool_call_id": id, "content": "x"}]}
        return HttpCall("POST", "https://a.example/v1/chat/completions", (), json.dumps(body).encode())

    found = explain_miss(call("a"), unplayed_interactions(call("b")), {}, None)
    assert sentences(found) == ['messages[0].tool_call_id is "a", but the cassette has "b"']


def test_setting_missing_from_the_parsed_request_is_still_reported() -> None:
    """A view that drops a setting would tell nothing of it: the paths of the bodies stand behind it."""
    was, now = agent(), agent(model={"seed": 7})
    one, two = parse_request(was.call()), parse_request(now.call())
    assert one is not None
    assert two is not None
    assert two.settings.pop("seed") == 7
    assert one == two
    assert sentences(explanation_of_change(was, now)) == ["seed is new: 7"]
    assert isinstance(was, Agent)
