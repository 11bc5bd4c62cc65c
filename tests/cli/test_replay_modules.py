"""A replay runs code of a limited number of our modules."""

import subprocess
import sys

from .command import ROOT

MOST = 119
COUNT = """
import sys

entered = set()

def is_importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__", "").startswith("agentrun"):
            return True
        frame = frame.f_back
    return False

def note(frame, event, _):
    module = frame.f_globals.get("__name__", "")
    is_function = frame.f_code.co_flags & 2  # not a class body
    if event == "call" and module.startswith("agentrun") and module not in entered and is_function:
        if not is_importing(frame):
            entered.add(module)

sys.setprofile(note)
from agentrun.cli.group import run_command
code = run_command(["specs/support.yaml", "--quiet"])
sys.setprofile(None)
print(code, *sorted(entered), file=sys.stderr)
"""


def test_a_replay_enters_few_modules() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], cwd=ROOT, capture_output=True, text=True, check=True)
    code, *entered = done.stderr.split()
    assert code == "0"
    assert {"agentrun.cli.run", "agentrun.engine.driver", "agentrun.core.decide"} <= set(entered)
    assert len(entered) <= MOST
