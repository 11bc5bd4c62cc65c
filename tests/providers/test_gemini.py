"""Gemini: encoding of requests."""

import json
from typing import Any

import pytest

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import (
    Message,
)
from agentrun.core.model_texts import SCHEMA_GUIDANCE
from agentrun.errors import PackageError
from agentrun.providers.codec import Codec, codec_for
from agentrun.providers.gemini import GEMINI_CONFIG_FIELDS, GEMINI_FIELDS, GeminiGenerate
from agentrun.wire import HttpAuth

from ..packages import TRIAGE
from . import exchange
from .exchange import NOW, SEARCH, check_golden_file, encode, request_json

CODEC = GeminiGenerate()
FLASH, FLASH_3 = "gemini-2.5-flash", "gemini-3-flash-preview"


def request(*messages: Message, name: str = FLASH, **more: Any) -> ModelRequest:
    return exchange.request("gemini", name, *messages, **more)


def body(asked: ModelRequest) -> dict[str, Any]:
    return exchange.body(CODEC, asked)


def config(**more: Any) -> dict[str, Any]:
    return dict(body(request(**more)).get("generationConfig", {}))


def test_it_is_registered() -> None:
    codec: Codec = codec_for("gemini")
    assert isinstance(codec, GeminiGenerate)


@pytest.mark.parametrize(
    ("story", "asked"),
    [
        ("plain", request(instructions="")),
        ("streamed", request(stream=True, name=FLASH_3, reasoning="low", output=TRIAGE, tools=(NOW,))),
        (
            "settings",
            request(
                temperature=0.5,
                top_p=0.9,
                seed=7,
                stop=["END"],
                max_output_tokens=100,
                reasoning="none",
                tool_choice="docs.search",
                tools=(SEARCH,),
                output=TRIAGE,
                route={
                    "options": {"generationConfig": {"topK": 5}, "labels": {"a": "b"}},
                    "headers": {"X-B": "${B}", "x-a": "1"},
                },
            ),
        ),
    ],
)
def test_request_matches_the_golden_file(story: str, asked: ModelRequest) -> None:
    check_golden_file(exchange.GOLDEN / "gemini" / f"{story}.request.json", request_json(encode(CODEC, asked)))


def test_bytes_are_compact_and_sorted() -> None:
    assert encode(CODEC, request()).body == (
        b'{"contents":[{"parts":[{"text":"Hi"}],"role":"user"}],"systemInstruction":{"parts":[{"text":"Be brief."}]}}'
    )


# --- where it goes -----------------------------------------------------------------------------------------

HOST = "https://generativelanguage.googleapis.com"


@pytest.mark.parametrize(
    ("base", "name", "stream", "url"),
    [
        (None, FLASH, False, f"{HOST}/v1beta/models/{FLASH}:generateContent"),
        (None, FLASH, True, f"{HOST}/v1beta/models/{FLASH}:streamGenerateContent?alt=sse"),
        (None, "tunedModels/mine", False, f"{HOST}/v1beta/tunedModels/mine:generateContent"),
        (None, "a?b#c d", False, f"{HOST}/v1beta/models/a%3Fb%23c%20d:generateContent"),
        ("${GATEWAY}/", "m", False, "${GATEWAY}/v1beta/models/m:generateContent"),
        ("http://h/v1alpha/", "m", False, "http://h/v1alpha/models/m:generateContent"),
        ("http://h/v1/projects/p", "m", False, "http://h/v1/projects/p/models/m:generateContent"),
        ("http://h/vault", "m", False, "http://h/vault/v1beta/models/m:generateContent"),
    ],
)
def test_url_has_model_and_method(base: str | None, name: str, stream: bool, url: str) -> None:
    assert encode(CODEC, request(name=name, stream=stream, route={"base_url": base})).url == url


def test_request_contains_no_credential() -> None:
    call = encode(CODEC, request(route={"api_key": "${GEMINI_API_KEY}", "headers": {"Accept": "x/y"}}, stream=True))
    assert call.headers == (("accept", "x/y"), ("content-type", "application/json"))
    assert b"KEY" not in call.body
    assert "key=" not in call.url
    assert call.auth == HttpAuth("x-goog-api-key", "", "GEMINI_API_KEY")
    assert encode(CODEC, request()).auth == call.auth
    assert encode(CODEC, request(route={"base_url": "http://127.0.0.1"})).auth is None


# --- settings ----------------------------------------------------------------------------------------------


def test_unset_settings_are_not_sent() -> None:
    assert body(request(instructions="")).keys() == {"contents"}


