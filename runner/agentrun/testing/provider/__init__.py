"""A provider that plays a script: a real HTTP server on this machine, in four wire formats.

with ScriptedProvider(Path("hello.provider.yaml")) as server:
    ...  # a client of any of the four providers, with server.url as its address
assert [request.status for request in server.requests] == [429, 200]
"""

from __future__ import annotations

from agentrun.testing.provider.server import ScriptedProvider

__all__ = ["ScriptedProvider"]
