"""Options that several commands share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

# --- options that several commands of `agentrun cassette` have ------------------------------------------------


_AGE = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_HOUR = 3_600_000
_UNITS = {"h": _HOUR, "d": 24 * _HOUR, "w": 7 * 24 * _HOUR}


def now_option(command: _Command) -> _Command:
    """`--now`: the time from which ages are computed, in milliseconds since 1970. Tests set it; the default is now."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int:
        if value is None:
            return round(datetime.now(UTC).timestamp() * 1000)
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is no date with a time") from None
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)

    return click.option("--now", hidden=True, envvar="AGENTRUN_NOW", callback=read)(command)


def parse_max_age(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """`--max-age`: turn `90d` into milliseconds."""
    if value is None:
        return None
    found = _AGE.fullmatch(value)
    if found is None:
        raise click.BadParameter("an age is a number of hours, days or weeks: 36h, 90d, 12w")
    return int(found[1]) * _UNITS[found[2]]


# --- options that several commands share ----------------------------------------------------------------------


_Command = TypeVar("_Command", bound=Callable[..., Any])

MAX_CASE_NAME = 64
NAME_RULE = "small letters, digits, - and _"

SpecFile = click.Path(exists=True, dir_okay=False, path_type=Path)

spec_argument = click.argument("spec", type=SpecFile)
profile_option = click.option("--profile", metavar="NAME", help="Lay a profile of the spec over it.")
set_option = click.option(
    "--set",
    "settings",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set one key of the spec, e.g. budgets.turns=3.",
)
param_option = click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, help="Give a param a value, e.g. order_id=7."
)


def check_file_name(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    """A name that a file can have: an empty one would be the folder itself."""
    if value is not None and (value == Path() or value.is_dir()):
        raise click.BadParameter("it must be the name of a file")
    return value


def check_session_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A name that can be that of a folder."""
    if value is not None and not is_valid_name(value):
        raise click.BadParameter(f"{value!r} is not a name: {NAME_RULE}")
    return value


def is_utf8(text: str) -> bool:
    """Whether an argument was UTF-8. What was not has lone surrogates in it, which nothing can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_valid_name(text: str) -> bool:
    """Whether a text is a name as in a spec. Such a name can be that of a file or a folder."""
    plain = text[:1].isalpha() and text.replace("-", "").replace("_", "").isalnum()
    return plain and text.isascii() and text.islower() and len(text) <= MAX_CASE_NAME


def spec_options(command: _Command) -> _Command:
    """SPEC, --profile and --set."""
    return spec_argument(profile_option(set_option(command)))


def parse_params(texts: tuple[str, ...], schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Values of `--param name=value`. A param of type string takes the text as it is; others are read as JSON."""
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
    """As in a file, so that a case with this value is the same case: a whole number is an int however it is written."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)