@pytest.mark.parametrize(
    ("name", "reasoning", "thinking"),
    [
        (FLASH, None, None),
        (FLASH, "none", {"thinkingBudget": 0}),
        (FLASH, "low", {"thinkingBudget": 1024}),
        (FLASH, "medium", {"thinkingBudget": 8192}),
        (FLASH, "high", {"thinkingBudget": 24576}),
        (FLASH_3, None, None),
        (FLASH_3, "none", {"thinkingLevel": "MINIMAL"}),
        (FLASH_3, "low", {"thinkingLevel": "LOW"}),
        ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "MEDIUM"}),
        ("gemini-flash-latest", "high", {"thinkingLevel": "HIGH"}),
        ("gemini-2.0-flash", "none", None),
    ],
)
def test_reasoning_becomes_thinking_config(name: str, reasoning: str | None, thinking: Any) -> None:
    assert config(name=name, reasoning=reasoning).get("thinkingConfig") == thinking


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        ("docs.search", {"mode": "ANY", "allowedFunctionNames": ["docs__search"]}),
        ("hidden", None),
    ],
)
def test_tool_choice_is_sent_only_with_tools(choice: str, expected: Any) -> None:
    found = body(request(tool_choice=choice, tools=(SEARCH,))).get("toolConfig")
    assert found == (expected and {"functionCallingConfig": expected})
    assert "toolConfig" not in body(request(tool_choice=choice))


def test_tools_are_function_declarations() -> None:
    assert body(request(tools=(SEARCH, NOW)))["tools"] == [
        {
            "functionDeclarations": [
                {"name": "docs__search", "description": "Search the docs.", "parametersJsonSchema": SEARCH.args},
                {"name": "now", "parametersJsonSchema": NOW.args},
            ]
        }
    ]


@pytest.mark.parametrize(("name", "tools"), [(FLASH, ()), (FLASH_3, ()), (FLASH_3, (NOW,))])
def test_supported_output_schema_is_sent_as_response_schema(name: str, tools: Any) -> None:
    asked = body(request(name=name, output=TRIAGE, tools=tools))
    assert asked["generationConfig"] == {"responseMimeType": "application/json", "responseJsonSchema": TRIAGE}
    assert asked["systemInstruction"] == {"parts": [{"text": "Be brief."}]}


def test_output_schema_is_sent_in_the_instructions_to_older_models() -> None:
    asked = body(request(output=TRIAGE, tools=(NOW,)))
    assert "generationConfig" not in asked
    told = asked["systemInstruction"]["parts"][0]["text"].partition(f"Be brief.\n\n{SCHEMA_GUIDANCE}")[2]
    assert json.loads(told) == TRIAGE


# --- problems ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ({"seed": 1, "temperature": 2.0, "top_p": 0.5, "tool_choice": "required"}, []),
        ({"stop": list("abcde")}, []),
        ({"stop": list("abcdef")}, ["model.stop"]),
        ({"reasoning": "none", "name": "gemini-2.5-flash-lite"}, []),
        ({"reasoning": "none", "name": "gemini-2.5-pro"}, ["model.reasoning"]),
        ({"reasoning": "none", "name": "gemini-3.1-pro-preview"}, ["model.reasoning"]),
        ({"reasoning": "none", "name": "gemini-2.0-flash"}, []),
        ({"reasoning": "low", "name": "gemini-2.0-flash"}, ["model.reasoning"]),
        ({"reasoning": "low", "name": "gemini-2.5-pro"}, []),
    ],
)
def test_unsupported_settings_are_problems(more: dict[str, Any], keys: list[str]) -> None:
    assert exchange.problems(CODEC, request(**more)) == keys


@pytest.mark.parametrize(
    ("options", "key"),
    [
        *(({key: "x", "labels": {}}, key) for key in sorted(GEMINI_FIELDS)),
        *(
            ({"generationConfig": {key: "x", "topK": 1}}, f"generationConfig.{key}")
            for key in sorted(GEMINI_CONFIG_FIELDS)
        ),
        ({"system_instruction": {}}, "system_instruction"),
        ({"generation_config": {"topK": 1}}, "generation_config"),
        ({"generationConfig": {"max_output_tokens": 1}}, "generationConfig.max_output_tokens"),
        ({"generationConfig": "x"}, "generationConfig"),
    ],
)
def test_options_cannot_override_fields_of_the_codec(options: dict[str, Any], key: str) -> None:
    asked = request(route={"options": options})
    assert exchange.problems(CODEC, asked) == [f"model.options cannot set {key}"]
    with pytest.raises(PackageError) as caught:
        encode(CODEC, asked)
    assert caught.value.fields["pointer"] == "/model/options/" + key.replace(".", "/")


def test_other_options_are_merged() -> None:
    options = {"generationConfig": {"topK": 5}, "safetySettings": []}
    asked = body(request(seed=1, route={"options": options}))
    assert asked["generationConfig"] == {"topK": 5, "seed": 1}
    assert asked["safetySettings"] == []


def test_every_sent_field_is_reserved() -> None:
    every = {"temperature": 1.0, "top_p": 1.0, "seed": 1, "stop": ["a"], "max_output_tokens": 9, "reasoning": "high"}
    asked = body(request(output=TRIAGE, tools=(SEARCH,), tool_choice="none", name=FLASH_3, **every))
    assert asked.keys() <= GEMINI_FIELDS | {"generationConfig"}
    assert asked["generationConfig"].keys() <= GEMINI_CONFIG_FIELDS
