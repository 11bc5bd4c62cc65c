"""Run many `agentrun` commands in one process, and measure the output, steps and memory of each.

Starting a process for each would take a quarter of a second a piece. The memory of one command is what the process has
at its highest beyond what it had before; `/proc/self/clear_refs` forgets the height between two commands.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import steps
from .cli import forked_command

MIB = 1024 * 1024
STEPS = 12_000_000
"""The most for one command, `steps.py` says of what. The costliest project under attack takes 3.6 million."""

SCRIPT = (
    Path(steps.__file__).read_text(encoding="utf-8")
    + """
import contextlib, io, json, os, resource, sys, warnings
from pathlib import Path
from agentrun.cli import main

warnings.simplefilter("error")
STATUS, HEIGHT = Path("/proc/self/status"), Path("/proc/self/clear_refs")

def highest():
    if STATUS.exists():
        return int(STATUS.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

def forget():
    if HEIGHT.exists():
        HEIGHT.write_text("5")
    return highest()

def command(folder, args):
    os.chdir(folder)
    sys.argv = ["agentrun", *args]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}

def measured(folder, args):
    before, stopped = forget(), None
    try:
        with at_most(cases["steps"]):
            result = command(folder, args)
    except AssertionError as error:
        result, stopped = {"code": 1, "out": "", "err": ""}, str(error)
    return {**result, "stopped": stopped, "memory": highest() - before}

cases = json.loads(sys.stdin.read())
for folder, args in cases["warm"]:
    command(folder, args)
print(json.dumps([measured(folder, args) for folder, args in cases["cases"]]))
"""
)


class MeasuredCommand:
    """A command that has ended."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.code: int = raw["code"]
        self.out: str = raw["out"]
        self.err: str = raw["err"]
        self.memory: int = raw["memory"]

    @property
    def output(self) -> str:
        return self.out + self.err


Case = tuple[Path, Sequence[str]]


def run(cases: Sequence[Case], warm: Sequence[Case] = (), script: str = SCRIPT) -> list[MeasuredCommand]:
    """Runs `agentrun ARGS` in each folder. What `warm` runs is not counted: imports, the schema, the first lexer."""
    listed = {
        "steps": STEPS,
        "cases": [[str(folder), list(args)] for folder, args in cases],
        "warm": [[str(folder), list(args)] for folder, args in warm],
    }
    done = _run_script(script, json.dumps(listed).encode())
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    for (folder, args), raw in zip(cases, results, strict=True):
        assert raw["stopped"] is None, (folder.name, args, raw["stopped"])
    return [MeasuredCommand(raw) for raw in results]


def _run_script(script: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    """In a copy of a process that waits (`cli/forked_command.py`), where there can be one."""
    environment = {name: value for name, value in os.environ.items() if forked_command.can_fork([name])}
    if environment:
        return forked_command.run([], Path.cwd(), environment, stdin, 600, script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", script], input=stdin, env=environment, capture_output=True, timeout=600, check=False
    )
