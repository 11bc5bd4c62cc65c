"""Anthropic Messages.

Rule 1  `max_tokens` is always sent, because the API wants it: the spec's own, or `DEFAULT_MAX_TOKENS`. Thinking counts
        towards it, so a budget for thinking is smaller.
Rule 2  The API is asked in its version of 2023-06-01, the last that takes a temperature and the one that other servers
        speak. A route's own `anthropic-version` replaces it.
Rule 3  `base_url` is what Anthropic's own SDKs take: without the `/v1`, which is added unless it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrun.core.effects import ModelRequest, OfferedTool
from agentrun.core.messages import Message, ToolCall
from agentrun.core.names import schemas_of
from agentrun.core.package import Model, Route
from agentrun.core.package_tools import Tool
from agentrun.providers.anthropic_messages import encode_segment
from agentrun.providers.anthropic_models import Claude, claude
from agentrun.providers.anthropic_reply import read_reply
from agentrun.providers.anthropic_stream import AnthropicStream
from agentrun.providers.auth import auth_of
from agentrun.providers.body import given, refuse_taken, spliced, taken_options
from agentrun.providers.codec import Blob, Decoded, StreamDecoder
from agentrun.providers.guidance import guided
from agentrun.providers.headers import merged_headers
from agentrun.providers.names import name_clashes, wire_name
from agentrun.providers.strictness import is_strict
from agentrun.wire import HttpCall, HttpReply

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 16_000
BUDGETS = {"low": 1_024, "medium": 4_096, "high": 10_000}
"""Tokens for thinking, for models that are told a budget. The API takes no less than the first."""
BINDING_BETA = "thinking-binding-controls-2026-08-01"

OWN = frozenset(
    {
        *("model", "messages", "system", "max_tokens", "temperature", "top_p", "stop_sequences"),
        *("thinking", "output_config", "stream", "tools", "tool_choice"),
    }
)
"""The fields that this codec decides about."""


class Anthropic:
    """The codec. It has no state."""

    def problems(self, model: Model, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:  # noqa: ARG002  # any schema can at least be asked for
        takes = claude(route.name)
        return [
            *taken_options(route, OWN),
            *name_clashes(schemas_of(tools)),
            *_tool_problems(tools),
            *_sampling_problems(model, route, takes),
            *_thinking_problems(model, route, takes),
        ]

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: Blob) -> list[bytes]:
        return encode_segment(messages, request, blob)

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        route = request.route
        refuse_taken(route, OWN)
        thinking = _thinking(request)
        headers = dict(merged_headers(request, {"anthropic-version": VERSION}))
        if thinking and "block_binding" in thinking:
            headers["anthropic-beta"] = ",".join([*filter(None, [headers.get("anthropic-beta")]), BINDING_BETA])
        return HttpCall(
            method="POST",
            url=(route.base_url or BASE_URL).rstrip("/").removesuffix("/v1") + "/v1/messages",
            headers=tuple(sorted(headers.items())),
            body=spliced(route.options | _fields(request, thinking), "messages", items),
            auth=auth_of(route, "x-api-key", "", "ANTHROPIC_API_KEY"),
        )

    def decode(self, reply: HttpReply, request: ModelRequest) -> Decoded:
        return read_reply(reply, request)

    def stream(self, request: ModelRequest) -> StreamDecoder:
        return AnthropicStream(request)


def _fields(request: ModelRequest, thinking: dict[str, Any] | None) -> dict[str, Any]:
    settings = request.settings
    takes = claude(request.route.name)
    native = request.output is not None and takes.structured and is_strict(request.output)
    output = given(
        effort=settings.reasoning if takes.effort and settings.reasoning != "none" else None,
        format={"type": "json_schema", "schema": request.output} if native else None,
    )
    tools = [_tool(tool) for tool in request.tools] or _former_tools(request.messages)
    return given(
        model=request.route.name,
        max_tokens=settings.max_output_tokens or DEFAULT_MAX_TOKENS,
        system=(request.instructions if native else guided(request)) or None,
        temperature=settings.temperature,
        top_p=settings.top_p,
        stop_sequences=settings.stop or None,
        stream=settings.stream or None,
        thinking=thinking,
        output_config=output or None,
        tools=tools or None,
        tool_choice=_tool_choice(request) if tools else None,
    )


def _thinking(request: ModelRequest) -> dict[str, Any] | None:
    level = request.settings.reasoning
    takes = claude(request.route.name)
    if level == "none":
        return {"type": takes.off}
    if not takes.effort:
        return {"type": "enabled", "budget_tokens": BUDGETS[level]} if level else None
    if takes.bound:
        # A summary, a hidden tool or a policy changes what stood before a thought; such a thought is to be left out
        # by the API, which would refuse the request otherwise.
        return {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    return {"type": "adaptive"} if level else None


def _tool(tool: OfferedTool) -> dict[str, Any]:
    return given(name=wire_name(tool.name), description=tool.description or None, input_schema=tool.args)


def _former_tools(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Tools that were called before and are offered no more: calls in a history need a declaration."""
    names = {part.tool for message in messages for part in message.parts if isinstance(part, ToolCall)}
    return [{"name": name, "input_schema": {"type": "object"}} for name in sorted(map(wire_name, names))]


def _tool_choice(request: ModelRequest) -> dict[str, Any] | None:
    choice = request.settings.tool_choice
    if not request.tools or choice == "none":
        return {"type": "none"}
    if choice == "required":
        return {"type": "any"}
    if any(tool.name == choice for tool in request.tools):
        return {"type": "tool", "name": wire_name(choice)}
    return None  # auto, or a tool that is hidden now


def _tool_problems(tools: Mapping[str, Tool]) -> Iterable[str]:
    for name, schema in sorted(schemas_of(tools).items()):
        for key in ("oneOf", "anyOf", "allOf"):
            if key in schema:
                yield f"tools.{name}.args: Anthropic takes no {key} at the top of a schema"


def _sampling_problems(model: Model, route: Route, takes: Claude) -> Iterable[str]:
    if model.seed is not None:
        yield "model.seed: Anthropic takes no seed"
    if any(not text.strip() for text in model.stop):
        yield "model.stop: Anthropic takes no blank texts"
    if model.temperature is not None and model.temperature > 1:
        yield "model.temperature: Anthropic takes at most 1"
    thinks = model.reasoning not in (None, "none")
    for key, value, least in (("temperature", model.temperature, 1), ("top_p", model.top_p, 0.95)):
        if value is not None and not takes.samples:
            yield f"model.{key}: {route.name} takes none"
        elif value is not None and thinks and value < least:
            yield f"model.{key}: {route.name} takes at least {least} with model.reasoning: {model.reasoning}"
    if None not in (model.temperature, model.top_p) and takes.samples and not takes.samples_both:
        yield f"model.top_p: {route.name} takes it or model.temperature, not both"


def _thinking_problems(model: Model, route: Route, takes: Claude) -> Iterable[str]:
    level = model.reasoning
    if level == "none" and takes.off is None:
        yield f"model.reasoning: {route.name} always thinks; the least is low"
    budget = 0 if level in (None, "none") or takes.effort else BUDGETS[level]
    limit = model.max_output_tokens or DEFAULT_MAX_TOKENS
    if budget >= limit:
        yield f"model.max_output_tokens: more than {budget} are needed with model.reasoning: {level}, which counts"
    thinks = level in ("low", "medium", "high") or (level is None and takes.bound)
    if model.tool_choice not in ("auto", "none") and (thinks or not takes.forced):
        yield f"model.tool_choice: {route.name} cannot be forced to call a tool while it thinks; use auto or none"
