"""A server on the loopback interface that answers Chat Completions with a function of the messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, TypeAlias

Messages: TypeAlias = list[dict[str, Any]]
Answer: TypeAlias = str | dict[str, Any]
"""A text; or a call: its tool, and the arguments under `args`."""
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@contextmanager
def function_model(answer: Callable[[Messages], Answer], hang: Event | None = None) -> Iterator[str]:
    """The address of the server. `hang`: a streamed reply waits for it after its first word."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # the name that `http.server` calls
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found = answer(body["messages"])
            if isinstance(found, str):
                first, *others = found.split(" ")
                pieces: list[dict[str, Any]] = [{"content": first}, *({"content": f" {word}"} for word in others)]
                message: dict[str, Any] = {"role": "assistant", "content": found}
                finish = "stop"
            else:
                function = {"name": found["tool"], "arguments": json.dumps(found["args"])}
                call = {"id": "call_1", "type": "function", "function": function}
                pieces = [{"tool_calls": [{"index": 0, **call}]}]
                message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
            if not body.get("stream"):
                choice = {"index": 0, "message": message, "finish_reason": finish}
                self._send("application/json", [json.dumps({"choices": [choice], "usage": USAGE})])
                return
            chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
            chunks.append({"choices": [], "usage": USAGE})
            self._send("text/event-stream", [f"data: {each}\n\n" for each in [*map(json.dumps, chunks), "[DONE]"]])

        def _send(self, media_type: str, pieces: list[str]) -> None:
            self.send_response(200)
            self.send_header("content-type", media_type)
            self.send_header("content-length", str(sum(len(piece.encode()) for piece in pieces)))
            self.end_headers()
            for number, piece in enumerate(pieces):
                if number == 1 and hang is not None:
                    hang.wait(60)
                self.wfile.write(piece.encode())
                self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client may close its connection."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        if hang is not None:
            hang.set()
        server.shutdown()
        thread.join()
        server.server_close()
