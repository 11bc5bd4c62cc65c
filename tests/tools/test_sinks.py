"""File, JSONL and stdout sinks, alone and through whole runs."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import multiprocessing
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from msgspec import UNSET

from agentrun.core.effects import Deliver
from agentrun.core.facts import DeliveryFinished
from agentrun.core.fault import Fault
from agentrun.core.package import FileSink, JsonlSink, StdoutSink
from agentrun.tools import sinks
from agentrun.tools.sinks import FileSinks, JsonlSinks, StdoutSinks

from .agent_runs import STORY, Runs, facts
from .python_desk import Desk

COMMON: dict[str, Any] = {"delivery": "required", "timeout": 1000}


def delivery(path: str, text: str = "the answer", key: str = "k1", output: Any = UNSET, **kind: Any) -> Deliver:
    made = kind.get("kind", FileSink)
    return Deliver("deliver:out", "out", made(path=path, **COMMON), text, output, key)


def to_file(root: Path, path: str, text: str = "the answer", key: str = "k1") -> Fault | None:
    return asyncio.run(FileSinks(root).deliver(delivery(path, text, key)))


def to_lines(root: Path, path: str, text: str = "the answer", key: str = "k1", output: Any = UNSET) -> Fault | None:
    return asyncio.run(JsonlSinks(root).deliver(delivery(path, text, key, output, kind=JsonlSink)))


# --- where a file may be --------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [to_file, to_lines])
@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "new/folder/a.txt", "old//a.txt", "ü/日本.txt", "…/a b.txt"])
def test_path_inside_the_project_is_written(tmp_path: Path, write: Any, path: str) -> None:
    (tmp_path / "old").mkdir()
    assert write(tmp_path, path) is None
    assert "the answer" in (tmp_path / path).read_text()


@pytest.mark.parametrize("write", [to_file, to_lines])
@pytest.mark.parametrize(
    "path",
    [
        *("../a.txt", "/a.txt", "a/../../a.txt", "..", ".", "", "a\0b"),
        *(".git/config", "sub/.git/hooks/pre-commit", ".GIT/config", ".git"),
    ],
)
def test_path_outside_the_project_or_in_git_is_refused(tmp_path: Path, write: Any, path: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    fault = write(root, path)
    assert (fault.code, fault.fields) == ("delivery.failed", {"sink": "out", "reason": "path", "errno": errno.EPERM})
    assert list(tmp_path.rglob("*")) == [root]


@pytest.mark.parametrize("write", [to_file, to_lines])
@pytest.mark.parametrize("kind", ["link", "link to folder", "folder", "pipe", "linked parent", "file as parent"])
def test_path_that_is_no_plain_file_is_refused(tmp_path: Path, write: Any, kind: str) -> None:
    root, out = tmp_path / "project", tmp_path / "outside"
    root.mkdir()
    out.mkdir()
    (out / "precious").write_text("precious")
    path = "a.txt"
    match kind:
        case "link":
            (root / "a.txt").symlink_to(out / "precious")
        case "link to folder":
            (root / "a.txt").symlink_to(out)
        case "folder":
            (root / "a.txt").mkdir()
        case "pipe":
            os.mkfifo(root / "a.txt")
        case "linked parent":
            (root / "sub").symlink_to(out)
            path = "sub/precious"
        case "file as parent":
            (root / "sub").write_text("")
            path = "sub/a.txt"
    before = sorted(root.rglob("*"))
    fault = write(root, path)
    assert fault is not None
    assert fault.code == "delivery.failed"
    assert (sorted(root.rglob("*")), list(out.iterdir())) == (before, [out / "precious"])
    assert (out / "precious").read_text() == "precious"


# --- a whole file ---------------------------------------------------------------------------------------------


def test_file_is_replaced_atomically_with_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before, and longer than what comes")
    path.chmod(0o640)
    before = path.stat().st_ino
    assert to_file(tmp_path, "a.txt") is None
    assert path.read_text() == "the answer\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino != before, "it was not written into"
    assert to_file(tmp_path, "a.txt", "with a line\n") is None
    assert path.read_text() == "with a line\n"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    assert to_file(tmp_path, "a.txt", "half \ud800") is None
    assert (tmp_path / "a.txt").read_text() == "half ?\n"
    assert to_lines(tmp_path, "a.jsonl", "half \ud800") is None


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may become larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_keeps_the_old_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    (tmp_path / "a.jsonl").write_text('{"key":"k0"}\n')
    with full_disk(4096):
        for fault in (to_file(tmp_path, "a.txt", "x" * 10_000), to_lines(tmp_path, "a.jsonl", "x" * 10_000)):
            assert fault is not None
            assert (fault.code, fault.fields["reason"], fault.fields["sink"]) == ("delivery.failed", "storage", "out")
            assert isinstance(fault.fields["errno"], int)
    assert (tmp_path / "a.txt").read_text() == "before"
    assert (tmp_path / "a.jsonl").read_text() == '{"key":"k0"}\n', "the half of a line was taken back"
    assert len(list(tmp_path.iterdir())) == 2


def test_cancelled_delivery_does_not_replace_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("before")
    entered, go_on = multiprocessing.Event(), multiprocessing.Event()
    fsync = os.fsync

    def slow(file: int) -> None:
        entered.set()
        go_on.wait(30)
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)

    async def main() -> None:
        task = asyncio.create_task(FileSinks(tmp_path).deliver(delivery("a.txt")))
        await asyncio.to_thread(entered.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        while any(name.startswith(".a.txt") for name in os.listdir(tmp_path)):  # noqa: ASYNC110  # a thread's doing
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert (tmp_path / "a.txt").read_text() == "before"


# --- lines ----------------------------------------------------------------------------------------------------


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_key_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for key in ("k1", "k2", "k1", "k3", "k2"):
        assert to_lines(tmp_path, "a.jsonl", "the same", key, {"n": 1}) is None
    assert [line["key"] for line in read_lines(path)] == ["k1", "k2", "k3"]
    assert read_lines(path)[0] == {"key": "k1", "sink": "out", "text": "the same", "output": {"n": 1}}


def test_key_inside_a_text_does_not_count_as_written(tmp_path: Path) -> None:
    to_lines(tmp_path, "a.jsonl", 'x\n{"key":"k2"', "k1", {"key": "k2"})
    assert to_lines(tmp_path, "a.jsonl", "x", "k2") is None
    assert [line["key"] for line in read_lines(tmp_path / "a.jsonl")] == ["k1", "k2"]


@pytest.mark.parametrize("shift", range(0, 40, 3))
def test_key_is_found_across_read_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    monkeypatch.setattr(sinks, "READ_BLOCK", 64)
    (tmp_path / "a.jsonl").write_text('"' + "x" * (60 + shift) + '"\n{"key":"k1","sink":"out","text":""}\n"more"\n')
    before = (tmp_path / "a.jsonl").read_bytes()
    assert to_lines(tmp_path, "a.jsonl") is None
    assert (tmp_path / "a.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("torn", "left"),
    [
        ('{"key":"k0","te', ""),
        ('{"ke', ""),
        ('{"key":"k0"}', '{"key":"k0"}\n'),
        ("1", "1\n"),
        ("somebody else's", "somebody else's\n"),
    ],
)
@pytest.mark.parametrize("before", ["", '{"key":"k9"}\n'])
def test_torn_last_line_is_removed_and_a_complete_one_is_ended(
    tmp_path: Path, torn: str, left: str, before: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(before + torn)
    assert to_lines(tmp_path, "a.jsonl") is None
    text = path.read_text()
    assert text.startswith(before + left + '{"key":"k1"')
    assert text.count("\n") == (before + left).count("\n") + 1


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.tools.test_sinks import to_lines
for n in range(25):
    assert to_lines(Path(sys.argv[1]), "a.jsonl", "x" * 20_000, f"{sys.argv[2]}.{n}") is None
"""


