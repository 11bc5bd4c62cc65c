"""Build the command of a shell tool call, and find the files of commands.

Rule 1  Each element of `argv` becomes exactly one argument. Nothing is split, expanded or quoted.
Rule 2  A value cannot become an option: an element that begins with a dash only because of a value is refused, unless
        the tool has `dash_args`. The same applies to a value after a fixed `-` or `--`.
Rule 3  The command gets only the variables that its tool names: no PATH, HOME or LANG. So its language is the same
        everywhere.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentrun.compiler.template import TemplateRenderError, is_template, render_template
from agentrun.core import model_texts as texts
from agentrun.core.package_tools import ShellTool
from agentrun.errors import HostError
from agentrun.net.environment import Lookup, fill_variables, variables_in
from agentrun.spec.problems import quote_text

_TAG = re.compile(r"\{[{%#]")
_HINTS = {
    "on PATH": "install it, or use the path of its file",
    "there": "install it, or use another path",
    "in the project": "use a path relative to the root of the project, without .., or a command on PATH",
}


class CommandRefused(Exception):
    """Why a command is not run. It never shows a value."""


def build_argv(tool: ShellTool, values: Mapping[str, Any]) -> list[str]:
    """The command and its arguments. Raises `CommandRefused`."""
    return [tool.argv[0], *(_element(tool, at, values) for at in range(1, len(tool.argv)))]


def build_stdin(tool: ShellTool, values: Mapping[str, Any]) -> bytes | None:
    """The standard input of the command. Raises `CommandRefused`."""
    return None if tool.stdin is None else _text("stdin", tool.stdin, values).encode()


def build_environment(tool: ShellTool, lookup: Lookup) -> dict[str, str]:
    """The environment of the command. Raises `host.missing`."""
    return {name: fill_variables(text, lookup) for name, text in tool.env.items()}


def environment_secrets(tool: ShellTool, lookup: Lookup) -> Iterator[bytes]:
    for text in tool.env.values():
        yield from (lookup(name).reveal().encode("utf-8", "surrogateescape") for name in variables_in(text))


def _element(tool: ShellTool, at: int, values: Mapping[str, Any]) -> str:
    source, where = tool.argv[at], f"argv element {at + 1}"
    text = _text(where, source, values)
    if "\0" in text:
        raise CommandRefused(texts.ARGUMENT_NUL.format(where))
    fixed = source[: found.start()] if (found := _TAG.search(source)) else source
    if text.startswith("-") and not fixed.strip("-") and is_template(source) and not tool.dash_args:
        raise CommandRefused(texts.ARGUMENT_DASH.format(where))
    return text


def _text(where: str, source: str, values: Mapping[str, Any]) -> str:
    if not is_template(source):
        return source
    try:
        text = render_template(source, values)
        text.encode()
    except TemplateRenderError as stopped:
        raise CommandRefused(texts.ARGUMENT_TEMPLATE_FAILED.format(where, stopped.message)) from None
    except UnicodeEncodeError:
        raise CommandRefused(texts.ARGUMENT_NOT_TEXT.format(where)) from None
    return text


def find_programs(commands: Iterable[str], root: Path) -> dict[str, str]:
    """Find the file of each command, at the start of a run. Raises `host.missing`."""
    return {command: _find_program(command, root) for command in commands}


def _find_program(command: str, root: Path) -> str:
    where = "on PATH"
    if os.path.isabs(command):
        where = "there"
    elif "/" in command:
        where = "in the project"
    for path in _candidate_files(command, root):
        if _is_program(path):
            return path
    fields = {"name": command, "what": "command"}
    hint = "make it an executable file" if os.path.exists(next(_candidate_files(command, root), "")) else _HINTS[where]
    raise HostError("host.missing", f"the command {quote_text(command)} is not {where}", hint=hint, fields=fields)


def _candidate_files(command: str, root: Path) -> Iterator[str]:
    if "\0" in command:
        return
    if os.path.isabs(command):
        yield command
    elif "/" in command:
        if ".." not in command.split("/"):
            yield os.path.normpath(os.path.join(os.path.realpath(root), command))
    else:
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        yield from (os.path.join(folder, command) for folder in folders if os.path.isabs(folder))


def _is_program(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK)
    except OSError:
        return False
