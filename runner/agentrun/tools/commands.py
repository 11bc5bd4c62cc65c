"""From a shell tool and the arguments of a call to what is run.

Rule 1  Each element of `argv` gives exactly one element, whatever is filled in: nothing is split, expanded or quoted.
Rule 2  What is filled in does not become an option: an element that begins with a dash, and would not without what was
        filled in, is refused unless the tool has `dash_args`. After `-` or `--` alone the name of an option would be
        filled in, so that is the same.
Rule 3  The command sees the variables that its tool names and no others: no PATH, no HOME, no LANG. So it speaks the
        same language everywhere.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentrun.compiler.template import TemplateRenderError, is_template, render_template
from agentrun.core.package_tools import ShellTool
from agentrun.errors import HostError
from agentrun.net.environment import Lookup, fill_variables, variables_in
from agentrun.spec.problems import quote_text

_TAG = re.compile(r"\{[{%#]")


class CommandRefused(Exception):
    """Why a command is not run. It never shows a value."""


def build_argv(tool: ShellTool, values: Mapping[str, Any]) -> list[str]:
    """The command and its arguments. Raises `CommandRefused`."""
    return [tool.argv[0], *(_element(tool, at, values) for at in range(1, len(tool.argv)))]


def build_stdin(tool: ShellTool, values: Mapping[str, Any]) -> bytes | None:
    """What the command reads. Raises `CommandRefused`."""
    return None if tool.stdin is None else _text("stdin", tool.stdin, values).encode()


def build_environment(tool: ShellTool, lookup: Lookup) -> dict[str, str]:
    """The environment of the command. Raises `host.missing`."""
    return {name: fill_variables(text, lookup) for name, text in tool.env.items()}


def environment_secrets(tool: ShellTool, lookup: Lookup) -> Iterator[bytes]:
    """Values that the command is given and may print."""
    for text in tool.env.values():
        yield from (lookup(name).reveal().encode("utf-8", "surrogateescape") for name in variables_in(text))


def _element(tool: ShellTool, at: int, values: Mapping[str, Any]) -> str:
    source, where = tool.argv[at], f"argv element {at + 1}"
    text = _text(where, source, values)
    if "\0" in text:
        raise CommandRefused(f"{where} would hold a NUL, which no command can be given")
    fixed = source[: found.start()] if (found := _TAG.search(source)) else source
    if text.startswith("-") and not fixed.strip("-") and is_template(source) and not tool.dash_args:
        raise CommandRefused(f"{where} would begin with a dash, and so be read as an option")
    return text


def _text(where: str, source: str, values: Mapping[str, Any]) -> str:
    if not is_template(source):
        return source
    try:
        text = render_template(source, values)
        text.encode()
    except TemplateRenderError as stopped:
        raise CommandRefused(f"{where} cannot be filled in: {stopped.message}") from None
    except UnicodeEncodeError:
        raise CommandRefused(f"{where} would hold half of a surrogate pair, which is no text") from None
    return text


# --- finds the files of commands, once, when a run begins -----------------------------------------------------


def find_programs(commands: Iterable[str], root: Path) -> dict[str, str]:
    """The file of each command. Raises `host.missing` for one that is not there."""
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


_HINTS = {
    "on PATH": "install it, or name its file",
    "there": "install it, or name another file",
    "in the project": "name a file relative to the project's root, without .., or a command on PATH",
}


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
