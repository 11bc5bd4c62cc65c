"""The command line. Each command is a module, imported only when the command is used."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from traceback import format_exception
from types import FrameType

from agentrun.errors import code_of
from agentrun.tools import process_owner

__all__ = ["early_interrupts", "main"]

early_interrupts: list[int] = []
"""Signals that came before the run could handle them. Libraries catch `KeyboardInterrupt` while they are imported or
call back, so the exception alone may be lost."""


def main() -> None:
    """The console script `agentrun`."""
    process_owner.is_owned = True
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as for a background job of a script
    try:
        if not is_ignored:
            signal.signal(signal.SIGINT, _interrupt)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character gets the rest
        from agentrun.cli.group import run_command  # in here, so that Ctrl-C during this import is handled too

        code = run_command(sys.argv[1:])
        if early_interrupts:  # and the command did not notice
            code = code_of("cancelled").exit
        _finish_output()
        if not is_ignored:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # while Python ends, a handler could only print a traceback
    except BrokenPipeError:
        code = 0  # the reader of our output has closed the pipe (`| head`), which is not an error
        _silence()
    except OSError as error:
        code = code_of("storage.failed").exit
        _silence(f"storage.failed: {error.strerror}\n")
    except KeyboardInterrupt:
        code = code_of("cancelled").exit
    except Exception as error:  # noqa: BLE001  # its text may contain a secret, so it is not shown as it is
        if early_interrupts:  # Python turns what is raised in `__set_name__` into a RuntimeError
            sys.exit(code_of("cancelled").exit)
        code = code_of("internal").exit
        _silence(_report(error))
    sys.exit(code)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    early_interrupts.append(number)
    raise KeyboardInterrupt


def _finish_output() -> None:
    """Flush while a failure can still be reported, then close standard output: `atexit` functions of a tool must not
    print there."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with suppress(AttributeError, OSError, ValueError):  # there is no standard output, or it is not a file
        output = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def _silence(message: str = "") -> None:
    """Print a last message, then discard the buffers so that writing them cannot fail again."""
    with suppress(OSError):
        if sys.stderr is not None and message:
            sys.stderr.write(message)
            sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


def _report(error: Exception) -> str:
    """Where the bug is, without any data of the user, or its traceback without secrets."""
    if os.environ.get("AGENTRUN_TRACEBACK"):
        from agentrun.credentials import hidden_secrets
        from agentrun.secret import mask

        return mask(hidden_secrets.redactor.redact_text("".join(format_exception(error))))
    frame = error.__traceback__
    place = "?"
    while frame is not None:
        if "agentrun" in frame.tb_frame.f_code.co_filename:
            place = f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}"
        frame = frame.tb_next
    return (
        f"internal: {type(error).__name__} at {place}. This is a bug in agentrun, not in your spec.\n"
        "  → please report it, with the traceback that AGENTRUN_TRACEBACK=1 prints\n"
    )
