"""Network failures over a real socket, each with its code and without leftovers."""

import asyncio
import gzip
import socket
import ssl
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import ProviderError
from agentrun.net import client as client_module
from agentrun.net import reply_body as body_module
from agentrun.net.client import HttpxSender
from agentrun.wire import HttpReply

from ..hand_loop import HandLoop, run_by_hand
from ..servers import (
    CLOSE,
    LAST,
    RESET,
    STREAM,
    Drip,
    Plan,
    Server,
    Wait,
    WaitFor,
    chunk,
    closed_port,
    head,
    reply_with_length,
    streamed,
)
from .certificates import Certificate
from .http_requests import GOOD, PATIENCE, call, error_of, open_sender, secret_lookup, send, with_sender

JSON = ("Content-Type", "application/json")
LONG = ("Content-Length", "100")
CHUNKED = ("Transfer-Encoding", "chunked")


@pytest.mark.parametrize(
    ("plan", "code", "fields"),
    [
        ([RESET], "provider.transient", {"status": None, "reason": "reset"}),
        ([CLOSE], "provider.transient", {"status": None, "reason": "closed"}),
        ([b"HTTP/1.1 200 O", CLOSE], "provider.transient", {"status": None, "reason": "closed"}),
        ([head(200, LONG)[:-2], RESET], "provider.transient", {"status": None, "reason": "reset"}),
        ([head(200, LONG), CLOSE], "provider.zero_output", {"status": None, "received": 0}),
        ([head(200, LONG) + b"abc", CLOSE], "provider.zero_output", {"status": None, "received": 3}),
        ([head(200, LONG) + b"abc", RESET], "provider.zero_output", {"status": None, "received": 3}),
        ([head(200, CHUNKED) + chunk(b"abc"), CLOSE], "provider.zero_output", {"status": None, "received": 3}),
        ([head(200, CHUNKED) + chunk(b"abc"), RESET], "provider.zero_output", {"status": None, "received": 3}),
        ([head(200, CHUNKED) + b"5\r\nabc", CLOSE], "provider.zero_output", {"status": None, "received": 3}),
        ([head(500, LONG) + b"abc", CLOSE], "provider.zero_output", {"status": None, "received": 3}),
        ([head(200, JSON) + b'{"a":', CLOSE], "provider.zero_output", {"status": None, "received": 5}),
        ([b"rubbish\r\n\r\n"], "provider.decode", {"offset": 0}),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, CLOSE], "provider.decode", {"offset": 0}),
        ([head(200, ("x", "y" * 200_000))], "provider.decode", {"offset": 0}),
        ([head(200, ("Content-Length", "4, 5"))], "provider.decode", {"offset": 0}),
        ([head(200, CHUNKED) + chunk(b"abc") + b"zz\r\n"], "provider.decode", {"offset": 3}),
        ([head(200, ("Content-Encoding", "br"), LONG)], "provider.decode", {"offset": 0, "encoding": "br"}),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_broken_reply_has_its_code_and_leaves_no_connection(
    plan: Plan, code: str, fields: dict[str, Any], streams: bool
) -> None:
    with Server(plan) as server:
        error = error_of(server.url, heard=(lambda data: None) if streams else None)
        assert server.is_quiet()
    assert (error.code, error.fields) == (code, fields)


def test_complete_json_without_a_length_is_accepted() -> None:
    with Server([head(200, JSON) + b'{"a": 1}', CLOSE]) as server:
        assert send(server.url).body == b'{"a": 1}'


@pytest.mark.parametrize("status", [400, 503])
def test_incomplete_error_reply_without_a_length_is_kept(status: int) -> None:
    with Server([head(status, JSON) + b'{"a":', CLOSE]) as server:
        assert send(server.url) == HttpReply(status, (("content-type", "application/json"),), b'{"a":')


def test_refused_connection_and_unknown_host_are_transient() -> None:
    error = error_of(f"http://127.0.0.1:{closed_port()}")
    assert (error.code, error.fields) == ("provider.transient", {"status": None, "reason": "refused"})
    error = error_of("http://nowhere.invalid")
    assert (error.code, error.fields) == ("provider.transient", {"status": None, "reason": "dns"})


