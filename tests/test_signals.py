"""Processes that tests start are ended by signals, however pytest itself was started."""

import subprocess
import sys
from pathlib import Path

PYTEST = """
import os, runpy, signal, subprocess, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
    signal.signal(number, signal.SIG_IGN)
runpy.run_path(sys.argv[1])
child = "import signal; print([n.name for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN])"
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    os.kill(os.getpid(), number)
subprocess.run([sys.executable, "-c", child], check=True)
"""


def test_started_processes_do_not_inherit_ignored_signals() -> None:
    """As `nohup` and a shell's `&` start it: pytest ignores them still, and what it starts does not."""
    conftest = str(Path(__file__).with_name("conftest.py"))
    done = subprocess.run([sys.executable, "-c", PYTEST, conftest], capture_output=True, text=True, check=False)
    python = ["SIGPIPE", "SIGXFSZ"]  # Python itself ignores these
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{python}\n", "")
