"""Python assertions have no network unless they set `network: true`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from agentrun.canonical_json import text_hash
from agentrun.testing.suite.assertions.functions import network_closed, network_open
from agentrun.testing.suite.verdict import CaseFailure
from agentrun.wire import HttpReply

from ....servers import Server
from .evidence import failed_assertion, make_evidence

CHECKS = """
import asyncio, http.client, multiprocessing, os, pty, socket, subprocess, sys, threading, urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import httpx

PORT = int(Path(__file__).with_name("port").read_text())
URL = f"http://127.0.0.1:{PORT}/judge"
FETCH = f"import urllib.request; urllib.request.urlopen('{URL}')"
ENV = {"PATH": os.environ["PATH"]}
CLIENT = httpx.Client(verify=False)
POOL = ThreadPoolExecutor(1)

def get(run=None):
    assert urllib.request.urlopen(URL).status == 200

def with_http_client(run):
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    connection.request("GET", "/judge")
    assert connection.getresponse().status == 200

def with_httpx(run):
    assert httpx.get(URL).status_code == 200

def with_async_httpx(run):
    async def ask():
        async with httpx.AsyncClient() as client:
            return await client.get(URL)
    assert asyncio.run(ask()).status_code == 200

def with_asyncio(run):
    async def ask():
        _, writer = await asyncio.open_connection("127.0.0.1", PORT)
        writer.close()
    asyncio.run(ask())

def with_socket(run):
    with socket.socket() as client:
        client.connect(("127.0.0.1", PORT))

def with_connect_ex(run):
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", PORT)) == 0

def with_datagram(run):
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("127.0.0.1", PORT))

def with_ipv6(run):
    with socket.socket(socket.AF_INET6) as client:
        client.connect_ex(("::1", PORT))

def with_name(run):
    socket.getaddrinfo("localhost", PORT)

def with_old_name(run):
    socket.gethostbyname("localhost")

def with_server(run):
    with socket.create_server(("127.0.0.1", 0)):
        pass

def with_thread(run):
    failed = []
    def ask():
        try:
            get()
        except OSError as error:
            failed.append(error)
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert not failed

def with_pool(run):
    POOL.submit(get).result()

def with_fork(run):
    child = os.fork()
    if not child:
        try:
            get()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child could not reach it"

def with_program(run):
    subprocess.run([sys.executable, "-c", FETCH], env=ENV, check=True)

def with_shell(run):
    assert os.system(f'{sys.executable} -c "{FETCH}"') == 0

def with_spawn(run):
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", FETCH], ENV)
    assert os.waitpid(child, 0)[1] == 0

def with_async_program(run):
    async def start():
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", FETCH, env=ENV)
        assert await child.wait() == 0
    asyncio.run(start())

def with_error_caught(run):
    try:
        get()
    except Exception:
        pass
    return True

def with_client(run):
    assert CLIENT.get(URL).status_code == 200

def local(run):
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"x")
        assert there.recv(1) == b"x"
    async def wait():
        await asyncio.sleep(0)
        return await asyncio.to_thread(Path(__file__).read_text)
    assert asyncio.run(wait())
    assert socket.gethostname()
