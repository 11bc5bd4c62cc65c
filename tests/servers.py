"""A real server on the loopback interface that sends exactly the planned bytes and breaks off where planned.

    with Server(reply(200, b"{}"), [b"HTTP/1.1 200 OK\\r\\n", Wait(0.5), RESET]) as server:
        server.url, server.requests

Each plan answers one request. The last one is used again when there are more requests than plans.
"""

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from agentrun.wire import HttpReply


@dataclass(frozen=True)
class Wait:
    """Say nothing for a while."""

    seconds: float


@dataclass(frozen=True)
class WaitFor:
    """Say nothing until this is set."""

    event: threading.Event


@dataclass(frozen=True)
class Drip:
    """The same bytes again and again, until the other side has enough."""

    data: bytes
    every: float


CLOSE = "close"
RESET = "reset"
Step = bytes | Wait | WaitFor | Drip | str
Plan = Sequence[Step]


@dataclass
class Request:
    """What a client sent."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """Which connection it came on, from 1."""
    at: float = field(default_factory=time.monotonic)


class Server:
    """Answers by plan, each connection in a thread of its own."""

    def __init__(self, *plans: Plan | HttpReply, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.plans = [reply_with_length(plan) if isinstance(plan, HttpReply) else plan for plan in plans]
        self._tls = tls
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", port), backlog=512)
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._ended = False
        self.requests: list[Request] = []
        self.connections = 0
        self.port = int(self._listening.getsockname()[1])
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """Connections that are open now, as the server sees it."""
        with self._lock:
            return len(self._open)

    def is_quiet(self, within: float = 60.0) -> bool:
        """Whether all connections are closed, now or soon."""
        end = time.monotonic() + within
        while self.open and time.monotonic() < end:
            time.sleep(0.005)
        return not self.open

    def wait(self, count: int = 1, within: float = 60.0) -> None:
        """Return when so many requests have come."""
        end = time.monotonic() + within
        while len(self.requests) < count and time.monotonic() < end:
            time.sleep(0.005)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended = True
        with self._lock:
            sockets = [self._listening, *self._open]
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._open.add(connection)
            self._start(self._serve, connection, self.connections)

    def _serve(self, connection: socket.socket, number: int) -> None:
        plain = connection
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            for request in requests_on(connection, number):
                with self._lock:
                    plan = self.plans[min(len(self.requests), len(self.plans) - 1)]
                    self.requests.append(request)
                if not self._play(plan, connection):
                    return
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(plain)
            connection.close()

    def _play(self, plan: Plan, connection: socket.socket) -> bool:
        """Whether the connection stays open."""
        for step in plan:
            match step:
                case bytes():
                    connection.sendall(step)
                case Wait(seconds):
                    self._sleep(seconds, connection)
                case WaitFor(event):
                    event.wait(60)
                case Drip(data, every):
                    while not self._ended:
                        connection.sendall(data)
                        self._sleep(every, connection)
                case _ if step == RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return False
                case _:
                    return False
        return True

    def _sleep(self, seconds: float, connection: socket.socket) -> None:
        """Ends early, with OSError, when the client leaves."""
        connection.settimeout(seconds)
        try:
            if not connection.recv(1):
                raise ConnectionError
        except TimeoutError:
            pass
        connection.settimeout(None)


def requests_on(connection: socket.socket, number: int) -> Iterator[Request]:
    """The requests that come on a connection, until it ends."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return
            data += piece
        head, _, data = data.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        length = int(headers.get("content-length", "0"))
        while len(data) < length:
            data += connection.recv(65536)
        yield Request(line, headers, data[:length], number)
        data = data[length:]


def head(status: int = 200, *headers: tuple[str, str]) -> bytes:
    """A status line and headers."""
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def reply_with_length(reply: HttpReply) -> Plan:
    """A whole reply that says its length."""
    return [head(reply.status, *reply.headers, ("Content-Length", str(len(reply.body)))) + reply.body]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"
STREAM = head(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))


def streamed(*pieces: bytes | Wait | WaitFor | Drip | str) -> Plan:
    """A whole reply in chunks."""
    return [STREAM, *(chunk(piece) if isinstance(piece, bytes) else piece for piece in pieces), LAST]


def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
