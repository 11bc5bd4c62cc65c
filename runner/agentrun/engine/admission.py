"""Whether a request may become a run, and what it says: params checked, templates rendered.

Rule 1  A refused request leaves nothing behind: this comes before the run exists.
Rule 2  Params are what the package declares: no other names, defaults written out, no value coerced.
Rule 3  The order of an input's checks: empty after trimming, then too long. Its text is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs
from msgspec import Struct

from agentrun.core.package import Package
from agentrun.errors import RequestError

Render = Callable[[str, Mapping[str, Any]], str]


class Admitted(Struct, frozen=True):
    """A request that may run."""

    params: dict[str, Any]
    instructions: str
    message: str


def admit(package: Package, message: str | None, params: Mapping[str, Any], render: Render) -> Admitted:
    """Check a request against its package. Raises `input.rejected`."""
    values = _params(package, params)
    if message is None and package.input is not None:
        message = render(package.input, values)
    return Admitted(
        params=values,
        instructions="\n\n".join(render(template, values) for template in package.instructions),
        message=_message(package, message),
    )


def _message(package: Package, message: str | None) -> str:
    if message is None or not message.strip():
        hint = None if message is not None else "give a message, or an `input` in the spec"
        raise _rejected("empty", "there is no message to send", hint)
    limit = package.admission.max_chars
    if limit is not None and len(message) > limit:
        raise _rejected("too_long", f"the message has {len(message)} characters; {limit} are allowed", limit=limit)
    return message


def _params(package: Package, given: Mapping[str, Any]) -> dict[str, Any]:
    declared = package.params
    unknown = sorted(given.keys() - declared.keys())
    missing = sorted(name for name in declared if name not in given and "default" not in declared[name])
    wrong = {
        name: error for name in sorted(given.keys() & declared.keys()) if (error := _error(declared[name], given[name]))
    }
    if unknown or missing or wrong:
        words = [
            *(f"{name!r} is not a param of this agent" for name in unknown),
            *(f"{name!r} is missing" for name in missing),
            *(f"{name!r}: {error}" for name, error in wrong.items()),
        ]
        hint = f"its params: {', '.join(sorted(declared)) or 'none'}"
        raise _rejected("params", "; ".join(words), hint, unknown=unknown, missing=missing, wrong=sorted(wrong))
    return {name: given[name] if name in given else declared[name]["default"] for name in sorted(declared)}


def _error(schema: dict[str, Any], value: Any) -> str | None:
    validator = jsonschema_rs.validator_for(
        schema, offline=True, mask="the value", pattern_options=jsonschema_rs.RegexOptions()
    )
    try:
        return next((error.message for error in validator.iter_errors(value)), None)
    except ValueError:  # not JSON: a set, a date, NaN
        return "the value is no JSON"


def _rejected(reason: str, message: str, hint: str | None = None, **fields: Any) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": reason, **fields})
