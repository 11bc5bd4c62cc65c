"""`agentrun completion SHELL`, and the values of options that a shell completes.

Rule 1  A completion never fails: a spec or cases file that cannot be read has no values.
Rule 2  Nothing is compiled or imported: the values come from the text of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from agentrun.errors import AgentrunError

if TYPE_CHECKING:
    from agentrun.spec.v1.cases import Case
    from agentrun.store.files import FileStore


def complete_case_names(context: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """`--case`: the cases of the spec."""
    return _starting_with(begun, [case.name for case in _read_cases(_paths_of(context, "spec")[:1])])


def complete_tags(context: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """`--tag`: the tags of the cases below the paths of `agentrun test`."""
    from agentrun.testing.suite.discovery import find_case_files

    paths = [Path(str(path).partition("::")[0]) for path in _paths_of(context, "paths") or [Path()]]
    files = find_case_files([path for path in paths if path.exists()])
    return _starting_with(begun, {tag for case in _read_cases(files) for tag in case.tags})


def complete_profiles(context: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    return _starting_with(begun, _keys_of_section(context, "profiles"))


def complete_param_names(context: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """`--param`: the names of the params, each with `=`."""
    return _starting_with(begun, [f"{name}=" for name in _keys_of_section(context, "params")])


def complete_runs(_context: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """RUN: the runs in the store of the working directory."""
    return [CompletionItem(run) for run in _starting_with(begun, _stored(lambda store: store.runs()))]


def complete_sessions(_context: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """The sessions in the store of the working directory."""
    return _starting_with(begun, _stored(lambda store: store.sessions.names()))


def complete_runs_and_files(context: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """RUN|FILE. The file comes first: in bash it removes what comes before it."""
    return [CompletionItem(begun, type="file"), *complete_runs(context, param, begun)]


def _stored(names: Callable[[FileStore], list[str]]) -> list[str]:
    from agentrun.spec.problems import DocumentError
    from agentrun.spec.project import find_working_project
    from agentrun.store.files import FileStore

    with suppress(AgentrunError, DocumentError, OSError):
        return names(FileStore(find_working_project(Path.cwd())))
    return []


def _paths_of(context: click.Context, name: str) -> list[Path]:
    """The paths of the command. click parses no arguments while the last option has no value."""
    value = context.params.get(name) or context.args
    return [value] if isinstance(value, Path) else list(map(Path, value))


def _starting_with(begun: str, words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word.startswith(begun))


def _read_cases(paths: Iterable[Path]) -> list[Case]:
    """The cases in cases files, or beside specs."""
    from agentrun.compiler.cases import cases_path, read_cases_file
    from agentrun.spec.problems import DocumentError

    found: list[Case] = []
    for path in paths:
        file = path if path.name.endswith(".cases.yaml") else cases_path(path)
        with suppress(AgentrunError, DocumentError, OSError):
            found += read_cases_file(file)[1].cases
    return found


def _keys_of_section(context: click.Context, section: str) -> list[str]:
    from agentrun.spec.document_loader import load_mapping
    from agentrun.spec.source_files import FileRefused, read_source
    from agentrun.spec.tree import MappingNode

    for spec in _paths_of(context, "spec")[:1]:
        with suppress(FileRefused):
            root = load_mapping(read_source(spec), "spec.wrong_type", "").root
            value = None if root is None else root.get(section)
            if isinstance(value, MappingNode):
                return list(value.entries)
    return []


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      eval "$(agentrun completion bash)"                                  in ~/.bashrc
      eval "$(agentrun completion zsh)"                                   in ~/.zshrc
      agentrun completion fish > ~/.config/fish/completions/agentrun.fish
    """
    from agentrun.cli.group import root_command

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(root_command, {}, "agentrun", "_AGENTRUN_COMPLETE").source())
