"""The scripted provider over a real connection: byte-exact faults, and nothing left running."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentrun.core.messages import Assistant, Text, user_message
from agentrun.spec.problems import DocumentError
from agentrun.testing.provider import ScriptedProvider
from agentrun.testing.provider.server import format_of
from agentrun.wire import HttpCall

from .provider_requests import PROVIDERS, ServerAnswer, call_of, model_request, script, send


def faulty(**fault: Any) -> str:
    return script({"text": "Hello, world.", "chunk": 4, "faults": [fault]})


def faulty_and_next_reply(text: str, *, stream: bool) -> tuple[ServerAnswer, ServerAnswer]:
    """The reply with the fault, and the one after it."""
    with ScriptedProvider(text) as server:
        return send(server, model_request("openai", stream=stream)), send(
            server, model_request("openai", stream=stream)
        )


STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.mark.parametrize("provider", PROVIDERS)
@STREAMS
def test_status_fault_has_code_and_headers(provider: str, stream: bool) -> None:
    with ScriptedProvider(faulty(status=429, headers={"Retry-After": "7"})) as server:
        refused, fine = [send(server, model_request(provider, stream=stream)) for _ in range(2)]
    assert (refused.status, refused.headers["retry-after"]) == (429, "7")
    assert refused.headers["content-type"] == "application/json"
    assert refused.message == "the script has this fault before turn 1"
    assert fine.status == 200
    assert [(seen.status, seen.turn, seen.is_turn) for seen in server.requests] == [(429, 1, False), (200, 1, True)]


def test_body_fault_sends_the_given_body() -> None:
    html, fine = faulty_and_next_reply(faulty(body="<html>", content_type="text/html"), stream=False)
    assert (html.status, html.body, html.headers["content-type"]) == (200, b"<html>", "text/html")
    assert fine.headers["content-type"] == "application/json"
    made, _ = faulty_and_next_reply(faulty(status=503, body={"b": 1, "a": [2]}), stream=False)
    assert (made.status, made.body) == (503, b'{"a":[2],"b":1}')


@STREAMS
def test_damage_fault_changes_one_byte(stream: bool) -> None:
    spoilt, fine = faulty_and_next_reply(faulty(damage=11), stream=stream)
    assert [at for at in range(len(fine.body)) if spoilt.body[at] != fine.body[at]] == [11]
    assert spoilt.body[11] == 0
    beyond, _ = faulty_and_next_reply(faulty(damage=10**6), stream=stream)
    assert beyond.body == fine.body


@STREAMS
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("at", [0, 1, 40])
def test_cut_fault_ends_the_body_with_every_framing(stream: bool, framing: str, at: int) -> None:
    with ScriptedProvider(faulty(cut=at, framing=framing)) as server:
        raw = raw_response(server, stream)
        fine = send(server, model_request("openai", stream=stream)).body
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0]
    assert (b"content-length: %d" % len(fine) in head) == (framing == "length")
    assert unchunked(body) == fine[:at] if framing == "chunked" else body == fine[:at]


def test_cut_beyond_the_end_has_no_effect() -> None:
    whole, fine = faulty_and_next_reply(faulty(cut=10**6), stream=True)
    assert whole.body == fine.body


def raw_response(server: ScriptedProvider, stream: bool) -> bytes:
    """All that comes back until the other side hangs up."""
    call = call_of(model_request("openai", stream=stream))
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(call.body)}\r\n\r\n"
        connection.sendall(head.encode() + call.body)
        pieces = []
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def unchunked(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        body += rest[: int(size, 16)]
        data = rest[int(size, 16) + 2 :]
    return body


@STREAMS
def test_drip_fault_sends_small_pieces(stream: bool) -> None:
    dripped, fine = faulty_and_next_reply(faulty(drip=5), stream=stream)
    assert dripped.body == fine.body
    with ScriptedProvider(faulty(drip=5, framing="chunked")) as server:
        answer = server.player.reply_to(*question(stream))
    assert {len(piece) for piece in answer.pieces[:-1]} == {5}


def question(stream: bool) -> tuple[Any, str, bytes]:
    call = call_of(model_request("openai", stream=stream))
    return format_of(call.url), call.url, call.body


def test_delay_and_gap_faults_take_time() -> None:
    began = time.monotonic()
    faulty_and_next_reply(faulty(delay="150ms"), stream=False)
    assert time.monotonic() - began >= 0.15
    began = time.monotonic()
    slow, fine = faulty_and_next_reply(faulty(gap="30ms"), stream=True)
    assert slow.body == fine.body
    assert time.monotonic() - began >= 0.03 * (slow.body.count(b"\n\n") - 1)


@STREAMS
def test_endless_fault_never_ends_the_reply(stream: bool) -> None:
    """It goes on as long as anybody listens, and never comes to its end; closing the server ends it."""
    with ScriptedProvider(faulty(endless=True, gap="1ms")) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            _, _, body = question(stream)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            data = b""
            while len(data) < 5000:
                data += connection.recv(65536)
            assert b"[DONE]" not in data
            assert (b"Hell" in data) == stream
        fine = send(server, model_request("openai", stream=stream))
        assert fine.status == 200


def test_closing_ends_delayed_and_endless_replies() -> None:
    before = set(threading.enumerate())
    server = ScriptedProvider(script({"text": "a", "faults": [{"delay": "1h"}, {"endless": True}]}))
    server.start()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(send, server, model_request("openai", stream=True)) for _ in range(2)]
        while len(server.requests) < 2:
            time.sleep(0.01)
        idle = http.client.HTTPConnection("127.0.0.1", server.port)
        idle.connect()
        server.close()
        for one in waiting:
            with pytest.raises((http.client.HTTPException, ConnectionError)):
                one.result(timeout=60)
        idle.close()
    assert {thread for thread in threading.enumerate() if "scripted" in thread.name} <= before
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_server_listens_only_on_localhost() -> None:
    with ScriptedProvider(script({"text": "a"})) as server:
        assert server.url == f"http://127.0.0.1:{server.port}"
        assert server._server.socket.getsockname() == ("127.0.0.1", server.port)


def test_used_port_is_refused() -> None:
    with ScriptedProvider(script({"text": "a"})) as server, pytest.raises(OSError, match="in use"):
        ScriptedProvider(script({"text": "a"}), port=server.port)


def test_one_connection_serves_many_requests() -> None:
    with ScriptedProvider(script({"text": "a"})) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        _, path, body = question(stream=False)
        for _ in range(3):
            connection.request("POST", path.removeprefix("http://x"), body)
            assert connection.getresponse().read()
        port = connection.sock.getsockname()
        connection.request("GET", "/")
        assert connection.getresponse().status == 404
        assert connection.sock.getsockname() == port
        connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 411), ({"content-length": "x"}, 411), ({"content-length": "-1"}, 411), ({"content-length": "9" * 30}, 413)],
)
def test_request_without_a_valid_length_is_refused(headers: dict[str, str], status: int) -> None:
    with ScriptedProvider(script({"text": "a"})) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.putrequest("POST", "/v1/responses")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


def test_unknown_path_is_404() -> None:
    with ScriptedProvider(script({"text": "a"})) as server:
        got = send(server, HttpCall("POST", "/v1/embeddings", (), b"{}"))
    assert got.status == 404
    assert "chat/completions" in got.body.decode()
    assert server.requests[0].provider is None


def test_parallel_conversations_are_answered_separately() -> None:
    """Each is answered by its own turn, whatever the others do; faults are counted over all of them."""
    turns = [{"text": f"turn {n}", "faults": [{"status": 500, "times": 3}]} for n in range(1, 4)]

    def conversation(server: ScriptedProvider, number: int) -> list[str]:
        messages, heard = [user_message(f"conversation {number}")], list[str]()
        while len(heard) < 3:
            got = send(server, model_request(PROVIDERS[number % 4], [*messages]))
            if got.status == 200:
                heard.append(next(text for text in ("turn 1", "turn 2", "turn 3") if text in got.body.decode()))
                messages += [Assistant((Text("ok"),)), user_message("Go on.")]  # type: ignore[list-item]  # any message
        return heard

    with ScriptedProvider(script(*turns)) as server, ThreadPoolExecutor(12) as pool:
        heard = list(pool.map(lambda number: conversation(server, number), range(24)))
    assert heard == [["turn 1", "turn 2", "turn 3"]] * 24
    assert sum(seen.status == 500 for seen in server.requests) == 9


def test_invalid_script_is_refused() -> None:
    with pytest.raises(DocumentError):
        ScriptedProvider(script())