"""
WAYS = {
    **dict.fromkeys(
        (
            *("get", "with_http_client", "with_httpx", "with_async_httpx", "with_asyncio", "with_socket"),
            *("with_connect_ex", "with_datagram", "with_thread", "with_pool", "with_error_caught", "with_client"),
        ),
        "reach 127.0.0.1:PORT",
    ),
    "with_ipv6": "reach [::1]:PORT",
    "with_name": "reach localhost:PORT",
    "with_old_name": "reach localhost",
    "with_server": "listen on 127.0.0.1:0",
    "with_shell": "start a shell, which could reach the network",
    **dict.fromkeys(
        ("with_program", "with_spawn", "with_async_program"), "start PYTHON, which could reach the network"
    ),
}
"""The functions above, and what each of them tries."""
HINT = "add `network: true` to the assertion; the report then lists it as live"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(HttpReply(200, (), b"{}")) as server:
        yield server


class Judges:
    """The functions above in a project. Each project has a module name of its own: a process imports a name once."""

    def __init__(self, root: Path, port: int) -> None:
        self.name = f"judges_{text_hash(str(root))[7:19]}"
        self._root = root
        self.port = port
        (root / "port").write_text(str(port), encoding="utf-8")
        (root / f"{self.name}.py").write_text(CHECKS, encoding="utf-8")

    def ask(self, function: str, kind: str = "python", *, network: bool = False) -> CaseFailure | None:
        more = {"network": True} if network else {}
        return failed_assertion({"type": kind, "value": f"{self.name}:{function}", **more}, make_evidence(), self._root)

    def refusal(self, tried: str, function: str) -> str:
        tried = tried.replace("PORT", str(self.port)).replace("PYTHON", os.path.basename(sys.executable))
        return f"{self.name}:{function} tried to {tried}, but assertions have no network in a replay and in CI"


@pytest.fixture
def assertion_functions(server: Server, tmp_path: Path) -> Judges:
    return Judges(tmp_path, server.port)


@pytest.mark.parametrize("function", WAYS)
def test_every_network_access_is_refused(function: str, assertion_functions: Judges, server: Server) -> None:
    for kind in ("python", "not-python"):
        wrong = assertion_functions.ask(function, kind)
        assert wrong is not None
        assert (wrong.assertion, wrong.message, wrong.hint) == (
            kind,
            assertion_functions.refusal(WAYS[function], function),
            HINT,
        )
    assert server.requests == []


def test_forked_child_has_no_network(assertion_functions: Judges, server: Server) -> None:
    wrong = assertion_functions.ask("with_fork")
    assert wrong is not None
    assert "the child could not reach it" in wrong.message
    assert server.requests == []


@pytest.mark.parametrize(
    "function", ["get", "with_async_httpx", "with_thread", "with_pool", "with_fork", "with_program", "with_shell"]
)
def test_network_true_allows_network(function: str, assertion_functions: Judges, server: Server) -> None:
    assert assertion_functions.ask(function, network=True) is None
    assert len(server.requests) == 1


def test_thread_and_connection_pools_do_not_keep_network_access(assertion_functions: Judges, server: Server) -> None:
    """A pool of threads or of connections carries nothing from one assertion to the next."""
    for function in ("with_pool", "with_client"):
        assert assertion_functions.ask(function) is not None
        assert assertion_functions.ask(function, network=True) is None
        wrong = assertion_functions.ask(function)
        assert wrong is not None
        assert wrong.message == assertion_functions.refusal(WAYS[function], function)
        assert assertion_functions.ask(function, network=True) is None
    assert len(server.requests) == 4


def test_local_operations_are_allowed(assertion_functions: Judges) -> None:
    assert assertion_functions.ask("local") is None


def test_module_import_has_no_network(server: Server, tmp_path: Path) -> None:
    name = f"judges_{text_hash(str(tmp_path))[7:19]}_import"
    fetch = f"import urllib.request\nurllib.request.urlopen('{server.url}')\ndef fine(run): pass\n"
    (tmp_path / f"{name}.py").write_text(fetch, encoding="utf-8")
    wrong = failed_assertion({"type": "python", "value": f"{name}:fine"}, make_evidence(), tmp_path)
    assert wrong is not None
    assert f"tried to reach 127.0.0.1:{server.port}" in wrong.message
    assert server.requests == []
    assert (
        failed_assertion({"type": "python", "value": f"{name}:fine", "network": True}, make_evidence(), tmp_path)
        is None
    )
    assert len(server.requests) == 1


def test_thread_that_outlives_its_assertion_has_no_network(server: Server) -> None:
    go, ends = Event(), []

    def ask() -> None:
        assert go.wait(30)
        try:
            httpx.get(server.url)
        except httpx.HTTPError as error:
            ends.append(str(error))

    with network_closed() as attempts:
        thread = Thread(target=ask)
        thread.start()
    go.set()
    thread.join(30)
    assert attempts == []
    assert ["has no network" in end for end in ends] == [True]
    assert server.requests == []


def test_network_is_open_outside_of_assertions(assertion_functions: Judges, server: Server) -> None:
    assert assertion_functions.ask("get") is not None
    assert httpx.get(server.url).status_code == 200
    assert subprocess.run(["true"], check=False).returncode == 0
    with network_open() as attempts:
        assert (httpx.get(server.url).status_code, attempts) == (200, [])
