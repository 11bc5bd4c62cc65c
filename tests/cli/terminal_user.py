"""Run the real command in a pseudo-terminal, read its screen and type answers."""

from __future__ import annotations

import fcntl
import os
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Any

from ..report.terminals import Terminal, terminal
from . import forked_command
from .command import SCRIPT
from .shop_project import Project

PATIENCE = 60
"""Seconds that a command may take to show something, on a machine that has much to do."""


class Person:
    """Looks at the terminal and types."""

    def __init__(self, seen: Terminal, run: subprocess.Popen[bytes] | forked_command.Copy, out: FileIO) -> None:
        self.seen = seen
        self.run = run
        self._out = out

    @property
    def shown(self) -> str:
        return self.seen.shown

    def until(self, *texts: str) -> str:
        """Wait until all of this is shown. All that is."""
        self.seen.until(lambda shown: all(text in shown for text in texts), PATIENCE)
        return self.shown

    def until_times(self, text: str, count: int) -> str:
        """Wait until a text is shown so often. All that is."""
        self.seen.until(lambda shown: shown.count(text) == count, PATIENCE)
        return self.shown

    def type(self, text: str) -> None:
        os.write(self.seen.master, text.encode())

    def end(self) -> tuple[int, str]:
        """The exit code, and what is shown in the end."""
        said = forked_command.listen([self._out], time.monotonic() + PATIENCE)
        assert said is not None, self.shown
        self.out = said[0].decode()
        code = self.run.wait(PATIENCE)
        self.seen.drained()
        return code, self.shown.rpartition("<")[0].rstrip()


def _owns_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def at_terminal(
    shop: Project, environment: dict[str, str], *args: str, columns: int = 80, rows: int = 30, **given: Any
) -> Iterator[Person]:
    """The command in a terminal of its own: `term` is what the terminal is called.

    It is a copy of a process that waits (`forked_command.py`), unless Python must start: `fresh`, or another
    `command` is given.
    """
    env = {"PATH": os.environ["PATH"], "TERM": given.get("term", "xterm"), "LANG": "C.UTF-8", **environment}
    ours, theirs = os.pipe()
    run: subprocess.Popen[bytes] | forked_command.Copy
    with open(ours, "rb", buffering=0) as out, terminal(columns, rows) as seen:
        screen = seen.stream.fileno()
        if "command" in given or given.get("fresh") or not forked_command.can_fork(environment):
            run = subprocess.Popen(
                given.get("command", [SCRIPT, "shop.yaml", *args]),
                cwd=shop.root,
                env=env,
                stdin=screen,
                stdout=theirs,
                stderr=screen,
                preexec_fn=_owns_terminal,  # noqa: PLW1509  # one thread only reads
            )
        else:
            run = forked_command.Copy(["shop.yaml", *args], shop.root, env, [screen, theirs, screen], terminal=True)
        os.close(theirs)
        try:
            yield Person(seen, run, out)
        finally:
            run.kill()
            run.wait()
