"""Reading and writing cassette files, also compared with vcrpy."""

import json
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import vcr
import vcr.persisters.filesystem
import vcr.serialize
import vcr.serializers.yamlserializer
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentrun.cassette.conversion import converted_text
from agentrun.cassette.file import cassette_exists, load_cassette
from agentrun.cassette.interactions import Interaction
from agentrun.cassette.writer import dump_cassette
from agentrun.errors import CassetteError, StorageError
from agentrun.wire import HttpCall, HttpReply

from ..packages import typed
from ..scripted_service import BAD, GOOD, completion, record
from .not_files import NOT_FILES, put_non_file

CALL = HttpCall(
    "POST", "https://api.example/v1/chat", (("content-type", "application/json"),), b'{"b":1,"a":"\xc3\xa4"}'
)
REPLY = HttpReply(200, (("content-type", "application/json"),), b'{"ok": true}')
VCR: Any = vcr  # it has no types
METADATA = {"recorded_at": "2026-01-31T12:00:00Z", "spec": "specs/triage.yaml", "params": {"team": "no"}}


def write(folder: Path, text: str) -> Path:
    path = folder / "cassette.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def line_and_reason(path: Path) -> tuple[int, str]:
    """The line and the reason for which a file is refused."""
    with pytest.raises(CassetteError) as caught:
        load_cassette(path)
    assert (caught.value.code, caught.value.exit_code) == ("cassette.damaged", 3)
    assert caught.value.fields["file"] == path.as_posix()
    assert f"{path}:{caught.value.fields['line']}:" in caught.value.message
    return caught.value.fields["line"], caught.value.fields["reason"]


def test_error_names_the_cassette_by_its_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a suite is the same on every machine."""
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "")
    with pytest.raises(CassetteError, match=f"^cassette.damaged: {path.name}:1: this is not a cassette"):
        load_cassette(path)
    path.unlink()
    with pytest.raises(CassetteError, match=f"there is no cassette {path.name}$"):
        load_cassette(path)


def test_written_cassette_has_the_documented_layout() -> None:
    text = dump_cassette([Interaction(CALL, REPLY, start=0, end=812)], METADATA)
    assert (
        text
        == """\
version: 1
metadata:
  recorded_at: '2026-01-31T12:00:00Z'
  spec: specs/triage.yaml
  params:
    team: 'no'
interactions:
- request:
    method: POST
    uri: https://api.example/v1/chat
    headers:
      content-type:
      - application/json
    body: |
      {
        "a": "ä",
        "b": 1
      }
  response:
    status:
      code: 200
      message: OK
    headers:
      content-type:
      - application/json
    body:
      string: '{"ok": true}'
    agentrun:
      start: 0
      end: 812
