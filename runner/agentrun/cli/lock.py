"""`agentrun lock SPEC`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.cli.console import document_problems, print_stderr, refuse_other_content
from agentrun.cli.options import spec_argument
from agentrun.errors import SpecError
from agentrun.spec.problems import Problem, Source, sort_problems
from agentrun.spec.safe_text import plural

if TYPE_CHECKING:
    from agentrun.compiler.lock_file import Lock
    from agentrun.compiler.spec_reader import Spec
    from agentrun.core.package_tools import PinnedTool
    from agentrun.spec.project import Project


@click.command("lock")
@spec_argument
@click.option("--check", is_flag=True, help="Write nothing; exit with 2 if the lock is missing or out of date.")
def command(spec: Path, check: bool) -> int:
    """Pin prices, context windows and MCP tools in the .lock file next to SPEC.

    The price and the context window of each model, including those of profiles, come from the installed
    genai-prices; nothing is fetched. Each MCP server is started or connected to, and the names, descriptions and
    schemas of the tools that the agent uses are pinned. Read them before you commit the lock, because the model
    will read them. If a server later offers something else, the run fails. The same spec and lock give the same
    package on every machine.

    \b
    Examples:
      agentrun lock specs/support.yaml
      agentrun lock specs/researcher.yaml            start its MCP server and pin its tools
      agentrun lock specs/researcher.yaml --check    write nothing, show what has changed
    """
    from agentrun.compiler.lock_file import lock_path, lock_text, make_lock

    specs = _read_specs(spec)
    path = lock_path(spec)
    wanted = make_lock(*(one.agent for one in specs), servers=_pin_servers(spec, specs))
    for route, row in wanted.routes.items():
        if row.price is None:
            print_stderr(f"the price of {route} is not known; add `price:` in the spec if it costs money")
    held = _read_held_lock(spec, damaged_is_wrong=check)
    if not check:
        text = lock_text(wanted)
        _check_readable(path, text)
        _print_pins(held, wanted)
        _write_lock(specs[0].project, specs[0].path, text)
        more = f" and {plural(sum(map(len, wanted.servers.values())), 'tool')}" if wanted.servers else ""
        print_stderr(f"{plural(len(wanted.routes), 'route')}{more} pinned in {path}")
        return 0
    if held is None or (held.routes, held.servers) != (wanted.routes, wanted.servers):
        state = "missing" if held is None else "out of date"
        if held is not None:
            _print_drift(held, wanted)
        print_stderr(f"{path} is {state}: run `agentrun lock {spec}`")
        return 2
    print_stderr(f"{path} is up to date")
    return 0


def _write_lock(project: Project, spec: Path, text: str) -> None:
    """Write the lock next to its spec, unless another kind of file has its name."""
    from agentrun.compiler.lock_file import lock_path
    from agentrun.store.process_lock import lock_project_files

    refuse_other_content(lock_path(spec), b'{\n  "agentrun_lock"')
    with lock_project_files(project):
        project.source_tree("lock").write(lock_path(spec), text.encode())


def _read_specs(path: Path) -> list[Spec]:
    """The spec, without a profile and with each of its profiles."""
    from agentrun.compiler.spec_reader import read_spec

    read = read_spec(path)
    overlaid = [read_spec(path, profile) for profile in read.profiles]
    specs = [one.spec for one in (read, *overlaid) if one.spec is not None]
    if len(specs) < 1 + len(overlaid):
        raise SpecError(sort_problems(problem for one in (read, *overlaid) for problem in one.problems))
    return specs


def _pin_servers(path: Path, specs: Sequence[Spec]) -> dict[str, dict[str, PinnedTool]]:
    """The tools to pin, by server. No server is started if the spec has problems."""
    from agentrun.spec.v1.tools import McpToolSpec

    if not any(isinstance(tool, McpToolSpec) for spec in specs for tool in spec.agent.tools.values()):
        return {}
    other = _other_problems(path)
    pins, problems = ({}, other) if other else pin_mcp_servers(specs)
    if problems:
        raise SpecError(problems)
    return pins


def pin_mcp_servers(specs: Sequence[Spec]) -> tuple[dict[str, dict[str, PinnedTool]], list[Problem]]:
    """Ask the servers of a spec, with its profiles, for their tools. Raises `host.missing`."""
    from agentrun.tools.mcp import require_mcp_sdk

    require_mcp_sdk()
    import asyncio

    from agentrun.core.package import tool_command
    from agentrun.credentials import find_credentials
    from agentrun.engine.env_file import read_project_env_file
    from agentrun.engine.live_providers import part_variables
    from agentrun.engine.settings import load_settings
    from agentrun.redactor import Redactor
    from agentrun.tools.mcp_connection import McpEnvironment
    from agentrun.tools.mcp_pins import declared_servers, pin_tools
    from agentrun.tools.shell import find_programs

    root = specs[0].project.root
    tools = [tool for spec in specs for tool in declared_servers(spec).values()]
    commands = sorted({command for tool in tools if (command := tool_command(tool)) is not None})
    names = {name for tool in tools for name in part_variables(tool, addresses=False)}
    settings = load_settings(read_project_env_file(root, {name for tool in tools for name in part_variables(tool)}))
    site = McpEnvironment(root, find_programs(commands, root), settings.secret)
    return asyncio.run(pin_tools(specs, site, Redactor(find_credentials(settings.variables(), names))))


def _other_problems(path: Path) -> list[Problem]:
    """The problems of a spec that a new lock does not fix."""
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.spec_reader import read_spec

    repaired = ("spec.unpinned", "spec.no_price", "spec.lock")
    profiles = (None, *read_spec(path).profiles)
    found = [each for profile in profiles for each in compile_spec(path, profile).errors]
    return [each for each in sort_problems(found) if each.code not in repaired]


def _read_held_lock(spec: Path, *, damaged_is_wrong: bool) -> Lock | None:
    from agentrun.compiler.lock_file import read_lock

    try:
        with document_problems():
            return read_lock(spec)
    except SpecError:
        if damaged_is_wrong:
            raise
        return None


def _check_readable(path: Path, text: str) -> None:
    """Raise the problems of a lock that could not be read again, before it is written."""
    from agentrun.compiler.lock_file import parse_lock

    with document_problems():
        parse_lock(Source(path.absolute(), str(path), text))


def _print_pins(held: Lock | None, wanted: Lock) -> None:
    for server, tools in sorted(wanted.servers.items()):
        for name, pin in sorted(tools.items()):
            first = next(filter(None, map(str.strip, pin.description.splitlines())), "(no description)")
            print_stderr(f"  {server}.{name}: {first[:160]}")
    if held is not None:
        _print_drift(held, wanted)


def _print_drift(held: Lock, wanted: Lock) -> None:
    from agentrun.compiler.package_diff import describe_pin_changes

    for line in describe_pin_changes(held.servers, wanted.servers):
        print_stderr(f"changed: {line}")
