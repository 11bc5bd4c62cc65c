"""A request to a model in no provider's words, read back from the four wire formats.

Rule 1  What is not understood is kept as a setting or a part of its own, never dropped silently; ids of calls are the
        exception, for they are no meaning. Who compares two requests still compares the bodies when these are equal.
Rule 2  A body comes from a file that anybody may have edited: what is not of its form gives None.
Rule 3  Messages in a row from one side are one message. So the four formats give the same conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.canon import NOT_JSON, json_or_text, read_json
from agentrun.providers.guidance import GUIDANCE
from agentrun.wire import HttpCall

ADDRESS = "the address"
SCHEMA = "the schema of the answer"


class Part(Struct, frozen=True):
    """A piece of a message."""

    kind: Literal["text", "call", "result", "other"]
    value: Any
    """The text; the arguments of a call; what a tool gave; anything else as it stands on the wire."""
    name: str = ""
    """The tool of a call or a result."""


class Said(Struct, frozen=True):
    """What one side said at a time."""

    role: str
    """user, assistant, tool, or what else the wire says."""
    parts: tuple[Part, ...]

    @property
    def text(self) -> str | None:
        """The words, when there is nothing else."""
        return "".join(part.value for part in self.parts) if all(part.kind == "text" for part in self.parts) else None


class Asked(Struct, frozen=True):
    """What a model is asked."""

    format: str
    """The wire format, in words."""
    instructions: str
    messages: tuple[Said, ...]
    tools: dict[str, dict[str, Any]]
    """By name: description, parameters, and what else is said of it."""
    settings: dict[str, Any]
    """Everything else."""


class Odd(Exception):
    """A body that is not of its form."""


Spoken: TypeAlias = Iterator[tuple[str, Part]]
"""Parts in order, each with its role."""


def asked(call: HttpCall) -> Asked | None:
    """A request to a model. None: it is none, or none that we know."""
    path = call.url.partition("?")[0]
    read = next((read for end, read in _FORMATS if path.endswith(end)), None)
    if read is None or call.method.upper() != "POST":
        return None
    try:
        return read(call.url, mapping(read_json(call.body)))
    except (*NOT_JSON, Odd):
        return None


def _chat(url: str, body: dict[str, Any]) -> Asked:
    messages = mappings(body.pop("messages", None))
    heads = 0
    while heads < len(messages) and messages[heads].get("role") in ("system", "developer"):
        heads += 1
    instructions = "\n\n".join(_text(one.get("content")) for one in messages[:heads])
    tools = dict(map(_function, mappings(body.pop("tools", None) or [])))
    return _asked("OpenAI Chat", url, instructions, _chat_parts(messages[heads:]), tools, body)


def _chat_parts(messages: list[dict[str, Any]]) -> Spoken:
    names: dict[str, str] = {}
    for message in messages:
        role = string(message.get("role"))
        if role == "tool":
            value = _words(message.get("content"))
            yield role, Part("result", value, names.get(str(message.get("tool_call_id")), ""))
            continue
        for part in _content(message.get("content")):
            yield role, part
        if message.get("refusal"):
            yield role, Part("text", string(message["refusal"]))
        for call in mappings(message.get("tool_calls") or []):
            function = mapping(call.get("function"))
            names[str(call.get("id"))] = name = string(function.get("name"))
            yield role, Part("call", _arguments(function.get("arguments")), name)


def _responses(url: str, body: dict[str, Any]) -> Asked:
    given = body.pop("input", None)
    items = [{"role": "user", "content": given}] if isinstance(given, str) else mappings(given)
    instructions = string(body.pop("instructions", None) or "")
    tools = dict(map(_function, mappings(body.pop("tools", None) or [])))
    return _asked("OpenAI Responses", url, instructions, _responses_parts(items), tools, body)


def _responses_parts(items: list[dict[str, Any]]) -> Spoken:
    names: dict[str, str] = {}
    for item in items:
        match item.get("type", "message"):
            case "message":
                for part in _content(item.get("content")):
                    yield string(item.get("role")), part
            case "function_call":
                names[str(item.get("call_id"))] = name = string(item.get("name"))
                yield "assistant", Part("call", _arguments(item.get("arguments")), name)
            case "function_call_output":
                yield "tool", Part("result", _words(item.get("output")), names.get(str(item.get("call_id")), ""))
            case _:
                yield "assistant", Part("other", item)


def _anthropic(url: str, body: dict[str, Any]) -> Asked:
    messages = mappings(body.pop("messages", None))
    instructions = _text(body.pop("system", None))
    tools = {string(one.get("name")): _renamed(one, "input_schema") for one in mappings(body.pop("tools", None) or [])}
    return _asked("Anthropic Messages", url, instructions, _anthropic_parts(messages), tools, body)


def _anthropic_parts(messages: list[dict[str, Any]]) -> Spoken:
    names: dict[str, str] = {}
    for message in messages:
        role, content = string(message.get("role")), message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else mappings(content):
            match block.get("type"):
                case "text":
                    yield role, Part("text", string(block.get("text")))
                case "tool_use":
                    names[str(block.get("id"))] = name = string(block.get("name"))
                    yield role, Part("call", block.get("input"), name)
                case "tool_result":
                    name = names.get(str(block.get("tool_use_id")), "")
                    yield "tool", Part("result", _words(block.get("content", "")), name)
                case _:
                    yield role, Part("other", block)


def _gemini(url: str, body: dict[str, Any]) -> Asked:
    contents = mappings(body.pop("contents", None))
    system = mapping(body.pop("systemInstruction", None) or {})
    instructions = "".join(string(part.get("text")) for part in mappings(system.get("parts", [])))
    tools: dict[str, dict[str, Any]] = {}
    for one in mappings(body.pop("tools", None) or []):
        for key, value in one.items():
            if key == "functionDeclarations":
                tools |= {string(each.get("name")): _renamed(each, "parametersJsonSchema") for each in mappings(value)}
            else:
                tools[key] = {"settings": value}
    start, _, action = url.rpartition(":")
    base, _, name = start.rpartition("/models/")
    told = {"model": name} | ({} if action == "generateContent" else {"stream": True})
    return _asked("Gemini", base or start, instructions, _gemini_parts(contents), tools, body | told)


def _gemini_parts(contents: list[dict[str, Any]]) -> Spoken:
    for content in contents:
        role = {"model": "assistant"}.get(string(content.get("role", "user")), "user")
        for part in mappings(content.get("parts")):
            match part:
                case {"functionCall": dict(call)}:
                    yield role, Part("call", call.get("args"), string(call.get("name")))
                case {"functionResponse": dict(result)}:
                    gave = mapping(result.get("response"))
                    value = gave["output"] if gave.keys() == {"output"} else gave
                    yield "tool", Part("result", value, string(result.get("name")))
                case {"text": str(text)} if not part.get("thought"):
                    yield role, Part("text", text)
                case _:
                    yield role, Part("other", part)


Reader: TypeAlias = Callable[[str, dict[str, Any]], Asked]
_FORMATS: tuple[tuple[str, Reader], ...] = (
    ("/chat/completions", _chat),
    ("/responses", _responses),
    ("/messages", _anthropic),
    (":generateContent", _gemini),
    (":streamGenerateContent", _gemini),
)


def _asked(
    format: str, address: str, instructions: str, parts: Spoken, tools: dict[str, Any], rest: dict[str, Any]
) -> Asked:
    before, guided, schema = instructions.rpartition(GUIDANCE)
    if guided:  # the contract of the answer in words, for a model that has no other place for it
        instructions, rest = before.removesuffix("\n\n"), rest | {SCHEMA: _arguments(schema)}
    return Asked(format, instructions, tuple(_messages(parts)), tools, {ADDRESS: address} | rest)


def _messages(spoken: Iterable[tuple[str, Part]]) -> Iterator[Said]:
    role = ""
    parts: list[Part] = []
    for who, part in spoken:
        if who != role and parts:
            yield Said(role, tuple(parts))
            parts = []
        role = who
        if part.value != "" or part.kind != "text":
            parts.append(part)
    if parts:
        yield Said(role, tuple(parts))


def _content(content: Any) -> Iterator[Part]:
    """A text, or a list of parts of which some are texts."""
    if content is None or isinstance(content, str):
        yield Part("text", content or "")
        return
    for part in mappings(content):
        text = part.get("text")
        if isinstance(text, str) and str(part.get("type")) in ("text", "input_text", "output_text"):
            yield Part("text", text)
        else:
            yield Part("other", part)


def _text(content: Any) -> str:
    """A text, or a list of nothing else."""
    parts = list(_content(content))
    if any(part.kind != "text" for part in parts):
        raise Odd
    return "".join(part.value for part in parts)


def _words(content: Any) -> Any:
    """A list of nothing but texts as one text, anything else as it is."""
    try:
        return _text(content)
    except Odd:
        return content


def _function(tool: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    inner = tool.get("function")
    rest = {key: value for key, value in tool.items() if key != "function" and (key, value) != ("type", "function")}
    fields = rest | (inner if isinstance(inner, dict) else {})
    name = string(fields.pop("name", None) or fields.get("type"))
    return name, fields


def _renamed(tool: dict[str, Any], schema: str) -> dict[str, Any]:
    return {("parameters" if key == schema else key): value for key, value in tool.items() if key != "name"}


def _arguments(text: Any) -> Any:
    return json_or_text(string(text))


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Odd
    return value


def mappings(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise Odd
    return [mapping(item) for item in value]


def string(value: Any) -> str:
    if not isinstance(value, str):
        raise Odd
    return value
