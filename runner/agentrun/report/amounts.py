"""Amounts as people read them. All arithmetic is done in whole numbers, and nothing is rounded up."""

from __future__ import annotations

MILLION = 1_000_000


def magnitude(count: int) -> str:
    """950, 1.2k, 50k, 3.4M."""
    for size, letter in ((MILLION, "M"), (1000, "k")):
        if count >= size:
            return f"{_tenths(count * 10 // size)}{letter}"
    return str(count)


def dollars(micro: int) -> str:
    """Micro-dollars, exactly, with two places at least: $0.25, $0.000723."""
    places = f"{micro % MILLION:06d}".rstrip("0").ljust(2, "0")
    return f"${micro // MILLION}.{places}"


def duration(milliseconds: int) -> str:
    """0.8s, 4s, 1m 5s, 2h 3m."""
    if milliseconds < 60_000:
        return f"{_tenths(milliseconds // 100)}s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    larger, smaller = (f"{hours}h", f"{minutes}m" if minutes else "") if hours else (f"{minutes}m", f"{seconds}s")
    return f"{larger} {smaller}" if smaller not in ("", "0s") else larger


def _tenths(tenths: int) -> str:
    whole, rest = divmod(tenths, 10)
    return f"{whole}.{rest}" if rest else str(whole)
