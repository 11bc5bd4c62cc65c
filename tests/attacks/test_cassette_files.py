"""Edited cassettes are refused with a line or replayed without harm."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml

from agentrun.cli.group import run_command
from agentrun.errors import ERROR_CODES

from ..cli.command import SCRIPT
from ..cli.shop_project import Project
from .bombs import bomb

EVIL = "\x1b]52;c;aGk=\x07\x1b[2J\x1b]8;;http://x\x07\x9b31m\r\u202e\u200b\x00\x7f"
ACTS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What no terminal of ours gets."""

LIMIT = 1 << 30
MODEL, TOOL, LIMITED, APPROVAL = 0, 1, 2, 4
"""Numbers of interactions in the story of the project."""

BOMB = bomb(b"\0")


@pytest.fixture(scope="module")
def recorded_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    shop = Project(tmp_path_factory.mktemp("shop"))
    shop.record()
    return shop


class EditedCassette:
    """A project whose recording is edited."""

    def __init__(self, shop: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._shop = shop
        self._capsys = capsys
        self._whole = shop.cassette.read_bytes()
        monkeypatch.chdir(shop.root)
        monkeypatch.setenv("CI", "true")

    def data(self) -> Any:
        return yaml.load(self._whole, yaml.CSafeLoader)

    def replay(self, text: bytes, *args: str) -> tuple[int, str]:
        """The exit code, and all that was said. An exception would be our bug."""
        self._shop.cassette.write_bytes(text)
        try:
            code = run_command(["shop.yaml", *args])
        finally:
            self._shop.cassette.write_bytes(self._whole)
        said = "".join(self._capsys.readouterr())
        assert not ACTS.search(said), ACTS.findall(said)
        assert "internal" not in said, said
        return code, said


@pytest.fixture
def edited(
    recorded_project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> EditedCassette:
    return EditedCassette(recorded_project, capsys, monkeypatch)


def dump_yaml(data: Any) -> bytes:
    return bytes(
        yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")
    )


def with_value(data: Any, path: str, value: Any) -> Any:
    """The same with another value at a place."""
    data = at = deepcopy(data)
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in steps:
        at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
    at[last] = value
    return data


OURS = "interactions.0.response.agentrun"
INVALID_CASSETTES: dict[str, tuple[str, Any]] = {
    "chunks that do not add up": (f"{OURS}.chunks", [1, 2, 3]),
    "chunks that are negative": (f"{OURS}.chunks", [-5, 5]),
    "chunks that are true": (f"{OURS}.chunks", [True]),
    "chunks that are a text": (f"{OURS}.chunks", "12"),
    "a start before the beginning": (f"{OURS}.start", -1),
    "an end before the beginning": (f"{OURS}.end", -(2**70)),
    "an end after all time": (f"{OURS}.end", 2**62),
    "an end that no integer holds": (f"{OURS}.end", 10**400),
    "an end that is true": (f"{OURS}.end", True),
    "an end that is a fraction": (f"{OURS}.end", 1.5),
    "an end before its start": (f"{OURS}.end", 0),
    "a path that is a number": (f"{OURS}.path", 7),
    "a path that acts": (f"{OURS}.path", EVIL),
    "a failure that is nobody's": (f"{OURS}.failure", {"code": "no.such", "message": "x", "fields": {}}),
    "a failure of the host": (f"{OURS}.failure", {"code": "internal", "message": "x", "fields": {}}),
    "a failure of a spec": (f"{OURS}.failure", {"code": "spec.x", "message": "x", "fields": {}}),
    "a failure of a cassette": (f"{OURS}.failure", {"code": "cassette.miss", "message": "x", "fields": {}}),
    "a failure that is the end": (f"{OURS}.failure", {"code": "cancelled", "message": "x", "fields": {}}),
    "a failure without words": (f"{OURS}.failure", {"code": "provider.transient"}),
    "something of ours that is unknown": (f"{OURS}.run", "rm -rf /"),
    "a status that is none": ("interactions.0.response.status.code", 99),
    "a status that is huge": ("interactions.0.response.status.code", 10**30),
    "no version": ("version", 2),
    "a version that is true": ("version", True),
    "no interactions": ("interactions", None),
    "interactions by name": ("interactions", {"a": 1}),
    "metadata that is a list": ("metadata", [1]),
    "a beginning that is none": ("metadata.recorded_at", "soon"),
    "a beginning that is a list": ("metadata.recorded_at", [1]),
    "a beginning before the calendar": ("metadata.recorded_at", "0001-01-01T00:00:00+23:59"),
    "a method that is a number": ("interactions.0.request.method", 1),
    "an address that is a list": ("interactions.0.request.uri", ["x"]),
    "headers that are a text": ("interactions.0.response.headers", "x: y"),
    "a header that is a number": ("interactions.0.response.headers", {"x": [1]}),
    "a body that is a list": ("interactions.0.response.body", {"string": [1]}),
    "no response": ("interactions.0.response", None),
    "a bomb": ("interactions.0.response.body.string", BOMB),
    "an encoding that nobody knows": ("interactions.0.response.headers", {"content-encoding": ["br"]}),
}


@pytest.mark.parametrize("what", INVALID_CASSETTES)
def test_invalid_value_is_refused_with_its_line(edited: EditedCassette, what: str) -> None:
    path, value = INVALID_CASSETTES[what]
    data = with_value(edited.data(), path, value)
    if what == "a bomb":
        data = with_value(data, "interactions.0.response.headers", {"content-encoding": ["gzip"]})
    if what == "an end before its start":
        data = with_value(data, f"{OURS}.start", 10)
    code, said = edited.replay(dump_yaml(data))
    assert (code, "cassette.damaged" in said) == (3, True), said
    assert re.search(r"default\.yaml:\d+: ", said), said


RESULT = json.dumps({"returned": {"parts": [], "fault": {"code": "internal", "message": "x"}}})
REFUSED_IN_THE_RUN: dict[str, tuple[int, str]] = {
    "a tool that fails in us": (TOOL, RESULT),
    "a tool that fails as a spec": (TOOL, RESULT.replace("internal", "spec.x")),
    "a tool that denies itself": (TOOL, RESULT.replace("internal", "policy.denied")),
    "a tool that is no tool": (TOOL, '{"returned": 7}'),
    "a content that is not what it says": (
        TOOL,
        json.dumps({"returned": {"parts": []}, "blobs": {"sha256:00": "aGk="}}),
    ),
    "an answer that nobody gives": (APPROVAL, '{"answer": "perhaps", "by": "x"}'),
    "an answer of nobody": (APPROVAL, '{"answer": "approved"}'),
    "an answer that goes on for ever": (APPROVAL, "[" * 100_000),
}


@pytest.mark.parametrize("what", REFUSED_IN_THE_RUN)
def test_invalid_recorded_reply_is_damaged(edited: EditedCassette, what: str) -> None:
    number, body = REFUSED_IN_THE_RUN[what]
    place = f"interactions.{number}.response"
    data = with_value(edited.data(), f"{place}.body.string", body)
    data = with_value(data, f"{place}.headers", {"content-type": ["application/json"]})
    code, said = edited.replay(dump_yaml(data))
    assert (code, "cassette.damaged" in said) == (3, True), said


def yaml_aliases(n: int) -> bytes:
    return b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9))


TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "python": lambda text: text.replace(b"version: 1", b"version: !!python/object/apply:os.system ['touch pwned']"),
    "a tag": lambda text: text.replace(b"version: 1", b"version: !run 1"),
    "aliases": lambda text: b"".join(
        [
            b"a0: &a0 [x]\n",
            *(b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)),
            text,
        ]
    ),
    "itself": lambda text: b"metadata: &a [*a]\n" + text,
    "merge keys": lambda text: text.replace(b"version: 1", b"version: 1\n<<: &m {x: 1}\nmetadata: {<<: [*m, *m]}", 1),
    "twice": lambda text: text + b"\nversion: 1\n",
    "twice inside": lambda text: text.replace(b"    method: POST", b"    method: POST\n    method: POST", 1),
    "two documents": lambda text: text + b"\n---\nversion: 1\n",
    "deep": lambda text: text + b"\nx: " + b"[" * 5000,
    "not UTF-8": lambda text: text + b"\xff\xfe",
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "a control character": lambda text: text + b"\nx: \x00\n",
    "not base64": lambda text: text.replace(b"version: 1", b"version: 1\nx: !!binary '***'", 1),
    "empty": lambda text: b"",
    "a list": lambda text: b"- 1\n",
    "half": lambda text: text[: len(text) // 2],
    "too much": lambda text: text + b"#" * (65 << 20),
    "many things": lambda text: text + b"\nx: [" + b"1," * 1_100_000 + b"1]\n",
    "a number without end": lambda text: text.replace(b"version: 1", b"version: 1\nx: " + b"9" * 100_000, 1),
    "a time without end": lambda text: text.replace(b"version: 1", b"version: 1\nx: " + b"1:" * 50_000 + b"1", 1),
}


