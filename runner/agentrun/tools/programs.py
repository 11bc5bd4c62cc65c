"""Finds the files of commands, once, when a run begins.

Rule 1  A bare name is looked for in the absolute folders of PATH: never in the working directory. A path with a slash
        is relative to the project's root and stays inside it, or is absolute.
Rule 2  It must be an executable file. What is found is what runs, whatever PATH or a folder of it says later. A link
        stays a link: a program may do as it is called, and a venv's Python finds its venv by the link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentrun.errors import HostError
from agentrun.spec.problems import quoted


def found_programs(commands: Iterable[str], root: Path) -> dict[str, str]:
    """The file of each command. Raises `host.missing` for one that is not there."""
    return {command: _found(command, root) for command in commands}


def _found(command: str, root: Path) -> str:
    where = "on PATH"
    if os.path.isabs(command):
        where = "there"
    elif "/" in command:
        where = "in the project"
    for path in _places(command, root):
        if _is_program(path):
            return path
    fields = {"name": command, "what": "command"}
    hint = "make it an executable file" if os.path.exists(next(_places(command, root), "")) else _HINTS[where]
    raise HostError("host.missing", f"the command {quoted(command)} is not {where}", hint=hint, fields=fields)


_HINTS = {
    "on PATH": "install it, or name its file",
    "there": "install it, or name another file",
    "in the project": "name a file relative to the project's root, without .., or a command on PATH",
}


def _places(command: str, root: Path) -> Iterator[str]:
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