def test_parallel_processes_write_complete_lines(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    started = [
        subprocess.Popen([sys.executable, "-c", dedent(WRITER), str(tmp_path), str(n)], cwd=root) for n in range(4)
    ]
    assert [each.wait(60) for each in started] == [0] * 4
    keys = [line["key"] for line in read_lines(tmp_path / "a.jsonl")]
    assert len(keys) == len(set(keys)) == 100


def test_delivery_to_a_locked_file_times_out_and_writes_nothing_later(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        async def main() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await JsonlSinks(tmp_path).deliver(delivery("a.jsonl", kind=JsonlSink))

        asyncio.run(main())
    assert to_lines(tmp_path, "a.jsonl", key="k2") is None
    assert [line["key"] for line in read_lines(tmp_path / "a.jsonl")] == ["k2"], "who gave up wrote nothing later"


# --- standard output ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "full"), ValueError("closed")])
def test_stdout_that_cannot_be_written_fails_the_delivery(error: Exception) -> None:
    def write(line: str) -> None:
        raise error

    made = Deliver("deliver:out", "out", StdoutSink(**COMMON), "x", UNSET, "k1")
    fault = asyncio.run(StdoutSinks(write).deliver(made))
    assert fault is not None
    assert (fault.code, fault.fields) == ("delivery.failed", {"sink": "out", "reason": type(error).__name__})


# --- through whole runs ---------------------------------------------------------------------------------------

SINKS = """
sinks:
  page: {kind: file, path: out/page.txt}
  lines: {kind: jsonl, path: out/lines.jsonl}
  out: {kind: stdout}
  off: {kind: file, path: never.txt, delivery: disabled}
"""


def test_all_kinds_of_sinks_are_recorded_and_replayed(desk: Desk) -> None:
    here = Runs(desk.root, SINKS)
    done = here.recorded_and_replayed()
    assert done.outcome.answer == "It is late."
    assert (here.root / "out/page.txt").read_text() == "It is late.\n"
    (line,) = read_lines(here.root / "out/lines.jsonl")
    (printed,) = map(json.loads, here.written)
    assert (line["text"], line["sink"], printed["sink"]) == ("It is late.", "lines", "out")
    assert not (here.root / "never.txt").exists()
    assert {fact.sink: fact.fault for fact in facts(done, DeliveryFinished)} == {
        "lines": None,
        "out": None,
        "page": None,
    }
    here.live()
    assert len(read_lines(here.root / "out/lines.jsonl")) == 2, "another run is another delivery"


def test_parsed_output_is_delivered(desk: Desk) -> None:
    schema = "output: {schema: {type: object, properties: {late: {type: boolean}}, required: [late]}}\n"
    here = Runs(desk.root, schema + SINKS)
    here.recorded_and_replayed(STORY.replace("It is late.", """'{"late": true}'"""))
    assert read_lines(here.root / "out/lines.jsonl")[0]["output"] == {"late": True}
    assert json.loads(here.written[0])["output"] == {"late": True}


@pytest.mark.parametrize("how", ["required", "optional"])
@pytest.mark.parametrize("kind", ["file", "jsonl"])
def test_failed_delivery_fails_the_run_only_if_required(desk: Desk, how: str, kind: str) -> None:
    here = Runs(desk.root, f"sinks: {{page: {{kind: {kind}, path: blocked, delivery: {how}}}}}\n")
    (here.root / "blocked").mkdir()
    done = here.recorded_and_replayed()
    assert (done.outcome.code, done.exit_code) == (("delivery.failed", 6) if how == "required" else (None, 0))
    (finished,) = facts(done, DeliveryFinished)
    assert finished.fault is not None
    assert finished.fault.fields == {"sink": "page", "reason": "path", "errno": errno.EPERM}


def test_delivery_timeout_is_recorded_and_replayed(desk: Desk) -> None:
    here = Runs(desk.root, "sinks: {lines: {kind: jsonl, path: a.jsonl, timeout: 200ms}}\n")
    with (here.root / "a.jsonl").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = here.record()
    assert done.outcome.code == "delivery.failed"
    assert done.outcome.fields["reason"] == "timeout"
    assert here.replay().canonical() == done.canonical()


def test_denied_delivery_is_not_written(desk: Desk) -> None:
    rules = "policy: {default: allow, rules: [{id: shy, on: delivery, deny: page, reason: not there}]}"
    head = Runs(desk.root).spec.read_text().replace("policy: {default: allow}", rules)
    here = Runs(desk.root, SINKS, head=head)
    done = here.recorded_and_replayed()
    assert not (here.root / "out/page.txt").exists()
    assert done.exit_code != 0, "a required sink has nothing"
    assert "shy" in done.canonical()
