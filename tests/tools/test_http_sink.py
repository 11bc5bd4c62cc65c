"""Answers that are posted: what is sent, what counts as delivered, what is sent again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import UNSET

from agentrun.core.effects import Deliver
from agentrun.core.fault import Fault
from agentrun.core.package import HttpSink
from agentrun.core.package_tools import Auth
from agentrun.net.sender import HttpxSender
from agentrun.tools.sinks import HttpSinks
from agentrun.wire import HttpReply

from ..servers import CLOSE, Server, closed_port
from .endpoints import SECRET, lookup

DONE = HttpReply(201, (), b"made")


def delivered(url: str, output: Any = UNSET, *, private: bool = True, **headers: str) -> Fault | None:
    auth = Auth(secret="${SHOP_KEY}", header="X-Key", scheme="")
    sink = HttpSink(delivery="required", timeout=5000, url=url, headers=headers, auth=auth, private_network=private)

    async def whole() -> Fault | None:
        sender = HttpxSender(lambda name: lookup(name, BASE=url))
        try:
            return await HttpSinks(sender).deliver(Deliver("d1", "post", sink, "It is läte.", output, "key-1"))
        finally:
            await sender.close()

    return asyncio.run(whole())


def test_an_answer() -> None:
    with Server(DONE) as server:
        assert delivered(f"{server.url}/in?x=1", X_Team="red") is None
    (request,) = server.requests
    assert request.line == "POST /in?x=1 HTTP/1.1"
    assert json.loads(request.body) == {"answer": "It is läte.", "key": "key-1"}
    expected = {"content-type": "application/json", "idempotency-key": "key-1", "x-key": SECRET, "x_team": "red"}
    assert expected.items() <= request.headers.items()


@pytest.mark.parametrize("output", [None, {"state": "late"}, [1]])
def test_a_parsed_answer(output: Any) -> None:
    with Server(DONE) as server:
        assert delivered(server.url, output) is None
    assert json.loads(server.requests[0].body) == {"answer": "It is läte.", "key": "key-1", "output": output}


@pytest.mark.parametrize("status", [301, 307, 400, 404, 500])
def test_what_is_refused(status: int) -> None:
    with Server(HttpReply(status, (("Location", "/x"),), SECRET.encode())) as server:
        fault = delivered(server.url)
    assert fault is not None
    assert (fault.code, fault.fields) == ("delivery.failed", {"sink": "post", "status": status})
    assert len(server.requests) == 1
    assert SECRET not in str(fault)


def test_a_lost_reply_is_asked_for_again() -> None:
    with Server([CLOSE], DONE) as server:
        assert delivered(server.url) is None
    assert [request.headers["idempotency-key"] for request in server.requests] == ["key-1", "key-1"]
    with Server([CLOSE]) as server:
        fault = delivered(server.url)
    assert fault is not None
    assert (fault.code, fault.fields["reason"], len(server.requests)) == ("delivery.failed", "closed", 2)


def test_where_it_may_not_go() -> None:
    with Server(DONE) as server:
        fault = delivered(server.url, private=False)
        odd = delivered(server.url.replace("127.0.0.1", "2130706433"))
        header = delivered(server.url, Host="elsewhere.example")
    assert [each and each.code for each in (fault, odd, header)] == ["delivery.failed"] * 3
    assert server.connections == 0


def test_nobody_is_there() -> None:
    fault = delivered(f"http://127.0.0.1:{closed_port()}/")
    assert fault is not None
    assert fault.fields["reason"] == "refused"
