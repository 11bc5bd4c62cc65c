"""Where interactions still have a value that should be redacted."""

from __future__ import annotations

from collections.abc import Sequence

from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.leaks import search_cassette
from agentrun.redactor import Redactor


def find_unredacted(interactions: Sequence[Interaction], redactor: Redactor) -> str | None:
    leaks = search_cassette(Cassette(tuple(interactions), {}, 0), redactor)
    return next((f"interaction {leak.number}, {leak.place}" for leak in leaks if leak.value is None), None)
