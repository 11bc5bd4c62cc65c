"""What no command shows, wherever it comes from: the credentials of its environment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TextIO, TypeVar

import click

from agentrun.errors import AgentrunError
from agentrun.net.environment import find_credentials
from agentrun.redactor import Redactor
from agentrun.secret import mask
from agentrun.spec.problems import Problem, escape_invisible, render_problem


@cache
def environment_redactor() -> Redactor:
    """Knows them by value."""
    return Redactor(find_credentials(os.environ))


# --- how problems and errors reach a person or a program ------------------------------------------------------


_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """`--json`: one JSON object per line, for errors too."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        ctx.find_root().obj["json"] = value  # also when the command ends in an error
        return value

    text = "One JSON object per line instead of text."
    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=remember, help=text)(command)


def wants_color(stream: Any) -> bool:
    """Whether a stream is a terminal that wants colours."""
    return (
        stream is not None
        and bool(stream.isatty())
        and "NO_COLOR" not in os.environ
        and os.environ.get("TERM") != "dumb"
    )


def show_problems(problems: list[Problem], *, as_json: bool) -> None:
    """All problems: JSON lines on stdout, or stories on stderr."""
    if as_json:
        for problem in problems:
            click.echo(
                escape_json(json.dumps(environment_redactor().redact_data(problem.as_json()), ensure_ascii=False))
            )
        return
    color = wants_color(sys.stderr)
    for problem in problems:
        click.echo(environment_redactor().redact_text(render_problem(problem, color=color)), err=True, color=color)


def show_error(error: AgentrunError, *, as_json: bool) -> None:
    """An error that ends the command."""
    if as_json:
        click.echo(
            escape_json(
                mask(json.dumps({"error": environment_redactor().redact_data(error.as_json())}, ensure_ascii=False))
            )
        )
        return
    click.echo(f"{error.code}: {safe_text(error.message)}", err=True)
    for name, value in error.fields.items():
        if value not in (None, [], {}):
            click.echo(f"  {name}: {safe_text(value if isinstance(value, str) else json.dumps(value))}", err=True)
    if error.hint:
        click.echo(f"  → {safe_text(error.hint)}", err=True)


def safe_text(text: str) -> str:
    """A text as it may be shown: without secrets that are known or look like one, and nothing that acts."""
    return escape_invisible(mask(environment_redactor().redact_text(text)))


def escape_json(line: str) -> str:
    """A line of JSON that does nothing to a terminal: what acts, or is not seen, is escaped, and means the same."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(char if escape_invisible(char) == char else _escape_char(char) for char in line)


def _escape_char(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def print_stderr(text: str) -> None:
    """A line of the story."""
    click.echo(text, err=True)


# --- what `agentrun test` prints ------------------------------------------------------------------------------


def write_line(text: str, *, err: bool = False) -> None:
    """A line, or several, on standard output."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        _discard_stream(sys.stderr if err else sys.stdout)


def write_mark(text: str) -> None:
    """A part of a line, on standard error. It is seen at once."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        _discard_stream(sys.stderr)


def _discard_stream(stream: TextIO) -> None:
    """What follows goes nowhere, and so does what is still in a buffer."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
