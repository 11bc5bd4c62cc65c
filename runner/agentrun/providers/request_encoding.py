"""Parts of requests that several codecs share: names, arguments, credentials, bodies, headers, files, answer schemas.

The names of tools and the ids of calls in requests:

Rule 1  Providers accept names of up to 64 letters, digits, `_` and `-`. A dot becomes `__`. A name that is still not
        valid is cut and gets a part of its hash, so that two such names stay different.
Rule 2  A wire name depends only on the name of its tool, so it does not change when other tools are added or removed.
Rule 3  Two names that differ only by case are refused, because models and file systems confuse them.
Rule 4  The wire id of a call is sent back only to the route that created it. Other routes get a derived id.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.messages import Assistant, File, Message
from agentrun.core.model_texts import SCHEMA_GUIDANCE
from agentrun.core.package import Route, argument_schemas
from agentrun.core.package_tools import Tool
from agentrun.errors import PackageError
from agentrun.providers.faults import DECODE_ERRORS
from agentrun.wire import HttpAuth, HttpCall

MAX_WIRE_NAME = 64
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_object = msgspec.json.Decoder(dict[str, Raw])
_TEXTS = ("application/json", "application/xml", "application/yaml")
MAX_LEVELS = 10
MAX_VALUES = 250
"""The number of values in all enums together. With more values, providers also limit their length."""
_KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items"),
        *("enum", "const", "anyOf", "description", "title"),
    }
)


def arguments_object(arguments: str) -> Any:
    """The arguments as the model wrote them. If they are not a JSON object, they are wrapped in one."""
    try:
        _object.decode(arguments)
    except DECODE_ERRORS:
        return {"INVALID_JSON": arguments}
    return Raw(arguments.encode())


def route_auth(route: Route, header: str, prefix: str, usual: str) -> HttpAuth | None:
    """The key of the route. The usual key of the provider is sent only to its default address, never to another one."""
    if route.api_key is not None:
        return HttpAuth(header, prefix, route.api_key.removeprefix("${").removesuffix("}"))
    return HttpAuth(header, prefix, usual) if route.base_url is None else None


def post_items(
    request: ModelRequest, url: str, fields: dict[str, Any], key: str, items: Iterable[bytes], auth: HttpAuth | None
) -> HttpCall:
    body = splice_items(request.route.options | fields, key, items)
    return HttpCall("POST", url, merge_headers(request, {}), body, auth)


def splice_items(fields: Mapping[str, Any], key: str, items: Iterable[bytes]) -> bytes:
    """The same bytes as if everything were encoded at once, but only the fields are encoded."""
    return sorted_json({**fields, key: Raw(b"[" + b",".join(items) + b"]")})


def drop_none(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def is_text_file(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in _TEXTS


def file_text(file: File, data: bytes) -> str | None:
    """A text file as text, because not every provider reads such files. None: it is not a text file."""
    return f"{file.name}:\n\n{data.decode('utf-8', 'replace')}" if is_text_file(file.media_type) else None


def reserved_options(route: Route, own: frozenset[str]) -> list[str]:
    return sorted(own & route.options.keys())


def shared_problems(reserved: list[str], tools: Mapping[str, Tool]) -> list[str]:
    options = [f"model.options cannot set {key}: use the key of the spec for it" for key in reserved]
    return [*options, *name_clashes(argument_schemas(tools))]


def refuse_reserved_options(reserved: list[str]) -> None:
    if reserved:
        message = f"model.options cannot set {', '.join(reserved)}: use the keys of the spec for it"
        pointer = "/model/options/" + reserved[0].replace(".", "/")
        raise PackageError("package.invalid", message, fields={"pointer": pointer})


def merge_headers(request: ModelRequest, own: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The headers of a codec, sorted by name. The headers of the route take precedence."""
    accept = "text/event-stream" if request.settings.stream else "application/json"
    theirs = {name.lower(): value for name, value in request.route.headers.items()}
    return tuple(sorted(({"accept": accept, "content-type": "application/json"} | own | theirs).items()))


def guided_instructions(request: ModelRequest) -> str:
    """The instructions with the answer schema as text, for providers without structured output."""
    if request.output is None:
        return request.instructions
    guidance = SCHEMA_GUIDANCE + sorted_json(request.output).decode()
    return f"{request.instructions}\n\n{guidance}" if request.instructions else guidance


def is_strict(schema: dict[str, Any]) -> bool:
    """Whether providers can guarantee a schema ("strict" structured output)."""
    at_root = schema.get("type") == "object" and "anyOf" not in schema
    return at_root and _inside(schema, MAX_LEVELS) and _values(schema) <= MAX_VALUES


def _inside(schema: Any, levels: int) -> bool:
    if levels == 0 or not isinstance(schema, dict) or not schema.keys() <= _KEYWORDS:
        return False
    if "type" not in schema and "anyOf" not in schema:
        return False
    return _is_closed(schema) and all(_inside(part, levels - 1) for part in _below(schema))


def _is_closed(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if ("array" in kinds) != ("items" in schema):
        return False
    if "object" not in kinds:
        return "properties" not in schema
    properties = schema.get("properties", {})
    return schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)


def _values(schema: dict[str, Any]) -> int:
    return len(schema.get("enum", ())) + sum(_values(part) for part in _below(schema))


def _below(schema: dict[str, Any]) -> list[Any]:
    items = [schema["items"]] if "items" in schema else []
    return [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *items]


# --- names of tools and ids of calls ----------------------------------------------------------------------------------


def wire_name(tool: str) -> str:
    name = tool.replace(".", "__")
    valid = "".join([char if char in _ALLOWED else "_" for char in name])
    if name == valid and 0 < len(name) <= MAX_WIRE_NAME:
        return name
    digest = text_hash(tool.encode("utf-8", "surrogatepass")).removeprefix("sha256:")[:8]
    return f"{valid[: MAX_WIRE_NAME - 9]}_{digest}"


def tools_by_wire_name(request: ModelRequest) -> Mapping[str, str]:
    return {wire_name(tool.name): tool.name for tool in request.tools}


def name_clashes(tools: Iterable[str]) -> list[str]:
    problems = []
    seen: dict[str, str] = {}
    for tool in sorted(tools):
        first = seen.setdefault(wire_name(tool.lower()), tool)
        if first != tool:
            name = wire_name(tool)
            why = f"would both be called {name}" if name == wire_name(first) else "differ only by case"
            problems.append(f"tools: {first} and {tool} {why}; rename one")
    return problems


def call_ids(messages: Sequence[Message], route: Route) -> dict[str, str]:
    ids: dict[str, str] = {}
    here = route_name(route)
    for message in messages:
        if isinstance(message, Assistant):
            wire_ids = [call.wire_id for call in message.calls]
            for call in message.calls:
                own = call.route == here and wire_ids.count(call.wire_id) == 1
                ids[call.id] = (call.wire_id if own else None) or derived_id(call.id)
    return ids


def derived_id(call: str) -> str:
    """c1_0 for c1.0, because providers accept no dots in ids."""
    return call.replace(".", "_")
