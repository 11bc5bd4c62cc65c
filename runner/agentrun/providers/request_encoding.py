"""Parts of requests that several codecs share: arguments, credentials, bodies, headers, files and answer schemas."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest
from agentrun.core.messages import File
from agentrun.core.model_texts import SCHEMA_GUIDANCE
from agentrun.core.package import Route, argument_schemas
from agentrun.core.package_tools import Tool
from agentrun.errors import PackageError
from agentrun.providers.faults import DECODE_ERRORS
from agentrun.providers.wire_names import name_clashes
from agentrun.wire import HttpAuth, HttpCall

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
