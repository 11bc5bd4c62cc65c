"""Redact everything that is about to be written to a cassette.

Rule 1  First the known values are replaced, then everything that `find_leaks` would report: keys of a known shape, and
        random-looking values at keys that name a credential. Each is replaced everywhere by its placeholder.
Rule 2  Then the result is searched again. If something is still found, nothing is written.
Rule 3  The redaction of the run learns the values, so that the journals of the recorded and the replayed run are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.leaks import find_leaked_values, find_leaks
from agentrun.cassette.redaction import RunRedaction
from agentrun.errors import StorageError
from agentrun.redactor import Redactor


def redact_cassette(
    redaction: RunRedaction, interactions: Sequence[Interaction], metadata: Mapping[str, Any]
) -> Cassette:
    """The cassette as it is written. Raises `storage.failed` if a secret could not be redacted."""
    clean = _redact(redaction, interactions, metadata)
    leaked = find_leaked_values(clean)
    if not leaked:
        return clean
    redaction.learn(leaked)
    clean = _redact(redaction, interactions, metadata)
    for leak in find_leaks(clean, Redactor(())):
        place = f"interaction {leak.number}, {leak.where}" if leak.number else leak.where
        message = f"nothing was recorded because a secret ({leak.what}) could not be redacted in {place}"
        raise StorageError("storage.failed", message, fields={"path": "cassette", "place": place})
    return clean


def _redact(redaction: RunRedaction, interactions: Sequence[Interaction], metadata: Mapping[str, Any]) -> Cassette:
    return Cassette(redaction.redact_interactions(interactions), dict(redaction.data(metadata)), 0, "")
