"""The command line. Each command is a module of its own, imported only when it is called."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from agentrun.errors import code_of

__all__ = ["main"]


def main() -> None:
    """The console script `agentrun`."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character still gets the rest
    try:
        from agentrun.cli.group import run_command  # in here, for an interrupt while it is imported ends quietly too

        code = run_command(sys.argv[1:])
        _flush()
        _close_output()
    except BrokenPipeError:
        code = 0  # the reader of our output has gone (`| head`): that is not an error, and nothing more can be said
        _silence()
    except OSError as error:
        code = code_of("storage.failed").exit
        _silence(f"storage.failed: {error.strerror}\n")
    except KeyboardInterrupt:
        code = code_of("cancelled").exit
    except Exception as error:  # the last line of defence: an exception's text may hold a secret, so it is not shown
        if os.environ.get("AGENTRUN_TRACEBACK"):
            raise
        code = code_of("internal").exit
        _silence(_report(error))
    sys.exit(code)


def _flush() -> None:
    """Brings out what was printed while its failure can still be reported."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _close_output() -> None:
    """Nothing comes after the answer, whatever a tool has registered to be done at the exit of the process."""
    with suppress(AttributeError, OSError, ValueError):  # there is none, or it is not a file
        output = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def _silence(last_words: str = "") -> None:
    """Says one last thing; afterwards nothing that is left in a buffer can fail again."""
    try:
        if sys.stderr is not None and last_words:
            sys.stderr.write(last_words)
            sys.stderr.flush()
    except OSError:
        pass  # there is nobody left to tell
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


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
