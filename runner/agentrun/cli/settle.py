"""`agentrun settle RUN CALL`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.resume import resume_options
from agentrun.cli.run_files import run_argument
from agentrun.cli.run_input import RunInput, author, author_option, give_input, no_resume_option, refuse_bad_values

if TYPE_CHECKING:
    from agentrun.store.files import FileStore

_TEXTS = {"retry": "it runs again", "result": "it has a result now", "stop": "the run ends"}


@click.command("settle")
@run_argument
@click.argument("call")
@click.option("--retry", is_flag=True, help="Run the call again.")
@click.option("--result", metavar="TEXT", help="Do not run the call: TEXT is its result, and the model reads it.")
@click.option("--stop", is_flag=True, help="Do not run the call: end the run with tool.indeterminate.")
@author_option
@no_resume_option
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

    if sum((retry, result is not None, stop)) != 1:
        raise click.UsageError("use one of --retry, --result TEXT and --stop")
    how = "retry" if retry else "stop" if stop else "result"
    with refuse_bad_values():
        fact = make_settlement(call, how, author(by), () if result is None else (Text(result),))  # type: ignore[arg-type]  # one of three

    def make(store: FileStore, name: str) -> RunInput:
        label = f"{_label(store, name, call)} of {name} is settled by {fact.by}: {_TEXTS[how]}"
        return RunInput(fact, label, {"settled": how, "by": fact.by})

    return give_input(run, call, options, make)


def _label(store: FileStore, run: str, call: str) -> str:
    from agentrun.core.evolve import fold
    from agentrun.core.state import find_call

    found = find_call(fold(store.records(run)), call)
    return call if found is None else f"{found.tool} ({call})"
