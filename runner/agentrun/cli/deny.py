"""`agentrun deny RUN CALL`"""

from __future__ import annotations

from typing import Any

import click

from agentrun.cli.approve import answer_question, question_option
from agentrun.cli.resume import resume_options
from agentrun.cli.run_files import run_argument
from agentrun.cli.run_input import author_option, no_resume_option


@click.command("deny")
@run_argument
@click.argument("call")
@click.option("--reason", metavar="TEXT", help="Why it is denied. The journal records it, and the model reads it.")
@question_option
@author_option
@no_resume_option
@resume_options
def command(run: str, call: str, reason: str | None, **options: Any) -> int:
    """Deny CALL of RUN, which waits for an approval, and continue the run.

    RUN and CALL are those of `agentrun approve`. The call does not run, and the model reads that it was denied, unless
    its tool has `on_denied: stop`. The first answer counts. If another process works on the run, it continues with the
    answer; otherwise this command continues the run, and its exit code is that of the run.

    \b
    Examples:
      agentrun deny run-5f0c6d1e8a7b9c24 c2.0 --reason "refund at most 50"
      agentrun deny - c2.0 --no-resume
    """
    return answer_question(run, call, "denied", reason, options)
