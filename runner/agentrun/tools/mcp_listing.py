"""The tools that a server says it has.

Rule 1  All pages are read, up to a limit of pages and tools; a server that repeats a page does not end.
Rule 2  A digest is made of a tool's name, description and schema as the server gave them, and of nothing else: what it
        says besides (hints, titles, icons) is neither shown to a model nor trusted.
"""

from __future__ import annotations

from typing import Any

from mcp import ClientSession
from mcp.types import ListToolsRequest, ListToolsResult, PaginatedRequestParams
from msgspec import Struct

from agentrun.canon import fingerprint
from agentrun.compiler.foreign import exact
from agentrun.compiler.pins import too_deep
from agentrun.tools.mcp_traffic import Broken

MOST_PAGES = 1000
MOST_LISTED = 20_000


class Listed(Struct, frozen=True):
    """A tool, in the words of its server."""

    name: str
    description: str
    schema: dict[str, Any]

    @property
    def digest(self) -> str | None:
        """Null: it cannot be pinned, whatever it is."""
        if too_deep(self.schema):
            return None
        try:
            parts = {"name": self.name, "description": self.description, "args": exact(self.schema)}
            return fingerprint(parts)
        except (TypeError, ValueError, OverflowError):  # half a surrogate pair, a number without end
            return None


async def listed_tools(session: ClientSession) -> dict[str, Listed]:
    """Every tool of a server, by its name. Raises `Broken`, and what a session raises."""
    found: dict[str, Listed] = {}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
        page = await session.send_request(ListToolsRequest(params=params), ListToolsResult)
        for tool in page.tools:
            if tool.name in found:
                raise Broken(f"it lists the tool {tool.name[:60]!r} twice")
            found[tool.name] = Listed(tool.name, tool.description or "", tool.input_schema)
        if len(found) > MOST_LISTED:
            raise Broken(f"it lists more than {MOST_LISTED:,} tools")
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor
    raise Broken(f"its list of tools has more than {MOST_PAGES:,} pages")
