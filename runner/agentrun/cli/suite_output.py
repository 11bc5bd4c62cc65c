"""What `agentrun test` prints.

Rule 1  A reader that leaves (`| head`) neither ends a suite nor makes it good: nothing more is said there, the cases
        are run to the end, and the exit code is that of the verdicts.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click


def put_line(text: str, *, err: bool = False) -> None:
    """A line, or several, on standard output."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        _leave(sys.stderr if err else sys.stdout)


def put_mark(text: str) -> None:
    """A part of a line, on standard error. It is seen at once."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        _leave(sys.stderr)


def _leave(stream: TextIO) -> None:
    """What follows goes nowhere, and so does what is still in a buffer."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
