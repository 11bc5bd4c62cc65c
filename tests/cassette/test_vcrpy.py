"""Cassettes are interchangeable with vcrpy and httpx: JSON, streams, gzip and binary bodies."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import vcr

from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import Interaction
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.cassette.writer import CassetteSerializer, dump_cassette
from agentrun.engine.cassette_ports import replay_reply
from agentrun.engine.worlds.record import RecordingExchanger
from agentrun.errors import CassetteError
from agentrun.net.client import HttpxSender, make_client
from agentrun.wire import HttpCall, HttpReply

from ..docs.terminal import ROOT
from ..tools.agent_runs import Runs

VCR: Any = vcr  # it has no types

EVENTS = [f'data: {{"n": {n}, "text": "ä{n}"}}\n\n'.encode() for n in range(5)] + [b"data: [DONE]\n\n"]
TEXT = json.dumps({"text": "grüße " * 50, "n": [1, 2.5, None]}).encode()
BINARY = bytes(range(256)) * 3
REPLIES: dict[str, tuple[list[tuple[str, str]], list[bytes], bytes]] = {
    "/json": ([("content-type", "application/json")], [TEXT], TEXT),
    "/stream": ([("content-type", "text/event-stream")], EVENTS, b"".join(EVENTS)),
    "/gzip": (
        [("content-type", "application/json"), ("content-encoding", "gzip")],
        [gzip.compress(TEXT, mtime=0)],
        TEXT,
    ),
    "/deflate": ([("content-type", "text/plain"), ("content-encoding", "deflate")], [zlib.compress(TEXT)], TEXT),
    "/gzip-stream": (
        [("content-type", "text/event-stream"), ("content-encoding", "gzip")],
        [gzip.compress(b"".join(EVENTS), mtime=0)],
        b"".join(EVENTS),
    ),
    "/binary": ([("content-type", "application/octet-stream")], [BINARY], BINARY),
    "/lines": ([("content-type", "text/plain")], [b"a\r\nb\rc\x85 \t\n\n"], b"a\r\nb\rc\x85 \t\n\n"),
    "/empty": ([("content-type", "text/plain")], [], b""),
}
"""Path → headers, the pieces that are sent, and what a client reads."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        headers, pieces, _ = REPLIES[self.path]
        self.send_response(200)
        for name, value in (*headers, ("transfer-encoding", "chunked")):
            self.send_header(name, value)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture(scope="module")
def url() -> Any:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def call(url: str, path: str) -> HttpCall:
    body = json.dumps({"path": path, "list": [1, {"ä": None}]}).encode()
    return HttpCall("POST", url + path, (("content-type", "application/json"),), body)


async def send(sender: HttpxSender, asked: HttpCall, heard: Callable[[bytes], None] | None) -> HttpReply:
    return await sender.send(asked, gap=9000, time=9000, heard=heard)


def record_with_agentrun(url: str, file: Path) -> None:
    """Record every kind of reply over real connections."""

    async def record() -> Recorder:
        recorder = Recorder(lambda: 0)
        cassette = RecordingExchanger(recorder)
        async with make_client() as client:
            sender = HttpxSender(client, pytest.fail)
            for path in REPLIES:
                asked = call(url, path)
                reply = await cassette.exchange(asked, "", partial(send, sender, asked), lambda data: None)
                assert reply.body == REPLIES[path][2]
        return recorder

    interactions = asyncio.run(record()).interactions()
    file.write_text(dump_cassette(interactions, {"recorded_at": "2026-01-31T12:00:00Z"}), encoding="utf-8")


def record_with_vcrpy(url: str, file: Path) -> None:
    with VCR.use_cassette(str(file)), httpx.Client(trust_env=False) as client:
        for path in REPLIES:
            assert client.post(url + path, content=call(url, path).body).content == REPLIES[path][2]


