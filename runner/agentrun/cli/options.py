"""Options that several commands share."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import click

from agentrun.cassette.match_tiers import DEFAULT_TIER, MATCH_TIERS
from agentrun.cli.completion import complete_param_names, complete_profiles, complete_sessions
from agentrun.spec.v1.field_types import DURATION_PATTERN, NAME_RULE, is_valid_name, milliseconds

_Command = TypeVar("_Command", bound=Callable[..., Any])

MAX_STDIN_MESSAGE = 1024 * 1024
IMPORTS_NOTICE = "--imports runs the project's code: it imports Python tools and hooks, with few environment variables"

_DURATION = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_HOUR = 3_600_000
_UNITS = {"h": _HOUR, "d": 24 * _HOUR, "w": 7 * 24 * _HOUR}


class ListGroup(click.Group):
    """A group that runs its command `ls` if no command is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_known = bool(args) and args[0] in (*self.commands, *ctx.help_option_names)
        if not is_known and (not args or args[0].startswith("-") or Path(args[0]).exists()):
            args = ["ls", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)


class ExistingPath(click.Path):
    """A path that exists. A misspelt one gets a suggestion."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from agentrun.spec.source_files import did_you_mean_path

            near = did_you_mean_path(Path(value))
            raise click.BadParameter(f"{error.message.rstrip('.')}{f': {near}' if near else '.'}", ctx, param) from None


class SpecFile(ExistingPath):
    """The file of a spec. For a file of cases the error names the spec."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from agentrun.compiler.cases import CASES_FILE_SUFFIX, spec_path

        path = super().convert(value, param, ctx)
        if path.name.endswith(CASES_FILE_SUFFIX):
            text = f"{path} is a file of cases of {spec_path(path)}; to run them: agentrun test {quote(str(path))}"
            raise click.BadParameter(text, ctx, param)
        return path


ExistingFile = ExistingPath(exists=True, dir_okay=False, path_type=Path)
spec_argument = click.argument("spec", type=SpecFile(exists=True, dir_okay=False, path_type=Path))
imports_option = click.option(
    "--imports", is_flag=True, help="Also import the modules of Python tools and hooks. This runs the project's code."
)
profile_option = click.option(
    "--profile", metavar="NAME", shell_complete=complete_profiles, help="Apply this profile of the spec."
)
set_option = click.option(
    "--set",
    "settings",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set one key of the spec, e.g. budgets.turns=3.",
)
param_option = click.option(
    "--param",
    "params",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=complete_param_names,
    help="Set a param, e.g. order_id=7.",
)


force_option = click.option(
    "--force", is_flag=True, help="Also remove runs that are not finished, even if a process works on them."
)


def now_option(command: _Command) -> _Command:
    """`--now`: the time from which ages are computed, in milliseconds since 1970. Tests set it; the default is now."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int:
        if value is None:
            return round(datetime.now(UTC).timestamp() * 1000)
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a date and time in ISO 8601") from None
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)

    return click.option("--now", hidden=True, envvar="AGENTRUN_NOW", callback=read)(command)


def parse_duration(text: str) -> int | None:
    """Turn `36h`, `90d` or `12w` into milliseconds. None: it is not a duration."""
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS[found[2]]


def parse_max_age(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """`--max-age`: turn `90d` into milliseconds."""
    if value is None:
        return None
    age = parse_duration(value)
    if age is None:
        raise click.BadParameter("give a number of hours, days or weeks, such as 36h, 90d or 12w")
    return age


def parse_record_option(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """`--record new|all|from:N`"""
    if value is None or value in ("new", "all"):
        return value
    word, _colon, number = value.partition(":")
    if word != "from" or not (number.isascii() and number.isdigit()) or int(number[:9]) < 1:
        raise click.BadParameter("use new, all or from:N, where N is the number of an interaction, from 1")
    return value


def live_options(command: _Command) -> _Command:
    """--record, --live-tools, --live-model and --require-tier, which `run` and `test` share."""
    for option in reversed(_LIVE_OPTIONS):
        command = option(command)
    return command


_LIVE_OPTIONS = (
    click.option(
        "--record",
        metavar="new|all|from:N",
        callback=parse_record_option,
        help="Record only the missing interactions (new), all of them (all), or those from number N on (from:N).",
    ),
    click.option("--live-tools", is_flag=True, help="Replay the model and run the tools for real."),
    click.option("--live-model", is_flag=True, help="Replay the tools and send requests to the model for real."),
    click.option(
        "--require-tier",
        type=click.Choice(MATCH_TIERS),
        default=DEFAULT_TIER,
        show_default=True,
        help="Fail if a request matches its recorded one less exactly than this.",
    ),
)


def parse_grace(_: click.Context, __: click.Parameter, value: str) -> int:
    """`--grace`: turn `10s` into milliseconds."""
    if value == "0" or re.fullmatch(DURATION_PATTERN, value):
        return 0 if value == "0" else milliseconds(value)
    raise click.BadParameter("give a time such as 500ms, 10s or 2m, or 0")


def signal_options(command: _Command) -> _Command:
    """--grace and --on-signal, of commands that work on a run."""
    command = click.option(
        "--on-signal",
        type=click.Choice(["park", "cancel"]),
        default="park",
        show_default=True,
        help="What SIGTERM and SIGHUP do: `park` the run, so that it can be resumed, or `cancel` it. Ctrl-C always "
        "cancels, and a second signal ends the command at once.",
    )(command)
    return click.option(
        "--grace",
        metavar="TIME",
        default="10s",
        show_default=True,
        callback=parse_grace,
        help="When a signal parks the run, how long running requests and calls may take to end.",
    )(command)


def check_file_name(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a folder; an empty name is the current folder."""
    if value is not None and (value == Path() or value.is_dir()):
        raise click.BadParameter("it must be a file, not a folder")
    return value


