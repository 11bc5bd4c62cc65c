"""Send requests with `HttpxSender` over a real socket."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from agentrun.errors import AgentrunError, ProviderError
from agentrun.net.sender import HttpxSender
from agentrun.secret import Secret
from agentrun.wire import HttpAuth, HttpCall, HttpReply

T = TypeVar("T")
KEY = HttpAuth("x-api-key", "", "KEY")
JSON = (("content-type", "application/json"),)
GOOD = HttpReply(200, (("Content-Type", "application/json"),), b'{"a": 1}')


def values(**known: str) -> Callable[[str], Secret]:
    return lambda name: Secret(known[name])


def call(url: str, body: bytes = b"{}", auth: HttpAuth | None = KEY, **headers: str) -> HttpCall:
    return HttpCall("POST", url, (*JSON, *headers.items()), body, auth)


def with_sender(work: Callable[[HttpxSender], Coroutine[Any, Any, T]], *, trust_env: bool = False, **known: str) -> T:
    """Do something with a sender. Afterwards nothing of it is left in the event loop."""

    async def whole() -> T:
        sender = HttpxSender(values(**{"KEY": "value-of-key", **known}), trust_env=trust_env)
        try:
            return await work(sender)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            await sender.close()
            assert not left

    return asyncio.run(whole())


def send(
    what: str | HttpCall,
    *,
    gap: int = 5_000,
    time: int = 10_000,
    heard: Callable[[bytes], None] | None = None,
    **how: Any,
) -> HttpReply:
    sent = call(what) if isinstance(what, str) else what
    return with_sender(lambda sender: sender.send(sent, gap=gap, time=time, heard=heard), **how)


def error_of(what: str | HttpCall, **how: Any) -> AgentrunError:
    with pytest.raises(ProviderError) as caught:
        send(what, **how)
    return caught.value
