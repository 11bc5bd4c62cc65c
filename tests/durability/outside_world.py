"""The outside world of runs that are killed: a model and the services of tools, behind a real server on loopback.

It has its own log of what happened, and survives the process that it serves. It can also disturb or kill that process:
before it does what it is asked, after it has done it, or in the middle of a streamed reply.

    GET  /look?q=…     finds something; changes nothing
    PUT  /set          idempotent: with an `Idempotency-Key` that is known it changes nothing
    POST /pay          changes something each time
    POST /inbox        gets answers, each key once
    POST /v1/chat/completions
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

Chat = dict[str, Any]
USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}


class Effect(NamedTuple):
    tool: str
    about: str
    """The argument `q`."""


class OutsideWorld:
    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(self))
        self._server.daemon_threads = True
        self._lock = threading.Lock()
        self.busy = 0
        self.notes = Path()
        """A file that tools in other processes append to: lines `tool q`."""
        self.reset(Path())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def reset(self, notes: Path) -> None:
        """Begin another world."""
        self._log: Counter[tuple[Effect, str]] = Counter()
        """By effect and key."""
        self.inbox: dict[str, str] = {}
        self.notes = notes
        self.events = 0
        """Moments at which the world could disturb."""
        self.disturb(0, lambda effect: False)

    def disturb(self, at: int, action: Callable[[Effect | None], bool]) -> None:
        """Do this at an event. It gets the effect that is asked for, and returns whether the process is killed."""
        self._disturb_at, self._action, self.events = at, action, 0

    def happened(self) -> Counter[Effect]:
        """How often each thing happened."""
        done: Counter[Effect] = Counter()
        for (effect, _), times in self._log.items():
            done[effect] += times
        with suppress(FileNotFoundError):
            done.update(Effect(*line.split()) for line in self.notes.read_text(encoding="utf-8").splitlines())
        return done

    def keys(self) -> Counter[tuple[Effect, str]]:
        return Counter(self._log)

    def wait_until_quiet(self) -> None:
        """Wait until all requests of a process that is gone have been served."""
        end = time.monotonic() + 30
        while self.busy:
            assert time.monotonic() < end, "a request is still being served"
            time.sleep(0.001)

    # --- served by threads -------------------------------------------------------------------------------------------

    def moment(self, effect: Effect | None = None) -> bool:
        """An event. True: the process was killed."""
        with self._lock:
            self.events += 1
            is_due = self.events == self._disturb_at
        return is_due and self._action(effect)

    def serve(self, path: str, key: str, body: Any) -> Any:
        """None: there is no reply, because the process is gone."""
        name = path.strip("/")
        effect = Effect(name, body["q"]) if name in ("set", "pay") else None
        if self.moment(effect):
            return None
        if name == "look":
            reply = {"found": body["q"]}
        elif name == "inbox":
            self.inbox[key] = body["answer"]
            reply = {}
        else:
            assert effect is not None
            with self._lock:
                if name != "set" or not self._log[effect, key]:
                    self._log[effect, key] += 1
            reply = {"done": body["q"]}
        return None if self.moment(effect) else reply

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _make_handler(world: OutsideWorld) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def handle(self) -> None:
            with world._lock:
                world.busy += 1
            try:
                with suppress(OSError):
                    super().handle()
            finally:
                with world._lock:
                    world.busy -= 1

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            url, data = urlsplit(self.path), self.rfile.read(size)
            if url.path.endswith("/chat/completions"):
                self._chat(json.loads(data))
                return
            body = json.loads(data) if data else {name: values[0] for name, values in parse_qs(url.query).items()}
            key = self.headers.get("Idempotency-Key", "")
            reply = world.serve(url.path, key, body)
            if reply is not None:
                self._reply("application/json", json.dumps(reply).encode())

        do_GET = do_PUT = do_POST = _serve  # noqa: N815  # the names of the base class

        def _chat(self, asked: Chat) -> None:
            if world.moment():
                return
            message = MODELS[asked["model"]](asked)
            if asked.get("stream"):
                self._stream(message)
            elif not world.moment():
                finish = "tool_calls" if message.get("tool_calls") else "stop"
                choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
                body = {"id": "1", "object": "chat.completion", "model": asked["model"], "choices": [choice]}
                self._reply("application/json", json.dumps({**body, "usage": USAGE}).encode())

        def _stream(self, message: Chat) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for chunk in _chunks(message):
                if world.moment():
                    return
                self.wfile.write(b"data: " + chunk + b"\n\n")
            self.close_connection = True

        def _reply(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _chunks(message: Chat) -> Iterator[bytes]:
    def chunk(delta: Chat, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return json.dumps({"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}).encode()

    yield chunk({"role": "assistant", "content": ""})
    text = message["content"] or ""
    for start in range(0, len(text), 4):
        yield chunk({"content": text[start : start + 4]})
    for index, call in enumerate(message.get("tool_calls", ())):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, "tool_calls" if message.get("tool_calls") else "stop")
    yield json.dumps(
        {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": USAGE}
    ).encode()
    yield b"[DONE]"


# --- models: the same answer to the same request ---------------------------------------------------------------------


def _text(text: str) -> Chat:
    return {"content": text}


def _calls(*calls: tuple[str, str, str], text: str | None = None) -> Chat:
    """Calls: the tool, the name of its argument, and the value."""
    made = [
        {"id": f"call_{number}", "type": "function", "function": {"name": tool, "arguments": json.dumps({name: value})}}
        for number, (tool, name, value) in enumerate(calls)
    ]
    return {"content": text, "tool_calls": made}


def _answered(asked: Chat) -> int:
    return sum(each["role"] == "assistant" for each in asked["messages"])


def _batch(asked: Chat) -> Chat:
    if _answered(asked):
        return _text("Done.")
    tools = ("look", "set", "pay", "note", "look", "pay")
    return _calls(*((tool, "q", f"{tool[0]}{number}") for number, tool in enumerate(tools)))


def _child(asked: Chat) -> Chat:
    return _text("All done.") if _answered(asked) else _calls(("billing", "message", "Refund it."))


def _stream(asked: Chat) -> Chat:
    if _answered(asked):
        return _text("It is all there.")
    return _calls(("look", "q", "l0"), ("pay", "q", "p1"), text="I look it up.")


def _compaction(asked: Chat) -> Chat:
    if not asked.get("tools"):
        return _text("It was found.")
    is_early = any(each["role"] == "user" and each["content"] == "Hi." for each in asked["messages"])
    number = _answered(asked) if is_early else 2
    return _calls(("look", "q", str(number) * 400)) if number < 2 else _text("Done.")


MODELS: dict[str, Callable[[Chat], Chat]] = {
    "plain": lambda asked: _text("Hello."),
    "batch": _batch,
    "child": _child,
    "stream": _stream,
    "compaction": _compaction,
}