def check_session_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse a name that cannot be the name of a folder."""
    if value is not None and not is_valid_name(value):
        raise click.BadParameter(f"{value!r} is not a valid name: {NAME_RULE}")
    return value


def session_options(command: _Command) -> _Command:
    """--session, --new-session, --create and --any-agent."""
    for option in (
        click.option(
            "--any-agent",
            is_flag=True,
            help="With --session: continue the session even if only other agents have runs in it.",
        ),
        click.option("--create", is_flag=True, help="With --session: begin the session if there is none."),
        click.option(
            "--new-session",
            metavar="NAME",
            callback=check_session_name,
            help="Begin a session with this name. Always live.",
        ),
        click.option(
            "--session",
            metavar="NAME",
            callback=check_session_name,
            shell_complete=complete_sessions,
            help="Continue the conversation of this session. Always live.",
        ),
    ):
        command = option(command)
    return command


def resolve_session(options: dict[str, Any]) -> None:
    """Combine the options of a session: `session` is its name, `session_start` says whether it must exist."""
    new = options.pop("new_session")
    flags = [name for name in ("create", "any_agent") if options[name]]
    if new is not None and options["session"] is not None:
        raise click.UsageError("--new-session cannot be combined with --session")
    if flags and options["session"] is None:
        raise click.UsageError(f"--{flags[0].replace('_', '-')} needs --session")
    options["session_start"] = "new" if new is not None else "create" if options["create"] else "continue"
    options["session"] = options["session"] if new is None else new


def is_utf8(text: str) -> bool:
    """Whether an argument was UTF-8. Python decodes other bytes as lone surrogates, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def spec_options(command: _Command) -> _Command:
    return spec_argument(profile_option(set_option(command)))


def parse_params(texts: tuple[str, ...], schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Values of `--param name=value`. A param of type string gets the text as it is; others are parsed as JSON."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--param {text!r} is not NAME=VALUE")
        values[name] = _parse_value(value, schemas.get(name, {}))
    return values


def _parse_value(text: str, schema: dict[str, Any]) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_number)
    except ValueError:
        return text


def _parse_number(text: str) -> int | float:
    """Turn `7.0` into 7, as the YAML parser does, so that a value matches the same value in a case."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)


def read_message(text: str | None) -> str | None:
    """A message of the command line. `-` reads standard input."""
    if text == "-":
        return _read_stdin()
    if text is not None and not is_utf8(text):
        raise click.UsageError("the message is not UTF-8 text")
    return text


def _read_stdin() -> str:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    data = sys.stdin.buffer.read(MAX_STDIN_MESSAGE + 1)
    if len(data) > MAX_STDIN_MESSAGE:
        raise click.UsageError(f"standard input is larger than {MAX_STDIN_MESSAGE // 1024} KiB")
    try:
        # The line feed that `echo` adds is not part of the message.
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8 text") from None
