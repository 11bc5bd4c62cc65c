"""Run shell tools.

Rule 1  Commands never run through a shell: the texts of the model are arguments (see `commands.py`).
Rule 2  The program file is the one that was found at the start of the run. The working directory is inside the project,
        and its path contains no symbolic link.
Rule 3  Output is always read. With more than 64 MiB the command is stopped. The first and the last MiB are kept.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrun.core import model_texts as texts
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.messages import Text
from agentrun.core.package_tools import ShellTool
from agentrun.net.environment import Lookup
from agentrun.spec.problems import quote_text
from agentrun.tools.call_results import failed_call
from agentrun.tools.commands import CommandRefused, build_argv, build_environment, build_stdin, environment_secrets
from agentrun.tools.processes import SUPERVISOR_KILLED, FolderNotFound, open_folder, start_process
from agentrun.tools.supervisor_client import BoundedOutput, ProcessExit

KEPT_BYTES = 1024 * 1024
"""The number of bytes that are kept of the beginning and the end of each stream."""
MAX_OUTPUT_BYTES = 64 * 1024 * 1024


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
