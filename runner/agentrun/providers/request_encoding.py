"""Arguments of calls for providers that want them as JSON objects, not as text."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest
from agentrun.core.messages import File
from agentrun.core.package import Route
from agentrun.errors import PackageError
from agentrun.providers.faults import DECODE_ERRORS
from agentrun.wire import HttpAuth

_object = msgspec.json.Decoder(dict[str, Raw])


def arguments_object(arguments: str) -> Any:
    """The arguments as they were written; what is no object is shown to the model inside one."""
    try:
        _object.decode(arguments)
    except DECODE_ERRORS:
        return {"INVALID_JSON": arguments}
    return Raw(arguments.encode())


# --- which credential a request carries, by name: its value is none of a codec's business ---------------------


def route_auth(route: Route, header: str, prefix: str, usual: str) -> HttpAuth | None:
    """The route's own credential, or the provider's usual one.

    That one goes to the provider's own address only. Any other gets a key when the spec names it.
    """
    if route.api_key is not None:
        return HttpAuth(header, prefix, route.api_key.removeprefix("${").removesuffix("}"))
    return HttpAuth(header, prefix, usual) if route.base_url is None else None


# --- request bodies around a conversation that is encoded already, what files become in them ------------------


_TEXTS = ("application/json", "application/xml", "application/yaml")


def splice_items(fields: Mapping[str, Any], key: str, items: Iterable[bytes]) -> bytes:
    """Compact JSON with sorted keys: the fields, and under the key an array of encoded items.

    The same bytes as encoding the whole at once, at the price of the fields alone.
    """
    return sorted_json({**fields, key: Raw(b"[" + b",".join(items) + b"]")})


def drop_none(**fields: Any) -> dict[str, Any]:
    """The fields that have a value."""
    return {key: value for key, value in fields.items() if value is not None}


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def file_text(file: File, data: bytes) -> str | None:
    """A file of text in words: not every provider reads such files. None: it is none."""
    if not (file.media_type.startswith("text/") or file.media_type in _TEXTS):
        return None
    return f"{file.name}:\n\n{data.decode('utf-8', 'replace')}"


def reserved_option_problems(route: Route, own: frozenset[str]) -> list[str]:
    """Options that set what the codec decides about, as sentences."""
    return [
        f"model.options cannot set {key}: the spec has a key of its own for it" for key in _reserved_options(route, own)
    ]


def refuse_reserved_options(route: Route, own: frozenset[str]) -> None:
    if taken := _reserved_options(route, own):
        raise PackageError(
            "package.invalid",
            f"model.options cannot set {', '.join(taken)}: the spec has keys of its own for it",
            fields={"pointer": f"/model/options/{taken[0]}"},
        )


def _reserved_options(route: Route, own: frozenset[str]) -> list[str]:
    return sorted(own & route.options.keys())


# --- headers of a request with a JSON body --------------------------------------------------------------------


def merge_headers(request: ModelRequest, own: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """A codec's own, sorted by name. A route's headers replace those of the same name."""
    accept = "text/event-stream" if request.settings.stream else "application/json"
    theirs = {name.lower(): value for name, value in request.route.headers.items()}
    return tuple(sorted(({"accept": accept, "content-type": "application/json"} | own | theirs).items()))


# --- a schema as words, for a request in which the provider cannot promise to keep it -------------------------


SCHEMA_GUIDANCE = (
    "Your final answer is one JSON value and nothing else, no text or code fence around it. It keeps this schema:\n"
)


def guided_instructions(request: ModelRequest) -> str:
    """The instructions, with the schema of the answer below them."""
    if request.output is None:
        return request.instructions
    words = SCHEMA_GUIDANCE + sorted_json(request.output).decode()
    return f"{request.instructions}\n\n{words}" if request.instructions else words


# --- whether a provider can promise that an answer keeps a schema ("strict" structured outputs) ---------------


MAX_LEVELS = 10
MAX_VALUES = 250
"""In all enums together. Above it their length counts too."""

_KEYWORDS = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "description",
        "title",
    }
)


def is_strict(schema: dict[str, Any]) -> bool:
    """Inside the part, with an object at the root."""
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
