"""Send requests with `HttpxSender` over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from agentrun.engine.env_file import EnvFile
from agentrun.engine.settings import load_settings
from agentrun.errors import AgentrunError, ProviderError
from agentrun.net.client import HttpxSender, make_client
from agentrun.net.environment import Lookup
from agentrun.secret import Secret
from agentrun.wire import HttpAuth, HttpCall, HttpReply

T = TypeVar("T")
PATIENCE = 60_000
"""Milliseconds that a request may take, on a machine that has much to do."""
KEY = HttpAuth("x-api-key", "", "KEY")
JSON = (("content-type", "application/json"),)
GOOD = HttpReply(200, (("Content-Type", "application/json"),), b'{"a": 1}')


def secret_lookup(**known: str) -> Callable[[str], Secret]:
    return lambda name: Secret(known[name])


def call(url: str, body: bytes = b"{}", auth: HttpAuth | None = KEY, **headers: str) -> HttpCall:
    return HttpCall("POST", url, (*JSON, *headers.items()), body, auth)


@asynccontextmanager
async def open_sender(lookup: Lookup, *, trust_env: bool = False, **how: Any) -> AsyncIterator[HttpxSender]:
    """A sender with a client of its own. `trust_env`: with the proxies and certificates of the environment."""
    settings = load_settings(EnvFile({"AGENTRUN_TRUST_ENV": str(trust_env)}, ["AGENTRUN_TRUST_ENV"]))
    async with make_client(settings.proxies(), *settings.certificates(), **how) as client:
        yield HttpxSender(client, lookup)


def with_sender(work: Callable[[HttpxSender], Coroutine[Any, Any, T]], *, trust_env: bool = False, **known: str) -> T:
    """Do something with a sender. Afterwards nothing of it is left in the event loop."""

    async def whole() -> T:
        async with open_sender(secret_lookup(**{"KEY": "value-of-key", **known}), trust_env=trust_env) as sender:
            try:
                return await work(sender)
            finally:
                assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(whole())


async def until_idle_connections_are_readable(sender: HttpxSender) -> None:
    """Wait until something has arrived on each idle connection, or its end. Then it is not used again."""
    limited: Any = sender._client._transport
    idle = [each for pool in limited._transports.values() for kept in pool._idle.values() for each in kept]
    assert idle
    while not all(each.has_expired() for each in idle):  # noqa: ASYNC110  # the system tells nobody
        await asyncio.sleep(0.005)


def send(
    what: str | HttpCall,
    *,
    gap: int = PATIENCE,
    time: int = PATIENCE,
    heard: Callable[[bytes], None] | None = None,
    **how: Any,
) -> HttpReply:
    sent = call(what) if isinstance(what, str) else what
    return with_sender(lambda sender: sender.send(sent, gap=gap, time=time, heard=heard), **how)


def error_of(what: str | HttpCall, **how: Any) -> AgentrunError:
    with pytest.raises(ProviderError) as caught:
        send(what, **how)
    return caught.value
