"""`agentrun lock SPEC`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.cli.console import print_stderr
from agentrun.cli.options import spec_argument

if TYPE_CHECKING:
    from agentrun.compiler.lock import Lock
    from agentrun.compiler.spec_reader import Spec
    from agentrun.core.package_tools import PinnedTool
    from agentrun.spec.problems import Problem
    from agentrun.spec.project import Project


@click.command("lock")
@spec_argument
@click.option("--check", is_flag=True, help="Change nothing; exit 2 if the lock is missing or out of date.")
def command(spec: Path, check: bool) -> int:
    """Pin prices, context windows and the tools of MCP servers, in SPEC's .lock file beside it.

    The price and the context window of each route, those of profiles included, come from the data of genai-prices;
    nothing is fetched. Each MCP server is started, or connected to, and asked for its tools: the names, descriptions
    and schemas of those that the agent may see. What it says is what the model will read: read it first. A server
    that says something else later ends the run. Commit the lock: the same spec and lock give the same package
    everywhere.

    \b
    Examples:
      agentrun lock specs/support.yaml
      agentrun lock specs/researcher.yaml            starts its server and pins its tools
      agentrun lock specs/researcher.yaml --check    changes nothing, says what has changed
    """
    from agentrun.compiler.lock import lock_path, lock_text, make_lock

    specs = _read_specs(spec)
    wanted, path = make_lock(*(one.agent for one in specs), servers=_pin_servers(spec, specs)), lock_path(spec)
    for route in (route for route, row in wanted.routes.items() if row.price is None):
        print_stderr(f"no price is known for {route}: give it a `price:` in the spec if it has one")
    held = _read_held_lock(spec, damaged_is_wrong=check)
    if not check:
        text = lock_text(wanted)
        _check_readable(path, text)
        _print_pins(held, wanted)
        _write_lock(specs[0].project, specs[0].path, text)
        count = len(wanted.routes)
        tools = sum(map(len, wanted.servers.values()))
        more = f" and {tools} tool{'' if tools == 1 else 's'}" if wanted.servers else ""
        print_stderr(f"{count} route{'' if count == 1 else 's'}{more} pinned in {path}")
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
    """Write the lock beside its spec, unless there is a file of that name that is none."""
    from agentrun.cli.output_file import refuse_other_content
    from agentrun.compiler.lock import lock_path
    from agentrun.store.lock import lock_project_files

    refuse_other_content(lock_path(spec), b'{\n  "agentrun_lock"')
    with lock_project_files(project):
        project.source_tree("lock").write(lock_path(spec), text.encode())


def _read_specs(path: Path) -> list[Spec]:
    """The spec, and what its profiles make of it."""
    from agentrun.compiler.spec_reader import read_spec
    from agentrun.errors import SpecError
    from agentrun.spec.problems import sort_problems

    read = read_spec(path)
    overlaid = [read_spec(path, profile) for profile in read.profiles]
    specs = [one.spec for one in (read, *overlaid) if one.spec is not None]
    if len(specs) < 1 + len(overlaid):
        raise SpecError(sort_problems(problem for one in (read, *overlaid) for problem in one.problems))
    return specs


def _pin_servers(path: Path, specs: Sequence[Spec]) -> dict[str, dict[str, PinnedTool]]:
    """What is pinned of the tools of servers; nothing is started when there are none."""
    from agentrun.spec.v1.tools import McpToolSpec

    if not any(isinstance(tool, McpToolSpec) for spec in specs for tool in spec.agent.tools.values()):
        return {}
    from agentrun.engine.pinning import pin_mcp_servers
    from agentrun.errors import SpecError

    wrong = _other_problems(path)
    pins, problems = ({}, wrong) if wrong else pin_mcp_servers(specs)
    if problems:
        raise SpecError(problems)
    return pins


def _other_problems(path: Path) -> list[Problem]:
    """What is wrong with a spec besides what a lock is for. Nothing of such a spec is started."""
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.spec_reader import read_spec
    from agentrun.spec.problems import sort_problems

    repaired = ("spec.unpinned", "spec.no_price", "spec.lock")
    profiles = (None, *read_spec(path).profiles)
    found = [each for profile in profiles for each in compile_spec(path, profile).errors]
    return [each for each in sort_problems(found) if each.code not in repaired]


def _read_held_lock(spec: Path, *, damaged_is_wrong: bool) -> Lock | None:
    from agentrun.compiler.lock import read_lock
    from agentrun.errors import SpecError
    from agentrun.spec.problems import DocumentError

    try:
        return read_lock(spec)
    except DocumentError as error:
        if damaged_is_wrong:
            raise SpecError(error.problems) from None
        return None


def _check_readable(path: Path, text: str) -> None:
    """A lock that could not be read is not written."""
    from agentrun.compiler.lock import parse_lock
    from agentrun.errors import SpecError
    from agentrun.spec.problems import DocumentError, Source

    try:
        parse_lock(Source(path.absolute(), str(path), text))
    except DocumentError as error:
        raise SpecError(error.problems) from None


def _print_pins(held: Lock | None, wanted: Lock) -> None:
    """What is pinned, for a person to read."""
    for server, tools in sorted(wanted.servers.items()):
        for name, pin in sorted(tools.items()):
            said = next(filter(None, map(str.strip, pin.description.splitlines())), "says nothing of itself")
            print_stderr(f"  {server}.{name}: {said[:160]}")
    if held is not None:
        _print_drift(held, wanted)


def _print_drift(held: Lock, wanted: Lock) -> None:
    from agentrun.compiler.package_diff import describe_pin_changes

    for line in describe_pin_changes(held.servers, wanted.servers):
        print_stderr(f"changed: {line}")
