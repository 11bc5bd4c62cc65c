"""`agentrun send RUN MESSAGE`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.options import read_message
from agentrun.cli.resume import resume_options
from agentrun.cli.run_files import refuse_sub_agent, run_argument
from agentrun.cli.run_input import RunInput, give_input, no_resume_option

if TYPE_CHECKING:
    from agentrun.store.files import FileStore


@click.command("send")
@run_argument
@click.argument("message")
@no_resume_option
@resume_options
def command(run: str, message: str, **options: Any) -> int:
    """Send MESSAGE to RUN. The model reads it when it next stops without a tool call. `-` reads standard input.

    RUN is named as for `agentrun resume`. If a process works on the run, it gets the message and continues; otherwise
    this command continues the run, and its exit code is that of the run. A run that is finished gets no more messages:
    continue its session instead, with `agentrun SPEC --session NAME`.

    \b
    Examples:
      agentrun send run-5f0c6d1e8a7b9c24 "Also check order 2078."
      agentrun send 5f0c - < more.txt
      agentrun send - "Be brief." --no-resume
    """
    text = read_message(message) or ""

    def make(store: FileStore, name: str) -> RunInput:
        from agentrun.core.facts import MessageQueued
        from agentrun.core.messages import user_message
        from agentrun.engine.inbox import refuse_repeated_message

        refuse_sub_agent(name, "it gets its messages from the run that started it")
        refuse_repeated_message(store, name, text)
        return RunInput(MessageQueued("", user_message(text)), f"the message is queued in {name}", {"sent": True})

    return give_input(run, None, options, make)