def test_error_shows_the_attempted_host_and_port_but_no_credential() -> None:
    port = closed_port()
    for url, host in (
        (f"http://127.0.0.1:{port}/a?key=hunter2", f"127.0.0.1:{port}"),
        (f"http://ada:hunter2@127.0.0.1:{port}/a", f"127.0.0.1:{port}"),
        ("${BASE_URL}/a?key=hunter2", f"127.0.0.1:{port} (BASE_URL)"),
        ("${API_TOKEN}/a", "API_TOKEN"),
    ):
        value = f"http://ada:hunter2@127.0.0.1:{port}/hunter2"
        error = error_of(url, BASE_URL=value, API_TOKEN=value)
        assert error.message == f"no reply came from {host}: the connection was refused"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "127.0.0.1", "http://[::1", "http://a:b/", "http://a\nb/"])
def test_invalid_url_is_fatal(url: str) -> None:
    assert error_of(url).code == "provider.fatal"


@pytest.mark.parametrize("value", ["two\r\nlines: x", "caf\u20ac", "nul\0"])
def test_value_that_does_not_fit_in_a_header_is_fatal_and_not_sent(value: str) -> None:
    with Server(GOOD) as server:
        error = error_of(server.url, KEY=value)
    assert error.code == "provider.fatal"
    assert server.requests == []


# --- TLS --------------------------------------------------------------------------------------------------------


def test_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    with Server(GOOD, tls=Certificate(tmp_path).server()) as server:
        error = error_of(server.url)
    assert (error.code, error.fields) == ("provider.transient", {"status": None, "reason": "tls"})
    assert server.requests == []


