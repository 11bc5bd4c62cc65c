"""Many live runs in one event loop: one connection pool, and the settings of each project."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import agentrun

COUNT = 200
SPEC = """\
agentrun: "1"
name: hello
model: {provider: openai, name: gpt-4.1-mini, base_url: "${HELLO_URL}", api_key: "${HELLO_KEY}"}
instructions: Greet.
tools:
  name_of: {kind: python, call: "names_of_many:name_of", effect: read}
policy: {default: allow}
budgets: {turns: 3, tokens: 5k}
"""


class ModelServer:
    """Calls `name_of` with the user's message, and then answers with the result."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def connections(self) -> int:
        return len(self._writers)

    async def __aenter__(self) -> ModelServer:
        self._server = await asyncio.start_server(self._converse, "127.0.0.1", 0, backlog=COUNT)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.close()
            await writer.wait_closed()
        self._server.close()
        await self._server.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while head := b"".join([line async for line in _lines_of_head(reader)]):
            fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
            body = json.loads(await reader.readexactly(int(fields["content-length"])))
            self.keys.append(fields["authorization"].removeprefix("bearer "))
            data = json.dumps(_reply_to(body["messages"])).encode()
            header = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
            writer.write(header.encode() + data)


async def _lines_of_head(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while (line := await reader.readline()) not in (b"\r\n", b""):
        yield line


def _reply_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": f"Hello, {messages[-1]['content']}."}
    if messages[-1]["role"] == "user":
        function = {"name": "name_of", "arguments": json.dumps({"number": messages[-1]["content"]})}
        message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def write_project(folder: Path, name: str) -> Path:
    folder.mkdir()
    (folder / "hello.yaml").write_text(SPEC)
    (folder / "names_of_many.py").write_text(
        f'def name_of(number: str) -> str:\n    """Names."""\n    return f"{name} {{number}}"\n'
    )
    return folder / "hello.yaml"


def test_200_live_runs_at_once_share_one_connection_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_project(tmp_path / "shop", "guest")

    async def main() -> tuple[list[str], int, int]:
        package = agentrun.compile(spec)
        async with ModelServer() as server:
            monkeypatch.setenv("HELLO_URL", server.url)
            monkeypatch.setenv("HELLO_KEY", "first-key")
            runs = (agentrun.arun(package, str(n), project=spec.parent) for n in range(COUNT))
            outcomes = await asyncio.gather(*runs)
            for n, outcome in enumerate(outcomes):
                assert [call.args for call in outcome.calls] == [{"number": str(n)}]
            first = server.connections
            await agentrun.arun(package, "again", project=spec.parent)
            return [outcome.text for outcome in outcomes], first, server.connections

    texts, first, later = asyncio.run(main())
    assert texts == [f"Hello, guest {n}." for n in range(COUNT)]
    assert first <= COUNT, "a connection is used again for the second request"
    assert later == first, "the next run uses a connection of an earlier one"


def test_settings_and_functions_belong_to_their_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two projects at once in one loop: each has its `.env`, and its own module with the same name."""
    monkeypatch.delenv("HELLO_KEY", raising=False)
    specs = {name: write_project(tmp_path / name, name) for name in ("ada", "bob")}

    async def main() -> None:
        async with ModelServer() as server:
            for name, spec in specs.items():
                (spec.parent / ".env").write_text(f"HELLO_URL={server.url}\nHELLO_KEY=key-of-{name}\n")
            outcomes = await asyncio.gather(*(agentrun.arun(spec, "7") for spec in specs.values()))
            assert [outcome.text for outcome in outcomes] == ["Hello, ada 7.", "Hello, bob 7."]
            assert sorted(server.keys) == ["key-of-ada"] * 2 + ["key-of-bob"] * 2

    asyncio.run(main())


def test_next_run_sees_a_changed_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_project(tmp_path / "shop", "guest")

    async def main() -> list[str]:
        package = agentrun.compile(spec)
        async with ModelServer() as server:
            monkeypatch.setenv("HELLO_URL", server.url)
            for key in ("first-key", "other-key"):
                monkeypatch.setenv("HELLO_KEY", key)
                assert (await agentrun.arun(package, "7", project=spec.parent)).ok
            monkeypatch.delenv("HELLO_KEY")
            (spec.parent / ".env").write_text("HELLO_KEY=key-of-file\n")
            assert (await agentrun.arun(package, "7", project=spec.parent)).ok
            (spec.parent / ".env").write_text("HELLO_KEY=new-key-of-file\n")
            assert (await agentrun.arun(package, "7", project=spec.parent)).ok
            return server.keys[::2]

    assert asyncio.run(main()) == ["first-key", "other-key", "key-of-file", "new-key-of-file"]
