"""Where tools and sinks name variables of the environment that may be secrets."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.core.package_sinks import HttpSink, Sink
from agentrun.core.package_tools import HttpTool, McpTool, ShellTool, Tool


def credential_texts(part: Tool | Sink) -> Iterator[str]:
    """The texts of a tool or a sink whose variables may be secrets: all but addresses."""
    if isinstance(part, HttpTool | McpTool | HttpSink):
        yield from part.headers.values()
    if isinstance(part, HttpTool | HttpSink) and part.auth is not None:
        yield part.auth.secret
    if isinstance(part, ShellTool | McpTool):
        yield from part.env.values()
