"""HTTP tools over real connections, with redirects, lost replies, limits and credentials."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import pytest

from agentrun.core.effects import ToolReturn
from agentrun.net.client import HttpxSender, make_client
from agentrun.tools.http import MAX_REDIRECTS, HttpTools
from agentrun.wire import HttpReply

from ..hand_loop import HandLoop, run_by_hand
from ..servers import CLOSE, RESET, Drip, Plan, Server, Wait, closed_port, head
from .http_calls import AUTH, SECRET, http_call, lookup, run, text_of

JSON = (("Content-Type", "application/json"),)
GOOD = HttpReply(200, JSON, b'{"ok": true}')
CUT_PLAN: Plan = [head(200, ("Content-Length", "100")) + b"half", CLOSE]


def redirect_to(to: str, status: int = 302) -> HttpReply:
    return HttpReply(status, (("Location", to),), b"")


def fault(returned: ToolReturn) -> Any:
    assert returned.fault is not None, returned
    return returned.fault


def test_call_sends_the_arguments_and_the_credential() -> None:
    with Server(GOOD) as server:
        call = http_call({"id": "7"}, url=f"{server.url}/o/{{{{ args.id }}}}", auth=AUTH, result="ok")
        assert text_of(run(call)) == "true"
    (request,) = server.requests
    assert request.line == "GET /o/7 HTTP/1.1"
    assert request.headers["authorization"] == f"Bearer {SECRET}"


# --- redirections -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_redirections_are_followed(status: int, method: str) -> None:
    good = HttpReply(200, JSON, b"") if method == "HEAD" else GOOD
    with Server(redirect_to("b?x=1#top", status), good) as server:
        returned = run(http_call(url=f"{server.url}/a/a", auth=AUTH, method=method))
    assert returned.fault is None
    assert [request.line for request in server.requests] == [f"{method} /a/a HTTP/1.1", f"{method} /a/b?x=1 HTTP/1.1"]
    assert server.requests[1].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_other_methods_are_not_redirected(method: str) -> None:
    with Server(redirect_to("/b", 307)) as server:
        assert "status 307" in text_of(run(http_call(url=f"{server.url}/a", method=method, effect="idempotent")))
    assert len(server.requests) == 1


def test_redirects_over_the_limit_are_refused() -> None:
    with Server(*[redirect_to(f"/{n}") for n in range(MAX_REDIRECTS)], GOOD) as server:
        assert run(http_call(url=server.url)).fault is None
    with Server(redirect_to("/again")) as server:
        assert fault(run(http_call(url=server.url))).fields["reason"] == "redirects"
        assert len(server.requests) == MAX_REDIRECTS + 1


def test_a_redirection_leaves_credentials_behind() -> None:
    with Server(GOOD) as other, Server(redirect_to(f"{other.url}/b")) as server:
        hosts = [f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}"]
        headers = {"X-Tenant": "${SHOP_KEY}", "X-Team": "red", "Accept": "a/b"}
        assert run(http_call(url=f"{server.url}/a", auth=AUTH, hosts=hosts, headers=headers)).fault is None
    assert SECRET in server.requests[0].headers["x-tenant"]
    assert not {"authorization", "x-tenant", "x-team"} & other.requests[0].headers.keys()
    assert other.requests[0].headers["accept"] == "a/b"
    assert SECRET not in str(other.requests)


@pytest.mark.parametrize(
    "to",
    ["http://127.0.0.2:{port}/b", "http://2130706433:{port}/", "http://a@127.0.0.1:{port}/", "http://[::1]:{port}/",
     "http://127.0.0.1:1/", "file:///etc/passwd", "http://[", "gopher://127.0.0.1:{port}/"],
)  # fmt: skip
def test_redirect_to_a_forbidden_address_is_refused(to: str) -> None:
    with Server(GOOD) as other, Server(redirect_to(to.format(port=other.port))) as server:
        assert fault(run(http_call(url=f"{server.url}/a"))).code == "tool.execution"
    assert (len(server.requests), other.connections) == (1, 0)


def test_variables_in_a_redirect_location_are_not_filled_in() -> None:
    """`Location: /${SHOP_KEY}` would bring the server whatever it asks for."""
    with Server(redirect_to("/x?${SHOP_KEY}=$SHOP_KEY"), GOOD) as server:
        run(http_call(url=f"{server.url}/a"))
    assert server.requests[1].line == "GET /x?$%7BSHOP_KEY%7D=$SHOP_KEY HTTP/1.1"


def test_redirects_below_an_address_from_a_variable() -> None:
    port = closed_port()
    with Server(redirect_to(f"http://127.0.0.1:{port}/b"), GOOD, port=port) as server:
        assert run(http_call(url="${BASE}/a", auth=AUTH), BASE=server.url).fault is None
        assert server.requests[1].headers["authorization"] == f"Bearer {SECRET}"
    with Server(redirect_to("/b"), GOOD) as server:
        assert run(http_call(url="${BASE}/a"), BASE=f"{server.url}/v1").fault is None
        assert [request.line.split()[1] for request in server.requests] == ["/v1/a", "/b"]
    with Server(redirect_to("/v1/b?c"), redirect_to("d"), GOOD) as server:
        assert run(http_call(url="${BASE}/a"), BASE=f"{server.url}/v1").fault is None
        assert [request.line.split()[1] for request in server.requests] == ["/v1/a", "/v1/b?c", "/v1/d"]
    with Server(redirect_to("//127.0.0.1.evil.example/"), GOOD) as server:
        assert fault(run(http_call(url="${BASE}/a"), BASE=server.url)).code == "tool.execution"


# --- what is lost -------------------------------------------------------------------------------------------

LOSSES: dict[str, Plan] = {
    "closed": [CLOSE],
    "reset": [RESET],
    "cut": CUT_PLAN,
    "cut in the head": [b"HTTP/1.1 200 OK\r\nContent-", CLOSE],
    "not HTTP": [b"garbage\r\n\r\n", CLOSE],
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_lost_reply_of_an_at_most_once_call_is_indeterminate(loss: Any) -> None:
    with Server(loss) as server:
        found = fault(run(http_call(url=server.url, method="POST", effect="at_most_once", body={"a": 1})))
    assert (found.code, found.fields) == ("tool.indeterminate", {"tool": "shop", "call": "c1.0"})
    assert len(server.requests) == 1


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("loss", ["closed", "reset", "cut"])
def test_lost_reply_of_a_repeatable_call_is_sent_again(loss: str, effect: str) -> None:
    with Server(LOSSES[loss], GOOD) as server:
        assert run(http_call(url=server.url, method="POST", effect=effect, body={"a": 1})).fault is None
    first, second = server.requests
    assert (first.line, first.body) == (second.line, second.body)
    keys = [request.headers.get("idempotency-key") for request in server.requests]
    assert keys == [None if effect == "read" else "key-of-the-call"] * 2


def test_lost_reply_is_retried_only_once() -> None:
    with Server([CLOSE]) as server:
        found = fault(run(http_call(url=server.url, method="PUT", effect="idempotent")))
    assert (found.code, found.fields["reason"], len(server.requests)) == ("tool.execution", "closed", 2)


@pytest.mark.parametrize("effect", ["read", "idempotent", "at_most_once"])
def test_call_that_was_not_sent_is_a_tool_execution_fault(effect: str) -> None:
    port = closed_port()
    found = fault(run(http_call(url=f"http://127.0.0.1:{port}/", method="POST", effect=effect)))
    assert (found.code, found.fields["reason"]) == ("tool.execution", "refused")
    found = fault(run(http_call(url=f"http://127.0.0.1:{port}/", method="POST", effect=effect, private_network=False)))
    assert (found.code, found.fields["reason"]) == ("tool.execution", "private_network")
    found = fault(run(http_call(url="http://no-such-name.invalid/", method="POST", effect=effect)))
    assert (found.code, found.fields["reason"]) == ("tool.execution", "dns")


def test_timeout_of_an_at_most_once_call_is_indeterminate() -> None:
    async def late(loop: HandLoop) -> ToolReturn:
        async with make_client() as client:
            call = http_call(url=server.url, method="POST", effect="at_most_once", timeout=500)
            task = asyncio.create_task(HttpTools(HttpxSender(client, lookup)).run(call))
            await asyncio.to_thread(server.wait)
            loop.advance(0.5)
            return await task

    with Server([Wait(60)]) as server:
        found = fault(run_by_hand(late))
        assert server.is_quiet()
    assert found.code == "tool.indeterminate"


def test_too_large_reply_of_an_at_most_once_call_is_not_indeterminate() -> None:
    with Server(HttpReply(200, (), b"x" * 1001)) as server:
        found = fault(run(http_call(url=server.url, method="POST", effect="at_most_once", max_bytes=1000)))
    assert (found.code, found.fields["status"]) == ("tool.execution", 200)
    assert "1000 bytes" in found.message


def test_cancelled_call_leaves_no_connection() -> None:
    async def stopped() -> None:
        async with make_client() as client:
            task = asyncio.create_task(HttpTools(HttpxSender(client, lookup)).run(http_call(url=server.url)))
            await asyncio.to_thread(server.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.is_quiet)

    with Server([head(200), Drip(b"x", 0.01)]) as server:
        asyncio.run(stopped())


def test_many_calls_leave_no_connections() -> None:
    async def many() -> None:
        async with make_client() as client:
            tools = HttpTools(HttpxSender(client, lookup))
            for _ in range(50):
                await tools.run(http_call(url=server.url, method="POST", effect="at_most_once"))
                await tools.run(http_call(url=server.url))
            assert server.open <= 2

    with Server(GOOD) as server:
        asyncio.run(many())
        assert server.is_quiet()
    assert server.connections == 51


@pytest.mark.parametrize("status", [HTTPStatus.OK, HTTPStatus.FORBIDDEN])
def test_credential_repeated_in_an_error_reply_is_masked(status: int) -> None:
    """What is no success is masked at once; the rest is for whoever shows it."""
    with Server(HttpReply(status, (), f"you sent {SECRET}".encode())) as server:
        returned = run(http_call(url=server.url, auth=AUTH))
    assert (SECRET in str(returned)) is (status == HTTPStatus.OK)
