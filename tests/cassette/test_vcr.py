"""`agentrun.vcr` with plain vcrpy and as pytest-recording uses it: record, replay, redaction, atomic writes."""

from __future__ import annotations

import gc
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import httpx
import pytest
import vcr
from vcr.errors import CannotOverwriteExistingCassetteException as Miss

import agentrun.vcr
from agentrun.cassette import redaction
from agentrun.cassette.file import load_cassette
from agentrun.cassette.leaks import find_leaks
from agentrun.cassette.player import Player
from agentrun.errors import CassetteError, StorageError
from agentrun.redactor import Redactor
from agentrun.wire import HttpCall

from ..docs.terminal import ROOT, blocks

VCR: Any = vcr  # it has no types
KEY, TOKEN, COOKIE = "hunter-two-and-a-half", "tok-4f9a8c7e6b5d4c3b2a19", "c0ffee9d8e7f6a5b4c3d2e1f"
BODY = {"model": "small", "n": 1, "note": f"my key is {KEY}", "request_id": "a"}
Send = Callable[[str, Any], bytes]


class Handler(BaseHTTPRequestHandler):
    """Repeats the body and the token of a request."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        text = json.dumps({"got": body.decode("latin-1"), "token": self.headers["authorization"]}).encode()
        encoding = self.path.removeprefix("/").partition("?")[0]
        text = gzip.compress(text) if encoding == "gzip" else text
        self.server.paths.append(self.path)  # type: ignore[attr-defined]  # ours
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.send_header("set-cookie", f"session={COOKIE}; Path=/; HttpOnly")
        self.send_header("link", "</next>; rel=next")
        if encoding:
            self.send_header("content-encoding", encoding)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


class Server(ThreadingHTTPServer):
    paths: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SHOP_API_KEY", KEY)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.paths = []
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cassettes" / "shop.yaml"
    gc.collect(1)  # vcrpy leaves the clients patched after a save that failed, until its generator is collected


def headers(**more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKEN}", "x-api-key": KEY, "content-type": "application/json", **more}


def content(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def with_httpx(url: str, body: Any) -> bytes:
    with httpx.Client(trust_env=False) as client:
        return client.post(url, content=content(body), headers=headers()).content


def with_urllib(url: str, body: Any) -> bytes:
    with urlopen(Request(url, content(body), headers(), method="POST")) as reply:  # noqa: S310  # our own server
        return bytes(reply.read())


def recorder(**options: Any) -> Any:
    return agentrun.vcr.register(VCR.VCR(), **options)


def test_variables_that_the_project_names_are_redacted(
    server: Server, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_LOGIN", "ada and nobody")
    for names, shown in (("", "ada and nobody"), ('"SHOP_LOGIN"', "[redacted:SHOP_LOGIN]")):
        (tmp_path / "pyproject.toml").write_text(f"[tool.agentrun]\nsecrets = [{names}]\n", encoding="utf-8")
        file.unlink(missing_ok=True)
        with recorder().use_cassette(str(file)):
            with_httpx(server.url, {"who": "ada and nobody"})
        assert f'"who": "{shown}"' in file.read_text(encoding="utf-8")


def replay(file: Path, send: Send, url: str, body: Any, **options: Any) -> bytes:
    with recorder(**options).use_cassette(str(file), record_mode="none"):
        return send(url, body)


def documented_conftest() -> str:
    """The `conftest.py` of docs/cassettes.md. `test_other_plugins.py` runs it with pytest-recording itself."""
    page = (ROOT / "docs" / "cassettes.md").read_text(encoding="utf-8")
    (block,) = [text for kind, text in blocks(page) if kind == "python" and text.startswith("# conftest.py")]
    return block


def documented_hook() -> Any:
    names: dict[str, Any] = {}
    exec(compile(documented_conftest(), "docs/cassettes.md", "exec"), names)  # noqa: S102  # our own page
    return names["pytest_recording_configure"]


class CombinedPersister(VCR.persisters.filesystem.FilesystemPersister):  # type: ignore[misc]  # vcrpy has no types
    """Loads several cassettes, as the persister of pytest-recording does."""

    def __init__(self, more: list[Path]) -> None:
        self.more = more

    def load_cassette(self, cassette_path: str, serializer: Any) -> Any:
        paths = [path for path in (Path(cassette_path), *self.more) if path.exists()]
        loaded = [VCR.serialize.deserialize(path.read_text(encoding="utf-8"), serializer) for path in paths]
        if not loaded:
            raise VCR.cassette.CassetteNotFoundError
        return tuple(list(chain.from_iterable(each[at] for each in loaded)) for at in (0, 1))


def by_pytest_recording(folder: Path, *more: Path, record_mode: str = "once") -> Any:
    """An instance that is made and configured in the order in which pytest-recording does it."""
    made = VCR.VCR(
        path_transformer=VCR.VCR.ensure_suffix(".yaml"), cassette_library_dir=str(folder), record_mode=record_mode
    )
    made.register_persister(CombinedPersister(list(more)))
    documented_hook()(config=None, vcr=made)
    return made


@pytest.mark.parametrize("send", [with_httpx, with_urllib])
@pytest.mark.parametrize("kind", ["plain", "pytest-recording"])
def test_records_redacted_and_replays(server: Server, file: Path, kind: str, send: Send) -> None:
    def use(mode: str) -> Any:
        made = recorder() if kind == "plain" else by_pytest_recording(file.parent)
        return made.use_cassette(str(file), record_mode=mode)

    with use("once"):
        live = json.loads(send(server.url, BODY))
    assert KEY in live["got"]
    text = file.read_text(encoding="utf-8")
    for secret in (KEY, TOKEN, COOKIE):
        assert secret not in text
    assert '"note": "my key is [redacted:SHOP_API_KEY]"' in text, "the request is laid out as agentrun's own"
    assert "link:\n      - </next>; rel=next" in text, "other headers of replies are kept"
    with use("none"):
        again = json.loads(send(server.url, BODY))
    assert again == {"got": live["got"].replace(KEY, "[redacted:SHOP_API_KEY]"), "token": "[redacted:authorization]"}
    assert server.paths == ["/"], "the replay sent nothing"
    os.environ.pop("SHOP_API_KEY")
    with use("none"):
        assert json.loads(send(server.url, BODY)) == again, "a replay does not need the secret"


def test_credentials_in_the_address_are_redacted(server: Server, file: Path) -> None:
    url = server.url.replace("//", "//ada:correct-horse-battery@") + "?api_key=0123456789abcdef&page=2"
    with recorder().use_cassette(str(file)):
        with_httpx(url, {"n": 1})
    text = file.read_text(encoding="utf-8")
    assert "page=2" in text
    assert not [secret for secret in ("correct-horse", "0123456789abcdef") if secret in text]
    assert load_cassette(file).interactions[0].call.url == f"{server.url}?api_key=[redacted:api_key]&page=2"
    assert replay(file, with_httpx, url, {"n": 1})


UNKNOWN = {
    "reply text": "sk-proj-abcdEFGH1234567890abcdEFGH",
    "reply token": "rp-8a7b6c5d4e3f2a1b",
    "json web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.abcDEF123456ghiJKL",
    "client secret": "rj-7c6b5a493827161514",
    "password": "correct horse battery",
    "number": "8675309421",
    "form": "rf-1f2e3d4c5b6a7988",
    "key parameter": "AKq8w7e6r5t4y3u2",
    "session header": "cu-55aa66bb77cc88dd",
    "location": "lc-aa11bb22cc33dd44",
    "fragment": "fr-9e8d7c6b5a493827",
}
"""Values that no environment knows."""


class UnknownSecretsHandler(Handler):
    def do_POST(self) -> None:
        got = self.rfile.read(int(self.headers["content-length"])).decode()
        words = f"your key is {UNKNOWN['reply text']}, token is a word"
        reply = {"got": got, "access_token": UNKNOWN["reply token"], "jwt": UNKNOWN["json web token"], "text": words}
        text = json.dumps(reply | {"logprobs": [{"token": "token"}]}).encode()
        self.send_response(201)
        self.send_header("x-session-id", UNKNOWN["session header"])
        self.send_header("location", f"http://h/?access_token={UNKNOWN['location']}&n=1#id_token={UNKNOWN['fragment']}")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def test_password_in_a_form_of_several_parts_is_redacted(server: Server, file: Path) -> None:
    with recorder().use_cassette(str(file)), httpx.Client(trust_env=False) as client:
        client.post(server.url, data={"password": "correct-horse-battery", "n": "1"}, files={"f": ("a", b"\x00\xff")})
    text = file.read_text(encoding="utf-8")
    assert "correct-horse" not in text
    assert load_cassette(file).interactions[0].call.body.count(b"[redacted:password]\r\n--") == 1


def test_secrets_that_nobody_knows_are_redacted(server: Server, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RequestHandlerClass", UnknownSecretsHandler)
    names = {"client_secret": "client secret", "password": "password"}
    body = {key: UNKNOWN[place] for key, place in names.items()} | {"pwd": int(UNKNOWN["number"]), "n": 1}
    sent = [
        (f"{server.url}?key={UNKNOWN['key parameter']}&issue_key=SHOP-12", body),
        (f"{server.url}form", f"grant_type=x&client_secret={UNKNOWN['form']}".encode()),
    ]
    with recorder().use_cassette(str(file)):
        live = [with_httpx(*each).decode() for each in sent]
    text = file.read_text(encoding="utf-8")
    assert [place for place, value in UNKNOWN.items() if value in text] == []
    assert find_leaks(load_cassette(file), Redactor(())) == []
    for kept in ("SHOP-12", "token is a word", '{"token": "token"}', "grant_type=x", "&n=1#"):
        assert kept in text
    again = [replay(file, with_httpx, *each).decode() for each in sent]
    assert [len(json.loads(each)) for each in again] == [len(json.loads(each)) for each in live]
    assert json.loads(again[0])["text"] == "your key is [redacted:openai-key], token is a word"
    with pytest.raises(Miss):
        replay(file, with_httpx, sent[0][0], body | {"n": 2})


def test_host_that_is_a_secret_is_not_written(server: Server, file: Path) -> None:
    made = recorder(secrets={"HOST": "127.0.0.1"})
    with pytest.raises(StorageError, match=r"the host of http://.redacted:HOST.:"), made.use_cassette(str(file)):
        with_httpx(server.url, BODY)
    assert not file.exists()


def test_agentrun_replays_the_file(server: Server, file: Path) -> None:
    with recorder().use_cassette(str(file)):
        with_httpx(server.url, BODY)
    player = Player(load_cassette(file), require="exact")
    assert b"my key is" in player.play(HttpCall("POST", server.url, (), content(BODY))).reply.body


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        (BODY, BODY | {"n": 2}),
        (BODY, BODY | {"new": None}),
        (BODY, BODY | {"note": "other text"}),
        (BODY, b"not JSON"),
        (b'{"n": 1', b'{"n":  1'),
        (b"a=1&b=2", b"b=2&a=1"),
        (b"\xff\x00", b"\xff\x01"),
        (b"", b" "),
        ({"a": 1}, {"a": True}),
    ],
)
def test_changed_body_misses(server: Server, file: Path, recorded: Any, sent: Any) -> None:
    with recorder().use_cassette(str(file)):
        with_httpx(server.url, recorded)
    with pytest.raises(Miss, match="agentrun"):
        replay(file, with_httpx, server.url, sent)
    assert replay(file, with_httpx, server.url, recorded)


def test_miss_says_the_difference_but_no_secret(server: Server, file: Path) -> None:
    with recorder().use_cassette(str(file)):
        with_httpx(server.url, BODY)
    with pytest.raises(Miss, match="n is 2, but the cassette has 1") as caught:
        replay(file, with_httpx, server.url, BODY | {"n": 2, "other": KEY})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("sent", [b'{"b": [1.0, 2e0],\n "a": "x"}', {"b": [1, 2], "a": "x"}])
def test_spelling_of_json_does_not_count(server: Server, file: Path, sent: Any) -> None:
    with recorder().use_cassette(str(file)):
        with_httpx(server.url, {"a": "x", "b": [1, 2]})
    assert replay(file, with_httpx, server.url, sent)


def test_volatile_fields_may_differ(server: Server, file: Path) -> None:
    with recorder().use_cassette(str(file)):
        with_httpx(server.url, BODY)
    changed = BODY | {"request_id": "b", "note": "my key is another-key-entirely"}
    with pytest.raises(Miss):
        replay(file, with_httpx, server.url, changed)
    assert replay(file, with_httpx, server.url, changed, volatile=["request_id"])
    with pytest.raises(Miss):
        replay(file, with_httpx, server.url, changed | {"n": 2}, volatile=["request_id"])


def test_rules_and_given_secrets_are_redacted(server: Server, file: Path) -> None:
    rules = [{"name": "email", "pattern": "[a-z]+@[a-z.]+"}, {"name": "customer", "path": "customer.name"}]
    body = {"to": "ada@shop.example", "customer": {"name": "Lovelace"}, "pin": "four-two-four-two"}
    options: dict[str, Any] = {"redact": rules, "secrets": {"PIN": "four-two-four-two"}}
    with recorder(**options).use_cassette(str(file)):
        with_httpx(f"{server.url}?for=ada@shop.example", body)
    text = file.read_text(encoding="utf-8")
    assert not [each for each in ("ada@", "Lovelace", "four-two") if each in text]
    assert replay(file, with_httpx, f"{server.url}?for=ada@shop.example", body, **options)
    for wrong in ({"name": "nothing"}, {"name": "x", "paths": "y"}, {"name": "x", "pattern": "("}):
        with pytest.raises(Exception, match=r"nothing|paths|missing"):
            recorder(redact=[wrong])


@pytest.mark.parametrize("send", [with_httpx, with_urllib])
def test_compressed_reply_is_searched(server: Server, file: Path, send: Send) -> None:
    with recorder().use_cassette(str(file)):
        assert send(f"{server.url}gzip", BODY)
    assert "content-encoding" not in (text := file.read_text(encoding="utf-8"))
    assert "binary" not in text
    assert TOKEN not in text
    assert b"[redacted:authorization]" in replay(file, with_httpx, f"{server.url}gzip", BODY)


def failing(server: Server, file: Path, url: str, kind: type[Exception], match: str) -> None:
    """A recording that fails leaves the old file and nothing else."""
    with recorder().use_cassette(str(file)):
        with_httpx(server.url, BODY)
    before = file.read_bytes()
    with pytest.raises(kind, match=match), recorder().use_cassette(str(file), record_mode="all"):
        with_urllib(url, BODY | {"n": 2})
    assert [path.read_bytes() for path in file.parent.iterdir()] == [before]


def test_body_that_cannot_be_searched_is_not_written(server: Server, file: Path) -> None:
    failing(server, file, f"{server.url}zstd", StorageError, "content-encoding zstd cannot be searched")


def test_broken_compression_is_not_written(server: Server, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip, "compress", lambda data: b"\x1f\x8b" + data)
    failing(server, file, f"{server.url}gzip", StorageError, "content-encoding gzip cannot be searched")


def test_secret_that_is_left_is_not_written(server: Server, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorder().use_cassette(str(file)):
        with_httpx(server.url, BODY)
    before = file.read_bytes()
    monkeypatch.setattr(redaction, "redact_interaction", lambda interaction, redactor: interaction)
    with pytest.raises(StorageError, match="request body"), recorder().use_cassette(str(file), record_mode="all"):
        with_httpx(server.url, BODY | {"n": 2})
    assert [path.read_bytes() for path in file.parent.iterdir()] == [before]


CRASH = """
import os, signal, httpx, vcr, agentrun.vcr
os.{call} = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
with agentrun.vcr.register(vcr.VCR()).use_cassette({file!r}, record_mode="all"):
    httpx.post({url!r}, json={{"n": 2}}, trust_env=False)
