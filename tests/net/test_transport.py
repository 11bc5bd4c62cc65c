"""Connections of the sender, their reuse and their cleanup."""

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from typing import Any

import httpx
import pytest

from agentrun.net.client import HttpxSender
from agentrun.net.transport import PooledTransport
from agentrun.wire import HttpReply

from ..servers import CLOSE, Plan, Server, Wait, WaitFor, head, reply_with_length
from .http_requests import GOOD, PATIENCE, call, send, until_idle_connections_are_readable, with_sender

TIMEOUT_HEAD = head(408, ("Content-Length", "0"), ("Connection", "close"))


@pytest.mark.parametrize("unasked", [[TIMEOUT_HEAD], [TIMEOUT_HEAD, CLOSE], [b"x"], [CLOSE]])
def test_unrequested_reply_on_an_idle_connection_is_ignored(unasked: Plan) -> None:
    """Some servers say 408 on a connection that was idle too long."""
    was_read = threading.Event()

    async def twice(sender: HttpxSender) -> list[int]:
        first = await sender.send(call(server.url), gap=PATIENCE, time=PATIENCE)
        was_read.set()
        await until_idle_connections_are_readable(sender)
        second = await sender.send(call(server.url), gap=PATIENCE, time=PATIENCE)
        return [first.status, second.status]

    with Server([*reply_with_length(GOOD), WaitFor(was_read), *unasked], GOOD) as server:
        assert with_sender(twice) == [200, 200]
    assert [request.connection for request in server.requests] == [1, 2]


def test_connection_of_a_reply_without_a_length_is_not_reused() -> None:
    async def twice(sender: HttpxSender) -> None:
        for _ in range(2):
            assert (await sender.send(call(server.url), gap=PATIENCE, time=PATIENCE)).body == b"all"

    with Server([head(200) + b"all", CLOSE]) as server:
        with_sender(twice)
    assert [request.connection for request in server.requests] == [1, 2]


def test_requests_at_once_have_connections_of_their_own() -> None:
    async def twice(sender: HttpxSender) -> None:
        for _ in range(2):
            await asyncio.gather(*(sender.send(call(server.url), gap=PATIENCE, time=PATIENCE) for _ in range(3)))

    with Server([Wait(0.1), *reply_with_length(GOOD)]) as server:
        with_sender(twice)
    assert sorted(request.connection for request in server.requests) == [1, 1, 2, 2, 3, 3]


def test_servers_have_connections_of_their_own() -> None:
    async def both(sender: HttpxSender) -> None:
        for url in (one.url, two.url) * 2:
            await sender.send(call(url), gap=PATIENCE, time=PATIENCE)

    with Server(GOOD) as one, Server(GOOD) as two:
        with_sender(both)
    assert (one.connections, two.connections) == (1, 1)


@pytest.mark.parametrize("_again", range(5))
def test_early_refusal_of_a_large_request_is_read(_again: int) -> None:
    """What it says counts, although the rest could not be sent."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(head(413, ("Content-Length", "9"), ("Connection", "close")) + b"too large")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        reply = send(call(f"http://127.0.0.1:{listening.getsockname()[1]}", b"x" * 20_000_000))
        thread.join()
    assert (reply.status, reply.body) == (413, b"too large")


def test_large_reply_is_complete_for_a_slow_reader() -> None:
    """All of a large reply comes, and in order, although it comes faster than it is read."""
    body = b"".join(b"%07d\n" % number for number in range(1_000_000))

    async def slowly(sender: HttpxSender) -> HttpReply:
        reply = asyncio.ensure_future(sender.send(call(server.url), gap=PATIENCE, time=PATIENCE))
        for _ in range(20):
            await asyncio.sleep(0.001)
        return await reply

    with Server(HttpReply(200, (), body)) as server:
        assert with_sender(slowly).body == body


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2])
def test_a_handshake_that_is_stopped_leaves_nothing(moment: float) -> None:
    """The server never says a word of TLS."""

    async def stopped(sender: HttpxSender) -> None:
        task = asyncio.ensure_future(sender.send(call(url), gap=PATIENCE, time=PATIENCE))
        await asyncio.sleep(moment)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with Server(GOOD) as server:
        url = server.url.replace("http", "https")
        with_sender(stopped)
        assert server.is_quiet()


@pytest.mark.parametrize("is_told", [True, False])
def test_reply_cancelled_while_closing_leaves_no_connection(is_told: bool) -> None:
    """A deadline may pass in the very moment in which the reply is put away. Stopped twice, the library takes a reply
    for closed that is not, and says nothing."""

    class Stopped:
        async def aclose(self) -> None:
            if is_told:
                raise asyncio.CancelledError

    async def give_up() -> None:
        transport = PooledTransport(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        response = await transport.handle_async_request(httpx.Request("GET", server.url))
        stream: Any = response.stream
        stream._response = Stopped()
        with suppress(asyncio.CancelledError):
            await response.aclose()
        assert stream._connection.is_closed()

    with Server(GOOD) as server:
        asyncio.run(give_up())