def test_certificate_of_the_environment_is_used_only_with_trust_env(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = Certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    monkeypatch.setenv("no_proxy", "*")
    with Server(GOOD, tls=certificate.server()) as server:
        assert send(server.url, trust_env=True).status == 200
        assert error_of(server.url, trust_env=False).fields["reason"] == "tls"


def test_tls_to_a_plain_server_times_out() -> None:
    with Server(GOOD) as server:
        error = error_of(server.url.replace("http", "https"), gap=300)
    assert (error.code, error.fields) == ("provider.timeout", {"status": None, "limit": 300})


def test_reset_inside_tls_is_zero_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = Certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    monkeypatch.setenv("no_proxy", "*")
    with Server([head(200, LONG) + b"abc", RESET], tls=certificate.server()) as server:
        assert error_of(server.url, trust_env=True).code == "provider.zero_output"


def test_plain_requests_need_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes longer than a request."""
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", None)
    with Server(GOOD) as server:
        assert send(server.url).status == 200


# --- deadlines --------------------------------------------------------------------------------------------------


def timeout_of(plan: Plan, **how: Any) -> tuple[str, int, float]:
    """The code, the limit that tripped, and the seconds that it took at least."""
    with Server(plan) as server:
        begin = time.monotonic()
        error = error_of(server.url, **how)
        seconds = time.monotonic() - begin
        assert server.is_quiet()
    return error.code, error.fields["limit"], seconds


def ignore(data: bytes) -> None:
    pass


@pytest.mark.parametrize(
    ("plan", "how", "limit"),
    [
        ([Wait(90)], {"gap": 200, "time": 500}, 500),
        ([Wait(90)], {"gap": 300, "time": 60_000, "heard": ignore}, 300),
        ([Wait(90)], {"gap": 60_000, "time": 300, "heard": ignore}, 300),
        ([head(200, LONG) + b"abc", Wait(90)], {"gap": 300, "time": 60_000}, 300),
        ([head(200, LONG), Wait(90)], {"gap": 300, "time": 60_000}, 300),
        ([head(200, LONG)[:20], Wait(90)], {"gap": 200, "time": 500}, 500),
        ([Drip(b"HTTP/1.1 103 Early\r\n\r\n", 0.05)], {"gap": 300, "time": 500}, 500),
        ([b"HTTP/1.1 200 OK\r\n", Drip(b"x: y\r\n", 0.05)], {"gap": 60_000, "time": 500}, 500),
    ],
)
def test_silence_or_total_time_over_the_limit_times_out(plan: Plan, how: dict[str, Any], limit: int) -> None:
    code, tripped, seconds = timeout_of(plan, **how)
    assert (code, tripped) == ("provider.timeout", limit)
    assert seconds >= limit / 1000


def send_with_silences(silence: int, gap: int, time: int, pieces: int = 4) -> HttpReply:
    """Each piece of the reply comes after a silence of so many milliseconds, and the first one at once."""
    came = [threading.Event() for _ in range(pieces)]

    async def main(loop: HandLoop) -> HttpReply:
        def be_silent() -> None:
            loop.advance(silence / 1000)
            came.pop(0).set()

        def heard(data: bytes) -> None:
            loop.call_soon(be_silent)  # when the sender waits again

        async with open_sender(secret_lookup(KEY="value-of-key")) as sender:
            return await sender.send(call(server.url), gap=gap, time=time, heard=heard)

    with Server(streamed(*(step for each in came for step in (b"x", WaitFor(each))))) as server:
        return run_by_hand(main)


def test_silences_below_the_gap_are_allowed() -> None:
    """Each is below the limit, and together they are above it."""
    assert send_with_silences(1699, 1700, PATIENCE).body == b"xxxx"
    with pytest.raises(ProviderError) as caught:
        send_with_silences(1700, 1700, PATIENCE)
    assert (caught.value.code, caught.value.fields["limit"]) == ("provider.timeout", 1700)


def test_total_time_applies_to_a_reply_without_silences() -> None:
    with pytest.raises(ProviderError) as caught:
        send_with_silences(500, 1500, 1600)
    assert (caught.value.code, caught.value.fields["limit"]) == ("provider.timeout", 1600)
    assert send_with_silences(500, 1500, 2001).body == b"xxxx"


def test_gap_does_not_apply_before_an_unstreamed_reply() -> None:
    waited = threading.Event()

    async def main(loop: HandLoop) -> HttpReply:
        async with open_sender(secret_lookup(KEY="value-of-key")) as sender:
            task = asyncio.ensure_future(sender.send(call(server.url), gap=200, time=PATIENCE))
            await asyncio.to_thread(server.wait)
            loop.advance(0.4)
            waited.set()
            return await task

    with Server([WaitFor(waited), *reply_with_length(GOOD)]) as server:
        assert run_by_hand(main).status == 200


def test_server_that_does_not_read_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        error = error_of(call(url, b"x" * 50_000_000), gap=200, time=400)
    assert (error.code, error.fields) == ("provider.timeout", {"status": None, "limit": 400})


# --- stopping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        [Wait(90)],
        [head(200, LONG) + b"abc", Wait(90)],
        [STREAM, Drip(chunk(b":\n"), 0.01)],
        [STREAM + chunk(b"a"), Wait(90)],
    ],
)
def test_a_request_that_is_stopped_leaves_nothing(plan: Plan) -> None:
    async def stopped(sender: HttpxSender) -> None:
        came = asyncio.Event()
        request = sender.send(call(server.url), gap=PATIENCE, time=PATIENCE, heard=lambda data: came.set())
        task = asyncio.ensure_future(request)
        await asyncio.to_thread(server.wait)
        if plan != [Wait(90)]:
            await came.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert await asyncio.to_thread(server.is_quiet)
        assert (await sender.send(call(server.url), gap=PATIENCE, time=PATIENCE)).status == 200

    with Server(plan, GOOD) as server:
        with_sender(stopped)
    assert [request.connection for request in server.requests] == [1, 2]


def test_cancelling_some_requests_does_not_affect_the_others() -> None:
    async def some(sender: HttpxSender) -> list[int]:
        tasks = [asyncio.ensure_future(sender.send(call(server.url), gap=PATIENCE, time=PATIENCE)) for _ in range(40)]
        await asyncio.to_thread(server.wait, 40)
        for task in tasks[::2]:
            task.cancel()
        cancelled.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
        return [result.status for result in results[1::2] if isinstance(result, HttpReply)]

    cancelled = threading.Event()
    with Server([WaitFor(cancelled), *reply_with_length(GOOD)]) as server:
        assert with_sender(some) == [200] * 20


def test_exception_of_a_listener_is_an_internal_error() -> None:
    def broken(data: bytes) -> None:
        raise ZeroDivisionError

    with Server(streamed(b"a")) as server, pytest.raises(Exception, match="ZeroDivisionError") as caught:
        send(server.url, heard=broken)
    assert getattr(caught.value, "code", None) == "internal"


# --- too much ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small_body_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A small cap, so that its both sides are quickly reached."""
    monkeypatch.setattr(body_module, "MAX_REPLY_BODY", 100_000)
    return 100_000


def compressed_reply(pack: Callable[[bytes], bytes], kind: str, data: bytes) -> HttpReply:
    return HttpReply(200, (("Content-Encoding", kind),), pack(data))


@pytest.mark.parametrize(
    "made",
    [
        lambda data: HttpReply(200, (), data),
        lambda data: compressed_reply(gzip.compress, "gzip", data),
        lambda data: compressed_reply(gzip.compress, "X-GZIP", data),
        lambda data: compressed_reply(zlib.compress, "deflate", data),
        lambda data: compressed_reply(bytes, "identity", data),
    ],
)
def test_body_over_the_limit_is_a_decode_error(small_body_limit: int, made: Callable[[bytes], HttpReply]) -> None:
    with Server(made(b"x" * small_body_limit)) as server:
        assert send(server.url).body == b"x" * small_body_limit
    with Server(made(b"x" * (small_body_limit + 1))) as server:
        error = error_of(server.url)
        assert server.is_quiet()
    assert (error.code, error.fields) == ("provider.decode", {"offset": small_body_limit, "limit": small_body_limit})


def test_decompression_bomb_uses_little_memory() -> None:
    """200 kB on the wire, 200 MiB in memory."""
    bomb = gzip.compress(bytes(200 * 1024 * 1024))
    with Server(HttpReply(200, (("Content-Encoding", "gzip"),), bomb)) as server:
        tracemalloc.start()
        error = error_of(server.url)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert error.fields["limit"] == 64 * 1024 * 1024
    assert peak < 8 * 1024 * 1024


def test_compressed_size_is_limited_too(small_body_limit: int) -> None:
    """They are bounded too, with some room for what compressing may add."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS + 16)
    nothing = b"\x00\x00\x00\xff\xff"  # a block without any bytes
    start = packer.compress(b"x") + packer.flush(zlib.Z_FULL_FLUSH)
    most = small_body_limit + 64 * 1024
    for size, code in ((most, "provider.zero_output"), (most + 10, "provider.decode")):
        body = start + nothing * ((size - len(start)) // len(nothing))
        with Server(HttpReply(200, (("Content-Encoding", "gzip"),), body)) as server:
            assert error_of(server.url).code == code


@pytest.mark.parametrize(
    "encodings", [("gzip, gzip",), ("gzip", "gzip"), ("identity", "gzip"), ("gzip", "identity"), ("br",)]
)
def test_unsupported_content_encodings_are_refused(encodings: tuple[str, ...]) -> None:
    data = gzip.compress(gzip.compress(b"x"))
    with Server(HttpReply(200, tuple(("Content-Encoding", each) for each in encodings), data)) as server:
        error = error_of(server.url)
        assert server.is_quiet()
    assert (error.code, error.fields["encoding"]) == ("provider.decode", ", ".join(encodings))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_streamed_body_has_a_smaller_limit(monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]) -> None:
    """Its cap is smaller than that of a reply that nobody hears before it is whole."""
    monkeypatch.setattr(client_module, "MAX_STREAMED_BODY", 1000)
    fields = () if pack is bytes else (("Content-Encoding", "gzip"),)
    with Server(*(HttpReply(200, fields, pack(b"x\n" * lines)) for lines in (500, 501, 501))) as server:
        assert len(send(server.url, heard=ignore).body) == 1000
        error = error_of(server.url, heard=ignore)
        assert len(send(server.url).body) == 1002
    assert (error.code, error.fields["limit"]) == ("provider.decode", 1000)


def test_compressed_stream_is_decoded_for_the_listener() -> None:
    data = gzip.compress(b"data: 1\n\n")
    heard: list[bytes] = []
    plan = [head(200, CHUNKED, ("Content-Encoding", "gzip")), *(chunk(data[at : at + 1]) for at in range(len(data)))]
    with Server([*plan, LAST]) as server:
        assert send(server.url, heard=heard.append).body == b"".join(heard) == b"data: 1\n\n"
    assert b"" not in heard


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (gzip.compress(b"x" * 99, mtime=0)[:-1], "provider.zero_output"),
        (gzip.compress(b"x" * 99, mtime=0) + b"more", "provider.decode"),
        (b"plain", "provider.decode"),
    ],
)
def test_invalid_gzip_body_is_an_error(data: bytes, code: str) -> None:
    with Server(HttpReply(200, (("Content-Encoding", "gzip"),), data)) as server:
        assert error_of(server.url).code == code


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_stream_line_over_the_limit_is_a_decode_error(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    monkeypatch.setattr(body_module, "MAX_STREAM_LINE", 1000)
    with Server(streamed(*[b"x" * 500, b"x" * 499 + end] * 5)) as server:
        assert len(send(server.url, heard=ignore).body) == 5000
    as_text = HttpReply(200, (("Content-Type", "text/plain"),), b"x" * 1001 + end)
    for plan in (streamed(b"x" * 500, b"x" * 501, b"\n"), as_text):
        with Server(plan) as server:
            error = error_of(server.url, heard=ignore)
        assert (error.code, error.fields["limit"]) == ("provider.decode", 1000)