"""
    )


def test_written_cassette_is_read_back(tmp_path: Path) -> None:
    path = write(
        tmp_path, dump_cassette([Interaction(CALL, REPLY, start=3, end=812), Interaction(CALL, REPLY)], METADATA)
    )
    cassette = load_cassette(path)
    one, two = cassette.interactions
    assert one.reply == REPLY
    assert json.loads(one.call.body) == json.loads(CALL.body)
    assert (one.call.method, one.call.url, one.call.headers) == (CALL.method, CALL.url, CALL.headers)
    assert (one.start, one.end, two.start, two.end) == (3, 812, None, None)
    assert [path.read_text(encoding="utf-8").splitlines()[i.line - 1].strip() for i in (one, two)] == ["- request:"] * 2
    assert cassette.metadata == METADATA
    assert cassette.recorded_at == 1_769_860_800_000


def test_only_allowed_headers_are_written() -> None:
    secret = (("Authorization", "Bearer x"), ("x-api-key", "x"), ("Content-Type", "application/json"))
    answer = (("set-cookie", "x"), ("openai-organization", "x"), ("Retry-After", "7"))
    text = dump_cassette([Interaction(HttpCall("POST", "https://a", secret, b""), HttpReply(429, answer, b""))], {})
    data = yaml.safe_load(text)["interactions"][0]
    assert data["request"]["headers"] == {"content-type": ["application/json"]}
    assert data["response"]["headers"] == {"retry-after": ["7"]}
    assert data["response"]["status"] == {"code": 429, "message": "Too Many Requests"}
    assert data["request"]["body"] is None


def test_unknown_status_has_an_empty_message() -> None:
    text = dump_cassette([Interaction(CALL, HttpReply(529, (), b""))], {})
    assert yaml.safe_load(text)["interactions"][0]["response"]["status"] == {"code": 529, "message": ""}


BODIES = (
    st.binary(max_size=30)
    | st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace"))
    | st.sampled_from(
        [
            b"no",
            b"1",
            b"null",
            b" a\n b \n\n",
            b"\n",
            b"a\r\nb",
            b"\xef\xbb\xbfa",
            "a\u2028b\x85c\n".encode(),
            b"- a: b",
            b"a\tb\n\t",
        ]
    )
)


@given(BODIES)
def test_any_response_body_is_read_back_by_us_and_vcrpy(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    """Whatever the bytes: ours and vcrpy's reader both give them back."""
    metadata = {"note": body.decode("latin-1")}  # the last text before the interactions
    text = dump_cassette([Interaction(CALL, HttpReply(200, (), body))] * 2, metadata)
    path = write(tmp_path_factory.mktemp("cassette"), text)
    loaded = load_cassette(path)
    assert [each.reply.body for each in loaded.interactions] == [body, body]
    assert loaded.metadata["note"] == metadata["note"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, responses, *_ = VCR.serialize.deserialize(text, VCR.serializers.yamlserializer)
    assert [each["body"]["string"] for each in responses] == [body, body]


# --- vcrpy -------------------------------------------------------------------------------------------------


def test_vcrpy_replays_a_recorded_run(tmp_path: Path) -> None:
    """The expanded file of a recorded run, played by plain vcrpy through httpx, with the body in the match."""
    path = record(tmp_path / "cassette.yaml", typed(), completion(BAD), completion(GOOD))
    path.write_text(converted_text(path.read_text(encoding="utf-8"), packed=False), encoding="utf-8")
    before = path.read_bytes()
    player = VCR.VCR(record_mode="none", match_on=["method", "uri", "body"])
    with player.use_cassette(str(path)) as cassette, httpx.Client() as client:
        for interaction in load_cassette(path).interactions:
            call = interaction.call
            compact = json.dumps(json.loads(call.body)).encode()
            got = client.request(call.method, call.url, headers=dict(call.headers), content=compact)
            assert (got.status_code, got.reason_phrase, got.content) == (200, "OK", interaction.reply.body)
        assert cassette.all_played
    assert path.read_bytes() == before


def test_cassette_saved_by_vcrpy_keeps_our_fields(tmp_path: Path) -> None:
    """What we add to the format survives a re-save by vcrpy."""
    path = write(tmp_path, dump_cassette([Interaction(CALL, REPLY, start=3, end=812)], METADATA))
    requests, responses, metadata = VCR.persisters.filesystem.FilesystemPersister.load_cassette(
        path, VCR.serializers.yamlserializer
    )
    again = tmp_path / "again.yaml"
    VCR.persisters.filesystem.FilesystemPersister.save_cassette(
        again,
        {"requests": requests, "responses": responses, "metadata": metadata},
        VCR.serializers.yamlserializer,
    )
    ours, theirs = load_cassette(path), load_cassette(again)
    assert theirs.metadata == ours.metadata
    assert theirs.recorded_at == ours.recorded_at
    (one,), (two,) = ours.interactions, theirs.interactions
    assert (two.call, two.reply, two.start, two.end) == (one.call, one.reply, one.start, one.end)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer("café".encode())

    def do_GET(self) -> None:
        self._answer(b"\xff\x00")

    def _answer(self, body: bytes) -> None:
        self.send_response(201)
        self.send_header("x", "1")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def test_cassette_recorded_by_vcrpy_is_read(tmp_path: Path) -> None:
    """A cassette that vcrpy recorded of a real exchange, on this machine."""
    path = tmp_path / "theirs.yaml"
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with VCR.use_cassette(str(path)), httpx.Client(trust_env=False) as client:
            client.post(f"{url}/a", json={"b": [1]})
            client.get(f"{url}/b")
        server.shutdown()
    post, get = load_cassette(path).interactions
    assert (post.call.method, post.call.url, post.call.body) == ("POST", f"{url}/a", b'{"b":[1]}')
    assert (post.reply.status, post.reply.body) == (201, "café".encode())
    assert ("x", "1") in post.reply.headers
    assert (get.call.body, get.reply.body) == (b"", b"\xff\x00")
    assert (post.end, load_cassette(path).recorded_at) == (None, 0)


# --- damage ------------------------------------------------------------------------------------------------


def test_missing_cassette_is_a_miss(tmp_path: Path) -> None:
    with pytest.raises(CassetteError) as caught:
        load_cassette(tmp_path / "nothing.yaml")
    assert (caught.value.code, caught.value.fields["difference"]) == ("cassette.miss", "there is no cassette")


@pytest.mark.parametrize(("kind", "why", "number"), NOT_FILES)
def test_cassette_path_that_is_not_a_file_raises_storage_failed(
    tmp_path: Path, kind: str, why: str, number: int
) -> None:
    """It is an error at once: nobody waits for a writer of a pipe, and it is not taken for a missing cassette."""
    (tmp_path / "desk").mkdir()
    path = put_non_file(tmp_path / "desk" / "desk.yaml", kind)
    for read in (load_cassette, cassette_exists):
        with pytest.raises(StorageError, match=f"desk.yaml cannot be read: {why}") as caught:
            read(path)
        assert (caught.value.code, caught.value.exit_code) == ("storage.failed", 7)
        assert caught.value.fields == {"path": "cassette", "errno": number}
        assert caught.value.hint is not None


def test_cassette_exists(tmp_path: Path) -> None:
    path = tmp_path / "desk.yaml"
    assert not cassette_exists(path)
    path.write_text("version: 1\n")
    assert cassette_exists(path)
    (tmp_path / "link.yaml").symlink_to(path)
    assert cassette_exists(tmp_path / "link.yaml")


INTERACTION: dict[str, Any] = yaml.safe_load(dump_cassette([Interaction(CALL, REPLY, end=1)], {}))["interactions"][0]


def cassette_with(path: str, value: Any) -> str:
    """A cassette with one value replaced."""
    whole = {"version": 1, "interactions": [json.loads(json.dumps(INTERACTION))], "metadata": {}}
    node: Any = whole
    *steps, last = path.split(".")
    for step in steps:
        node = node[int(step) if step.isdigit() else step]
    node[int(last) if last.isdigit() else last] = value
    return yaml.safe_dump(whole, sort_keys=False)


def test_unchanged_cassette_is_valid(tmp_path: Path) -> None:
    assert len(load_cassette(write(tmp_path, cassette_with("version", 1))).interactions) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 2),
        ("version", True),
        ("version", "1"),
        ("interactions", None),
        ("interactions", {}),
        ("interactions.0", "text"),
        ("interactions.0", None),
        ("metadata", ["a"]),
        ("metadata", {"recorded_at": 7}),
        ("metadata", {"recorded_at": "yesterday"}),
        ("interactions.0.request", None),
        ("interactions.0.request.method", None),
        ("interactions.0.request.uri", 7),
        ("interactions.0.request.body", 7),
        ("interactions.0.request.body", {"string": "x"}),
        ("interactions.0.request.headers", ["a"]),
        ("interactions.0.request.headers", {"a": [1]}),
        ("interactions.0.response", []),
        ("interactions.0.response.status", 200),
        ("interactions.0.response.status.code", "200"),
        ("interactions.0.response.body", "text"),
        ("interactions.0.response.body.string", 7),
        ("interactions.0.response.headers", {"Content-Encoding": ["gzip"]}),
        ("interactions.0.response.agentrun", 7),
        ("interactions.0.response.agentrun", {"colour": 1}),
        ("interactions.0.response.agentrun", {"chunks": [1]}),
        ("interactions.0.response.agentrun", {"chunks": [12, 0]}),
        ("interactions.0.response.agentrun", {"chunks": [True] * 12}),
        ("interactions.0.response.agentrun", {"chunks": 12}),
        ("interactions.0.response.agentrun", {"path": 1}),
        ("interactions.0.response.agentrun", {"stopped": "yes"}),
        ("interactions.0.response.agentrun", {"failure": "refused"}),
        ("interactions.0.response.agentrun", {"failure": {"code": "nonsense", "message": "x"}}),
        ("interactions.0.response.agentrun", {"failure": {"code": "provider.timeout"}}),
        ("interactions.0.response.agentrun", {"failure": {"code": "provider.timeout", "message": "", "fields": []}}),
        ("interactions.0.response.agentrun", {"end": -1}),
        ("interactions.0.response.agentrun", {"end": True}),
        ("interactions.0.response.agentrun", {"start": "1"}),
    ],
)
def test_invalid_value_is_reported_with_its_line(tmp_path: Path, path: str, value: Any) -> None:
    text = cassette_with(path, value)
    line, _ = line_and_reason(write(tmp_path, text))
    assert 1 <= line <= text.count("\n") + 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("interactions.0.request.body", None),
        ("interactions.0.request.headers", None),
        ("interactions.0.request.headers", {"accept": "text"}),
        ("interactions.0.response.headers", {"content-encoding": ["identity"]}),
        ("interactions.0.response.agentrun", None),
        ("interactions.0.response.agentrun", {"chunks": [4, 8]}),
        ("interactions.0.response.agentrun", {"failure": {"code": "provider.timeout", "message": ""}}),
        ("metadata", None),
        ("metadata", {"recorded_at": "2026-01-31T12:00:00"}),
    ],
)
def test_optional_values_are_accepted(tmp_path: Path, path: str, value: Any) -> None:
    assert len(load_cassette(write(tmp_path, cassette_with(path, value))).interactions) == 1


