"""MCP servers over streamable HTTP, one of the SDK and one that misbehaves."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.server import MCPServer

from agentrun.core.effects import ToolReturn
from agentrun.tools.mcp import McpServers
from agentrun.tools.mcp_http import GuardedTransport, McpExchange, current_exchange

from .hostile_commands import held_resources
from .mcp_desk import McpDesk, text
from .mcp_http_servers import OddServer, sdk_server


def desk_at(root: Path, url: str, *names: str, **changes: Any) -> McpDesk:
    desk = McpDesk(root, *names)
    desk.server = {"kind": "mcp", "url": url, "private_network": True, "timeout": "120s", **changes}
    desk.write()
    return desk


@pytest.mark.parametrize("json_response", [False, True])
@pytest.mark.parametrize("stateless", [False, True])
def test_sdk_server_answers_parallel_calls(tmp_path: Path, json_response: bool, stateless: bool) -> None:
    made = MCPServer("shop")

    @made.tool(structured_output=False)
    def say(word: str) -> str:
        """Says it."""
        return f"{word}!"

    (listed,) = asyncio.run(made.list_tools())
    with sdk_server(made, json_response=json_response, stateless_http=stateless) as url:
        desk = desk_at(tmp_path, url)
        desk.plan["tools"] = [{"name": "say", "description": listed.description, "inputSchema": listed.input_schema}]
        desk.lock()

        async def work(servers: McpServers) -> list[ToolReturn]:
            return await asyncio.gather(*(servers.run(desk.call("say", word=str(each))) for each in range(20)))

        assert sorted(map(text, desk.tried(work))) == sorted(f"{each}!" for each in range(20))


@pytest.mark.parametrize(("name", "read"), [("json", "json"), ("sse", "sse"), ("flood", "after the flood")])
def test_json_and_sse_replies_are_read_and_the_session_ended(tmp_path: Path, name: str, read: str) -> None:
    with OddServer(name) as server:
        assert text(desk_at(tmp_path, server.url, name).returned(name)) == read
        assert server.calls() == [name]
        assert server.asked[-1][0] == "DELETE", "the session is ended"


LOST_SERVERS = {
    "cut": "its reply ended too early",
    "drops": "no reply came: the connection was closed before a reply came",
    "broken": "it answered with status 500",
    "busy": "it answered with status 503",
    "zipped": "its reply is compressed although that was not requested",
    "large": "its reply is larger than 10,485,760 bytes",
}


@pytest.mark.parametrize("effect", ["at_most_once", "read"])
@pytest.mark.parametrize("name", LOST_SERVERS)
def test_server_lost_during_a_call_is_indeterminate_or_a_fault(tmp_path: Path, name: str, effect: str) -> None:
    """Whether the call took effect is not known. Nobody sends it again."""
    with OddServer(name) as server:
        fault = desk_at(tmp_path, server.url, name, effect=effect).returned(name).fault
        assert fault is not None
        assert fault.code == ("tool.indeterminate" if effect == "at_most_once" else "tool.execution")
        assert fault.message == f"the server was lost during the call: {LOST_SERVERS[name]}"
        assert server.calls() == [name]


REFUSED_SERVERS = {
    "login": "it answered with status 401",
    "away": "it redirects to another address",
    "script": "it redirects to another address",
    "html": "Unexpected content type: text/html",
    "garbage": "Failed to parse JSON response: ",
    "wrong": "it answered with status 400: no such paper",
    "forgotten": "it answered with status 404",
}


@pytest.mark.parametrize("name", REFUSED_SERVERS)
def test_refusing_reply_is_a_fault_and_the_next_call_works(tmp_path: Path, name: str) -> None:
    """Nobody logs in anywhere, and no redirect leads away. The next call is made in a new session."""
    with OddServer(name, "json") as server, OddServer() as other:
        server.elsewhere = other.url
        desk = desk_at(tmp_path, server.url, name, "json")

        async def work(servers: McpServers) -> list[ToolReturn]:
            return [await servers.run(desk.call(each)) for each in (name, "json")]

        returned, after = desk.tried(work)
        assert returned.fault is not None
        assert returned.fault.code == "tool.execution"
        assert returned.fault.message.startswith(REFUSED_SERVERS[name])
        assert text(after) == "json"
        assert other.asked == []


def test_endless_reply_is_stopped_and_leaves_nothing(tmp_path: Path) -> None:
    """The call is stopped by its own limit; nothing of it is left."""
    with OddServer("drips", "json") as server:
        desk = desk_at(tmp_path, server.url, "drips", "json")
        desk.returned("json")
        before = held_resources()

        async def work(servers: McpServers) -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(servers.run(desk.call("drips")), 0.5)
            assert text(await servers.run(desk.call("json"))) == "json"

        desk.tried(work)
        time.sleep(0.1)
    assert held_resources()[0] <= before[0] + 1


def test_declared_headers_are_sent_with_their_variables(tmp_path: Path) -> None:
    with OddServer("echo") as server:
        desk = desk_at(tmp_path, server.url, "echo", headers={"X-Key": "key ${KEY}", "X-Plain": "p"})
        returned = desk.tried(lambda servers: servers.run(desk.call("echo")), KEY="value-of-the-key")
        assert text(returned) == "key value-of-the-key"
        assert {headers["X-Plain"] for _, headers, _ in server.asked} == {"p"}
        assert {headers["accept-encoding"] for _, headers, _ in server.asked} == {"identity"}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:9/mcp", "it would reach a private address, and `private_network` is not true"),
        ("http://localhost:9/mcp", "it would reach a private address, and `private_network` is not true"),
        ("http://169.254.169.254/mcp", "its host is a cloud service that hands out credentials"),
        ("http://2130706433/mcp", "its host is not an IP address in the usual form"),
    ],
)
def test_forbidden_address_is_not_reached(tmp_path: Path, url: str, message: str) -> None:
    fault = desk_at(tmp_path, url, "say", private_network=False).returned("say").fault
    assert fault is not None
    assert fault.code == "tool.execution"
    assert message in fault.message


def test_refused_connection_is_reported(tmp_path: Path) -> None:
    with OddServer() as server:
        url = server.url
    fault = desk_at(tmp_path, url, "say").returned("say").fault
    assert fault is not None
    assert fault.message == "the server did not start: no reply came: the connection was refused"


def test_proxy_of_the_environment_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OddServer("json") as server, OddServer() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert text(desk_at(tmp_path, server.url, "json").returned("json")) == "json"
        assert proxy.asked == []


def test_no_request_goes_to_another_origin(tmp_path: Path) -> None:
    """Whatever the SDK asks for."""

    async def answered(url: str, home: str) -> tuple[int, str | None]:
        under_way = McpExchange()
        current_exchange.set(under_way)
        async with GuardedTransport(home, {"X-Key": "secret"}, private_network=True, silence=5) as transport:
            response = await transport.handle_async_request(httpx2.Request("POST", url, content=b"{}"))
        return response.status_code, under_way.trouble

    with OddServer() as server, OddServer() as other:
        status, trouble = asyncio.run(answered(other.url, server.url))
        assert (status, other.asked) == (502, [])
        assert trouble == "the request is not sent: the tool is not allowed to reach its host"


@pytest.mark.parametrize("effect", ["at_most_once", "read"])
def test_exception_inside_the_sdk_counts_as_a_lost_server(
    tmp_path: Path, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the SDK does it when something raises in its midst: that is no answer of the server."""
    sends = GuardedTransport.handle_async_request

    async def raises(self: GuardedTransport, request: httpx2.Request) -> httpx2.Response:
        if b"tools/call" in await request.aread():
            raise RuntimeError("planted")
        return await sends(self, request)

    monkeypatch.setattr(GuardedTransport, "handle_async_request", raises)
    with OddServer("json") as server:
        fault = desk_at(tmp_path, server.url, "json", effect=effect).returned("json").fault
    assert fault is not None
    assert fault.code == ("tool.indeterminate" if effect == "at_most_once" else "tool.execution")
    assert fault.message.startswith("the server was lost during the call: ")
