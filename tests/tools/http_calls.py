"""Calls of HTTP tools, over the loopback interface or with a scripted sender."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import convert

from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.package_tools import HttpTool
from agentrun.net.client import HttpxSender, make_client
from agentrun.secret import Secret
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall, HttpReply

TOOL: dict[str, Any] = {
    "kind": "http",
    "description": "Does something.",
    "parallel": False,
    "timeout": 60_000,
    "visible": None,
    "observation": False,
    "terminal": False,
    "aborts_siblings": False,
    "on_denied": "tell",
    "effect": "read",
    "args": {"type": "object"},
    "actions": {},
    "url": "http://shop.example/",
    "method": "GET",
    "query": {},
    "headers": {},
    "body": None,
    "auth": None,
    "result": None,
    "hosts": [],
    "private_network": True,
    "max_bytes": 1_000_000,
}
AUTH = {"secret": "${SHOP_KEY}", "header": "Authorization", "scheme": "Bearer"}
SECRET = "Zq7-value-of-the-key"  # planted


def http_call(arguments: dict[str, Any] | None = None, params: dict[str, Any] | None = None, **tool: Any) -> RunTool:
    made = convert(TOOL | tool, HttpTool)
    return RunTool("c1.0", "shop", made, arguments or {}, "key-of-the-call", 2000, 51200, params or {})


def lookup(name: str, **known: str) -> Secret:
    return Secret({"SHOP_KEY": SECRET, **known}[name])


def run(call: RunTool, **known: str) -> ToolReturn:
    """What a call gives over real connections. Nothing is left of it."""

    async def whole() -> ToolReturn:
        async with make_client() as client:
            try:
                return await HttpTools(HttpxSender(client, lambda name: lookup(name, **known))).run(call)
            finally:
                assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(whole())


def text_of(returned: ToolReturn) -> str:
    (part,) = returned.parts
    return getattr(part, "text", "")


class Answers:
    """A sender that gives what it is told to give, and keeps what it was asked."""

    def __init__(self, *replies: HttpReply | Exception) -> None:
        self._replies = list(replies)
        self.calls: list[HttpCall] = []

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        del gap, time, heard
        self.calls.append(call)
        reply = self._replies[min(len(self.calls), len(self._replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply


def request_of_call(call: RunTool) -> HttpCall:
    """The request that a call makes."""
    sender = Answers(HttpReply(200, (), b"ok"))
    returned = asyncio.run(HttpTools(sender).run(call))
    assert returned.fault is None, returned.fault
    return sender.calls[0]


def refusal_of_call(call: RunTool) -> str:
    """Why a call makes no request."""
    sender = Answers(HttpReply(200, (), b"ok"))
    returned = asyncio.run(HttpTools(sender).run(call))
    assert returned.fault is not None, sender.calls
    assert (returned.fault.code, sender.calls) == ("tool.execution", [])
    return returned.fault.message


def result_of_reply(call: RunTool, reply: HttpReply) -> ToolReturn:
    return asyncio.run(HttpTools(Answers(reply)).run(call))
