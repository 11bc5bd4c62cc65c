"""Write files that the command line names, without replacing other files by mistake."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from agentrun.files import write_user_file


def write_output(path: Path, data: bytes, *, replaces: bytes = b"") -> None:
    """Write a file atomically; `-` is standard output.

    An existing file is replaced only if it begins with `replaces`, so that a typing mistake does not cost a spec.
    """
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        return
    refuse_other_content(path, replaces)
    write_user_file(path, data)


def refuse_other_content(path: Path, replaces: bytes) -> None:
    """Raise click.UsageError if there is a file that does not begin with `replaces`."""
    if not path.is_file() or not replaces:
        return
    with path.open("rb") as file:
        begins = file.read(len(replaces))
    if begins and begins != replaces:
        raise click.UsageError(f"{path} exists and is another kind of file; nothing was written")
