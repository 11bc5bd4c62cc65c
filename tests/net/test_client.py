"""`HttpxSender`: what it sends and returns over real connections, and what it keeps."""

import asyncio
import threading

import pytest

from agentrun.net.client import HttpxSender, make_client
from agentrun.wire import HttpAuth, HttpCall, HttpReply

from ..servers import CLOSE, Server, WaitFor, head, reply_with_length, streamed
from .http_requests import GOOD, KEY, PATIENCE, call, send, until_idle_connections_are_readable, with_sender


def test_request_and_reply_are_sent_and_read_exactly() -> None:
    with Server(HttpReply(201, (("X-Odd", "caf\xe9"), ("X-Odd", "2")), b"made")) as server:
        reply = send(call(f"{server.url}/v1/x?a=b", b"body", HttpAuth("authorization", "Bearer ", "KEY"), accept="a/b"))
    assert reply == HttpReply(201, (("x-odd", "caf\xe9"), ("x-odd", "2"), ("content-length", "4")), b"made")
    (request,) = server.requests
    assert request.line == "POST /v1/x?a=b HTTP/1.1"
    assert request.body == b"body"
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "application/json",
        "accept": "a/b",
        "authorization": "Bearer value-of-key",
        "accept-encoding": "identity",
        "user-agent": "agentrun",
        "content-length": "4",
    }


def test_variables_are_filled_in() -> None:
    with Server(GOOD) as server:
        send(call("${BASE}/x", x_team="a ${TEAM} b", auth=None), BASE=server.url, TEAM="red")
    assert server.requests[0].line == "POST /x HTTP/1.1"
    assert server.requests[0].headers["x_team"] == "a red b"


def test_a_header_of_the_request_wins() -> None:
    with Server(GOOD) as server:
        send(HttpCall("POST", server.url, (("User-Agent", "mine"),), b""))
    assert server.requests[0].headers["user-agent"] == "mine"


def test_connection_is_reused_and_keeps_no_cookies() -> None:
    cookie = HttpReply(200, (("Set-Cookie", "a=b; Path=/"),), b"{}")

    async def thrice(sender: HttpxSender) -> None:
        for _ in range(3):
            await sender.send(call(server.url), gap=PATIENCE, time=PATIENCE)

    with Server(cookie) as server:
        with_sender(thrice)
        assert server.is_quiet(), "closing the sender closes its connections"
    assert [request.connection for request in server.requests] == [1, 1, 1]
    assert all("cookie" not in request.headers for request in server.requests)


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async def twice(sender: HttpxSender) -> list[int]:
        statuses = []
        for _ in range(2):
            statuses.append((await sender.send(call(server.url), gap=PATIENCE, time=PATIENCE)).status)
            await until_idle_connections_are_readable(sender)
        return statuses

    with Server([*reply_with_length(GOOD), CLOSE]) as server:
        assert with_sender(twice) == [200, 200]
    assert server.connections == 2


def test_redirects_are_not_followed() -> None:
    """httpx would take the key along to the other host."""
    with Server(GOOD) as other:
        moved = HttpReply(307, (("Location", f"{other.url}/else"),), b"")
        with Server(moved) as server:
            assert send(call(server.url, auth=KEY)).status == 307
    assert other.requests == []


@pytest.mark.parametrize("location", ["http://[::1", "http://a:b/", "\xe9", "//", "javascript:x"])
def test_location_that_is_no_address_is_part_of_the_reply(location: str) -> None:
    """httpx builds the next request also if it does not send it, and fails if it cannot."""
    with Server(HttpReply(302, (("Location", location),), b"moved")) as server:
        reply = send(server.url)
    assert (reply.status, reply.header("location"), reply.body) == (302, location, b"moved")


def test_client_sees_no_cookie_and_keeps_none() -> None:
    async def one() -> list[str]:
        async with make_client() as client:
            sender = HttpxSender(client, pytest.fail)
            reply = await sender.send(call(server.url, auth=None), gap=PATIENCE, time=PATIENCE)
            assert reply.header("set-cookie") == "a=b; Path=/"
            return [*client.cookies]

    with Server(HttpReply(200, (("Set-Cookie", "a=b; Path=/"),), b"{}")) as server:
        assert asyncio.run(one()) == []


def test_user_in_an_address_is_not_sent() -> None:
    """httpx would make a credential of it."""
    with Server(GOOD) as server:
        send(call(server.url.replace("//", "//ada:hunter2@"), auth=None))
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("trusted", [False, True])
def test_proxy_of_the_environment_is_used_only_with_trust_env(monkeypatch: pytest.MonkeyPatch, trusted: bool) -> None:
    """The environment's proxy is used when asked for, and not for what it excepts."""
    with Server(GOOD) as proxy, Server(GOOD) as server:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "localhost")
        send(f"{server.url}/x?y=z", trust_env=trusted)
        send(server.url.replace("127.0.0.1", "localhost"), trust_env=trusted)
    assert len(proxy.requests) == int(trusted)
    assert len(server.requests) == 2 - int(trusted)
    if trusted:
        assert proxy.requests[0].line == f"POST {server.url}/x?y=z HTTP/1.1"


def test_listener_gets_the_whole_stream() -> None:
    heard: list[bytes] = []
    with Server(streamed(b"data: 1\n\n", b"data: 2\n\n")) as server:
        reply = send(server.url, heard=heard.append)
    assert b"".join(heard) == reply.body == b"data: 1\n\ndata: 2\n\n"


def test_listener_gets_the_stream_while_it_arrives() -> None:
    """The server says the second half when the first one was heard."""
    heard: list[tuple[bytes, bool]] = []
    first = threading.Event()

    def hear(data: bytes) -> None:
        heard.append((data, first.is_set()))
        first.set()

    with Server(streamed(b"a", WaitFor(first), b"b")) as server:
        send(server.url, heard=hear, time=30_000)
    assert heard == [(b"a", False), (b"b", True)]


@pytest.mark.parametrize("status", [201, 400, 500])
def test_listener_gets_nothing_of_an_unsuccessful_reply(status: int) -> None:
    heard: list[bytes] = []
    with Server(HttpReply(status, (), b"no")) as server:
        assert send(server.url, heard=heard.append).body == b"no"
    assert heard == []


def test_two_hundred_requests_at_once() -> None:
    async def all_of_them(sender: HttpxSender) -> set[int]:
        sends = [sender.send(call(server.url), gap=PATIENCE, time=PATIENCE) for _ in range(200)]
        return {reply.status for reply in await asyncio.gather(*sends)}

    with Server(GOOD) as server:
        assert with_sender(all_of_them) == {200}
    assert len(server.requests) == 200


@pytest.mark.parametrize("length", [0, 1, 65_536, 1_000_000])
def test_bodies_of_any_size_are_sent_and_read(length: int) -> None:
    body = bytes(index % 251 for index in range(length))
    with Server(HttpReply(200, (), body)) as server:
        assert send(call(server.url, body)).body == body
    assert server.requests[0].body == body


def test_informational_replies_are_skipped() -> None:
    with Server([b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3, *reply_with_length(GOOD)]) as server:
        assert send(server.url).status == 200


def test_reply_without_a_body_is_read() -> None:
    with Server([head(204)]) as server:
        assert send(server.url) == HttpReply(204, (), b"")
