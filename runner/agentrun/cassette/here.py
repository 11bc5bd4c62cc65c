"""What is known about the run that asks, for the story of a miss."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Template(Struct, frozen=True):
    """A template, and where it is written."""

    shown: str
    """Its file, as people see it: `specs/prompts/support.md.j2`."""
    first_line: int
    """The line of that file on which the template begins; 1 for a file of its own."""
    source: str


class Overruled(Struct, frozen=True):
    """A recorded answer to an approval that did not count."""

    why: str
    """Who says what instead."""
    fix: str | None = None
    """What to do, if nobody gave the other answer."""


class Here(Struct, frozen=True):
    """The run that asks."""

    sections: dict[str, str] = {}
    """The fingerprints of the sections of its package."""
    params: dict[str, Any] = {}
    """The values of all its params."""
    instructions: tuple[Template, ...] = ()
    input: Template | None = None
    accept: str | None = None
    """The command that runs this case: `agentrun specs/support.yaml --case default`."""
    whole: bool = False
    """Whether only a whole new recording helps: the difference may come from something that the tape would keep."""
