"""`agentrun lock` says why an MCP server over HTTP cannot be pinned."""

from pathlib import Path

import pytest

from agentrun.wire import HttpReply

from ..servers import Server, closed_port
from .command import agentrun

SPEC = """\
agentrun: "1"
name: s
model: {provider: openai, name: gpt-4.1-mini}
instructions: Hi.
tools: {s: {kind: mcp, url: "%s", private_network: %s}}
policy: {default: allow}
budgets: {tokens: 5k}
"""


@pytest.mark.parametrize(
    ("where", "private", "said"),
    [
        ("server", "false", "it would reach a private address, and `private_network` is not true"),
        ("nobody", "true", "the connection was refused"),
        ("server", "true", "it answered with status 404"),
    ],
)
def test_unreachable_mcp_server_is_reported_with_its_reason(
    tmp_path: Path, where: str, private: str, said: str
) -> None:
    with Server(HttpReply(404, (), b"no")) as server:
        url = server.url if where == "server" else f"http://127.0.0.1:{closed_port()}"
        (tmp_path / "s.yaml").write_text(SPEC % (f"{url}/mcp", private))
        done = agentrun("lock", "s.yaml", cwd=tmp_path)
    assert done.code == 2
    assert said in done.err
