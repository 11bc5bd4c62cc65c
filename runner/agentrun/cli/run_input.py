"""Commands with an input for a run: approve, deny, settle, send and cancel.

If no process works on the run, the command records it and continues the run. Otherwise the process that works on the
run records it, and the command reports that.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agentrun.cli.console import json_line, print_stderr, safe_text
from agentrun.cli.resume import resume_run
from agentrun.cli.run_files import find_run, show_run_error, working_project
from agentrun.errors import AgentrunError

if TYPE_CHECKING:
    from agentrun.store.files import FileStore
    from agentrun.store.inbox import OutsideFact

_Command = TypeVar("_Command", bound=Callable[..., Any])

author_option = click.option("--by", metavar="NAME", help="Who made the decision. The default is the name of the user.")
no_resume_option = click.option("--no-resume", is_flag=True, help="Only record it, and do not continue the run.")


_CONTINUING_OPTIONS = {"with_package": "--with-package", "approve": "--approve"}
"""Options that a process which already works on the run would not know."""


def author(by: str | None) -> str:
    """`--by`, or the name of the user."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user has no name on this machine
        return "user"


@contextmanager
def refuse_bad_values() -> Iterator[None]:
    """Raise click.UsageError for a value that no fact can contain."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from None


class RunInput:
    """An input for a run, and what to print about it."""

    def __init__(self, fact: OutsideFact, label: str, fields: Mapping[str, Any]) -> None:
        """`label`: a sentence for people. `fields`: of the JSON object."""
        self.fact = fact
        self.label = label
        self.fields = fields


def give_input(word: str, call: str | None, options: dict[str, Any], make: Callable[[FileStore, str], RunInput]) -> int:
    """Give the run that a word names what `make` returns, and continue it. The exit code is that of the run."""
    from agentrun.credentials import hidden_secrets
    from agentrun.engine.inbox import send_fact
    from agentrun.store.files import FileStore
    from agentrun.store.owner import refuse_untrusted
    from agentrun.store.run_ids import root_run

    project, as_json, stays = working_project(), options["as_json"], options.pop("no_resume")
    needed = [name for key, name in _CONTINUING_OPTIONS.items() if options[key] is not None]
    if needed and stays:
        raise click.UsageError(f"{needed[0]} is for continuing the run: it cannot be combined with --no-resume")
    with FileStore(project) as store:
        name = find_run(store, word)
        try:
            refuse_untrusted(project)
            _hide_run_secrets(store, name)
            message = make(store, name)
            is_ours = send_fact(store, name, message.fact, hidden_secrets.redactor, only_unowned=bool(needed))
        except AgentrunError as error:
            if error.code == "session.busy" and needed:
                error.hint = f"wait until it ends and try again, or leave out {needed[0]}"
            if call is not None:
                error.fields.setdefault("call", call)
            show_run_error(name, error, as_json=as_json)
            return error.exit_code
        if as_json:
            click.echo(json_line({"run": name, **({} if call is None else {"call": call}), **message.fields}))
        elif not options["quiet"]:
            print_stderr(safe_text(message.label))
        if is_ours and not stays:
            return resume_run(project, root_run(name), options, store)
    if not as_json and (is_ours or not options["quiet"]):
        print_stderr(_next_line(root_run(name), is_ours=is_ours))
    return 0


def _hide_run_secrets(store: FileStore, run: str) -> None:
    """Redact the secrets of the run too, such as those of `.env`: its journal records the input."""
    from agentrun.engine.answers import package_of_run
    from agentrun.engine.live_providers import hide_run_secrets, live_settings

    package = package_of_run(store, run)
    hide_run_secrets(package, live_settings(package, store.project.root))


def _next_line(run: str, *, is_ours: bool) -> str:
    from agentrun.report.suspension import resume_command

    return resume_command(run) if is_ours else f"another process works on {run} and continues it"
