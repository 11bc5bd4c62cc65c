"""Parse a model request in any of the four wire formats into one provider-independent form.

Rule 1  Unknown fields become settings or parts of kind `other`; only ids of calls are dropped, because they have no
        meaning. Two requests with equal parsed forms may still differ, so callers compare the bodies then.
Rule 2  Anyone may have edited the cassette: a body of the wrong form gives None.
Rule 3  Consecutive messages of one role are joined, so that all four formats give the same conversation.
Rule 4  A packed request that continues an earlier one costs as much as its new messages. The others are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import NOT_JSON, json_or_text, read_json
from agentrun.cassette.interactions import Interaction, PackedCall
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


RoleParts: TypeAlias = Iterator[tuple[str, RequestPart]]
"""Parts in order, each with its role."""


class Conversation(Sequence[RequestMessage]):
    """Messages that longer conversations share."""

    __slots__ = ("_length", "_messages", "_parts", "_role", "names")

    def __init__(self) -> None:
        self._messages: list[RequestMessage] = []
        """Those that no part can be added to, and those of longer conversations."""
        self._length = 0
        self._role, self._parts = "", tuple[RequestPart, ...]()
        """The last message."""
        self.names: dict[str, str] = {}
        """The tools of the calls so far, by the id of the call."""

    def __len__(self) -> int:
        return self._length + bool(self._parts)

    @overload
    def __getitem__(self, place: int) -> RequestMessage: ...
    @overload
    def __getitem__(self, place: slice) -> list[RequestMessage]: ...
    def __getitem__(self, place: int | slice) -> RequestMessage | list[RequestMessage]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        place += len(self) if place < 0 else 0
        if 0 <= place < self._length:
            return self._messages[place]
        if place == self._length and self._parts:
            return RequestMessage(self._role, self._parts)
        raise IndexError(place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conversation) and self[:] == other[:]

    __hash__ = None  # type: ignore[assignment]  # its values may be dicts

    def continues(self, other: Conversation) -> bool:
        """Whether this conversation begins with all parts of another one, as far as that is known."""
        return self._messages is other._messages and self._length >= other._length

    def continued(self) -> Conversation:
        """A conversation that begins with this one."""
        new = Conversation()
        if len(self._messages) == self._length:  # no other one continues it yet
            new._messages, new.names = self._messages, self.names
        else:
            new._messages, new.names = self._messages[: self._length], dict(self.names)
        new._length, new._role, new._parts = self._length, self._role, self._parts
        return new

    def add(self, parts: RoleParts) -> Conversation:
        last = list(self._parts)
        for role, part in parts:
            if role != self._role and last:
                self._messages.append(RequestMessage(self._role, tuple(last)))
                self._length += 1
                last = []
            self._role = role
            if part.value != "" or part.kind != "text":
                last.append(part)
        self._parts = tuple(last)
        return self


class ParsedRequest(Struct, frozen=True):
    format: str
    instructions: str
    messages: Conversation
    tools: dict[str, dict[str, Any]]
    """By name: description, parameters and other fields."""
    settings: dict[str, Any]


class UnexpectedShape(Exception):
    """The body does not have the form of its wire format."""


def parse_request(call: HttpCall) -> ParsedRequest | None:
    """Parse a model request. None: it is another request, or in an unknown format."""
    format = _find_format(call.method, call.url)
    if format is None:
        return None
    try:
        return format.read(call.url, _expect(read_json(call.body), dict))
    except (*NOT_JSON, UnexpectedShape):
        return None


class RequestParser:
    """Parses the requests of a cassette in their order."""

    def __init__(self) -> None:
        self._parsed: dict[int, tuple[PackedCall, ParsedRequest]] = {}
        """By the id of the body, which is kept with it."""

    def parse(self, interaction: Interaction) -> ParsedRequest | None:
        request = interaction.request
        if isinstance(request, HttpCall):
            return parse_request(request)
        parsed = self._continue(request)
        if parsed is None:
            parsed = parse_request(HttpCall(request.method, request.url, request.headers, request.json.compact()))
        if parsed is not None:
            self._parsed[id(request.json)] = request, parsed
        return parsed

    def _continue(self, request: PackedCall) -> ParsedRequest | None:
        """None: it does not only have more messages than an earlier request."""
        before = self._parsed.get(id(request.json.base))
        format = _find_format(request.method, request.url)
        new = None if before is None else request.json.new_items()
        if before is None or format is None or new is None or before[0].url != request.url:
            return None
        if new[0] != format.list_name or not len(before[1].messages):  # instructions may be messages too
            return None
        messages = before[1].messages.continued()
        try:
            items = [_expect(read_json(each), dict) for each in new[1]]
            return replace(before[1], messages=messages.add(format.parts(items, messages.names)))
        except (*NOT_JSON, UnexpectedShape):
            return None


def _chat(url: str, body: dict[str, Any]) -> ParsedRequest:
    messages = _expect_dicts(body.pop("messages", None))
    heads = 0
    while heads < len(messages) and messages[heads].get("role") in ("system", "developer"):
        heads += 1
    instructions = "\n\n".join(_text(one.get("content")) for one in messages[:heads])
    tools = dict(map(_function_tool, _expect_dicts(body.pop("tools", None) or [])))
    return _make_request("OpenAI Chat", url, instructions, _chat_parts, messages[heads:], tools, body)


def _chat_parts(messages: list[dict[str, Any]], names: dict[str, str]) -> RoleParts:
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
    return _make_request("OpenAI Responses", url, instructions, _responses_parts, items, tools, body)


def _responses_parts(items: list[dict[str, Any]], names: dict[str, str]) -> RoleParts:
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
    return _make_request("Anthropic Messages", url, instructions, _anthropic_parts, messages, tools, body)


def _anthropic_parts(messages: list[dict[str, Any]], names: dict[str, str]) -> RoleParts:
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
    return _make_request("Gemini", base or start, instructions, _gemini_parts, contents, tools, settings)


def _gemini_parts(contents: list[dict[str, Any]], _: dict[str, str]) -> RoleParts:
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


class _WireFormat(NamedTuple):
    read: Callable[[str, dict[str, Any]], ParsedRequest]
    list_name: str
    """The field with the messages."""
    parts: Callable[[list[dict[str, Any]], dict[str, str]], RoleParts]
    """The parts of messages. The names of the tools are kept, because their results do not have them."""


_FORMATS = {
    "/chat/completions": _WireFormat(_chat, "messages", _chat_parts),
    "/responses": _WireFormat(_responses, "input", _responses_parts),
    "/messages": _WireFormat(_anthropic, "messages", _anthropic_parts),
    ":generateContent": _WireFormat(_gemini, "contents", _gemini_parts),
    ":streamGenerateContent": _WireFormat(_gemini, "contents", _gemini_parts),
}
"""By the end of the address."""


def _find_format(method: str, url: str) -> _WireFormat | None:
    path = url.partition("?")[0]
    return (
        next((format for end, format in _FORMATS.items() if path.endswith(end)), None)
        if method.upper() == "POST"
        else None
    )


def _make_request(
    format: str,
    address: str,
    instructions: str,
    parts: Callable[[list[dict[str, Any]], dict[str, str]], RoleParts],
    messages: list[dict[str, Any]],
    tools: dict[str, Any],
    rest: dict[str, Any],
) -> ParsedRequest:
    before, guided, schema = instructions.rpartition(SCHEMA_GUIDANCE)
    if guided:  # the output schema is in the prompt of a model that has no field for it
        instructions, rest = before.removesuffix("\n\n"), rest | {SCHEMA_SETTING: _arguments(schema)}
    conversation = Conversation()
    conversation.add(parts(messages, conversation.names))
    return ParsedRequest(format, instructions, conversation, tools, {ADDRESS_SETTING: address} | rest)


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
