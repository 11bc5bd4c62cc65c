"""What a function gave, as the text that a model reads.

Rule 1  A text stays as it is, None is the empty text, everything else is compact JSON.
Rule 2  A value that JSON does not have is refused and never written as another one: not a number, a cycle, half of
        a surrogate pair, an object without fields.
Rule 3  Sets and the keys of mappings are sorted: the same value gives the same text in every process.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import to_builtins

from agentrun.secret import enc_hook

MOST_BYTES = 16 * 1024 * 1024


class NoText(Exception):
    """Why a value cannot be given to a model."""


def as_text(value: object) -> str:
    """The text of a value. Raises `NoText`."""
    text = _written(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise NoText("the result holds half of a surrogate pair, which is no text") from None
    if size > MOST_BYTES:
        raise NoText(f"the result has {size:,} bytes; the limit is {MOST_BYTES:,}")
    return text


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass, such as an enum of texts, only the text
    try:
        plain = to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plainer)
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise NoText("the result cannot be written as JSON: it contains itself, or is nested too deeply") from None
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise NoText(f"the result cannot be written as JSON: {error}") from None


def _plainer(value: Any) -> Any:
    """The fields of a model of pydantic, or of what dumps itself as those do."""
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    return dump() if callable(dump) else enc_hook(value)
