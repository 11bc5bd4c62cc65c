"""Options of `agentrun test`: what they may be, and which do not go together."""

from __future__ import annotations

import os
from typing import Any

import click

from agentrun.cli.approve import refuse_nobody
from agentrun.engine.pipeline import in_ci

MOST_WORKERS = 256
MOST_SHARDS = 10_000
MOST_TIMES = 10_000


def workers(_: click.Context, __: click.Parameter, value: str) -> int:
    """`-n N|auto`"""
    if value == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _whole(value, MOST_WORKERS)


def numbered(_: click.Context, __: click.Parameter, value: str) -> int:
    """`--repeat R`"""
    return _whole(value, MOST_TIMES)


def shard(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """`--shard I/N`"""
    if value is None:
        return None
    part, _slash, parts = value.partition("/")
    try:
        of = _whole(parts, MOST_SHARDS)
        return _whole(part, of), of
    except click.BadParameter:
        raise click.BadParameter(f"{value!r} is not I/N with I from 1 to N, such as 2/4") from None


def percent(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """`--coverage-min PERCENT`"""
    if value is None:
        return None
    text = value.removesuffix("%").strip()
    digits = text.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit()) or float(text) > 100:
        raise click.BadParameter(f"{value!r} is not a number from 0 to 100")
    return float(text)


def record_how(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """`--record new|all|from:N`"""
    if value is None or value in ("new", "all"):
        return value
    word, _colon, number = value.partition(":")
    if word != "from" or not (number.isascii() and number.isdigit()) or int(number[:9]) < 1:
        raise click.BadParameter("it is new, all or from:N, where N is the number of an interaction from 1")
    return value


def _whole(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise click.BadParameter(f"{text!r} is not a whole number from 1 to {most}")
    return int(text)


def refuse_mixtures(options: dict[str, Any]) -> None:
    """Raises click.UsageError for what does not go together, and for what must not happen in CI by accident."""
    for name in ("update", "record"):
        if options[name] and in_ci():
            raise click.UsageError(
                f"--{name} does nothing with CI set: what a suite is judged by is changed by people, who look at it"
            )
    live = [f"--{name.replace('_', '-')}" for name in ("record", "live_tools", "live_model") if options[name]]
    if len(live) > 1:
        raise click.UsageError(f"{' and '.join(live)} do not go together")
    if options["yes"] and not options["record"]:
        raise click.UsageError("--yes goes with --record")
    if not live:
        if options["approve"] is not None:
            raise click.UsageError(
                "--approve goes with --record, --live-tools or --live-model: a replay has its answers"
            )
        return
    refuse_nobody(options["approve"])
    if options["count"] > 1:
        raise click.UsageError(f"{live[0]} runs for real, one case after the other: not with -n")
    if options["sweep"]:
        raise click.UsageError(f"--sweep is for replays, not for {live[0]}")
    if live[0] != "--record" and options["update"]:
        raise click.UsageError(f"--update is for replays, not for {live[0]}")
    if live[0] == "--record" and options["repeat"] > 1:
        raise click.UsageError("--record records once: not with --repeat")
