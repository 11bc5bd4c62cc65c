"""Printing for all commands: problems, errors, JSON lines and progress.

Rule 1  Credentials of the environment are never printed, wherever they come from. Only a replay does not know them.
Rule 2  Nothing printed controls the terminal: control characters and invisible ones are escaped.
Rule 3  The fields of an error are for programs. They appear with `--json` only.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

import click
import msgspec

from agentrun.credentials import hidden_secrets
from agentrun.errors import AgentrunError, SpecError
from agentrun.files import write_user_file
from agentrun.secret import mask
from agentrun.spec.problems import DocumentError, Problem, escape_invisible, render_problem

_Command = TypeVar("_Command", bound=Callable[..., Any])


class ProgressOutput(Protocol):
    """Where a command reports its progress to a person."""

    has_reader: bool
    color: bool

    def say(self, text: str, tone: Any = "plain") -> None:
        """Print a line."""

    def aside(self) -> AbstractContextManager[None]:
        """Hold back all lines while something else uses the terminal."""

    def close(self) -> None: ...


def json_option(command: _Command) -> _Command:
    """`--json`: one JSON object per line, for errors too."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        ctx.find_root().obj["json"] = value  # even when the command ends in an error
        return value

    text = "Print one JSON object per line instead of text."
    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=remember, help=text)(command)


@contextmanager
def document_problems() -> Iterator[None]:
    """Turn the problems of a document into the error that ends the command."""
    try:
        yield
    except DocumentError as error:
        raise SpecError(error.problems) from None


def wants_color(stream: Any) -> bool:
    return (
        stream is not None
        and bool(stream.isatty())
        and "NO_COLOR" not in os.environ
        and os.environ.get("TERM") != "dumb"
    )


def show_problems(problems: Iterable[Problem], *, as_json: bool) -> None:
    """Print problems: JSON lines on standard output, or text on standard error."""
    if as_json:
        for problem in problems:
            click.echo(json_line(problem.as_json()))
        return
    color = wants_color(sys.stderr)
    for problem in problems:
        click.echo(hidden_secrets.redactor.redact_text(render_problem(problem, color=color)), err=True, color=color)


def show_error(error: AgentrunError, *, as_json: bool) -> None:
    if as_json:
        names = {name: error.fields[name] for name in ("run", "call") if error.fields.get(name)}
        click.echo(mask(json_line({**names, "error": error.as_json()})))
        return
    click.echo(f"{error.code}: {safe_text(error.message)}", err=True)
    if error.hint:
        click.echo(f"  → {safe_text(error.hint)}", err=True)


def safe_text(text: str) -> str:
    """Text that may be printed: secrets are masked, control characters escaped."""
    return escape_invisible(mask(hidden_secrets.redactor.redact_text(text)))


def json_line(data: Any) -> str:
    return escape_json(msgspec.json.encode(hidden_secrets.redactor.redact_data(data)).decode())


def escape_json(line: str) -> str:
    """Escape control characters and invisible ones in a line of JSON. Its meaning stays the same."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(char if escape_invisible(char) == char else _escape_char(char) for char in line)


def _escape_char(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows with their columns aligned, unless the terminal is too narrow for that. Empty columns are left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    widths = [max(map(len, column)) for column in columns]
    wide = sum(widths) + 2 * (len(widths) - 1)
    if sys.stdout.isatty() and wide > shutil.get_terminal_size().columns:
        return ["  ".join(filter(None, row)) for row in rows]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in zip(*columns, strict=True)]


def print_stderr(text: str) -> None:
    click.echo(text, err=True)


def write_line(text: str, *, err: bool = False) -> None:
    """Print one or several lines. A pipe that its reader closed is ignored, so that the command runs to its end."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        _discard_stream(sys.stderr if err else sys.stdout)


class OutputPipe:
    """Standard output, if it is a pipe."""

    def __init__(self) -> None:
        self._identity = self._find_identity()

    @property
    def has_reader(self) -> bool:
        """Whether someone can still read. `write_line` replaces a pipe that its reader closed."""
        if self._identity is None:
            return True
        if self._identity != self._find_identity():
            return False
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))

    @staticmethod
    def _find_identity() -> tuple[int, int] | None:
        try:
            status = os.fstat(sys.stdout.fileno())
        except (AttributeError, OSError, ValueError):  # there is no standard output, or it is not a file
            return None
        return status.st_dev, status.st_ino


def write_mark(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        _discard_stream(sys.stderr)


def discard_output() -> None:
    """Print nothing more: the terminal is gone."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            _discard_stream(stream)


def _discard_stream(stream: TextIO) -> None:
    """Send everything that follows, and what is still in the buffer, to /dev/null."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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
