"""How old a recording is."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DAY = 86_400_000
_LIMIT = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": DAY // 24, "d": DAY, "w": 7 * DAY}


def now_option(command: Command) -> Command:
    """The time that ages are counted to, in milliseconds since 1970; given by tests, the clock's otherwise."""

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
    """`90d` in milliseconds."""
    if value is None:
        return None
    found = _LIMIT.fullmatch(value)
    if found is None:
        raise click.BadParameter("an age is a number of hours, days or weeks: 36h, 90d, 12w")
    return int(found[1]) * _UNITS[found[2]]


def days(recorded_at: int, now: int) -> int | None:
    """Whole days. None: the recording does not say when it was made."""
    return None if recorded_at == 0 else max(0, now - recorded_at) // DAY


def age_words(recorded_at: int, now: int) -> str:
    count = days(recorded_at, now)
    if count is None:
        return "age unknown"
    return "today" if count == 0 else f"{count} day{'' if count == 1 else 's'}"