"""


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_crash_while_writing_leaves_the_old_file(server: Server, file: Path, call: str) -> None:
    with recorder().use_cassette(str(file)):
        with_httpx(server.url, BODY)
    before = file.read_bytes()
    program = CRASH.format(call=call, file=str(file), url=server.url)
    died = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (died.returncode, len(server.paths)) == (-signal.SIGKILL, 2), died.stderr
    assert file.read_bytes() == before
    assert replay(file, with_httpx, server.url, BODY)


def test_link_is_not_followed(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "cassettes").symlink_to("outside")
    with pytest.raises(StorageError, match="symbolic link"), recorder().use_cassette("cassettes/shop.yaml"):
        with_httpx(server.url, BODY)
    assert list((tmp_path / "outside").iterdir()) == []


def test_file_that_is_not_utf8_is_never_replaced(server: Server, file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CassetteError, match="not UTF-8"), recorder().use_cassette(str(file)):
        pytest.fail("the cassette is not readable")
    assert file.read_bytes() == b"\xff\xfe"


def test_body_of_an_unknown_type_matches_nothing() -> None:
    compare = recorder().matchers["agentrun"]
    one, two = (VCR.Request("POST", "http://shop.example/", body, {}) for body in (1.5, 1.5))
    with pytest.raises(AssertionError, match="a body of type float"):
        compare(one, two)
    compare(*(VCR.Request("POST", "http://shop.example/", body, {}) for body in ({"a": 1}, b'{"a":1.0}')))
    compare(*(VCR.Request("POST", "http://shop.example/", body, {}) for body in (iter([b"a", b"b"]), "ab")))
    with pytest.raises(AssertionError, match="the method is PUT"):
        compare(VCR.Request("PUT", "http://a/", None, {}), VCR.Request("POST", "http://a/", None, {}))


def test_cassettes_of_other_persisters_are_loaded(server: Server, file: Path) -> None:
    """pytest-recording combines several cassettes in one test."""
    for name, body in (("one", {"n": 1}), ("two", {"n": 2})):
        with by_pytest_recording(file.parent).use_cassette(name):
            with_httpx(server.url, body)
    combined = by_pytest_recording(file.parent, file.with_name("two.yaml"), record_mode="none")
    with combined.use_cassette("one") as cassette:
        assert with_httpx(server.url, {"n": 2}) != with_httpx(server.url, {"n": 1})
        assert cassette.all_played
    assert len(server.paths) == 2


def test_use_cassette_of_the_module_can_be_configured(
    server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("match_on", "serializer", "persister"):  # put back after the test
        monkeypatch.setattr(VCR.default_vcr, name, getattr(VCR.default_vcr, name))
    assert agentrun.vcr.register() is VCR.default_vcr
    with VCR.use_cassette(str(file)):
        with_httpx(server.url, BODY)
    assert KEY not in file.read_text(encoding="utf-8")


def test_cassette_of_agentrun_can_be_extended(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    text = (ROOT / "cassettes" / "support" / "approval.yaml").read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    with recorder().use_cassette(str(file), record_mode="new_episodes"):
        with_httpx(server.url, BODY)
    assert "sha256_of_whole_request" in text
    assert file.read_text(encoding="utf-8").startswith(text), "what was there is the same, byte by byte"
    assert len(load_cassette(file).interactions) == text.count("\n- request:") + 1
