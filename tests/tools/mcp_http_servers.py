"""MCP servers over streamable HTTP on the loopback interface, one of the SDK and one that misbehaves."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import uvicorn
from mcp.server import MCPServer

from .mcp_desk import tool


@contextmanager
def sdk_server(server: MCPServer, **app: Any) -> Iterator[str]:
    """The address of a server of the SDK."""
    config = uvicorn.Config(
        server.streamable_http_app(**app), port=0, log_level="critical", timeout_graceful_shutdown=1
    )
    served = uvicorn.Server(config)
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not served.started and time.monotonic() < end:
        time.sleep(0.01)
    port = served.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        served.should_exit = True
        thread.join()


class OddServer(ThreadingHTTPServer):
    """Answers calls of a tool as the tool's name says."""

    daemon_threads = True

    def __init__(self, *names: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.tools = [tool(name) for name in names]
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        """Method, headers and body of each request."""
        self.elsewhere = "http://127.0.0.1:9/"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def calls(self) -> list[str]:
        bodies = [body for _, _, body in self.asked if body and body.get("method") == "tools/call"]
        return [body["params"]["name"] for body in bodies]

    def __enter__(self) -> OddServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error here."""


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OddServer

    def log_message(self, format: str, *args: Any) -> None:  # Python's own name
        """Quiet."""

    def do_GET(self) -> None:
        self.server.asked.append(("GET", dict(self.headers), None))
        self.reply(405)

    def do_DELETE(self) -> None:
        self.server.asked.append(("DELETE", dict(self.headers), None))
        self.reply(200)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(("POST", dict(self.headers), body))
        match body.get("method"):
            case "initialize":
                info = {"name": "odd", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                self.says(body, result, ("Mcp-Session-Id", "s1"))
            case "tools/list":
                self.says(body, {"tools": self.server.tools})
            case "tools/call":
                ACTS.get(body["params"]["name"], _Answers.json)(self, body)
            case _:
                self.reply(202)

    def reply(self, status: int, data: bytes = b"", *fields: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*fields, ("Content-Length", str(len(data)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def says(self, request: Any, result: Any, *fields: tuple[str, str]) -> None:
        data = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        self.reply(200, data, ("Content-Type", "application/json"), *fields)

    def text(self, text: str) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": text}]}

    def json(self, request: Any) -> None:
        self.says(request, self.text("json"))

    def stream(self, *events: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            for event in events:
                self.wfile.write(event)
                self.wfile.flush()

    def sse(self, request: Any) -> None:
        message = {"jsonrpc": "2.0", "id": request["id"], "result": self.text("sse")}
        self.stream(b": hello\n\n", f"data: {json.dumps(message)}\n\n".encode())

    def cut(self, request: Any) -> None:
        del request
        self.stream(b": hello\n\n", b'data: {"jsonrpc": "2.0", ')

    def flood(self, request: Any) -> None:
        note = b'data: {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}}\n\n'
        message = {"jsonrpc": "2.0", "id": request["id"], "result": self.text("after the flood")}
        self.stream(note * 5000, f"data: {json.dumps(message)}\n\n".encode())

    def drips(self, request: Any) -> None:
        del request
        self.stream(*self.endless())

    def endless(self) -> Iterator[bytes]:
        while True:
            time.sleep(0.05)
            yield b": still there\n\n"

    def drops(self, request: Any) -> None:
        del request
        self.close_connection = True
        self.connection.close()

    def zipped(self, request: Any) -> None:
        data = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": self.text("x" * 50_000_000)}).encode()
        fields = ("Content-Type", "application/json"), ("Content-Encoding", "gzip")
        with suppress(OSError):
            self.reply(200, gzip.compress(data, 1), *fields)

    def large(self, request: Any) -> None:
        with suppress(OSError):
            self.says(request, self.text("x" * 11_000_000))

    def echo(self, request: Any) -> None:
        self.says(request, self.text(str(self.headers.get("X-Key"))))


ACTS: dict[str, Callable[[_Answers, Any], None]] = {
    "sse": _Answers.sse,
    "cut": _Answers.cut,
    "flood": _Answers.flood,
    "drips": _Answers.drips,
    "drops": _Answers.drops,
    "zipped": _Answers.zipped,
    "large": _Answers.large,
    "echo": _Answers.echo,
    "broken": lambda self, request: self.reply(500, b"secret stack trace"),
    "busy": lambda self, request: self.reply(503),
    "login": lambda self, request: self.reply(
        401, b"", ("WWW-Authenticate", 'Bearer resource_metadata="http://127.0.0.1:9/"')
    ),
    "away": lambda self, request: self.reply(307, b"", ("Location", self.server.elsewhere)),
    "script": lambda self, request: self.reply(302, b"", ("Location", "javascript:alert(1)")),
    "html": lambda self, request: self.reply(200, b"<html>", ("Content-Type", "text/html")),
    "garbage": lambda self, request: self.reply(200, b"Welcome!", ("Content-Type", "application/json")),
    "wrong": lambda self, request: self.reply(
        400,
        json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "no such paper"}}).encode(),
        ("Content-Type", "application/json"),
    ),
    "forgotten": lambda self, request: self.reply(404),
}
