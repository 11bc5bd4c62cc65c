"""Pin the tools of MCP servers, for `agentrun lock`.

Rule 1  Only the tools that the spec names are pinned. Invisible characters in their texts are escaped, and all sizes
        are limited.
Rule 2  A value of the environment is never written to a lock file, even if a server returns it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp.shared.exceptions import MCPError

from agentrun.canonical_json import sorted_json
from agentrun.compiler.build import build_tool
from agentrun.compiler.lock_file import (
    MAX_PINNED_TOOLS,
    MAX_TOOL_DESCRIPTION_BYTES,
    MCP_TOOL_NAME,
    MCP_TOOL_NAME_RULE,
    Lock,
    UnusableSchema,
    adopt_schema,
    escape_invisible_lines,
)
from agentrun.compiler.spec_reader import Spec
from agentrun.core.package import matches_pattern
from agentrun.core.package_tools import McpTool, PinnedTool
from agentrun.providers.request_encoding import name_clashes
from agentrun.redactor import Redactor
from agentrun.secret import mask
from agentrun.spec.problems import Problem, did_you_mean, escape_invisible, quote_text
from agentrun.spec.tree import place_at_path
from agentrun.spec.v1 import tools as written
from agentrun.tools.mcp_connection import ListedTool, McpConnection, McpEnvironment, ServerNotStarted
from agentrun.tools.mcp_stdio import McpProtocolError

McpPins = dict[str, dict[str, PinnedTool]]
LEAVE_OUT_HINT = "leave this tool out of `tools:`"


def declared_servers(spec: Spec) -> dict[str, McpTool]:
    """The servers of a spec, compiled without pins."""
    return {
        name: built
        for name, tool in spec.agent.tools.items()
        if isinstance(tool, written.McpToolSpec)
        and isinstance(built := build_tool(spec, name, {}, Lock(origin="", routes={}, servers={name: {}})), McpTool)
    }


async def pin_tools(specs: Sequence[Spec], site: McpEnvironment, redactor: Redactor) -> tuple[McpPins, list[Problem]]:
    pins: McpPins = {}
    problems: list[Problem] = []
    seen: set[bytes] = set()
    for spec in specs:
        for name, tool in declared_servers(spec).items():
            of_spec = spec.agent.tools[name]
            assert isinstance(of_spec, written.McpToolSpec)
            key = sorted_json((name, tool, of_spec.tools))
            if key in seen:
                continue
            seen.add(key)
            pinning = _ServerPinning(spec, name, of_spec.tools, redactor)
            known = pins.setdefault(name, {})
            for each, pin in (await pinning.pins(tool, site)).items():
                if known.setdefault(each, pin) != pin:
                    pinning.refuse(f"{quote_text(each)} is a different tool in another profile")
            problems += pinning.problems
    return pins, problems


class _ServerPinning:
    def __init__(self, spec: Spec, name: str, patterns: Sequence[str], redactor: Redactor) -> None:
        self._spec = spec
        self._name = name
        self._patterns = patterns
        self._redactor = redactor
        self.problems: list[Problem] = []

    async def pins(self, tool: McpTool, site: McpEnvironment) -> dict[str, PinnedTool]:
        connection = McpConnection(tool, site)
        try:
            await connection.ready()
            listed = connection.tools
        except (ServerNotStarted, McpProtocolError, MCPError) as error:
            why = escape_invisible(mask(self._redactor.redact_text(str(error))))[:300]
            self.refuse(f"the server did not start: {why}")
            return {}
        finally:
            await connection.close()
        kept = {name: each for name, each in sorted(listed.items()) if self._wants(name)}
        self._refuse_missing(kept, listed)
        if len(kept) > MAX_PINNED_TOOLS:
            self.refuse(f"`tools` names {len(kept):,} of its tools, but at most {MAX_PINNED_TOOLS} can be pinned")
            return {}
        for sentence in name_clashes(f"{self._name}.{name}" for name in kept if MCP_TOOL_NAME.fullmatch(name)):
            self.refuse(sentence.removeprefix("tools: ").removesuffix("; rename one"), hint=LEAVE_OUT_HINT)
        return {name: pin for name, each in kept.items() for pin in self._pin(each)}

    def refuse(self, why: str, *path: str | int, hint: str | None = None) -> None:
        place = place_at_path(self._spec.root, ["tools", self._name, *path], key=not path)
        message = f"the tools of {quote_text(self._name)} cannot be pinned: {why}"
        self.problems.append(Problem(place, "spec.unpinned", message, hint))

    def _wants(self, name: str) -> bool:
        return any(matches_pattern(pattern, name) for pattern in self._patterns)

    def _refuse_missing(self, kept: dict[str, ListedTool], listed: dict[str, ListedTool]) -> None:
        for index, pattern in enumerate(self._patterns):
            if "*" not in pattern and pattern not in listed:
                hint = did_you_mean(pattern, listed)
                self.refuse(f"it has no tool {quote_text(pattern)}", "tools", index, hint=hint)
        if not kept and not self.problems:
            self.refuse("it has no tool that `tools` names")

    def _pin(self, tool: ListedTool) -> Iterator[PinnedTool]:
        whose = quote_text(tool.name)
        description = escape_invisible_lines(tool.description.encode("utf-8", "replace").decode())
        digest = tool.digest
        if not MCP_TOOL_NAME.fullmatch(tool.name):
            self.refuse(f"{whose} is not a valid tool name; {MCP_TOOL_NAME_RULE}", hint=LEAVE_OUT_HINT)
        elif len(description.encode()) > MAX_TOOL_DESCRIPTION_BYTES:
            self.refuse(
                f"the description of {whose} is longer than {MAX_TOOL_DESCRIPTION_BYTES:,} bytes", hint=LEAVE_OUT_HINT
            )
        else:
            try:
                args = adopt_schema(tool.schema)
            except UnusableSchema as unusable:
                self.refuse(f"the schema of {whose} {unusable}", hint=LEAVE_OUT_HINT)
                return
            if digest is None:
                self.refuse(f"{whose} contains a value that is not valid in JSON", hint=LEAVE_OUT_HINT)
            elif self._contains_secret(description) or self._contains_secret(sorted_json(args).decode()):
                why = f"the description or schema of {whose} contains a secret value of the environment"
                self.refuse(why, hint=LEAVE_OUT_HINT)
            else:
                yield PinnedTool(description=description, args=args, digest=digest)

    def _contains_secret(self, text: str) -> bool:
        return self._redactor.redact_text(text) != text
