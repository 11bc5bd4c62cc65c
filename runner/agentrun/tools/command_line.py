"""From a shell tool and the arguments of a call to what is run.

Rule 1  Each element of `argv` gives exactly one element, whatever is filled in: nothing is split, expanded or quoted.
Rule 2  What is filled in does not become an option: an element that begins with a dash, and would not without what was
        filled in, is refused unless the tool has `dash_args`. After `-` or `--` alone the name of an option would be
        filled in, so that is the same.
Rule 3  The command sees the variables that its tool names and no others: no PATH, no HOME, no LANG. So it speaks the
        same language everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentrun.compiler.template import TemplateStopped, is_template, render
from agentrun.core.package_tools import ShellTool
from agentrun.net.environment import Lookup, filled, named_in

_TAG = re.compile(r"\{[{%#]")


class Refused(Exception):
    """Why a command is not run. It never shows a value."""


def arguments(tool: ShellTool, values: Mapping[str, Any]) -> list[str]:
    """The command and its arguments. Raises `Refused`."""
    return [tool.argv[0], *(_element(tool, at, values) for at in range(1, len(tool.argv)))]


def standard_input(tool: ShellTool, values: Mapping[str, Any]) -> bytes | None:
    """What the command reads. Raises `Refused`."""
    return None if tool.stdin is None else _text("stdin", tool.stdin, values).encode()


def variables(tool: ShellTool, lookup: Lookup) -> dict[str, str]:
    """The environment of the command. Raises `host.missing`."""
    return {name: filled(text, lookup) for name, text in tool.env.items()}


def secrets(tool: ShellTool, lookup: Lookup) -> Iterator[bytes]:
    """Values that the command is given and may print."""
    for text in tool.env.values():
        yield from (lookup(name).reveal().encode("utf-8", "surrogateescape") for name in named_in(text))


def _element(tool: ShellTool, at: int, values: Mapping[str, Any]) -> str:
    source, where = tool.argv[at], f"argv element {at + 1}"
    text = _text(where, source, values)
    if "\0" in text:
        raise Refused(f"{where} would hold a NUL, which no command can be given")
    fixed = source[: found.start()] if (found := _TAG.search(source)) else source
    if text.startswith("-") and not fixed.strip("-") and is_template(source) and not tool.dash_args:
        raise Refused(f"{where} would begin with a dash, and so be read as an option")
    return text


def _text(where: str, source: str, values: Mapping[str, Any]) -> str:
    if not is_template(source):
        return source
    try:
        text = render(source, values)
        text.encode()
    except TemplateStopped as stopped:
        raise Refused(f"{where} cannot be filled in: {stopped.message}") from None
    except UnicodeEncodeError:
        raise Refused(f"{where} would hold half of a surrogate pair, which is no text") from None
    return text
