"""What is pinned of the tools of MCP servers: `agentrun lock` asks them.

Rule 1  Each server is started, or connected to, as a run would do it: with the variables and headers of the spec.
Rule 2  Of what it lists only the tools that the spec names are kept. Of these everything that a model will read is made
        visible, and everything is bounded.
Rule 3  What cannot be pinned is a problem at the tool's place. All servers are asked before any of it is told.
Rule 4  A value of the environment is never written into a lock, whatever a server makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp.shared.exceptions import MCPError

from agentrun.canon import compact
from agentrun.compiler.build_tools import build_tool
from agentrun.compiler.foreign import Unusable, adopted, visible_lines
from agentrun.compiler.lock import Lock
from agentrun.compiler.pins import LONGEST_DESCRIPTION, MOST_TOOLS, TOOL_NAME, TOOL_NAME_RULE
from agentrun.compiler.resolve import Spec
from agentrun.core.names import matches
from agentrun.core.package_tools import McpTool, Pinned
from agentrun.providers.names import name_clashes
from agentrun.redact import Redactor
from agentrun.secret import mask
from agentrun.spec.problems import Problem, did_you_mean, quoted, visible
from agentrun.spec.tree import place_of
from agentrun.spec.v1 import tools as written
from agentrun.tools.mcp_listing import Listed
from agentrun.tools.mcp_server import Connection, NotStarted, Site
from agentrun.tools.mcp_traffic import Broken

Pins = dict[str, dict[str, Pinned]]
LEAVE_OUT = "leave the tool out: name others under `tools:`"


def declared(spec: Spec) -> dict[str, McpTool]:
    """The servers of a spec, as a run would know them."""
    return {
        name: built
        for name, tool in spec.agent.tools.items()
        if isinstance(tool, written.McpTool)
        and isinstance(built := build_tool(spec, name, {}, Lock(origin="", routes={}, servers={name: {}})), McpTool)
    }


async def pinned_tools(specs: Sequence[Spec], site: Site, redactor: Redactor) -> tuple[Pins, list[Problem]]:
    """The pins of a spec and of what its profiles make of it, and what stands in their way."""
    pins: Pins = {}
    problems: list[Problem] = []
    seen: set[bytes] = set()
    for spec in specs:
        for name, tool in declared(spec).items():
            of_spec = spec.agent.tools[name]
            assert isinstance(of_spec, written.McpTool)
            key = compact((name, tool, of_spec.tools))
            if key in seen:
                continue
            seen.add(key)
            asked = _Asked(spec, name, of_spec.tools, redactor)
            known = pins.setdefault(name, {})
            for each, pin in (await asked.pins(tool, site)).items():
                if known.setdefault(each, pin) != pin:
                    asked.refuse(f"{quoted(each)} is another tool with another profile")
            problems += asked.problems
    return pins, problems


class _Asked:
    """One server that is asked what it has."""

    def __init__(self, spec: Spec, name: str, patterns: Sequence[str], redactor: Redactor) -> None:
        self._spec = spec
        self._name = name
        self._patterns = patterns
        self._redactor = redactor
        self.problems: list[Problem] = []

    async def pins(self, tool: McpTool, site: Site) -> dict[str, Pinned]:
        connection = Connection(tool, site)
        try:
            await connection.ready()
            listed = connection.tools
        except (NotStarted, Broken, MCPError) as error:
            self.refuse(f"the server did not start: {self._line(str(error))}")
            return {}
        finally:
            await connection.close()
        kept = {name: each for name, each in sorted(listed.items()) if self._wants(name)}
        self._refuse_missing(kept, listed)
        if len(kept) > MOST_TOOLS:
            self.refuse(f"{len(kept):,} of its tools may be seen; at most {MOST_TOOLS} can be pinned")
            return {}
        for sentence in name_clashes(f"{self._name}.{name}" for name in kept if TOOL_NAME.fullmatch(name)):
            self.refuse(sentence.removeprefix("tools: ").removesuffix("; rename one"), hint=LEAVE_OUT)
        return {name: pin for name, each in kept.items() for pin in self._pinned(each)}

    def refuse(self, why: str, *path: str | int, hint: str | None = None) -> None:
        place = place_of(self._spec.root, ["tools", self._name, *path], key=not path)
        message = f"the tools of {quoted(self._name)} cannot be pinned: {why}"
        self.problems.append(Problem(place, "spec.unpinned", message, hint))

    def _wants(self, name: str) -> bool:
        return any(matches(pattern, name) for pattern in self._patterns)

    def _refuse_missing(self, kept: dict[str, Listed], listed: dict[str, Listed]) -> None:
        for index, pattern in enumerate(self._patterns):
            if "*" not in pattern and pattern not in listed:
                hint = did_you_mean(pattern, listed)
                self.refuse(f"it has no tool {quoted(pattern)}", "tools", index, hint=hint)
        if not kept and not self.problems:
            self.refuse("it has no tool that `tools` names")

    def _pinned(self, tool: Listed) -> Iterator[Pinned]:
        whose = quoted(tool.name)
        description = visible_lines(tool.description.encode("utf-8", "replace").decode())
        digest = tool.digest
        if not TOOL_NAME.fullmatch(tool.name):
            self.refuse(f"{whose} is not a name that can be used; {TOOL_NAME_RULE}", hint=LEAVE_OUT)
        elif len(description.encode()) > LONGEST_DESCRIPTION:
            self.refuse(f"the description of {whose} is longer than {LONGEST_DESCRIPTION:,} bytes", hint=LEAVE_OUT)
        else:
            try:
                args = adopted(tool.schema)
            except Unusable as unusable:
                self.refuse(f"the schema of {whose} {unusable}", hint=LEAVE_OUT)
                return
            if digest is None:
                self.refuse(f"{whose} holds what JSON does not have", hint=LEAVE_OUT)
            elif self._tells(description) or self._tells(compact(args).decode()):
                self.refuse(f"what is said of {whose} holds a value of the environment", hint=LEAVE_OUT)
            else:
                yield Pinned(description=description, args=args, digest=digest)

    def _tells(self, text: str) -> bool:
        return self._redactor.text(text) != text

    def _line(self, text: str) -> str:
        return visible(mask(self._redactor.text(text)))[:300]
