"""Quantities as people write them, as the integers a package holds."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAGNITUDES = {"k": 1000, "M": 1_000_000}
_BYTES = {"KiB": 1024, "MiB": 1024 * 1024}


def milliseconds(duration: str) -> int:
    """`2m` → 120000."""
    number = duration.rstrip("smhd")
    return int(number) * _MILLISECONDS[duration[len(number) :]]


def count(value: int | str) -> int:
    """`50k` → 50000, `1.5M` → 1500000."""
    if isinstance(value, int):
        return value
    return int(Decimal(value[:-1]) * _MAGNITUDES[value[-1]])


def size(value: int | str) -> int:
    """`50KiB` → 51200."""
    return value if isinstance(value, int) else int(value[:-3]) * _BYTES[value[-3:]]


def micro_dollars(dollars: float) -> int:
    """`0.25` → 250000. A part of a micro-dollar counts as one: a price is never understated."""
    return int((Decimal(str(dollars)) * 1_000_000).to_integral_value(ROUND_CEILING))
