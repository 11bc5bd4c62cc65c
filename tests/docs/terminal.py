"""A terminal that runs the commands of a documentation page one after the other.

Rule 1  Every command is run, by a shell, with nothing of our own environment but PATH. Where the shell would have
        nothing to do but to start `agentrun`, a copy of a process that waits is used (`cli/forked_command.py`).
Rule 2  What the page shows under a command is what is printed. A line `…` stands for lines that the page leaves out;
        under a command with nothing below it nothing is compared.
Rule 3  A command ends with the exit code of the error that the page shows, else with 0.
Rule 4  A provider is what it would be in a second terminal: it runs until the next one is started, or the page ends.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from agentrun.errors import ERROR_CODES

from ..cli import forked_command

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PORT = "8099"
"""The port of the pages. Here it may be taken, so another one is."""

_FOR_A_SHELL = re.compile(r"[|&;<>()$`*?~#!\[\]{}]")
"""What a shell would do something about. Quotes are read as it reads them."""
_ERROR = re.compile(r"^([a-z]+\.[a-z_]+)(?: in turn \d+)?: ", re.MULTILINE)
_PROBLEM = re.compile(r"^\S+:\d+:\d+  spec\.", re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """The kind and the text of each block of a page."""
    return re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)


def steps(console: str) -> list[tuple[str, str]]:
    """Each command of a console block with what is shown under it."""
    found = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    return [(step.partition("\n")[0], step.partition("\n")[2]) for step in found]


def fits(shown: str, printed: str) -> bool:
    """Whether what is shown is what was printed, but for what is left out."""
    lines = [r"(?:.*\n)*?" if line == "…" else re.escape(line) + r"\n" for line in shown.splitlines()]
    return not shown or re.fullmatch("".join(lines), printed) is not None


def exit_code(command: str, shown: str) -> int:
    """How a command ends that shows this."""
    if command.startswith("agentrun test "):
        return 1 if " failed\n" in shown else 3 if " missed\n" in shown else 0
    if error := _ERROR.search(shown):
        return ERROR_CODES[error[1]].exit
    return 2 if _PROBLEM.search(shown) else int(command.startswith("agentrun diff "))


class Terminal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
        self._environment["XDG_STATE_HOME"] = f"{folder}.state"
        self._provider: subprocess.Popen[str] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = str(free.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._end_provider()

    def follow(self, console: str) -> None:
        """Type the commands of a block, and see that everything is as it is shown."""
        for command, shown in steps(console):
            code, printed = self.type(command)
            assert "Traceback" not in printed, printed
            assert code == exit_code(command, shown), f"$ {command}\n{printed}"
            assert fits(shown, printed), f"$ {command}\n{printed}"

    def type(self, command: str) -> tuple[int, str]:
        """The exit code, and what is printed."""
        typed = command.replace(PORT, self._port)
        words = shlex.split(typed)
        match words[0]:
            case "export":
                for word in words[1:]:
                    name, _, value = word.partition("=")
                    self._environment[name] = value
                return 0, ""
            case "unset":
                for name in words[1:]:
                    del self._environment[name]
                return 0, ""
            case "make":
                typed = _recipe(words[1:])
        printed = self._serve(typed) if words[:2] == ["agentrun", "provider"] else None
        if printed is not None:
            return 0, printed.replace(self._port, PORT)
        if words[0] == "agentrun" and not _FOR_A_SHELL.search(typed) and forked_command.can_fork(self._environment):
            return self._copied(words[1:])
        done = subprocess.run(
            ["/bin/sh", "-c", typed],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout.replace(self._port, PORT)

    def _copied(self, args: list[str]) -> tuple[int, str]:
        ours, theirs = os.pipe()
        with open(ours, "rb", buffering=0) as out, open(os.devnull, "rb") as null, open(theirs, "wb") as both:
            streams = [null.fileno(), both.fileno(), both.fileno()]
            copy = forked_command.Copy(args, self._folder, self._environment, streams)
            both.close()
            said = forked_command.listen([out], time.monotonic() + 60)
            if said is None:
                copy.kill()
            code = copy.wait()
        assert said is not None, args
        return code, said[0].decode().replace(self._port, PORT)

    def _serve(self, command: str) -> str:
        """The line with which a provider says that it is there."""
        self._end_provider()
        self._provider = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._provider.stdout is not None
        return self._provider.stdout.readline()

    def _end_provider(self) -> None:
        if self._provider is not None:
            with self._provider as ended:
                ended.terminate()


def _recipe(targets: list[str]) -> str:
    """What make does for a target once the environment is there."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", *targets], cwd=ROOT, capture_output=True, text=True, check=True
    )
    command = done.stdout.strip().splitlines()[-1].removeprefix("@")
    program, _, rest = command.partition(" ")
    return f"{shlex.quote(str(BIN / Path(program).name))} {rest}"
