"""What tools and sinks need of this machine, and what of it is not there.

Rule 1  All of it is looked for at once, and said at once, each with who needs it: nobody should have to start a run
        five times to hear of five variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from agentrun.core.package import HttpSink, Package, Sink
from agentrun.core.package_lookup import credential_texts, tool_command
from agentrun.core.package_tools import HttpTool, McpTool, Tool
from agentrun.errors import HostError
from agentrun.net.environment import Lookup, variables_in

Needs: TypeAlias = dict[str, list[str]]
"""What is needed, and who needs it."""


def programs_of(packages: Iterable[Package], root: Path, lookup: Lookup) -> dict[str, str]:
    """The file of each command. Raises `host.missing` with every command and every variable that is not there."""
    variables: Needs = {}
    commands: Needs = {}
    for package in packages:
        for name, tool in package.tools.items():
            _need(variables, _variables(tool), f"tool {name}")
            _need(commands, filter(None, [tool_command(tool)]), f"tool {name}")
        for name, sink in package.sinks.items():
            if sink.delivery != "disabled":
                _need(variables, _variables(sink), f"sink {name}")
    programs: dict[str, str] = {}
    lacks = [
        *_lacks(variables, lookup),
        *_lacks(dict(sorted(commands.items())), lambda each: _find(each, root, programs)),
    ]
    if lacks:
        raise _all(lacks)
    return programs


def _need(needs: Needs, names: Iterable[str], who: str) -> None:
    for name in names:
        users = needs.setdefault(name, [])
        if who not in users:
            users.append(who)


def _find(command: str, root: Path, programs: dict[str, str]) -> None:
    from agentrun.tools.commands import find_programs  # late: only a package with commands needs it

    programs |= find_programs([command], root)


def _lacks(needs: Mapping[str, list[str]], find: Callable[[str], object]) -> Iterator[tuple[HostError, str]]:
    for name, users in needs.items():
        try:
            find(name)
        except HostError as error:
            yield error, ", ".join(users)


def _all(lacks: list[tuple[HostError, str]]) -> HostError:
    first = lacks[0][0]
    message = "; ".join(f"{error.message} ({users})" for error, users in lacks)
    hints = dict.fromkeys(error.hint for error, _ in lacks if error.hint)
    names = [error.fields["name"] for error, _ in lacks]
    return HostError("host.missing", message, hint="; ".join(hints) or None, fields={**first.fields, "names": names})


def _variables(part: Tool | Sink) -> Iterator[str]:
    """The variables of the environment that a tool or a sink names."""
    address = part.url if isinstance(part, HttpTool | McpTool | HttpSink) else None
    for text in (address or "", *credential_texts(part)):
        yield from variables_in(text)
