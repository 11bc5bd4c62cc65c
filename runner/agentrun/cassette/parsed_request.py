"""Parse a model request in any of the four wire formats into one provider-independent form.

Rule 1  Unknown fields become settings or parts of kind `other`; only ids of calls are dropped, because they have no
        meaning. Two requests with equal parsed forms may still differ, so callers compare the bodies then.
Rule 2  Anyone may have edited the cassette: a body of the wrong form gives None.
Rule 3  Consecutive messages of one role are joined, so that all four formats give the same conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from agentrun.canonical_json import NOT_JSON, json_or_text, read_json
from agentrun.core.model_texts import SCHEMA_GUIDANCE
from agentrun.wire import HttpCall

ValueT = TypeVar("ValueT")

ADDRESS_SETTING = "the address"
SCHEMA_SETTING = "the schema of the answer"


class RequestPart(Struct, frozen=True):
    kind: Literal["text", "call", "result", "other"]
    value: Any
    """The text, the arguments of a call, the result of a tool, or anything else as it was sent."""
    name: str = ""


class RequestMessage(Struct, frozen=True):
    """Consecutive parts of one role."""

    role: str
    """user, assistant, tool, or another role as it was sent."""
    parts: tuple[RequestPart, ...]

    @property
    def text(self) -> str | None:
        """The text, if all parts are text."""
        return "".join(part.value for part in self.parts) if all(part.kind == "text" for part in self.parts) else None


class ParsedRequest(Struct, frozen=True):
    format: str
    instructions: str
    messages: tuple[RequestMessage, ...]
    tools: dict[str, dict[str, Any]]
    """By name: description, parameters and other fields."""
    settings: dict[str, Any]


class UnexpectedShape(Exception):
    """The body does not have the form of its wire format."""


RoleParts: TypeAlias = Iterator[tuple[str, RequestPart]]
"""Parts in order, each with its role."""


def parse_request(call: HttpCall) -> ParsedRequest | None:
    """Parse a model request. None: it is another request, or in an unknown format."""
    path = call.url.partition("?")[0]
    read = next((read for end, read in _FORMATS if path.endswith(end)), None)
    if read is None or call.method.upper() != "POST":
        return None
    try:
        return read(call.url, _expect(read_json(call.body), dict))
    except (*NOT_JSON, UnexpectedShape):
        return None


def _chat(url: str, body: dict[str, Any]) -> ParsedRequest:
    messages = _expect_dicts(body.pop("messages", None))
    heads = 0
    while heads < len(messages) and messages[heads].get("role") in ("system", "developer"):
        heads += 1
    instructions = "\n\n".join(_text(one.get("content")) for one in messages[:heads])
    tools = dict(map(_function_tool, _expect_dicts(body.pop("tools", None) or [])))
    return _make_request("OpenAI Chat", url, instructions, _chat_parts(messages[heads:]), tools, body)


def _chat_parts(messages: list[dict[str, Any]]) -> RoleParts:
    names: dict[str, str] = {}
    for message in messages:
        role = _expect(message.get("role"), str)
        if role == "tool":
            value = _text_or_value(message.get("content"))
            yield role, RequestPart("result", value, names.get(str(message.get("tool_call_id")), ""))
            continue
        for part in _content(message.get("content")):
            yield role, part
        if message.get("refusal"):
            yield role, RequestPart("text", _expect(message["refusal"], str))
        for call in _expect_dicts(message.get("tool_calls") or []):
            function = _expect(call.get("function"), dict)
            names[str(call.get("id"))] = name = _expect(function.get("name"), str)
            yield role, RequestPart("call", _arguments(function.get("arguments")), name)


def _responses(url: str, body: dict[str, Any]) -> ParsedRequest:
    value = body.pop("input", None)
    items = [{"role": "user", "content": value}] if isinstance(value, str) else _expect_dicts(value)
    instructions = _expect(body.pop("instructions", None) or "", str)
    tools = dict(map(_function_tool, _expect_dicts(body.pop("tools", None) or [])))
    return _make_request("OpenAI Responses", url, instructions, _responses_parts(items), tools, body)


def _responses_parts(items: list[dict[str, Any]]) -> RoleParts:
    names: dict[str, str] = {}
    for item in items:
        match item.get("type", "message"):
            case "message":
                for part in _content(item.get("content")):
                    yield _expect(item.get("role"), str), part
            case "function_call":
                names[str(item.get("call_id"))] = name = _expect(item.get("name"), str)
                yield "assistant", RequestPart("call", _arguments(item.get("arguments")), name)
            case "function_call_output":
                name = names.get(str(item.get("call_id")), "")
                yield "tool", RequestPart("result", _text_or_value(item.get("output")), name)
            case _:
                yield "assistant", RequestPart("other", item)


def _anthropic(url: str, body: dict[str, Any]) -> ParsedRequest:
    messages = _expect_dicts(body.pop("messages", None))
    instructions = _text(body.pop("system", None))
    tools = {
        _expect(one.get("name"), str): _with_parameters(one, "input_schema")
        for one in _expect_dicts(body.pop("tools", None) or [])
    }
    return _make_request("Anthropic Messages", url, instructions, _anthropic_parts(messages), tools, body)


def _anthropic_parts(messages: list[dict[str, Any]]) -> RoleParts:
    names: dict[str, str] = {}
    for message in messages:
        role, content = _expect(message.get("role"), str), message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else _expect_dicts(content):
            match block.get("type"):
                case "text":
                    yield role, RequestPart("text", _expect(block.get("text"), str))
                case "tool_use":
                    names[str(block.get("id"))] = name = _expect(block.get("name"), str)
                    yield role, RequestPart("call", block.get("input"), name)
                case "tool_result":
                    name = names.get(str(block.get("tool_use_id")), "")
                    yield "tool", RequestPart("result", _text_or_value(block.get("content", "")), name)
                case _:
                    yield role, RequestPart("other", block)


def _gemini(url: str, body: dict[str, Any]) -> ParsedRequest:
    contents = _expect_dicts(body.pop("contents", None))
    system = _expect(body.pop("systemInstruction", None) or {}, dict)
    instructions = "".join(_expect(part.get("text"), str) for part in _expect_dicts(system.get("parts", [])))
    tools: dict[str, dict[str, Any]] = {}
    for one in _expect_dicts(body.pop("tools", None) or []):
        for key, value in one.items():
            if key == "functionDeclarations":
                tools |= {
                    _expect(each.get("name"), str): _with_parameters(each, "parametersJsonSchema")
                    for each in _expect_dicts(value)
                }
            else:
                tools[key] = {"settings": value}
    start, _, action = url.rpartition(":")
    base, _, name = start.rpartition("/models/")
    settings = body | {"model": name} | ({} if action == "generateContent" else {"stream": True})
    return _make_request("Gemini", base or start, instructions, _gemini_parts(contents), tools, settings)


def _gemini_parts(contents: list[dict[str, Any]]) -> RoleParts:
    for content in contents:
        role = {"model": "assistant"}.get(_expect(content.get("role", "user"), str), "user")
        for part in _expect_dicts(content.get("parts")):
            match part:
                case {"functionCall": dict(call)}:
                    yield role, RequestPart("call", call.get("args"), _expect(call.get("name"), str))
                case {"functionResponse": dict(result)}:
                    response = _expect(result.get("response"), dict)
                    value = response["output"] if response.keys() == {"output"} else response
                    yield "tool", RequestPart("result", value, _expect(result.get("name"), str))
                case {"text": str(text)} if not part.get("thought"):
                    yield role, RequestPart("text", text)
                case _:
                    yield role, RequestPart("other", part)


RequestReader: TypeAlias = Callable[[str, dict[str, Any]], ParsedRequest]
_FORMATS: tuple[tuple[str, RequestReader], ...] = (
    ("/chat/completions", _chat),
    ("/responses", _responses),
    ("/messages", _anthropic),
    (":generateContent", _gemini),
    (":streamGenerateContent", _gemini),
)


def _make_request(
    format: str, address: str, instructions: str, parts: RoleParts, tools: dict[str, Any], rest: dict[str, Any]
) -> ParsedRequest:
    before, guided, schema = instructions.rpartition(SCHEMA_GUIDANCE)
    if guided:  # the output schema is in the prompt of a model that has no field for it
        instructions, rest = before.removesuffix("\n\n"), rest | {SCHEMA_SETTING: _arguments(schema)}
    return ParsedRequest(format, instructions, tuple(_group_by_role(parts)), tools, {ADDRESS_SETTING: address} | rest)


def _group_by_role(every: Iterable[tuple[str, RequestPart]]) -> Iterator[RequestMessage]:
    role = ""
    parts: list[RequestPart] = []
    for part_role, part in every:
        if part_role != role and parts:
            yield RequestMessage(role, tuple(parts))
            parts = []
        role = part_role
        if part.value != "" or part.kind != "text":
            parts.append(part)
    if parts:
        yield RequestMessage(role, tuple(parts))


def _content(content: Any) -> Iterator[RequestPart]:
    """The parts of a content field, which is a text or a list of parts."""
    if content is None or isinstance(content, str):
        yield RequestPart("text", content or "")
        return
    for part in _expect_dicts(content):
        text = part.get("text")
        if isinstance(text, str) and str(part.get("type")) in ("text", "input_text", "output_text"):
            yield RequestPart("text", text)
        else:
            yield RequestPart("other", part)


def _text(content: Any) -> str:
    """The text of a content field. Raises `UnexpectedShape` if it has other parts."""
    parts = list(_content(content))
    if any(part.kind != "text" for part in parts):
        raise UnexpectedShape
    return "".join(part.value for part in parts)


def _text_or_value(content: Any) -> Any:
    """The text of a content field, or the field itself if it has other parts."""
    try:
        return _text(content)
    except UnexpectedShape:
        return content


def _function_tool(tool: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    inner = tool.get("function")
    rest = {key: value for key, value in tool.items() if key != "function" and (key, value) != ("type", "function")}
    fields = rest | (inner if isinstance(inner, dict) else {})
    name = _expect(fields.pop("name", None) or fields.get("type"), str)
    return name, fields


def _with_parameters(tool: dict[str, Any], schema: str) -> dict[str, Any]:
    return {("parameters" if key == schema else key): value for key, value in tool.items() if key != "name"}


def _arguments(text: Any) -> Any:
    return json_or_text(_expect(text, str))


def _expect(value: Any, kind: type[ValueT]) -> ValueT:
    if not isinstance(value, kind):
        raise UnexpectedShape
    return value


def _expect_dicts(value: Any) -> list[dict[str, Any]]:
    return [_expect(item, dict) for item in _expect(value, list)]
