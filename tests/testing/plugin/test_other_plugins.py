"""Cases in a project with no other pytest plugin, and in one with many, each in a venv of its own."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import requires
from itertools import groupby
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ...cassette.test_vcr import documented_conftest
from .projects import SNAPSHOT_ASSERTION, Project
from .test_collect import ids
from .test_functions import EVERY_SCOPE, REQUEST, add_second_file, log_of
from .test_snapshots import journal
from .test_verdicts import BAD, outcomes
from .venvs import ROOT, run_in_venv

ASYNC = """
import asyncio
import pytest_asyncio

@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def server(request):
    await asyncio.sleep(0)
    log("begin", "server", request.node.nodeid)
    yield asyncio.get_running_loop()
    await asyncio.sleep(0)
    log("end", "server", request.node.nodeid)

@pytest.fixture(autouse=True)
async def client(server, request):
    await asyncio.sleep(0)
    log("begin", "client", request.node.nodeid)
    yield
    await asyncio.sleep(0)
    log("end", "client", request.node.nodeid)
"""
PYTHON_TESTS = """
import asyncio
from agentrun import arun
from agentrun.testing import calls, scripted, stub, text

async def test_awaits(server):
    await asyncio.sleep(0)

def test_runs_an_agent(agentrun):
    assert agentrun("specs/desk.yaml").output == "Order 1042 is late."

async def test_runs_an_agent_in_a_loop(agentrun, server):
    assert agentrun("specs/desk.yaml").output == "Order 1042 is late."
    model = scripted(calls("look", order="7"), text("It is lost."))
    assert (await arun("specs/desk.yaml", "Where is 7?", model=model, tools={"look": stub("lost")})).ok
"""
JUDGE = """
def is_late(run):
    if run is None:
        return False
    return True
"""


def use_all_plugins(project: Project) -> None:
    project.write("specs/judge.py", JUDGE)
    project.cases(
        f"name: default, tags: [smoke], {SNAPSHOT_ASSERTION}",
        "name: late-order, tags: [vcr]",
        'name: judged, tags: [smoke, block_network], assert: [{type: python, value: "judge:is_late"}]',
        f"name: bad, tags: [smoke], {BAD}",
        f"name: known, xfail: later, {BAD}",
        "name: off, skip: closed",
    )
    add_second_file(project)
    project.snapshots.mkdir(parents=True)
    (project.snapshots / "default.journal").write_bytes(journal(project, "default"))
    (project.snapshots / "gone.journal").write_text("of a case that is not there", encoding="utf-8")
    project.write("tests/test_own.py", PYTHON_TESTS)
    project.write("conftest.py", EVERY_SCOPE + ASYNC)
    project.write("specs/conftest.py", REQUEST)
    settings = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    project.write("pytest.ini", (project.root / "pytest.ini").read_text(encoding="utf-8") + settings)


VERDICTS = {
    "default": "PASSED",
    "late-order": "PASSED",
    "judged": "PASSED",
    "bad": "FAILED",
    "known": "XFAIL",
    "other": "PASSED",
    "test_awaits": "PASSED",
    "test_runs_an_agent": "PASSED",
    "test_runs_an_agent_in_a_loop": "PASSED",
}


def test_no_other_plugin(project: Project) -> None:
    project.cases(
        f"name: default, {SNAPSHOT_ASSERTION}", "name: late-order, tags: [smoke]", f"name: bad, tags: [smoke], {BAD}"
    )
    add_second_file(project)
    project.snapshots.mkdir(parents=True)
    (project.snapshots / "default.journal").write_bytes(journal(project, "default"))
    project.write("specs/__init__.py", "")
    project.write("specs/conftest.py", EVERY_SCOPE + REQUEST)
    result = run_in_venv(project, "none", "-rA")
    (loaded,) = (line for line in result.outlines if line.startswith("plugins: "))
    assert re.sub(r"-[\d.]+", "", loaded) == "plugins: agentrun-harness, anyio"  # httpx needs anyio
    assert outcomes(result) == {"default": "PASSED", "late-order": "PASSED", "bad": "FAILED", "other": "PASSED"}
    assert log_of(project)[:3] == ["begin session ", "begin package specs", "begin module specs/desk.cases.yaml"]
    assert_fixtures_ended(project)
    result = run_in_venv(project, "none", "--lf", "-x", "-m", "smoke", "-rA")
    result.assert_outcomes(failed=1)
    assert outcomes(result) == {"bad": "FAILED"}


def test_fixture_in_a_test_of_anyio(project: Project) -> None:
    project.cases("name: default")
    marked = PYTHON_TESTS.replace("async def", "@pytest.mark.anyio\nasync def").replace(", server", "")
    backend = "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    project.write("tests/test_own.py", backend + marked.replace("(server)", "()"))
    run_in_venv(project, "none", "tests").assert_outcomes(passed=3)


def test_recording_plugin(project: Project) -> None:
    """Its fixtures apply to every test. It is not asked to record, and the network is blocked."""
    project.cases("name: default", "name: late-order, tags: [vcr]", "name: other, tags: [block_network]")
    before = sorted(project.root.rglob("*.yaml"))
    others = ("no:asyncio", "no:randomly", "no:syrupy", "no:xdist", "no:pytest_cov")
    options = ("--block-network", "--record-mode=once", "-rA")
    result = run_in_venv(project, "all", *(f"-p{each}" for each in others), *options)
    result.assert_outcomes(passed=3)
    assert sorted(project.root.rglob("*.yaml")) == before


SHOP_TESTS = """
import os
import httpx
import pytest

