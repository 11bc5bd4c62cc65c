"""Runs commands.

Rule 1  Never through a shell: what the model writes is an argument (see `command_line.py`).
Rule 2  The file that runs is the one that was found when the run began. Its folder lies in the project, and is not
        reached through a link.
Rule 3  When a call is over, however it ended, nothing of the command runs any more (see `processes.py`).
Rule 4  What it writes is always read. More than 64 MiB end it; of less, the first and the last MiB are kept.

What the model reads is standard output as it is. Before it stands, unless the exit code is 0, a line such as
`[exit code 2]` or `[killed by SIGKILL]`; after it, if there is any, `[stderr]` and standard error.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrun.core.effects import Returned, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Text
from agentrun.core.package_tools import ShellTool
from agentrun.net.environment import Lookup
from agentrun.spec.problems import quoted
from agentrun.tools.command_line import Refused, arguments, secrets, standard_input, variables
from agentrun.tools.folders import NoFolder, folder_inside
from agentrun.tools.lines import Ended
from agentrun.tools.output import Output
from agentrun.tools.processes import KEEPER_KILLED, started

KEPT = 1024 * 1024
"""Bytes kept of the beginning and of the end of each stream."""
MOST = 64 * 1024 * 1024


class ShellTools:
    """Runs commands, never through a shell."""

    def __init__(self, root: Path, programs: Mapping[str, str], lookup: Lookup) -> None:
        """`programs` has the file of each command."""
        self._root = root
        self._programs = programs
        self._lookup = lookup

    async def run(self, call: RunTool) -> Returned:
        tool = call.tool
        assert isinstance(tool, ShellTool)
        values = {**call.params, "args": call.arguments}
        try:
            argv = arguments(tool, values)
            given = standard_input(tool, values)
        except Refused as refused:
            return _failed(call, str(refused), reason="arguments")
        out, err = (Output(head=KEPT, tail=KEPT, most=MOST) for _ in range(2))
        try:
            ended = await self._ended(tool, argv, given, out, err)
        except (OSError, ValueError) as error:
            if error.args == (KEEPER_KILLED,):  # so early that nobody knows whether it had begun
                return _failed(call, _sentence(Ended()), **_evidence(Ended()))
            return _failed(call, self._why_not(tool, error), reason="start")
        known = tuple(secrets(tool, self._lookup))
        text = _text(ended, out.text(known), err.text(known))
        if out.is_flood or err.is_flood:
            return _failed(call, f"the command wrote more than {MOST:,} bytes and was stopped", text, reason="output")
        if ended.code in tool.exits:
            return Returned((Text(text),))
        return _failed(call, _sentence(ended), text, **_evidence(ended))

    async def _ended(self, tool: ShellTool, argv: list[str], given: bytes | None, out: Output, err: Output) -> Ended:
        program = self._programs[tool.argv[0]]
        with folder_inside(self._root, tool.cwd) as folder:
            async with started(
                program,
                [program, *argv[1:]],  # by its file, as a venv's Python has to be called, and with the same last name
                env=variables(tool, self._lookup),
                folder=folder,
                grace=tool.grace,
                stdin=given is not None,
                stdout=out,
                stderr=err,
            ) as process:
                if given is not None:
                    process.stdin.write(given)
                    process.stdin.close()
                return await process.ended()

    def _why_not(self, tool: ShellTool, error: OSError | ValueError) -> str:
        """Why a command did not run: no path of this machine is in it."""
        if not isinstance(error, OSError):
            return "the command was not run: no program can be given a NUL"
        if isinstance(error, NoFolder):
            where = f"{quoted(tool.cwd)} is not a folder of the project, or is reached through a link"
            return f"the command was not run: {where}"
        if error.errno == errno.E2BIG:
            return "the command was not run: its arguments are longer than this system allows"
        why = error.strerror or str(error)
        if error.errno == errno.ENOEXEC:
            why = "it is neither a program for this machine nor a script that begins with #!"
        elif error.errno == errno.ENOENT and Path(self._programs[tool.argv[0]]).exists():
            why = "the program that is to run it, named in its first line, is not there"
        return f"the command {quoted(tool.argv[0])} was not run: {why}"


def _text(ended: Ended, out: str, err: str) -> str:
    """What the model reads."""
    status = "" if ended.code == 0 else f"[{_words(ended)}]\n"
    line = "\n" if err and out and not out.endswith("\n") else ""
    return f"{status}{out}{line}" + (f"[stderr]\n{err}" if err else "")


def _words(ended: Ended) -> str:
    if ended.code is not None:
        return f"exit code {ended.code}"
    return f"killed by {_name(ended.signal)}" if ended.signal is not None else "not known how it ended"


def _sentence(ended: Ended) -> str:
    if ended == Ended():
        return "the command killed the process that kept it, and was killed"
    return f"the command {'was' if ended.code is None else 'ended with'} {_words(ended)}"


def _evidence(ended: Ended) -> dict[str, Any]:
    if ended.code is not None:
        return {"exit": ended.code}
    return {"signal": _name(ended.signal)} if ended.signal is not None else {"reason": "keeper"}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _failed(call: RunTool, message: str, text: str = "", **fields: Any) -> Returned:
    """A failure that the model reads: what the command wrote, or why it did not run."""
    return Returned((Text(text),) if text else (), Fault("tool.execution", message, {"tool": call.name, **fields}))
