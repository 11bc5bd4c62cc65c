"""Ask MCP servers for their tools, to pin them in a lock file.

Importing this module takes a second, so only specs with MCP servers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentrun.compiler.spec_reader import Spec
from agentrun.core.package_lookup import tool_command
from agentrun.core.package_tools import PinnedTool
from agentrun.engine.env_file import read_project_env_file
from agentrun.engine.live_providers import part_variables
from agentrun.engine.settings import load_settings
from agentrun.net.environment import find_credentials
from agentrun.redactor import Redactor
from agentrun.spec.problems import Problem
from agentrun.tools.commands import find_programs
from agentrun.tools.mcp import require_mcp_sdk


def pin_mcp_servers(specs: Sequence[Spec]) -> tuple[dict[str, dict[str, PinnedTool]], list[Problem]]:
    """The pins of a spec with its profiles, and the problems. Raises `host.missing`."""
    require_mcp_sdk()
    from agentrun.tools.mcp_connection import McpEnvironment  # late: as above
    from agentrun.tools.mcp_pins import declared_servers, pin_tools  # late: the SDK is an extra

    root = specs[0].project.root
    tools = [tool for spec in specs for tool in declared_servers(spec).values()]
    commands = sorted({command for tool in tools if (command := tool_command(tool)) is not None})
    names = {name for tool in tools for name in part_variables(tool, addresses=False)}
    settings = load_settings(read_project_env_file(root, {name for tool in tools for name in part_variables(tool)}))
    site = McpEnvironment(root, find_programs(commands, root), settings.secret)
    return asyncio.run(pin_tools(specs, site, Redactor(find_credentials(settings.variables(), names))))
