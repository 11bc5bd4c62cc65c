"""Turn the exceptions and return values of functions into faults and texts.

Rule 1  The message is one line without secrets and without a traceback, which would show source code. The place in the
        project is a separate field, for people.
Rule 2  Only a `ToolError` with a code of `FUNCTION_FAULT_CODES` keeps its code, so that a function can end the run. Its
        fields must be plain data of limited size.
Rule 3  A text is redacted before it is shortened, because a part of a secret could not be recognised.
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

from agentrun.canonical_json import map_json
from agentrun.core import model_texts as texts
from agentrun.core.effects import ToolReturn
from agentrun.core.fault import Fault
from agentrun.core.messages import Text
from agentrun.errors import ToolError
from agentrun.secret import enc_hook, mask

FUNCTION_FAULT_CODES = ("tool.execution", "tool.fatal", "tool.aborted")
"""The codes that a function may use in a `ToolError`."""
MAX_FAULT_MESSAGE = 300
MAX_FIELD_BYTES = 16 * 1024
_OURS = os.path.realpath(Path(__file__).parents[1]) + os.sep
_FOREIGN = re.compile(r"(?:^|/)(?:\.|site-packages/)")
"""Code of others inside the project, such as a venv."""
MAX_RESULT_BYTES = 16 * 1024 * 1024


def failed_call(tool: str, message: str, text: str = "", **fields: Any) -> ToolReturn:
    """A failure that the model reads: the text of the tool, or the message."""
    return ToolReturn((Text(text),) if text else (), Fault("tool.execution", message, {"tool": tool, **fields}))


def fault_from_exception(tool: str, error: BaseException, where: str = "", *, roots: Sequence[Path] = ()) -> Fault:
    """The fault for an exception. `roots`: the folders of the function's code."""
    if isinstance(error, ToolError) and error.code in FUNCTION_FAULT_CODES and not where:
        return _tool_error_fault(tool, error)
    kind = type(error).__name__
    try:
        words = str(error)
    except BaseException:  # noqa: BLE001  # its __str__ is the function's code too
        words = texts.EXCEPTION_WITHOUT_TEXT
    message = _replace_surrogates(f"{where}{kind}: {words}" if words else f"{where}{kind}")
    at = _source_location(error, roots)
    return Fault("tool.execution", message, {"tool": tool, "error": kind, **({"at": at} if at else {})})


def _source_location(error: BaseException, roots: Sequence[Path]) -> str | None:
    """`desk.py:14`: the last line of project code in the traceback. It is for people, not for the model, and has no
    path of this machine."""
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
        return Fault("tool.execution", texts.INVALID_RESULT, {"tool": tool})
    if size > MAX_FIELD_BYTES:
        fields = {"left_out": f"{size:,} bytes"}
    return Fault(error.code, message, {**fields, "tool": tool, "reason": message}, error.hint)


def _replace_surrogates(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean_fault(fault: Fault, clean: Callable[[str], str]) -> Fault:
    """The fault without secrets, for the journal."""

    def clean_text(text: str) -> str:
        return clean_line(clean(text))

    fields = {name: map_json(value, text=clean_text, keys=True) for name, value in fault.fields.items()}
    return Fault(fault.code, clean_text(fault.message), fields, fault.hint and clean_text(fault.hint))


def clean_line(text: str) -> str:
    return mask(text).encode("utf-8", "replace").decode()[:MAX_FAULT_MESSAGE]


class NotSerializable(Exception):
    """A value cannot be converted to text for the model. The message says why."""


def result_text(value: object) -> str:
    """Convert a return value to text. Raises `NotSerializable`."""
    text = _to_json_text(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise NotSerializable(texts.RESULT_NOT_TEXT) from None
    if size > MAX_RESULT_BYTES:
        raise NotSerializable(texts.RESULT_TOO_LARGE.format(size, MAX_RESULT_BYTES))
    return text


def _to_json_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return str.__str__(value)  # only the text of a subclass, such as an enum
    try:
        plain = to_builtins(value, str_keys=True, order="deterministic", enc_hook=_dump_model)
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise NotSerializable(texts.RESULT_TOO_DEEP) from None
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise NotSerializable(texts.RESULT_NOT_JSON.format(error)) from None


def _dump_model(value: Any) -> Any:
    """The fields of a pydantic model, or of another object with `model_dump`."""
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    return dump() if callable(dump) else enc_hook(value)
