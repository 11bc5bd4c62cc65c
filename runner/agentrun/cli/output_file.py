"""Writing files that the operator named on the command line: never over something else."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from agentrun.files import write_user_file


def write_output(path: Path, data: bytes, *, replaces: bytes = b"") -> None:
    """Write a file as a whole; `-` is standard output.

    An existing file is replaced only if it begins with `replaces`: a slip of the hand must not cost a spec.
    """
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        return
    refuse_other_content(path, replaces)
    write_user_file(path, data)


def refuse_other_content(path: Path, replaces: bytes) -> None:
    """Refuse to replace a file that begins otherwise."""
    if not path.is_file() or not replaces:
        return
    with path.open("rb") as file:
        begins = file.read(len(replaces))
    if begins and begins != replaces:
        raise click.UsageError(f"{path} is there and is something else; nothing was written")
