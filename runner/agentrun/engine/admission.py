"""Whether a request may become a run, and what it says.

Rule 1  A refused request leaves nothing behind: this comes before the run exists.
Rule 2  The order of an input's checks: empty after trimming, then too long. Its text is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from agentrun.compiler.prompts import complete_params, rendered_input, rendered_instructions
from agentrun.core.package import Package
from agentrun.errors import RequestError


class Admitted(Struct, frozen=True):
    """A request that may run."""

    params: dict[str, Any]
    instructions: str
    message: str


def admit(package: Package, message: str | None, params: Mapping[str, Any]) -> Admitted:
    """Check a request against its package. Raises `input.rejected`."""
    values = complete_params(package, params)
    return Admitted(
        params=values,
        instructions=rendered_instructions(package, values),
        message=_message(package, rendered_input(package, values) if message is None else message),
    )


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
