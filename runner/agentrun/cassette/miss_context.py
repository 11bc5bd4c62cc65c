"""What is known about the run that asks, for the story of a miss."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from agentrun.canonical_json import same_json
from agentrun.secret import mask
from agentrun.spec.safe_text import join_words, json_text


class Template(Struct, frozen=True):
    """A template, and where it is written."""

    label: str
    """Its file, as people see it: `specs/prompts/support.md.j2`."""
    first_line: int
    """The line of that file on which the template begins; 1 for a file of its own."""
    source: str


class OverruledAnswer(Struct, frozen=True):
    """A recorded answer to an approval that did not count."""

    why: str
    """Who says what instead."""
    fix: str | None = None
    """What to do, if nobody gave the other answer."""


class MissContext(Struct, frozen=True):
    """The run that asks."""

    sections: dict[str, str] = {}
    """The fingerprints of the sections of its package."""
    params: dict[str, Any] = {}
    """The values of all its params."""
    instructions: tuple[Template, ...] = ()
    input: Template | None = None
    record_command: str | None = None
    """The command that runs this case: `agentrun specs/support.yaml --case default`."""
    needs_full_recording: bool = False
    """Whether only a whole new recording helps: the difference may come from something that the tape would keep."""


# --- what changed since a recording was made: sections of the package by their fingerprints, and params -------


MAX_NAMED_CHANGES = 5


def recorded_params(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    params = metadata.get("params")
    return params if isinstance(params, dict) and all(isinstance(name, str) for name in params) else None


def recorded_sections(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    found = metadata.get("sections")
    if not isinstance(found, dict) or not found:
        return None
    return found if all(isinstance(part, str) for pair in found.items() for part in pair) else None


def changed_params(metadata: Mapping[str, Any], here: MissContext) -> dict[str, tuple[Any, Any]]:
    """The params that both know, with another value now: recorded, present."""
    known = recorded_params(metadata) or {}
    return {
        name: (known[name], here.params[name])
        for name in sorted(known.keys() & here.params.keys())
        if not same_json(known[name], here.params[name])
    }


def changed_sections(metadata: Mapping[str, Any], here: MissContext) -> list[str] | None:
    """The sections with another fingerprint now. None: the recording does not tell."""
    known = recorded_sections(metadata)
    if known is None or not here.sections:
        return None
    names = [*here.sections, *(name for name in sorted(known) if name not in here.sections)]
    return [name for name in names if known.get(name) != here.sections.get(name)]


def describe_changed_params(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """`params.region changed from "eu" to "us"`."""
    if len(changed) > 1:
        return f"{join_words(_first_names([f'params.{name}' for name in changed]))} changed"
    ((name, (was, now)),) = changed.items()
    return f"params.{name} changed from {json_text(was, name)} to {json_text(now, name)}"


def describe_changed_sections(names: list[str]) -> str:
    """`the spec's section budgets changed since the recording`."""
    told = join_words(_first_names([mask(name)[:60] for name in names]))
    return f"the spec's section{'s' * (len(names) > 1)} {told} changed since the recording"


def likely_cause(metadata: Mapping[str, Any], here: MissContext | None, kinds: Collection[str]) -> str | None:
    """The likely cause of a miss with these kinds of differences, as a sentence."""
    if here is None:
        return None
    sections, params = changed_sections(metadata, here), changed_params(metadata, here)
    if sections is None:
        return describe_changed_params(params) if params else "the recording does not say what it was made of"
    if sections:
        cause = describe_changed_sections(sections)
        return f"{cause}, and {describe_changed_params(params)}" if params else cause
    if params:
        return f"the package is the recorded one, but {describe_changed_params(params)}"
    if recorded_params(metadata) is None:
        return "the package is the recorded one: the difference comes from params or input"
    where = "the message" if "input" in kinds else "the message, what tools gave, or another version of agentrun"
    return f"the package and its params are the recorded ones: the difference comes from {where}"


def _first_names(names: list[str]) -> list[str]:
    return (
        names
        if len(names) <= MAX_NAMED_CHANGES
        else [*names[:MAX_NAMED_CHANGES], f"{len(names) - MAX_NAMED_CHANGES} more"]
    )
