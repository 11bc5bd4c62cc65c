"""How problems and errors reach a person or a program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from agentrun.errors import AgentrunError
from agentrun.spec.problems import Problem, story, visible

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """`--json`: one JSON object per line, for errors too."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        ctx.meta["agentrun.json"] = value
        return value

    text = "One JSON object per line instead of text."
    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=remember, help=text)(command)


def colored(stream: Any) -> bool:
    """Whether a stream is a terminal that wants colours."""
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def show_problems(problems: list[Problem], *, as_json: bool) -> None:
    """All problems: JSON lines on stdout, or stories on stderr."""
    if as_json:
        for problem in problems:
            click.echo(json.dumps(problem.as_json(), ensure_ascii=False))
        return
    color = colored(sys.stderr)
    for problem in problems:
        click.echo(story(problem, color=color), err=True, color=color)


def show_error(error: AgentrunError, *, as_json: bool) -> None:
    """An error that ends the command."""
    if as_json:
        click.echo(json.dumps({"error": error.as_json()}, ensure_ascii=False))
        return
    click.echo(f"{error.code}: {visible(error.message)}", err=True)
    for name, value in error.fields.items():
        click.echo(f"  {name}: {visible(value if isinstance(value, str) else json.dumps(value))}", err=True)
    if error.hint:
        click.echo(f"  → {visible(error.hint)}", err=True)


def say(text: str) -> None:
    """A line of the story."""
    click.echo(text, err=True)
