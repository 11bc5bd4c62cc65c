"""The HTTP server of the scripted provider.

Rule 1  It always listens on 127.0.0.1 only.
Rule 2  Requests are kept for the caller and never printed, because they contain keys and data.
Rule 3  `close` ends all threads and connections, however long a fault would still last.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from threading import Event, Lock, Thread
from typing import Any, Self

from msgspec import Struct

from agentrun.compiler.validate import parse_script, read_script
from agentrun.spec.problems import Source
from agentrun.spec.v1.provider import ProviderFile
from agentrun.testing.provider.anthropic import MessagesFormat
from agentrun.testing.provider.gemini import GeminiFormat
from agentrun.testing.provider.openai_chat import ChatFormat
from agentrun.testing.provider.openai_responses import ResponsesFormat
from agentrun.testing.provider.script_player import ScriptPlayer, ServerReply
from agentrun.testing.provider.wire_format import WireFormat
from agentrun.wire import SCRIPTED_PROVIDER_NAME

LISTEN_ADDRESS = "127.0.0.1"
POLL_SECONDS = 0.02
FORMATS: tuple[tuple[str, WireFormat], ...] = (
    (r"/chat/completions$", ChatFormat()),
    (r"/responses$", ResponsesFormat()),
    (r"/messages$", MessagesFormat()),
    (r"/models/[^/]+:(generateContent|streamGenerateContent)$", GeminiFormat()),
)
MAX_REQUEST_BYTES = 64 * 1024 * 1024
SERVED_PATHS = (
    "…/chat/completions, …/responses, …/messages, …/models/NAME:generateContent, …:streamGenerateContent?alt=sse"
)


class ScriptedProvider:
    """A provider that plays a script. Use it with `with`, or call `start` and `close`."""

    def __init__(
        self,
        script: ProviderFile | Path | str,
        *,
        port: int = 0,
        listen: Callable[[ReceivedRequest], None] = lambda received: None,
        after: Callable[[ReceivedRequest], None] = lambda received: None,
    ) -> None:
        """`script`: a file, or the text of one. `port` 0 takes a free one. `listen` is called for each request before
        it is answered, in the order of arrival; `after` is called after the reply.

        Raises `DocumentError` for an invalid script and OSError if the port is not available.
        """
        self.player = ScriptPlayer(_load_script(script))
        self.requests: list[ReceivedRequest] = []
        self.is_closing = Event()
        self._listen = listen
        self.after = after
        self._lock = Lock()
        self._connections: set[socket.socket] = set()
        self._server = _Server(port, self)
        self._thread = Thread(target=self._server.serve_forever, args=(POLL_SECONDS,), name="scripted provider")

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{LISTEN_ADDRESS}:{self.port}"

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def note_request(self, received: ReceivedRequest) -> None:
        with self._lock:
            self.requests.append(received)
            self._listen(received)

    def add_connection(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
        if self.is_closing.is_set():
            _hang_up(connection)

    def remove_connection(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)


class _Server(ThreadingTCPServer):
    """Not `http.server.HTTPServer`, which looks up the host name and may take seconds."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, host: ScriptedProvider) -> None:
        super().__init__((LISTEN_ADDRESS, port), type("Connection", (ProviderConnection,), {"host": host}))

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _load_script(script: ProviderFile | Path | str) -> ProviderFile:
    if isinstance(script, str):
        return parse_script(Source(Path("script.yaml"), "script.yaml", script))
    return read_script(script) if isinstance(script, Path) else script


def format_of(path: str) -> WireFormat | None:
    plain = path.partition("?")[0]
    return next((format for pattern, format in FORMATS if re.search(pattern, plain)), None)


class ReceivedRequest(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    headers: dict[str, str]
    """Their names in lower case."""
    body: bytes
    provider: str | None
    """The provider of its wire format. None: unknown."""
    turn: int | None
    """The turn of the script, from 1."""
    status: int
    is_turn: bool
    """Whether it got the complete reply of the turn."""


class ConnectionGone(Exception):
    """The server is being closed."""


class ProviderConnection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    host: ScriptedProvider

    def setup(self) -> None:
        super().setup()
        self.host.add_connection(self.connection)

    def finish(self) -> None:
        self.host.remove_connection(self.connection)
        with suppress(OSError):
            super().finish()

    def do_POST(self) -> None:  # the name that `http.server` calls
        body = self._read_body()
        if isinstance(body, ServerReply):
            self.close_connection = True  # the rest of the body would be parsed as the next request
            self._reply(body, b"", None)
            return
        format = format_of(self.path)
        if format is None:
            self._reply(_text_reply(404, f"not found; this server has {SERVED_PATHS}"), body, None)
        else:
            self._reply(self.host.player.reply_to(format, self.path, body), body, format.name)

    def do_GET(self) -> None:  # the name that `http.server` calls
        self._reply(_text_reply(404, f"not found; send POST requests to {SERVED_PATHS}"), b"", None)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _read_body(self) -> bytes | ServerReply:
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return _text_reply(411, "the request needs a content-length header")
        if int(length[:20]) > MAX_REQUEST_BYTES:
            return _text_reply(413, f"the request is larger than {MAX_REQUEST_BYTES} bytes")
        return self.rfile.read(int(length))

    def _reply(self, answer: ServerReply, body: bytes, provider: str | None) -> None:
        received = ReceivedRequest(
            method=self.command,
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            provider=provider,
            turn=answer.turn,
            status=answer.status,
            is_turn=answer.is_turn,
        )
        self.host.note_request(received)
        try:
            self._send(answer)
        except (ConnectionGone, OSError):
            self.close_connection = True
        self.host.after(received)

    def _send(self, answer: ServerReply) -> None:
        self._wait(answer.delay)
        self._send_head(answer)
        left = answer.cut
        for index, piece in enumerate(_body_pieces(answer)):
            if index:
                self._wait(answer.gap)
            if left is not None and left < len(piece):
                self._send_piece(piece[:left], answer)
                self.close_connection = True
                return
            self._send_piece(piece, answer)
            left = None if left is None else left - len(piece)
        if answer.framing == "chunked":
            self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, answer: ServerReply) -> None:
        ends = {
            "length": ("content-length", str(sum(map(len, answer.pieces)))),
            "chunked": ("transfer-encoding", "chunked"),
            "close": ("connection", "close"),
        }
        own = {"date": formatdate(usegmt=True), "server": SCRIPTED_PROVIDER_NAME, "content-type": answer.content_type}
        own.update([ends[answer.framing]])
        self.send_response_only(answer.status)
        for name, value in {**own, **{name.lower(): value for name, value in answer.headers.items()}}.items():
            self.send_header(name, value)  # closes the connection afterwards if it is `connection: close`
        self.end_headers()

    def _send_piece(self, piece: bytes, answer: ServerReply) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.framing == "chunked" else piece)

    def _wait(self, milliseconds: int) -> None:
        if milliseconds and self.host.is_closing.wait(milliseconds / 1000):
            raise ConnectionGone


def _body_pieces(answer: ServerReply) -> Iterator[bytes]:
    """The pieces of a body. An endless body never gets to its last piece."""
    yield from answer.pieces[:-1]
    while answer.filler:
        yield answer.filler
    yield from answer.pieces[-1:]


def _text_reply(status: int, message: str) -> ServerReply:
    return ServerReply(status=status, content_type="text/plain; charset=utf-8", pieces=(f"{message}\n".encode(),))
