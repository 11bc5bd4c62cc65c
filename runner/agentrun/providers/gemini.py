"""Gemini generateContent.

Rule 1  The model, and whether the reply is streamed, stand in the address.
Rule 2  Options under `generationConfig` are added to what is set there. Options that set what this codec sets are
        refused in both spellings that the API takes, `topP` and `top_p`.
Rule 3  A schema is asked for natively; with tools a model before generation 3 cannot, and is told in words.
Rule 4  `base_url` is what Google's own SDKs take: without the `/v1beta`, which is added unless a version is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from agentrun.core.effects import ModelRequest, OfferedTool
from agentrun.core.messages import Message
from agentrun.core.names import schemas_of
from agentrun.core.package import Model, Route
from agentrun.core.package_tools import Tool
from agentrun.errors import PackageError
from agentrun.providers.auth import auth_of
from agentrun.providers.body import given, spliced
from agentrun.providers.codec import Blob, Decoded, StreamDecoder
from agentrun.providers.gemini_contents import encode_segment
from agentrun.providers.gemini_models import gemini
from agentrun.providers.gemini_reply import read_reply
from agentrun.providers.gemini_stream import GeminiStream
from agentrun.providers.guidance import guided
from agentrun.providers.headers import merged_headers
from agentrun.providers.names import name_clashes, wire_name
from agentrun.wire import HttpCall, HttpReply

BASE_URL = "https://generativelanguage.googleapis.com"
BUDGETS = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens for thinking, for models that are told a budget."""
LEVELS = {"none": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH"}
MAX_STOPS = 5
_VERSIONED = re.compile(r"/v\d+\w*(/|$)")

OWN = frozenset({"contents", "systemInstruction", "tools", "toolConfig"})
"""The fields that this codec decides about."""
OWN_CONFIG = frozenset(
    {
        *("temperature", "topP", "seed", "stopSequences", "maxOutputTokens", "candidateCount", "thinkingConfig"),
        *("responseMimeType", "responseSchema", "responseJsonSchema", "responseFormat"),
    }
)
"""The same, for those under `generationConfig`."""


class GeminiGenerate:
    """The codec. It has no state."""

    def problems(self, model: Model, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:  # noqa: ARG002  # any schema can at least be asked for
        return [
            *(f"model.options cannot set {key}: the spec has a key of its own for it" for key in _taken(route)),
            *name_clashes(schemas_of(tools)),
            *_problems(model, route),
        ]

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: Blob) -> list[bytes]:
        return encode_segment(messages, request, blob)

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        route = request.route
        if taken := _taken(route):
            message = f"model.options cannot set {', '.join(taken)}: the spec has keys of its own for it"
            pointer = "/model/options/" + taken[0].replace(".", "/")
            raise PackageError("package.invalid", message, fields={"pointer": pointer})
        return HttpCall(
            method="POST",
            url=_address(route, stream=request.settings.stream),
            headers=merged_headers(request, {}),
            body=spliced(route.options | _fields(request), "contents", items),
            auth=auth_of(route, "x-goog-api-key", "", "GEMINI_API_KEY"),
        )

    def decode(self, reply: HttpReply, request: ModelRequest) -> Decoded:
        return read_reply(reply, request)

    def stream(self, request: ModelRequest) -> StreamDecoder:
        return GeminiStream(request)


def _address(route: Route, *, stream: bool) -> str:
    name = route.name if "/" in route.name else f"models/{route.name}"
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    base = (route.base_url or BASE_URL).rstrip("/")
    version = "" if _VERSIONED.search(base) else "/v1beta"
    return f"{base}{version}/{quote(name, safe='/@')}:{method}"


def _fields(request: ModelRequest) -> dict[str, Any]:
    native = request.output is not None and (gemini(request.route.name).current or not request.tools)
    words = request.instructions if native else guided(request)
    return given(
        systemInstruction={"parts": [{"text": words}]} if words else None,
        tools=[{"functionDeclarations": [_tool(tool) for tool in request.tools]}] if request.tools else None,
        toolConfig=_tool_config(request) if request.tools else None,
        generationConfig=_config(request, native) or None,
    )


def _config(request: ModelRequest, native: bool) -> dict[str, Any]:
    settings = request.settings
    own = given(
        temperature=settings.temperature,
        topP=settings.top_p,
        seed=settings.seed,
        stopSequences=settings.stop or None,
        maxOutputTokens=settings.max_output_tokens,
        thinkingConfig=_thinking(settings.reasoning, request.route.name),
        responseMimeType="application/json" if native else None,
        responseJsonSchema=request.output if native else None,
    )
    return _config_options(request.route) | own


def _thinking(level: str | None, name: str) -> dict[str, Any] | None:
    takes = gemini(name)
    if level is None or not takes.thinks:
        return None
    return {"thinkingLevel": LEVELS[level]} if takes.current else {"thinkingBudget": BUDGETS[level]}


def _tool(tool: OfferedTool) -> dict[str, Any]:
    return given(name=wire_name(tool.name), description=tool.description or None, parametersJsonSchema=tool.args)


def _tool_config(request: ModelRequest) -> dict[str, Any] | None:
    choice = request.settings.tool_choice
    mode: dict[str, Any]
    if choice in ("required", "none"):
        mode = {"mode": "ANY" if choice == "required" else "NONE"}
    elif any(tool.name == choice for tool in request.tools):
        mode = {"mode": "ANY", "allowedFunctionNames": [wire_name(choice)]}
    else:
        return None  # auto, or a tool that is hidden now
    return {"functionCallingConfig": mode}


def _config_options(route: Route) -> dict[str, Any]:
    config = route.options.get("generationConfig")
    return config if isinstance(config, dict) else {}


def _taken(route: Route) -> list[str]:
    outer = [key for key in route.options if _is_one_of(key, OWN) or _is_misspelt_config(route, key)]
    inner = [f"generationConfig.{key}" for key in _config_options(route) if _is_one_of(key, OWN_CONFIG)]
    return sorted(outer + inner)


def _is_misspelt_config(route: Route, key: str) -> bool:
    """The other spelling, or no map: it would stand beside our own."""
    return _is_one_of(key, {"generationConfig"}) and not (key == "generationConfig" and _config_options(route))


def _is_one_of(key: str, names: Iterable[str]) -> bool:
    """The API reads system_instruction like systemInstruction."""
    return _plain(key) in map(_plain, names)


def _plain(key: str) -> str:
    return key.replace("_", "").lower()


def _problems(model: Model, route: Route) -> Iterable[str]:
    takes = gemini(route.name)
    if len(model.stop) > MAX_STOPS:
        yield f"model.stop: Gemini takes at most {MAX_STOPS} texts"
    if model.reasoning == "none" and not takes.off:
        yield f"model.reasoning: {route.name} always thinks; the least is low"
    if model.reasoning not in (None, "none") and not takes.thinks:
        yield f"model.reasoning: {route.name} does not think"
