"""Which credential a request carries, by name: its value is none of a codec's business."""

from __future__ import annotations

from agentrun.core.package import Route
from agentrun.wire import HttpAuth


def auth_of(route: Route, header: str, prefix: str, usual: str) -> HttpAuth | None:
    """The route's own credential, or the provider's usual one.

    That one goes to the provider's own address only. Any other gets a key when the spec names it.
    """
    if route.api_key is not None:
        return HttpAuth(header, prefix, route.api_key.removeprefix("${").removesuffix("}"))
    return HttpAuth(header, prefix, usual) if route.base_url is None else None
