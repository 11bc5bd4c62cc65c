"""Run shell tools.

Rule 1  Commands never run through a shell. Each element of `argv` becomes exactly one argument. Nothing is split,
        expanded or quoted.
Rule 2  A value cannot become an option: an element that begins with a dash only because of a value is refused, unless
        the tool has `dash_args`. The same applies to a value after a fixed `-` or `--`.
Rule 3  The command gets only the variables that its tool names: no PATH, HOME or LANG. So its language is the same
        everywhere.
Rule 4  The program file is the one that was found at the start of the run. The working directory is inside the project,
        and its path contains no symbolic link.
Rule 5  Output is always read. With more than 64 MiB the command is stopped. The first and the last MiB are kept.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentrun.compiler.template import TemplateRenderError, is_template, render_template
from agentrun.core import model_texts as texts
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.messages import Text
from agentrun.core.package_tools import ShellTool
from agentrun.errors import HostError
from agentrun.net.environment import Lookup, fill_variables, variables_in
from agentrun.spec.problems import quote_text
from agentrun.tools.call_results import failed_call
from agentrun.tools.processes import SUPERVISOR_KILLED, FolderNotFound, open_folder, start_process
from agentrun.tools.supervisor_client import BoundedOutput, ProcessExit

KEPT_BYTES = 1024 * 1024
"""The number of bytes that are kept of the beginning and the end of each stream."""
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_TAG = re.compile(r"\{[{%#]")
_HINTS = {
    "on PATH": "install it, or use the path of its file",
    "there": "install it, or use another path",
    "in the project": "use a path relative to the root of the project, without .., or a command on PATH",
}


class ShellTools:
    def __init__(self, root: Path, programs: Mapping[str, str], lookup: Lookup) -> None:
        """`programs`: the file of each command."""
        self._root = root
        self._programs = programs
        self._lookup = lookup

    async def run(self, call: RunTool) -> ToolReturn:
        tool = call.tool
        assert isinstance(tool, ShellTool)
        values = {**call.params, "args": call.arguments}
        try:
            argv = build_argv(tool, values)
            given = build_stdin(tool, values)
        except CommandRefused as refused:
            return failed_call(call.name, str(refused), reason="arguments")
        out, err = (BoundedOutput(head=KEPT_BYTES, tail=KEPT_BYTES, most=MAX_OUTPUT_BYTES) for _ in range(2))
        try:
            ended = await self._run_command(tool, argv, given, out, err)
        except (OSError, ValueError) as error:
            if error.args == (SUPERVISOR_KILLED,):  # it is unknown whether the command had started
                return failed_call(call.name, texts.command_failed(None, None), **_exit_fields(ProcessExit()))
            return failed_call(call.name, self._start_failure(tool, error), reason="start")
        known = tuple(environment_secrets(tool, self._lookup))
        text = _result_text(ended, out.text(known), err.text(known))
        if out.is_flood or err.is_flood:
            return failed_call(call.name, texts.OUTPUT_TOO_LARGE.format(MAX_OUTPUT_BYTES), text, reason="output")
        if ended.code in tool.exits:
            return ToolReturn((Text(text),))
        return failed_call(call.name, texts.command_failed(ended.code, ended.signal_name), text, **_exit_fields(ended))

    async def _run_command(
        self, tool: ShellTool, argv: list[str], given: bytes | None, out: BoundedOutput, err: BoundedOutput
    ) -> ProcessExit:
        program = self._programs[tool.argv[0]]
        with open_folder(self._root, tool.cwd) as folder:
            async with start_process(
                program,
                [program, *argv[1:]],  # the full path, because the Python of a venv needs it
                env=build_environment(tool, self._lookup),
                folder=folder,
                grace=tool.grace,
                stdin=given is not None,
                stdout=out,
                stderr=err,
            ) as process:
                if given is not None:
                    process.stdin.write(given)
                    process.stdin.close()
                return await process.wait()

    def _start_failure(self, tool: ShellTool, error: OSError | ValueError) -> str:
        """Why a command did not run, without paths of this machine."""
        if not isinstance(error, OSError):
            return texts.COMMAND_NUL
        if isinstance(error, FolderNotFound):
            return texts.FOLDER_UNUSABLE.format(quote_text(tool.cwd))
        if error.errno == errno.E2BIG:
            return texts.COMMAND_TOO_LONG
        why = error.strerror or str(error)
        if error.errno == errno.ENOEXEC:
            why = texts.NOT_A_PROGRAM
        elif error.errno == errno.ENOENT and Path(self._programs[tool.argv[0]]).exists():
            why = texts.INTERPRETER_MISSING
        return texts.COMMAND_NOT_RUN.format(quote_text(tool.argv[0]), why)


def _result_text(ended: ProcessExit, out: str, err: str) -> str:
    status = "" if ended.code == 0 else f"[{texts.exit_status(ended.code, ended.signal_name)}]\n"
    line = "\n" if err and out and not out.endswith("\n") else ""
    return f"{status}{out}{line}" + (f"{texts.STDERR}\n{err}" if err else "")


def _exit_fields(ended: ProcessExit) -> dict[str, Any]:
    if ended.code is not None:
        return {"exit": ended.code}
    return {"reason": "supervisor"} if ended.signal is None else {"signal": ended.signal_name}


# --- the command line -------------------------------------------------------------------------------------------------


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


# --- the program file -------------------------------------------------------------------------------------------------


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
