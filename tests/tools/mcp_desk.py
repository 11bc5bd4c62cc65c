"""An agent whose only tools are those of the misbehaving MCP server."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from agentrun.cli.lock import pin_mcp_servers as asked_for
from agentrun.compiler.lock_file import Lock, adopt_schema, escape_invisible_lines, lock_text, parse_lock
from agentrun.compiler.spec_reader import read_spec
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import ToolFinished
from agentrun.core.messages import text_of
from agentrun.core.package_tools import McpTool, PinnedTool
from agentrun.engine.run import FinishedRun
from agentrun.secret import Secret
from agentrun.spec.problems import DocumentError, Source
from agentrun.tools.mcp import McpServers
from agentrun.tools.mcp_connection import ListedTool

from .agent_runs import Runs, facts
from .hostile_commands import held_resources

T = TypeVar("T")

FAKE = Path(__file__).with_name("fake_mcp.py")
OPEN = {"type": "object"}


def tool(name: str, description: str = "Does it.", schema: Any = OPEN) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {"name": name, "description": description, "inputSchema": {**schema}}


def pinned(listed: dict[str, Any]) -> PinnedTool:
    found = ListedTool(listed["name"], listed.get("description") or "", listed["inputSchema"])
    assert found.digest is not None
    return PinnedTool(
        description=escape_invisible_lines(found.description), args=adopt_schema(found.schema), digest=found.digest
    )


def turns(*names: str, together: bool = False) -> str:
    """A story in which the model calls these tools of the server, one after the other or all at once."""
    calls = [{"tool": f"srv.{name}", "args": {"n": index}} for index, name in enumerate(names)]
    replies = [{"calls": calls}] if together else [{"calls": [call]} for call in calls]
    return yaml.safe_dump({"agentrun": "1", "turns": [*replies, {"text": "Done."}]})


class McpDesk(Runs):
    """A server `srv` with these tools, all of them pinned."""

    def __init__(
        self, root: Path, *names: str, plan: dict[str, Any] | None = None, locked: bool = True, **server: Any
    ) -> None:
        super().__init__(root, head="")
        self.plan: dict[str, Any] = {"tools": [tool(name) for name in names], **(plan or {})}
        self.server = {"kind": "mcp", "command": [sys.executable, str(FAKE), "plan.json"], "timeout": "120s", **server}
        self.write()
        if locked:
            self.lock()

    def write(self) -> None:
        """The spec, and what the server is to do."""
        (self.root / "plan.json").write_text(json.dumps(self.plan), encoding="utf-8")
        spec = {
            "agentrun": "1",
            "name": "desk",
            "model": {"provider": "openai", "name": "gpt-4.1-mini", "temperature": 0},
            "instructions": "Be brief.",
            "input": "Go.",
            "tools": {"srv": self.server},
            "policy": {"default": "allow"},
            "budgets": {"turns": 40, "tokens": "900k"},
            "guards": {"repeated_call": 50, "repeated_batch": 50},
        }
        self.spec.write_text(yaml.safe_dump(spec), encoding="utf-8")

    def lock(self) -> None:
        """Pin all tools as they are now."""
        pins = {each["name"]: msgspec.to_builtins(pinned(each)) for each in self.plan["tools"]}
        text = {"agentrun_lock": "1", "origin": "a test", "routes": {}, "servers": {"srv": pins}}
        (self.root / "desk.lock").write_text(json.dumps(text), encoding="utf-8")

    def asked(self, method: str = "tools/call") -> list[dict[str, Any]]:
        """What the server was asked."""
        path = self.root / "asked.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return [found for found in map(json.loads, lines) if found.get("method") == method]

    def call(self, name: str, **arguments: Any) -> RunTool:
        made = self.package.tools["srv"]
        assert isinstance(made, McpTool)
        return RunTool("c1.0", f"srv.{name}", made, arguments, "key", 2000, 50_000)

    def servers(self, **values: str) -> McpServers:
        return McpServers(self.root, {sys.executable: sys.executable}, lambda name: Secret(values[name]))

    def tried(self, work: Callable[[McpServers], Coroutine[Any, Any, T]], **values: str) -> T:
        """Some work with the servers of a run, which are closed then."""

        async def whole() -> T:
            servers = self.servers(**values)
            try:
                return await work(servers)
            finally:
                await servers.close()

        return asyncio.run(whole())

    def returned(self, name: str, **arguments: Any) -> ToolReturn:
        return self.tried(lambda servers: servers.run(self.call(name, **arguments)))


def text(returned: ToolReturn) -> str:
    assert returned.fault is None, returned.fault
    return text_of(returned.parts)


def results(done: FinishedRun) -> list[tuple[str | None, str]]:
    """The code of each result's fault, and what the model read."""
    found = facts(done, ToolFinished)
    return [(None if each.fault is None else each.fault.code, text_of(each.parts)) for each in found]


def is_back_to(before: tuple[int, int, list[str]]) -> bool:
    """Whether no more is held than before. The thread that waits for a supervisor gets a moment to end."""
    end = time.monotonic() + 60
    while (now := held_resources())[2] or now[0] > before[0] or now[1] > before[1]:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def pins(desk: McpDesk) -> dict[str, dict[str, PinnedTool]]:
    """What `lock` would write. Raises DocumentError."""
    spec = read_spec(desk.spec).spec
    assert spec is not None
    found, problems = asked_for([spec])
    if problems:
        raise DocumentError(problems)
    return reload_pins(found)


def reload_pins(found: dict[str, dict[str, PinnedTool]]) -> dict[str, dict[str, PinnedTool]]:
    text = lock_text(Lock(origin="a test", routes={}, servers=found))
    return parse_lock(Source(Path("/desk.lock"), "desk.lock", text)).servers
