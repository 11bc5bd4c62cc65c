"""Headers of a request with a JSON body."""

from __future__ import annotations

from agentrun.core.effects import ModelRequest


def merged_headers(request: ModelRequest, own: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """A codec's own, sorted by name. A route's headers replace those of the same name."""
    accept = "text/event-stream" if request.settings.stream else "application/json"
    theirs = {name.lower(): value for name, value in request.route.headers.items()}
    return tuple(sorted(({"accept": accept, "content-type": "application/json"} | own | theirs).items()))
