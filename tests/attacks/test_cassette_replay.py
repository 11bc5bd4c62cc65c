"""Many replays, in parallel, repeated and without a network, send nothing and do not mix."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import yaml

from agentrun.canonical_json import sorted_json
from agentrun.cassette.file import load_cassette
from agentrun.compiler.compile import compile_spec
from agentrun.compiler.package_file import seal_package
from agentrun.core.package import Package
from agentrun.engine.run import FinishedRun

from ..cli.command import ROOT
from ..long_loops import times
from ..packages import BASE, ROUTE, package
from ..replays import replay_package
from ..scripted_service import completion, record
from ..servers import Server

CROWD = 50


def agent(number: int, address: str) -> Package:
    """Each differs from the others in everything that could be mixed up."""
    route = ROUTE | {"base_url": address, "name": f"model-{number}"}
    model = BASE["model"] | {"routes": [route]}
    return package(name=f"agent-{number}", model=model, input=f"Question {number}")


def replay(agent: Package, cassette: Path) -> FinishedRun:
    return replay_package(agent, cassette)


def lines(done: FinishedRun) -> bytes:
    return b"\n".join(map(sorted_json, done.journal))


class SocketCounter:
    """Counts sockets that are opened."""

    def __init__(self) -> None:
        self.opened = 0


@pytest.fixture
def socket_counter(monkeypatch: pytest.MonkeyPatch) -> SocketCounter:
    seen = SocketCounter()

    class Watched(socket.socket):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            seen.opened += 1
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(socket, "socket", Watched)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-at-hand")
    return seen


@pytest.fixture
def live_server() -> Iterator[Server]:
    """A server that would answer, and counts."""
    with Server(completion("I was asked for real.")) as server:
        yield server


def test_fifty_parallel_replays_do_not_mix_and_send_nothing(
    tmp_path: Path, live_server: Server, socket_counter: SocketCounter
) -> None:
    agents = [agent(number, live_server.url) for number in range(CROWD)]
    cassettes = [
        record(tmp_path / f"{number}.yaml", each, completion(f"Answer {number}")) for number, each in enumerate(agents)
    ]
    alone = [lines(replay(each, cassette)) for each, cassette in zip(agents, cassettes, strict=True)]
    together = Barrier(CROWD)
    before = socket_counter.opened

    def one(number: int) -> FinishedRun:
        together.wait(30)
        return replay(agents[number], cassettes[number])

    with ThreadPoolExecutor(CROWD) as pool:
        runs = list(pool.map(one, range(CROWD)))
    assert [run.outcome.answer for run in runs] == [f"Answer {number}" for number in range(CROWD)]
    assert [lines(run) for run in runs] == alone, "each journal is what it is alone"
    assert all(run.unused_error is None and run.exit_code == 0 for run in runs)
    assert (live_server.connections, live_server.requests, socket_counter.opened - before) == (0, [], 0)


def test_fifty_parallel_misses_send_nothing(tmp_path: Path, live_server: Server, socket_counter: SocketCounter) -> None:
    """Each with the recording of its neighbour: fifty refusals, and still nobody is asked."""
    agents = [agent(number, live_server.url) for number in range(CROWD)]
    cassettes = [record(tmp_path / f"{number}.yaml", each, completion("x")) for number, each in enumerate(agents)]
    before = socket_counter.opened
    with ThreadPoolExecutor(CROWD) as pool:
        runs = list(pool.map(replay, agents, [*cassettes[1:], cassettes[0]]))
    assert {run.outcome.code for run in runs} == {"cassette.miss"}
    assert (live_server.connections, socket_counter.opened - before) == (0, 0)


def test_socket_watch_detects_a_connection(live_server: Server, socket_counter: SocketCounter) -> None:
    before = socket_counter.opened
    with socket.create_connection(("127.0.0.1", live_server.port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        connection.recv(10)
    assert socket_counter.opened > before
    assert (live_server.connections, len(live_server.requests)) == (1, 1)


def test_repeated_replays_give_one_journal(socket_counter: SocketCounter) -> None:
    compiled = compile_spec(ROOT / "specs" / "support.yaml")
    assert compiled.package is not None
    file = seal_package(compiled.package)
    cassette = load_cassette(ROOT / "cassettes" / "support" / "default.yaml")
    before = socket_counter.opened
    journals = {lines(replay_package(file.agent, cassette)) for _ in range(times(200, 1000))}
    assert (len(journals), socket_counter.opened - before) == (1, 0)
    assert b"run_stopped" in journals.pop()


# --- what is shipped ----------------------------------------------------------------------------------------------

SHIPPED = sorted((ROOT / "cassettes").glob("*/*.yaml"))
ENDS = {("triage", "denial"): 4, ("ops", "other"): 4, ("triage", "broken"): 6}
"""Cases that do not mean success: a person says no to the answer itself, or no answer keeps its contract."""
CONVERSATIONS = {("support", "conversation")}
"""Cases of several runs: tests/examples/test_suites.py replays them without a network too."""
ALONE = [cassette for cassette in SHIPPED if (cassette.parent.name, cassette.stem) not in CONVERSATIONS]


EACH = """
import gc, importlib, json, os, pkgutil, sys, tempfile
import agentrun
from agentrun.cli import main

for module in pkgutil.walk_packages(agentrun.__path__, "agentrun."):
    importlib.import_module(module.name)
gc.freeze()

def replayed(args):
    with tempfile.TemporaryFile() as out:
        if not (copy := os.fork()):
            os.dup2(out.fileno(), 1)
            sys.argv = ["agentrun", *args]
            try:
                main()
            except SystemExit as end:
                sys.stdout.flush()
                os._exit(end.code or 0)
        code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        out.seek(0)
        return code, out.read().decode()

print(json.dumps([replayed(args) for args in json.loads(sys.stdin.read())]))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a way to cut the network off")
def test_shipped_cassettes_replay_without_a_network() -> None:
    """Each in a process of its own, that is a copy of one that has imported what a replay needs and has no network."""
    cases = [(cassette.parent.name, cassette.stem) for cassette in ALONE]
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-c", EACH],
        input=json.dumps([[f"specs/{spec}.yaml", "--case", case, "--json"] for spec, case in cases]).encode(),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for (spec, case), (code, said) in zip(cases, json.loads(done.stdout), strict=True):
        assert code == ENDS.get((spec, case), 0), (spec, case, said, done.stderr)
        assert '"replayed":true' in said, (spec, case)


def test_every_shipped_case_has_a_cassette() -> None:
    cases = {
        (spec.name.removesuffix(".cases.yaml"), case.get("cassette", case["name"]))
        for spec in (ROOT / "specs").glob("*.cases.yaml")
        for case in yaml.safe_load(spec.read_text(encoding="utf-8"))["cases"]
    }
    assert {(cassette.parent.name, cassette.stem) for cassette in SHIPPED} == cases
