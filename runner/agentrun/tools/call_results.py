"""What a function raises, as a fault.

Rule 1  One line, no traceback: that shows source, and with it whatever stands there. No secret. The place in the
        project is a field of its own, for people.
Rule 2  Only a `ToolError` with a code of `FUNCTION_FAULT_CODES` is taken at its word: that is how a function ends the
        run. What it has to say beside its message must be plain data of a sensible size.
Rule 3  What it says is cleaned whole, before any of it is cut: half of a secret is known to nobody.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import walk_tb
from typing import Any

import msgspec
from msgspec import to_builtins

from agentrun.core.fault import Fault
from agentrun.errors import ToolError
from agentrun.secret import enc_hook, mask

FUNCTION_FAULT_CODES = ("tool.execution", "tool.fatal", "tool.aborted")
"""What a function may raise a `ToolError` with."""
MAX_FAULT_MESSAGE = 300
MAX_FIELD_BYTES = 16 * 1024
"""Bytes of the fields of an error."""
_OURS = os.path.realpath(Path(__file__).parents[1]) + os.sep
_FOREIGN = re.compile(r"(?:^|/)(?:\.|site-packages/)")
"""What others wrote, although it is in the project: a venv, say."""
NO_RESULT = "the tool gave something that is not a result"


def fault_from_exception(tool: str, error: BaseException, where: str = "", *, roots: Sequence[Path] = ()) -> Fault:
    """The fault of an error, in the function's own words. `roots`: where its code is."""
    if isinstance(error, ToolError) and error.code in FUNCTION_FAULT_CODES and not where:
        return _tool_error_fault(tool, error)
    kind = type(error).__name__
    try:
        words = str(error)
    except BaseException:  # noqa: BLE001  # its __str__ is the function's code too
        words = "it cannot say what happened"
    message = _replace_surrogates(f"{where}{kind}: {words}" if words else f"{where}{kind}")
    at = _source_location(error, roots)
    return Fault("tool.execution", message, {"tool": tool, "error": kind, **({"at": at} if at else {})})


def _source_location(error: BaseException, roots: Sequence[Path]) -> str | None:
    """`desk.py:14`: the last line of the project's own code that it came through. For people, not for the model, and
    without a path of this machine."""
    found = None
    for frame, line in walk_tb(error.__traceback__):
        file = os.path.realpath(frame.f_code.co_filename)
        if file.startswith(_OURS):
            continue
        for root in map(os.path.realpath, roots):
            inside = os.path.relpath(file, root)
            if file.startswith(root + os.sep) and not _FOREIGN.search(inside):
                found = f"{inside}:{line}"
                break
    return found and _replace_surrogates(found)


def _tool_error_fault(tool: str, error: ToolError) -> Fault:
    try:
        fields = msgspec.json.decode(msgspec.json.encode(error.fields))
        size = len(msgspec.json.encode([fields, error.hint]))
        message = _replace_surrogates(str(error.message))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return Fault("tool.execution", NO_RESULT, {"tool": tool})
    if size > MAX_FIELD_BYTES:
        fields = {"left_out": f"{size:,} bytes"}
    return Fault(error.code, message, {**fields, "tool": tool, "reason": message}, error.hint)


def _replace_surrogates(text: str) -> str:
    """Half of a surrogate pair is no text."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean_fault(fault: Fault, clean: Callable[[str], str]) -> Fault:
    """The fault as a journal may hold it and anybody read it."""
    fields = {name: _clean_value(value, clean) for name, value in fault.fields.items()}
    hint = fault.hint and clean_line(clean(fault.hint))
    return Fault(fault.code, clean_line(clean(fault.message)), fields, hint)


def _clean_value(value: Any, clean: Callable[[str], str]) -> Any:
    match value:
        case str():
            return clean_line(clean(value))
        case list():
            return [_clean_value(item, clean) for item in value]
        case dict():
            return {clean_line(clean(key)): _clean_value(item, clean) for key, item in value.items()}
    return value


def clean_line(text: str) -> str:
    """A message without secrets that any journal can hold, and not all of it if it is long."""
    return mask(text).encode("utf-8", "replace").decode()[:MAX_FAULT_MESSAGE]


# --- what a function gave, as the text that a model reads -----------------------------------------------------


MAX_RESULT_BYTES = 16 * 1024 * 1024


class NotSerializable(Exception):
    """Why a value cannot be given to a model."""


def result_text(value: object) -> str:
    """The text of a value. Raises `NotSerializable`."""
    text = _to_json_text(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise NotSerializable("the result holds half of a surrogate pair, which is no text") from None
    if size > MAX_RESULT_BYTES:
        raise NotSerializable(f"the result has {size:,} bytes; the limit is {MAX_RESULT_BYTES:,}")
    return text


def _to_json_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass, such as an enum of texts, only the text
    try:
        plain = to_builtins(value, str_keys=True, order="deterministic", enc_hook=_dump_model)
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise NotSerializable(
            "the result cannot be written as JSON: it contains itself, or is nested too deeply"
        ) from None
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise NotSerializable(f"the result cannot be written as JSON: {error}") from None


def _dump_model(value: Any) -> Any:
    """The fields of a model of pydantic, or of what dumps itself as those do."""
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    return dump() if callable(dump) else enc_hook(value)
