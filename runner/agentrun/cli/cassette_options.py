"""Options that several commands of `agentrun cassette` have."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_LIMIT = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_HOUR = 3_600_000
_UNITS = {"h": _HOUR, "d": 24 * _HOUR, "w": 7 * 24 * _HOUR}


def now_option(command: Command) -> Command:
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


def max_age(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """`--max-age`: turn `90d` into milliseconds."""
    if value is None:
        return None
    found = _LIMIT.fullmatch(value)
    if found is None:
        raise click.BadParameter("an age is a number of hours, days or weeks: 36h, 90d, 12w")
    return int(found[1]) * _UNITS[found[2]]
