"""The HTTP client of a runtime: one for each project, for all requests of its live worlds."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import agentrun
from agentrun.compiler.package_file import PackageFile
from agentrun.core.outcome import Outcome
from agentrun.engine.request import Request
from agentrun.engine.run import run_in_world
from agentrun.engine.runtime import Runtime
from agentrun.spec.project import Project, find_project
from agentrun.wire import HttpReply

from ..attacks.http_desk import HttpDesk, http_tool
from ..scripted_service import completion
from ..servers import Server

CALL = {"id": "c", "type": "function", "function": {"name": "get", "arguments": "{}"}}
ASK, PAGE, ANSWER = (
    completion(None, "tool_calls", tool_calls=[CALL]),
    HttpReply(200, (), b"a page"),
    completion("Done."),
)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[httpx.AsyncClient]]:
    """The clients that were made. They do not use the environment and do not follow redirects."""
    made: list[httpx.AsyncClient] = []
    init = httpx.AsyncClient.__init__

    def record(client: httpx.AsyncClient, **options: Any) -> None:
        made.append(client)
        init(client, **options)

    monkeypatch.setattr(httpx.AsyncClient, "__init__", record)
    yield made
    assert all((client.trust_env, client.follow_redirects) == (False, False) for client in made)


def desk(folder: Path, url: str) -> tuple[Path, PackageFile, Project]:
    """An agent with a model, an HTTP tool and an HTTP sink on one server."""
    folder.mkdir(exist_ok=True)
    model = {"provider": "openai", "name": "gpt-4.1-mini", "base_url": url}
    sink = {"kind": "http", "url": f"{url}/sink", "private_network": True}
    tools = {"get": http_tool(f"{url}/page", private_network=True)}
    spec = HttpDesk(folder, tools, model=model, sinks={"post": sink}).spec
    return spec, agentrun.compile(spec), find_project(spec)


async def run_once(runtime: Runtime, package: PackageFile, project: Project, run: str) -> Outcome:
    async with runtime.live_world(package.agent, project, run) as world:
        done = await run_in_world(world, Request(agent="shop", package=package, run=run))
    return done.outcome


def test_live_worlds_of_a_runtime_share_a_client_that_is_closed_with_it(
    tmp_path: Path, clients: list[httpx.AsyncClient]
) -> None:
    async def twice() -> None:
        async with Runtime.in_memory() as runtime:
            for run in ("r1", "r2"):
                assert (await run_once(runtime, package, project, run)).status == "completed"
            assert [client.is_closed for client in clients] == [False]
        assert [client.is_closed for client in clients] == [True]

    with Server(*[ASK, PAGE, ANSWER, PAGE] * 2) as server:
        _, package, project = desk(tmp_path, server.url)
        asyncio.run(twice())
        assert server.is_quiet()
    models = [request.connection for request in server.requests if request.line.startswith("POST /chat")]
    assert len(set(models)) == 1, "the second world reuses the connection of the first"


def test_projects_and_runtimes_have_clients_of_their_own(tmp_path: Path, clients: list[httpx.AsyncClient]) -> None:
    async def all_of_them() -> None:
        for _ in range(2):
            async with Runtime.in_memory() as runtime:
                for package, project in (one, two):
                    await run_once(runtime, package, project, "r1")

    with Server(ANSWER) as server:
        one, two = desk(tmp_path / "one", server.url)[1:], desk(tmp_path / "two", server.url)[1:]
        asyncio.run(all_of_them())
    assert len(clients) == len({id(client) for client in clients}) == 4
    assert all(client.is_closed for client in clients)


def test_every_request_of_a_run_is_sent_by_its_client(
    tmp_path: Path, clients: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    send = httpx.AsyncClient.send

    async def record(client: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
        sent.append(f"{request.method} {request.url}")
        return await send(client, request, **options)

    monkeypatch.setattr(httpx.AsyncClient, "send", record)
    with Server(ASK, PAGE, ANSWER, PAGE) as server:
        outcome = agentrun.run(desk(tmp_path, server.url)[0])
    assert (getattr(outcome, "status", None), len(clients)) == ("completed", 1)
    assert [request.line.split()[1] for request in server.requests] == [
        *("/chat/completions", "/page", "/chat/completions", "/sink")
    ]
    assert sent == [f"{method} {server.url}/" for method in ("POST", "GET", "POST", "POST")], "only the origin"


@pytest.mark.parametrize("broken", [0, 1, 3], ids=["model", "tool", "sink"])
def test_request_fails_if_the_client_does_not_send_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    count = 0
    send = httpx.AsyncClient.send

    async def fail(client: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
        nonlocal count
        count += 1
        if count > broken:
            raise RuntimeError
        return await send(client, request, **options)

    monkeypatch.setattr(httpx.AsyncClient, "send", fail)
    with Server(ASK, PAGE, ANSWER, PAGE) as server:
        outcome = agentrun.run(desk(tmp_path, server.url)[0])
    assert outcome.status == "failed"
    assert len(server.requests) == broken
