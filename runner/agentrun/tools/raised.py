"""What a function raises, as a fault.

Rule 1  One line, no traceback: that shows source, and with it whatever stands there. No secret. The place in the
        project is a field of its own, for people.
Rule 2  Only a `ToolError` with a code of `SAYS` is taken at its word: that is how a function ends the run. What it has
        to say beside its message must be plain data of a sensible size.
Rule 3  What it says is cleaned whole, before any of it is cut: half of a secret is known to nobody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import walk_tb
from typing import Any

import msgspec

from agentrun.core.facts_base import Fault
from agentrun.errors import ToolError
from agentrun.secret import mask

SAYS = ("tool.execution", "tool.fatal", "tool.aborted")
"""What a function may raise a `ToolError` with."""
LONGEST_MESSAGE = 300
MOST_FIELDS = 16 * 1024
"""Bytes of the fields of an error."""
_OURS = os.path.realpath(Path(__file__).parents[1]) + os.sep
_FOREIGN = re.compile(r"(?:^|/)(?:\.|site-packages/)")
"""What others wrote, although it is in the project: a venv, say."""
NO_RESULT = "the tool gave something that is not a result"


def fault_of(tool: str, error: BaseException, where: str = "", *, roots: Sequence[Path] = ()) -> Fault:
    """The fault of an error, in the function's own words. `roots`: where its code is."""
    if isinstance(error, ToolError) and error.code in SAYS and not where:
        return _said(tool, error)
    kind = type(error).__name__
    try:
        words = str(error)
    except BaseException:  # noqa: BLE001  # its __str__ is the function's code too
        words = "it cannot say what happened"
    message = _whole(f"{where}{kind}: {words}" if words else f"{where}{kind}")
    at = _place(error, roots)
    return Fault("tool.execution", message, {"tool": tool, "error": kind, **({"at": at} if at else {})})


def _place(error: BaseException, roots: Sequence[Path]) -> str | None:
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
    return found and _whole(found)


def _said(tool: str, error: ToolError) -> Fault:
    try:
        fields = msgspec.json.decode(msgspec.json.encode(error.fields))
        size = len(msgspec.json.encode([fields, error.hint]))
        message = _whole(str(error.message))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return Fault("tool.execution", NO_RESULT, {"tool": tool})
    if size > MOST_FIELDS:
        fields = {"left_out": f"{size:,} bytes"}
    return Fault(error.code, message, {**fields, "tool": tool, "reason": message}, error.hint)


def _whole(text: str) -> str:
    """Half of a surrogate pair is no text."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def fitted(fault: Fault, clean: Callable[[str], str]) -> Fault:
    """The fault as a journal may hold it and anybody read it."""
    fields = {name: _fitted(value, clean) for name, value in fault.fields.items()}
    hint = fault.hint and line(clean(fault.hint))
    return Fault(fault.code, line(clean(fault.message)), fields, hint)


def _fitted(value: Any, clean: Callable[[str], str]) -> Any:
    match value:
        case str():
            return line(clean(value))
        case list():
            return [_fitted(item, clean) for item in value]
        case dict():
            return {line(clean(key)): _fitted(item, clean) for key, item in value.items()}
    return value


def line(text: str) -> str:
    """A message without secrets that any journal can hold, and not all of it if it is long."""
    return mask(text).encode("utf-8", "replace").decode()[:LONGEST_MESSAGE]