SECRETS = {"header": "hd-4f9a8c7e6b5d4c3b", "query": "qr-1a2b3c4d5e6f7a8b", "body": "bd-correct-horse-battery"}

@pytest.mark.vcr
def test_order():
    with httpx.Client(base_url=os.environ["SHOP_URL"], trust_env=False) as client:
        reply = client.post(
            "/orders",
            params={"api_key": SECRETS["query"]},
            headers={"authorization": f"Bearer {SECRETS['header']}"},
            json={"password": SECRETS["body"], "id": 7},
        )
        assert reply.json()["id"] == 7
        streamed = client.post("/events", json={"id": 8})
        assert streamed.text.endswith("\\n\\n")
        assert client.post("/orders", json={"id": 9}).json()["id"] == 9
"""


def test_recording_plugin_records_and_replays_through_agentrun(project: Project) -> None:
    """With the `conftest.py` of docs/cassettes.md. The server repeats what it gets, also as a stream."""
    project.write("conftest.py", documented_conftest())
    project.write("tests/test_shop.py", SHOP_TESTS)
    options = ("-pno:asyncio", "-pno:randomly", "-pno:xdist", "-pno:pytest_cov", "tests")
    with EchoServer(("127.0.0.1", 0), Echo) as server, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        patch.setenv("SHOP_URL", f"http://127.0.0.1:{server.server_port}")
        run_in_venv(project, "all", "--record-mode=once", *options).assert_outcomes(passed=1)
        server.shutdown()
        assert server.count == 3
        run_in_venv(project, "all", "--record-mode=none", "--block-network", *options).assert_outcomes(passed=1)
        project.edit("tests/test_shop.py", '"id": 9}', '"id": 10}')
        result = run_in_venv(project, "all", "--record-mode=none", *options)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*agentrun differs: *"])
    text = (project.root / "tests/cassettes/test_shop/test_order.yaml").read_text(encoding="utf-8")
    assert [value for value in re.findall('"([a-z]+-[^"]+)"', SHOP_TESTS) if value in text] == []
    for name in ("api_key", "password", "authorization"):
        assert f"[redacted:{name}]" in text


class EchoServer(ThreadingHTTPServer):
    count = 0


class Echo(BaseHTTPRequestHandler):
    """Repeats the body and the token of a request."""

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = json.dumps(sent | {"seen": self.headers["authorization"]})
        kind = "text/event-stream" if self.path == "/events" else "application/json"
        data = (f"data: {text}\n\ndata: [DONE]\n\n" if self.path == "/events" else text).encode()
        self.server.count += 1  # type: ignore[attr-defined]  # ours
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def test_all_plugins_in_one_process(project: Project) -> None:
    use_all_plugins(project)
    result = run_in_venv(project, "all", "--randomly-seed=1", "--block-network", "-rA")
    (loaded,) = (line for line in result.outlines if line.startswith("plugins: "))
    for name in ("agentrun-harness", "asyncio", "cov", "randomly", "recording", "syrupy", "xdist"):
        assert f"{name}-" in loaded
    assert outcomes(result) == VERDICTS
    result.stdout.fnmatch_lines(["1 snapshot passed. 1 snapshot unused.", "SKIPPED * specs/desk.cases.yaml:8: closed"])
    assert_fixtures_ended(project)
    assert log_of(project).count("begin server specs/desk.cases.yaml") == 1
    assert outcomes(run_in_venv(project, "all", "--lf", "-x", "-m", "smoke", "-rA")) == {"bad": "FAILED"}
    assert project.kept() == ["default.journal", "gone.journal"]


def assert_fixtures_ended(project: Project) -> None:
    log = [line.split(" ", 1) for line in log_of(project)]
    begun, ended = ([rest for word, rest in log if word == wanted] for wanted in ("begin", "end"))
    assert sorted(begun) == sorted(ended)
    assert {"function specs/desk.cases.yaml::late-order", "module specs/more.cases.yaml"} <= set(begun)


def test_all_plugins_with_two_processes_and_coverage(project: Project) -> None:
    use_all_plugins(project)
    project.write(".coveragerc", "[run]\ndisable_warnings = no-data-collected\n")  # of a process without the judge
    options = ("-n", "2", "--cov=specs", "--cov-report=term-missing", "--cov-context=test", "--randomly-seed=1")
    result = run_in_venv(project, "all", *options, "--block-network", "-rA")
    assert outcomes(result) == VERDICTS
    result.stdout.fnmatch_lines(["specs/judge.py * 75%   4", "specs/orders.py * 0% *", "TOTAL *"])
    result.stdout.no_fnmatch_line("*.yaml * [0-9]*%*")
    result.stdout.fnmatch_lines(["1 snapshot passed. 1 snapshot unused."])
    assert_fixtures_ended(project)


def test_random_order_keeps_files_together(project: Project) -> None:
    use_all_plugins(project)
    items = ids(run_in_venv(project, "all", "--co", "-q", "--randomly-seed=1"))
    assert len(items) == 11
    files = [id.partition("::")[0] for id in items]
    assert [file for file, _ in groupby(files)] == list(dict.fromkeys(files))
    assert [id for id in items if "desk.cases" in id] != [case.id for case in project.found()]


def names_in(file: str) -> list[str]:
    lines = (ROOT / "requirements" / file).read_text(encoding="utf-8").splitlines()
    return [canonicalize_name(re.split("==", line)[0]) for line in lines if line[0] not in "#-"]


def test_plain_venv_has_pytest_and_what_agentrun_needs() -> None:
    needed, new = set[str](), [Requirement("agentrun-harness"), Requirement("pytest")]
    while new:
        requirement = new.pop()
        name = canonicalize_name(requirement.name)
        if name not in needed:
            needed.add(name)
            every = map(Requirement, requires(name) or [])
            new += [each for each in every if each.marker is None or each.marker.evaluate({"extra": ""})]
    assert names_in("plain.txt") == sorted(needed - {"agentrun-harness"})


@pytest.mark.parametrize("target", ["check", "test-long", "installed"])
def test_make_creates_the_venvs(target: str, tmp_path: Path) -> None:
    command = ["make", "--dry-run", "--always-make", "-C", str(ROOT), target]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "-r requirements/plugins.txt" in done.stdout
