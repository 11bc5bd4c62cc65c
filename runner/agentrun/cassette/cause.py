"""What changed since a recording was made: sections of the package by their fingerprints, and params.

Rule 1  Metadata is data of strangers: what is not of its form counts as not told.
Rule 2  Nothing is said that is not known. No fingerprints, no cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from agentrun.canon import same
from agentrun.cassette.here import Here
from agentrun.secret import mask
from agentrun.spec.text import join_words, json_text

MAX_NAMED = 5


def recorded_params(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    params = metadata.get("params")
    return params if isinstance(params, dict) and all(isinstance(name, str) for name in params) else None


def recorded_sections(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    found = metadata.get("sections")
    if not isinstance(found, dict) or not found:
        return None
    return found if all(isinstance(part, str) for pair in found.items() for part in pair) else None


def changed_params(metadata: Mapping[str, Any], here: Here) -> dict[str, tuple[Any, Any]]:
    """The params that both know, with another value now: recorded, present."""
    known = recorded_params(metadata) or {}
    return {
        name: (known[name], here.params[name])
        for name in sorted(known.keys() & here.params.keys())
        if not same(known[name], here.params[name])
    }


def changed_sections(metadata: Mapping[str, Any], here: Here) -> list[str] | None:
    """The sections with another fingerprint now. None: the recording does not tell."""
    known = recorded_sections(metadata)
    if known is None or not here.sections:
        return None
    names = [*here.sections, *(name for name in sorted(known) if name not in here.sections)]
    return [name for name in names if known.get(name) != here.sections.get(name)]


def of_params(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """`params.region changed from "eu" to "us"`."""
    if len(changed) > 1:
        return f"{join_words(_some([f'params.{name}' for name in changed]))} changed"
    ((name, (was, now)),) = changed.items()
    return f"params.{name} changed from {json_text(was, name)} to {json_text(now, name)}"


def of_sections(names: list[str]) -> str:
    """`the spec's section budgets changed since the recording`."""
    told = join_words(_some([mask(name)[:60] for name in names]))
    return f"the spec's section{'s' * (len(names) > 1)} {told} changed since the recording"


def likely(metadata: Mapping[str, Any], here: Here | None, kinds: Collection[str]) -> str | None:
    """The likely cause of a miss with these kinds of differences, as a sentence."""
    if here is None:
        return None
    sections, params = changed_sections(metadata, here), changed_params(metadata, here)
    if sections is None:
        return of_params(params) if params else "the recording does not say what it was made of"
    if sections:
        cause = of_sections(sections)
        return f"{cause}, and {of_params(params)}" if params else cause
    if params:
        return f"the package is the recorded one, but {of_params(params)}"
    if recorded_params(metadata) is None:
        return "the package is the recorded one: the difference comes from params or input"
    where = "the message" if "input" in kinds else "the message, what tools gave, or another version of agentrun"
    return f"the package and its params are the recorded ones: the difference comes from {where}"


def _some(names: list[str]) -> list[str]:
    return names if len(names) <= MAX_NAMED else [*names[:MAX_NAMED], f"{len(names) - MAX_NAMED} more"]
