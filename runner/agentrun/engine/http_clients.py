"""The HTTP clients of a runtime.

Rule 1  There is one client for each project, shared by the live worlds of the runtime.
Rule 2  A client serves one event loop. It is closed with the runtime, not with a world.
Rule 3  Runs without a runtime share the clients of their event loop. They are closed when the loop closes its
        asynchronous generators, as `asyncio.run` and the servers and test plugins that use it do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

    import httpx

    from agentrun.engine.settings import Settings


class HttpClients(AbstractAsyncContextManager["HttpClients"]):
    def __init__(self) -> None:
        self._clients: dict[tuple[Path, bool], httpx.AsyncClient] = {}
        self.kept: dict[Any, Any] = {}
        """Live ports that use these clients (`host_ports.py`)."""

    def client(self, root: Path, settings: Settings) -> httpx.AsyncClient:
        key = root, settings.trust_env
        if key not in self._clients:
            from agentrun.net.client import make_client  # late: a runtime without live worlds needs no httpx

            self._clients[key] = make_client(settings.proxies(), *settings.certificates())
        return self._clients[key]

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        self.kept.clear()
        for client in clients.values():
            await client.aclose()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[HttpClients, AsyncGenerator[HttpClients]]] = (
    WeakKeyDictionary()
)


async def shared_clients() -> HttpClients:
    """The clients of the running event loop."""
    from asyncio import get_running_loop  # late: a step clock needs no event loop

    loop = get_running_loop()
    if loop not in _shared:
        keeper = _keep_until_the_loop_ends(clients := HttpClients())
        _shared[loop] = clients, keeper
        await anext(keeper)  # from now on the loop knows the generator
    return _shared[loop][0]


async def _keep_until_the_loop_ends(clients: HttpClients) -> AsyncGenerator[HttpClients]:
    try:
        yield clients
    finally:
        await clients.close()
