"""The HTTP sink, with what it posts, what counts as delivered and what it sends again."""

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
from agentrun.net.client import HttpxSender, make_client
from agentrun.tools.sinks import HttpSinks
from agentrun.wire import HttpReply

from ..servers import CLOSE, Server, closed_port
from .http_calls import SECRET, lookup

CREATED = HttpReply(201, (), b"made")


def deliver_to(url: str, output: Any = UNSET, *, private: bool = True, **headers: str) -> Fault | None:
    auth = Auth(secret="${SHOP_KEY}", header="X-Key", scheme="")
    sink = HttpSink(delivery="required", timeout=5000, url=url, headers=headers, auth=auth, private_network=private)

    async def whole() -> Fault | None:
        async with make_client() as client:
            sender = HttpxSender(client, lambda name: lookup(name, BASE=url))
            return await HttpSinks(sender).deliver(Deliver("d1", "post", sink, "It is läte.", output, "key-1"))

    return asyncio.run(whole())


def test_answer_is_posted_as_json_with_key_and_credential() -> None:
    with Server(CREATED) as server:
        assert deliver_to(f"{server.url}/in?x=1", X_Team="red") is None
    (request,) = server.requests
    assert request.line == "POST /in?x=1 HTTP/1.1"
    assert json.loads(request.body) == {"answer": "It is läte.", "key": "key-1"}
    expected = {"content-type": "application/json", "idempotency-key": "key-1", "x-key": SECRET, "x_team": "red"}
    assert expected.items() <= request.headers.items()


@pytest.mark.parametrize("output", [None, {"state": "late"}, [1]])
def test_parsed_output_is_posted_with_the_answer(output: Any) -> None:
    with Server(CREATED) as server:
        assert deliver_to(server.url, output) is None
    assert json.loads(server.requests[0].body) == {"answer": "It is läte.", "key": "key-1", "output": output}


@pytest.mark.parametrize("status", [301, 307, 400, 404, 500])
def test_error_status_fails_the_delivery_without_a_retry(status: int) -> None:
    with Server(HttpReply(status, (("Location", "/x"),), SECRET.encode())) as server:
        fault = deliver_to(server.url)
    assert fault is not None
    assert (fault.code, fault.fields) == ("delivery.failed", {"sink": "post", "status": status})
    assert len(server.requests) == 1
    assert SECRET not in str(fault)


def test_lost_reply_is_sent_again_once_with_the_same_key() -> None:
    with Server([CLOSE], CREATED) as server:
        assert deliver_to(server.url) is None
    assert [request.headers["idempotency-key"] for request in server.requests] == ["key-1", "key-1"]
    with Server([CLOSE]) as server:
        fault = deliver_to(server.url)
    assert fault is not None
    assert (fault.code, fault.fields["reason"], len(server.requests)) == ("delivery.failed", "closed", 2)


def test_forbidden_address_or_header_fails_without_a_connection() -> None:
    with Server(CREATED) as server:
        fault = deliver_to(server.url, private=False)
        odd = deliver_to(server.url.replace("127.0.0.1", "2130706433"))
        header = deliver_to(server.url, Host="elsewhere.example")
    assert [each and each.code for each in (fault, odd, header)] == ["delivery.failed"] * 3
    assert server.connections == 0


def test_refused_connection_fails_the_delivery() -> None:
    fault = deliver_to(f"http://127.0.0.1:{closed_port()}/")
    assert fault is not None
    assert fault.fields["reason"] == "refused"