@pytest.mark.parametrize("what", TEXTS)
def test_hostile_yaml_is_refused(edited: EditedCassette, recorded_project: Project, what: str) -> None:
    text = TEXTS[what](recorded_project.cassette.read_bytes())
    assert text != recorded_project.cassette.read_bytes()
    code, said = edited.replay(text)
    assert (code, "cassette.damaged" in said) == (3, True), said
    assert not (recorded_project.root / "pwned").exists()


# --- played without harm ------------------------------------------------------------------------------------------


def test_control_characters_in_a_cassette_are_escaped(edited: EditedCassette) -> None:
    data = edited.data()
    for path in (
        "interactions.1.response.body.string",
        "metadata.where",
        "metadata.spec",
        "metadata.case",
        "metadata.fingerprint",
    ):
        data = with_value(data, path, EVIL)
    for args in ((), ("--json",)):
        code, said = edited.replay(dump_yaml(data), *args)
        assert (code, "cassette.miss" in said) == (3, True), "the model is told something else"
    answer = edited.data()["interactions"][-1]["response"]["body"]["string"].replace("Done.", json.dumps(EVIL)[1:-1])
    data = with_value(edited.data(), "interactions.6.response.body.string", answer)
    data = with_value(data, "interactions.6.response.agentrun.chunks", [])
    code, said = edited.replay(dump_yaml(data))
    assert (code, "\\x1b" in said) == (0, True), said


@pytest.mark.parametrize("value", [None, 7, EVIL, [1, [2]], {"a": EVIL}, True, 1e300], ids=str)
@pytest.mark.parametrize("key", ["params", "sections", "fingerprint", "where", "spec", "case", "history", "profile"])
def test_metadata_of_any_type_does_no_harm(
    edited: EditedCassette, recorded_project: Project, key: str, value: Any
) -> None:
    data = with_value(edited.data(), f"metadata.{key}", value)
    assert edited.replay(dump_yaml(data))[0] in (0, 3)
    data = with_value(data, "interactions.0.request.body", '{"model": "other"}')
    assert edited.replay(dump_yaml(data))[0] == 3
    recorded_project.cassette.write_bytes(dump_yaml(data))
    try:
        for command in ("show", "ls", "audit"):
            assert run_command(["cassette", command, "cassettes/shop/default.yaml"]) in (0, 1, 2, 3)
    finally:
        recorded_project.cassette.write_bytes(edited._whole)


def test_only_provider_failures_are_replayed(edited: EditedCassette) -> None:
    """A failure on a cassette is one that a request can have. Some of them come after the whole reply."""
    for code in ERROR_CODES:
        failure = {"code": code, "message": "x", "fields": {}}
        data = with_value(edited.data(), f"{OURS}.failure", failure)
        ended, said = edited.replay(dump_yaml(data))
        assert ended in ((0, 3, 6) if code.startswith("provider.") else (3,)), (code, said)


LARGE = {
    "a result of ten megabytes": ("interactions.1.response.body.string", "x\n" * (5 << 20)),
    "a reply of ten megabytes": ("interactions.0.response.body.string", "data: {}\n\n" * (1 << 20)),
    "a request of ten megabytes": ("interactions.0.request.body", json.dumps({"x": "[redacted:a]" * 900_000})),
    "a bomb": ("interactions.0.response.body.string", BOMB),
}


@pytest.mark.parametrize("what", LARGE)
def test_large_cassette_stays_within_a_gigabyte(recorded_project: Project, what: str) -> None:
    """In a process of its own, with a gigabyte for everything."""
    path, value = LARGE[what]
    whole = recorded_project.cassette.read_bytes()
    data = with_value(yaml.load(whole, yaml.CSafeLoader), path, value)
    if path == "interactions.0.response.body.string":
        data = with_value(data, f"{OURS}.chunks", [])
        data = with_value(
            data, "interactions.0.response.headers", {"content-encoding": ["gzip" if what == "a bomb" else ""]}
        )
    recorded_project.cassette.write_bytes(yaml.dump(data, Dumper=yaml.CSafeDumper).encode())
    try:
        done = subprocess.run(
            [SCRIPT, "shop.yaml"],
            cwd=recorded_project.root,
            env={"CI": "true"},
            capture_output=True,
            check=False,
            timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
        )
    finally:
        recorded_project.cassette.write_bytes(whole)
    assert done.returncode in (3, 6), done.stderr[-2000:]
    assert b"Traceback" not in done.stderr
