"""Arguments of calls for providers that want them as JSON objects, not as text."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from agentrun.providers.faults import UNREADABLE

_object = msgspec.json.Decoder(dict[str, Raw])


def as_object(arguments: str) -> Any:
    """The arguments as they were written; what is no object is shown to the model inside one."""
    try:
        _object.decode(arguments)
    except UNREADABLE:
        return {"INVALID_JSON": arguments}
    return Raw(arguments.encode())