def test_vcrpy_replays_our_cassette(url: str, tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    record_with_agentrun(url, file)
    before = file.read_bytes()
    player = VCR.VCR(record_mode="none", match_on=["method", "uri", "body"])
    with player.use_cassette(str(file)) as cassette, httpx.Client(trust_env=False) as client:
        for path in reversed(REPLIES):
            asked = call(url, path)
            got = client.post(asked.url, content=asked.body, headers=dict(asked.headers))
            assert (got.status_code, got.content) == (200, REPLIES[path][2])
            assert got.headers["content-type"] == dict(REPLIES[path][0])["content-type"]
        assert cassette.all_played
    assert file.read_bytes() == before


def test_vcrpy_streams_our_cassette(url: str, tmp_path: Path) -> None:
    record_with_agentrun(url, file := tmp_path / "ours.yaml")
    with VCR.use_cassette(str(file), record_mode="none"), httpx.Client(trust_env=False) as client:
        asked = call(url, "/stream")
        with client.stream("POST", asked.url, content=asked.body) as got:
            lines = [line for line in got.iter_lines() if line]
    assert lines == [event.decode().strip() for event in EVENTS]


def test_player_replays_a_vcrpy_cassette(url: str, tmp_path: Path) -> None:
    record_with_vcrpy(url, file := tmp_path / "theirs.yaml")
    player = Player(load_cassette(file), require="exact")
    for path in reversed(REPLIES):
        asked = call(url, path)
        compact = HttpCall("POST", asked.url, (), json.dumps(json.loads(asked.body), separators=(",", ":")).encode())
        reply = player.play(compact).reply
        assert (reply.status, reply.body) == (200, REPLIES[path][2])
        assert "content-encoding" not in dict(reply.headers)
    assert (player.unused(), player.tier) == ((), "exact")


def test_cassette_extended_by_vcrpy_keeps_its_interactions(url: str, tmp_path: Path) -> None:
    """A cassette of ours that vcrpy adds to keeps what it has no place for."""
    record_with_agentrun(url, file := tmp_path / "ours.yaml")
    before = load_cassette(file)
    adding = VCR.VCR(record_mode="new_episodes", match_on=["method", "uri", "body"])
    with adding.use_cassette(str(file)), httpx.Client(trust_env=False) as client:
        client.post(url + "/json", json={"new": True})
    after = load_cassette(file)
    assert len(after.interactions) == len(before.interactions) + 1
    assert [preserved_fields(each) for each in after.interactions[:-1]] == [
        preserved_fields(each) for each in before.interactions
    ]
    assert after.metadata == before.metadata


def preserved_fields(each: Interaction) -> Any:
    """What must survive; vcrpy sorts headers."""
    reply = each.reply.status, sorted(each.reply.headers), each.reply.body
    return each.call, reply, each.start, each.end, each.chunks


def test_stream_is_replayed_in_its_recorded_chunks(url: str, tmp_path: Path) -> None:
    record_with_agentrun(url, file := tmp_path / "ours.yaml")
    stream = next(each for each in load_cassette(file).interactions if each.call.url.endswith("/stream"))
    heard: list[bytes] = []
    replay_reply(stream, heard.append)
    assert b"".join(heard) == b"".join(EVENTS)
    assert len(heard) == len(stream.chunks) > 1
    whole: list[bytes] = []
    record_with_vcrpy(url, foreign := tmp_path / "theirs.yaml")
    replay_reply(
        next(each for each in load_cassette(foreign).interactions if each.call.url.endswith("/stream")), whole.append
    )
    assert whole == [b"".join(EVENTS)], "who kept no borders has one piece"


def test_body_that_cannot_be_decompressed_is_reported(url: str, tmp_path: Path) -> None:
    record_with_vcrpy(url, file := tmp_path / "theirs.yaml")
    text = file.read_text(encoding="utf-8")
    assert "H4sI" in text
    for broken in (text.replace("H4sI", "H4sJ"), text.replace("- gzip", "- br")):
        file.write_text(broken, encoding="utf-8")
        with pytest.raises(CassetteError, match="cannot decompress the body") as caught:
            load_cassette(file)
        assert caught.value.fields["line"] > 1


SHIPPED = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "cassettes").rglob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED)
def test_shipped_cassette_saved_by_vcrpy_through_our_serializer_is_the_same(path: str, tmp_path: Path) -> None:
    persister, again = VCR.persisters.filesystem.FilesystemPersister, tmp_path / "again.yaml"
    requests, responses, metadata = persister.load_cassette(ROOT / path, CassetteSerializer)
    data = {"requests": requests, "responses": responses, "metadata": metadata}
    persister.save_cassette(again, data, CassetteSerializer)
    assert again.read_bytes() == (ROOT / path).read_bytes()


@pytest.mark.parametrize(
    ("place", "name"),
    [(VCR.serializers.compat, "convert_to_unicode"), (VCR.Request, "_to_dict"), (VCR.Request, "__init__")],
)
def test_recording_fails_if_the_conversion_of_vcrpy_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    runs = Runs(tmp_path)
    runs.record()
    before = runs.cassette.read_bytes()

    def broken(*arguments: Any) -> None:
        raise LookupError("vcrpy is broken")

    monkeypatch.setattr(place, name, broken)
    with pytest.raises(LookupError, match="vcrpy is broken"):
        runs.record()
    assert runs.cassette.read_bytes() == before


@pytest.mark.parametrize("host", ["[redacted:HOST]", "ada:[redacted:PASSWORD]@shop.example"])
def test_address_with_a_placeholder_as_host_is_written(host: str, tmp_path: Path) -> None:
    """urllib, which vcrpy uses, takes the brackets for those of an IPv6 address."""
    asked = HttpCall("GET", f"https://{host}/v1", (), b"")
    (tmp_path / "a.yaml").write_text(dump_cassette([Interaction(asked, HttpReply(200, (), b"x"))], {}))
    assert load_cassette(tmp_path / "a.yaml").interactions[0].call == asked
