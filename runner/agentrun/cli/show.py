"""How problems and errors reach a person or a program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from agentrun.cli.known import known
from agentrun.errors import AgentrunError
from agentrun.secret import mask
from agentrun.spec.problems import Problem, escape_invisible, render_problem

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """`--json`: one JSON object per line, for errors too."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        ctx.find_root().obj["json"] = value  # also when the command ends in an error
        return value

    text = "One JSON object per line instead of text."
    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=remember, help=text)(command)


def colored(stream: Any) -> bool:
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
            click.echo(seen(json.dumps(known().redact_data(problem.as_json()), ensure_ascii=False)))
        return
    color = colored(sys.stderr)
    for problem in problems:
        click.echo(known().redact_text(render_problem(problem, color=color)), err=True, color=color)


def show_error(error: AgentrunError, *, as_json: bool) -> None:
    """An error that ends the command."""
    if as_json:
        click.echo(seen(mask(json.dumps({"error": known().redact_data(error.as_json())}, ensure_ascii=False))))
        return
    click.echo(f"{error.code}: {clean(error.message)}", err=True)
    for name, value in error.fields.items():
        if value not in (None, [], {}):
            click.echo(f"  {name}: {clean(value if isinstance(value, str) else json.dumps(value))}", err=True)
    if error.hint:
        click.echo(f"  → {clean(error.hint)}", err=True)


def clean(text: str) -> str:
    """A text as it may be shown: without secrets that are known or look like one, and nothing that acts."""
    return escape_invisible(mask(known().redact_text(text)))


def seen(line: str) -> str:
    """A line of JSON that does nothing to a terminal: what acts, or is not seen, is escaped, and means the same."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(char if escape_invisible(char) == char else _escape(char) for char in line)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def say(text: str) -> None:
    """A line of the story."""
    click.echo(text, err=True)
