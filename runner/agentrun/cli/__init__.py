"""The command line. Each command is a module of its own, imported only when it is called."""

from __future__ import annotations

import os
import sys

from agentrun.errors import code_of

__all__ = ["main"]


def main() -> None:
    """The console script `agentrun`."""
    from agentrun.cli.group import agentrun

    try:
        agentrun(prog_name="agentrun", standalone_mode=True)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): that is not an error, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:  # the last line of defence: an exception's text may hold a secret, so it is not shown
        if os.environ.get("AGENTRUN_TRACEBACK"):
            raise
        sys.stderr.write(_report(error))
        sys.exit(code_of("internal").exit)


def _report(error: Exception) -> str:
    """Where our own mistake is, without anything the user gave."""
    frame = error.__traceback__
    place = "?"
    while frame is not None:
        if "agentrun" in frame.tb_frame.f_code.co_filename:
            place = f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}"
        frame = frame.tb_next
    return (
        f"internal: {type(error).__name__} at {place}. This is a mistake in agentrun, not in your spec.\n"
        "  → set AGENTRUN_TRACEBACK=1 to see where it comes from, and report it\n"
    )
