"""`agentrun settle RUN CALL`"""

from __future__ import annotations

import getpass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.console import json_line, safe_text
from agentrun.cli.resume import resume_options, resume_run
from agentrun.cli.run_files import find_run, run_argument, show_run_error, working_project
from agentrun.errors import AgentrunError

if TYPE_CHECKING:
    from agentrun.core.facts import CallSettled
    from agentrun.store.files import FileStore

_TEXTS = {"retry": "it runs again", "result": "it has a result now", "stop": "the run ends"}


@click.command("settle")
@run_argument
@click.argument("call")
@click.option("--retry", is_flag=True, help="Run the call again.")
@click.option("--result", metavar="TEXT", help="Do not run the call: TEXT is its result, and the model reads it.")
@click.option("--stop", is_flag=True, help="Do not run the call: end the run with tool.indeterminate.")
@click.option("--by", metavar="NAME", help="Who made the decision. The default is the name of the user.")
@click.option("--no-resume", is_flag=True, help="Only record the decision, and do not continue the run.")
@resume_options
def command(run: str, call: str, retry: bool, result: str | None, stop: bool, by: str | None, **options: Any) -> int:
    """Decide what to do with CALL of RUN, whose outcome is not known, and continue the run.

    RUN is named as for `agentrun resume`; CALL is the id of a call such as c1.0. A call of a sub-agent is settled in
    the run of the sub-agent, such as run-5f0c6d1e8a7b9c24.c1.0. Find out first whether the call took effect: agentrun
    does not know. The exit code is that of the run.

    \b
    Examples:
      agentrun settle - c2.0 --retry
      agentrun settle run-5f0c6d1e8a7b9c24 c2.0 --result '{"refunded": 120}'
      agentrun settle 5f0c c2.0 --stop --no-resume
    """
    from agentrun.core.messages import Text
    from agentrun.engine.answers import make_settlement
    from agentrun.store.files import FileStore
    from agentrun.store.owner import refuse_untrusted
    from agentrun.store.run_ids import root_run

    if sum((retry, result is not None, stop)) != 1:
        raise click.UsageError("use one of --retry, --result TEXT and --stop")
    project, how = working_project(), "retry" if retry else "stop" if stop else "result"
    parts = () if result is None else (Text(result),)
    try:
        fact = make_settlement(call, how, by or _user(), parts)  # type: ignore[arg-type]  # one of three
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with FileStore(project) as store:
        name = find_run(store, run)
        try:
            refuse_untrusted(project)
            label = _settle(store, name, fact)
        except AgentrunError as error:
            error.fields.setdefault("call", call)
            show_run_error(name, error, as_json=options["as_json"])
            return error.exit_code
    if options["as_json"]:
        click.echo(json_line({"run": name, "call": call, "settled": how, "by": fact.by}))
    elif not options["quiet"]:
        click.echo(safe_text(f"{label} of {name} is settled by {fact.by}: {_TEXTS[how]}"), err=True)
    if options.pop("no_resume"):
        if not options["as_json"]:
            from agentrun.report.suspension import resume_command

            click.echo(resume_command(root_run(name)), err=True)
        return 0
    return resume_run(project, root_run(name), options)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user has no name on this machine
        return "user"


def _settle(store: FileStore, run: str, fact: CallSettled) -> str:
    """Record a decision. Return the name of the call. Raises `run.invalid_state`, `session.busy`."""
    from agentrun.core.state import find_call
    from agentrun.credentials import hidden_secrets
    from agentrun.engine.answers import settle_call
    from agentrun.engine.begin import refuse_stand_ins
    from agentrun.engine.driver import RunLog
    from agentrun.engine.event_loop import SystemClock
    from agentrun.engine.fact_redaction import redact_struct

    log = RunLog(store.open(run), SystemClock(), clean=partial(redact_struct, hidden_secrets.redactor))
    refuse_stand_ins(log.state.started)
    found = find_call(log.state, fact.call)
    settle_call(log, fact)
    return fact.call if found is None else f"{found.tool} ({fact.call})"