def test_missing_key_is_reported_at_its_interaction(tmp_path: Path) -> None:
    text = dump_cassette([Interaction(CALL, REPLY), Interaction(CALL, REPLY)], {})
    head, _, tail = text.rpartition("    method: POST\n")
    line, reason = line_and_reason(write(tmp_path, head + tail))
    assert line == head.count("\n") + 1
    assert "'method'" in reason


@pytest.mark.parametrize("text", ["", "# nothing\n", "null\n", "[]\n", "text\n", "version: 1\n"])
def test_empty_file_is_not_a_cassette(tmp_path: Path, text: str) -> None:
    line_and_reason(write(tmp_path, text))


def test_non_utf8_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cassette.yaml"
    path.write_bytes(b"version: 1\nmetadata: \xff\n")
    assert line_and_reason(path) == (2, "it is not UTF-8")


def test_size_limit_of_a_cassette(tmp_path: Path) -> None:
    path = write(tmp_path, cassette_with("version", 1))
    size = path.stat().st_size
    assert len(load_cassette(path, size).interactions) == 1
    with pytest.raises(CassetteError, match="more than") as caught:
        load_cassette(path, size - 1)
    assert (caught.value.code, "cassette_limit" in str(caught.value.hint)) == ("cassette.damaged", True)


@given(st.data())
def test_any_damage_is_read_or_reported_as_damaged(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A cassette with a byte changed or cut off: a cassette or an error of ours, never another exception."""
    whole = bytearray(dump_cassette([Interaction(CALL, REPLY, end=1)], METADATA).encode())
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("cassette") / "cassette.yaml"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    code = None
    try:
        load_cassette(path)
    except CassetteError as error:
        code = error.code
    assert code in (None, "cassette.damaged")
