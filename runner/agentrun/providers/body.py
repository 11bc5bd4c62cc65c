"""Request bodies around a conversation that is encoded already, what files become in them, and a route's options.

Rule 1  The body is compact JSON with sorted keys.
Rule 2  Options are added to the body. Options that set what a codec sets itself are refused.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Raw

from agentrun.canon import compact
from agentrun.core.messages import File
from agentrun.core.package import Route
from agentrun.errors import PackageError

_TEXTS = ("application/json", "application/xml", "application/yaml")


def spliced(fields: Mapping[str, Any], key: str, items: Iterable[bytes]) -> bytes:
    """Compact JSON with sorted keys: the fields, and under the key an array of encoded items.

    The same bytes as encoding the whole at once, at the price of the fields alone.
    """
    return compact({**fields, key: Raw(b"[" + b",".join(items) + b"]")})


def given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value."""
    return {key: value for key, value in fields.items() if value is not None}


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def file_text(file: File, data: bytes) -> str | None:
    """A file of text in words: not every provider reads such files. None: it is none."""
    if not (file.media_type.startswith("text/") or file.media_type in _TEXTS):
        return None
    return f"{file.name}:\n\n{data.decode('utf-8', 'replace')}"


def taken_options(route: Route, own: frozenset[str]) -> list[str]:
    """Options that set what the codec decides about, as sentences."""
    return [f"model.options cannot set {key}: the spec has a key of its own for it" for key in _taken(route, own)]


def refuse_taken(route: Route, own: frozenset[str]) -> None:
    if taken := _taken(route, own):
        raise PackageError(
            "package.invalid",
            f"model.options cannot set {', '.join(taken)}: the spec has keys of its own for it",
            fields={"pointer": f"/model/options/{taken[0]}"},
        )


def _taken(route: Route, own: frozenset[str]) -> list[str]:
    return sorted(own & route.options.keys())
