"""The server: a real socket, behind which a script plays.

Rule 1  It listens on this machine alone (127.0.0.1), whatever is asked.
Rule 2  What it was asked is kept for whoever made it; nothing of it is printed here, for keys and data stand in it.
Rule 3  When it is closed nothing is left: not a thread, not a connection, however long a fault would still last.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socketserver import ThreadingTCPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

from agentrun.compiler.scripts import read_script, script_of
from agentrun.spec.problems import Source
from agentrun.spec.v1.provider import ProviderFile
from agentrun.testing.provider.connection import Connection, Host, Seen
from agentrun.testing.provider.play import Play

ADDRESS = "127.0.0.1"
POLL = 0.02


class ScriptedProvider:
    """A provider that plays a script. Use it with `with`, or call `start` and `close`."""

    def __init__(
        self,
        script: ProviderFile | Path | str,
        *,
        port: int = 0,
        listen: Callable[[Seen], None] = lambda seen: None,
        after: Callable[[Seen], None] = lambda seen: None,
    ) -> None:
        """`script`: a file, or the text of one. `port` 0 takes a free one. `listen` hears of each request before it is
        answered, in the order in which they come; `after` hears of it afterwards.

        Raises DocumentError for a script that cannot be played, OSError for a port that cannot be had.
        """
        self.play = Play(_read(script))
        self.requests: list[Seen] = []
        self.is_closing = Event()
        self._listen = listen
        self._after = after
        self._lock = Lock()
        self._connections: set[socket.socket] = set()
        self._server = _Server(port, self)
        self._thread = Thread(target=self._server.serve_forever, args=(POLL,), name="scripted provider")

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.is_closing.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        with self._lock:
            for connection in self._connections:
                _hang_up(connection)
        self._server.server_close()  # waits for the threads of all connections

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def saw(self, seen: Seen) -> None:
        with self._lock:
            self.requests.append(seen)
            self._listen(seen)

    def answered(self, seen: Seen) -> None:
        self._after(seen)

    def keep(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
        if self.is_closing.is_set():
            _hang_up(connection)

    def forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)


class _Server(ThreadingTCPServer):
    """Not the library's server for HTTP: that one looks up the name of the host, which can take seconds."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, host: Host) -> None:
        super().__init__((ADDRESS, port), type("Connection", (Connection,), {"host": host}))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _read(script: ProviderFile | Path | str) -> ProviderFile:
    match script:
        case ProviderFile():
            return script
        case Path():
            return read_script(script)
        case _:
            return script_of(Source(Path("script.yaml"), "script.yaml", script))
