"""Asks MCP servers for their tools, with the variables of the environment, for a lock.

Importing this takes a second: only a spec with servers needs it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from agentrun.compiler.resolve import Spec
from agentrun.core.credentials import credential_texts
from agentrun.core.names import command_of
from agentrun.core.package_tools import Pinned
from agentrun.engine.settings import Settings
from agentrun.net.credentials import credentials
from agentrun.net.environment import named_in
from agentrun.redact import Redactor
from agentrun.spec.problems import Problem
from agentrun.tools.mcp import refuse_without_sdk
from agentrun.tools.programs import found_programs


def pinned(specs: Sequence[Spec]) -> tuple[dict[str, dict[str, Pinned]], list[Problem]]:
    """The pins of a spec and of what its profiles make of it, and what stands in their way. Raises `host.missing`."""
    refuse_without_sdk()
    from agentrun.tools.mcp_pins import declared, pinned_tools  # late: the SDK is an extra
    from agentrun.tools.mcp_server import Site  # late: as above

    root = specs[0].project.root
    tools = [tool for spec in specs for tool in declared(spec).values()]
    commands = sorted({command for tool in tools if (command := command_of(tool)) is not None})
    names = {name for tool in tools for text in credential_texts(tool) for name in named_in(text)}
    site = Site(root, found_programs(commands, root), Settings().secret)
    return asyncio.run(pinned_tools(specs, site, Redactor(credentials(os.environ, names))))
