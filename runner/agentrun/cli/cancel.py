"""`agentrun cancel RUN`"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.console import json_line, json_option, print_stderr, safe_text
from agentrun.cli.run_files import find_run, refuse_sub_agent, run_argument, show_run_error, working_project
from agentrun.cli.run_input import author, author_option, refuse_bad_values
from agentrun.credentials import hidden_secrets
from agentrun.errors import AgentrunError

if TYPE_CHECKING:
    from agentrun.core.package import Package
    from agentrun.store.files import FileStore


@click.command("cancel")
@run_argument
@author_option
@json_option
def command(run: str, by: str | None, as_json: bool) -> int:
    """Cancel RUN and its sub-agents.

    RUN is named as for `agentrun resume`. If a process works on the run, it stops what is running and ends the run with
    exit code 130. Otherwise this command ends the run; it asks no model and runs no tool, only hooks of the end of a
    run. A run that is finished stays as it is.

    \b
    Examples:
      agentrun cancel run-5f0c6d1e8a7b9c24
      agentrun cancel 5f0c --by Ada
    """
    from agentrun.core.facts import CancelRequested
    from agentrun.engine.argument_checks import check_author
    from agentrun.engine.inbox import MAX_SENDER_WAIT, SENDER_INTERVAL, send_fact
    from agentrun.store.files import FileStore
    from agentrun.store.owner import refuse_untrusted

    project, by = working_project(), author(by)
    with refuse_bad_values():
        check_author(by)
    with FileStore(project) as store:
        name = find_run(store, run)
        try:
            refuse_sub_agent(name, "it ends with the run that started it")
            refuse_untrusted(project)
            is_finished = _is_finished(store, name)
            if not is_finished:
                is_ours = send_fact(store, name, CancelRequested(by), hidden_secrets.redactor)
                if is_ours and not _is_finished(store, name):  # another process may have ended it
                    _end_run(store, name)
        except AgentrunError as error:
            show_run_error(name, error, as_json=as_json)
            return error.exit_code
        end = time.monotonic() + MAX_SENDER_WAIT
        while not _is_finished(store, name) and time.monotonic() < end:
            time.sleep(SENDER_INTERVAL)
        status = _status(store, name)
    if as_json:
        click.echo(json_line({"run": name, "cancelled": not is_finished, "by": by, "status": status}))
    else:
        what = "is already finished" if is_finished else f"is cancelled by {by}"
        more = "" if status == "cancelled" else f": {status}" if is_finished else "; what is running is being stopped"
        print_stderr(safe_text(f"{name} {what}{more}"))
    return 0


def _is_finished(store: FileStore, run: str) -> bool:
    return any(last is not None and last.is_terminal for _, last in store.last_records([run]))


def _status(store: FileStore, run: str) -> str:
    from agentrun.core.facts import RunStopped

    last = store.records(run)[-1].fact
    if not isinstance(last, RunStopped):
        return "running"
    return "cancelled" if last.fault is not None and last.fault.code == "cancelled" else last.status


def _end_run(store: FileStore, run: str) -> None:
    """End a cancelled run that this process has locked."""
    from agentrun.cli.stdout_guard import guard_stdout
    from agentrun.engine.event_loop import run_event_loop

    with guard_stdout(lambda tool, text: None):
        run_event_loop(_drive_to_end(store, run))


async def _drive_to_end(store: FileStore, run: str) -> None:
    from contextlib import suppress

    from agentrun.engine.driver import drive_with_children, open_run_log
    from agentrun.engine.live_providers import hide_run_secrets, live_settings
    from agentrun.engine.memory import stored_package
    from agentrun.engine.worlds.live import live_world

    package = stored_package(store, run)
    settings = live_settings(package.agent, store.project.root)
    hide_run_secrets(package.agent, settings)
    store.configure(settings.sync, lambda text: None)
    options: dict[str, Any] = {"journals": store, "blobs": store.blobs(run), "settings": settings}
    async with live_world(
        package.agent, store.project, run, models=False, parts=_only_hooks(package.agent), **options
    ) as world:
        with suppress(AgentrunError):  # a hook that cannot be imported fails, and does not keep the run from ending
            await world.prepare()
        log = open_run_log(world)
        log.take_over(package.fingerprint)
        await drive_with_children(world, package.agent, log)


def _only_hooks(package: Package) -> Package:
    from msgspec.structs import replace

    agents = {name: _only_hooks(each) for name, each in package.agents.items()}
    return replace(package, tools={}, sinks={}, agents=agents)
