"""Whether a request may become a run, and what it says.

Rule 1  A refused request leaves nothing behind: this comes before the run exists.
Rule 2  The order of an input's checks: empty after trimming, then too long. Its text is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.compiler.prompts import complete_params, render_input, render_instructions, render_prompt
from agentrun.core.package import Package
from agentrun.errors import RequestError


class Admitted(Struct, frozen=True):
    """A request that may run."""

    params: dict[str, Any]
    instructions: str
    message: str | None
    """None: the conversation before goes on as it is."""
    prompts: dict[str, str]
    """What the runtime may tell the model."""


def admit(package: Package, message: str | None, params: Mapping[str, Any], *, goes_on: bool = False) -> Admitted:
    """Check a request against its package. Raises `input.rejected`.

    With `goes_on` a request without a message goes on with the conversation before; otherwise it says the package's
    own input.
    """
    values = complete_params(package, params)
    if message is None and not goes_on:
        message = render_input(package, values)
    return Admitted(
        params=values,
        instructions=render_instructions(package, values),
        message=None if message is None and goes_on else _message(package, message),
        prompts=_prompts(package, values),
    )


def tape_seed(package: Package, admitted: Admitted) -> str:
    """What jitter is made of in a run that is recorded and in its replays: they wait equally long."""
    return text_hash(sorted_json([package.name, admitted.params, admitted.message]))[7:23]


def _prompts(package: Package, values: Mapping[str, Any]) -> dict[str, str]:
    """Only those that this package can come to need."""
    found = {}
    if package.guards.empty_outcome is not None:
        found["nudge"] = render_prompt(package.guards.nudge, values, "guards.nudge")
    if package.context.overflow == "compact":
        found["compact"] = render_prompt(package.context.prompt, values, "context.compaction.prompt")
    return found


def _message(package: Package, message: str | None) -> str:
    if message is None or not message.strip():
        hint = None if message is not None else "give a message, or an `input` in the spec"
        raise _rejected("empty", "there is no message to send", hint)
    limit = package.admission.max_chars
    if limit is not None and len(message) > limit:
        raise _rejected("too_long", f"the message has {len(message)} characters; {limit} are allowed", limit=limit)
    return message


def _rejected(reason: str, message: str, hint: str | None = None, **fields: Any) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": reason, **fields})
