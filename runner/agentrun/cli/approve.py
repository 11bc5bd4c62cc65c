"""`agentrun approve RUN CALL`, and what it shares with `agentrun deny`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.resume import resume_options
from agentrun.cli.run_files import run_argument
from agentrun.cli.run_input import RunInput, author, author_option, give_input, no_resume_option, refuse_bad_values
from agentrun.errors import RequestError

if TYPE_CHECKING:
    from agentrun.core.facts import ApprovalAnswer, ApprovalAnswered
    from agentrun.core.outcome import Question
    from agentrun.store.files import FileStore

MIN_HASH_LENGTH = 12
question_option = click.option(
    "--question",
    metavar="HASH",
    help="Answer only the question with this hash, or this beginning of it, as `agentrun approvals` shows it.",
)
_TEXTS = {
    "approved": "approved by {}",
    "approved_for_session": "approved for the session by {}",
    "denied": "denied by {}",
}


@click.command("approve")
@run_argument
@click.argument("call")
@click.option("--for-session", is_flag=True, help="Also approve every identical question in the session of the run.")
@question_option
@author_option
@no_resume_option
@resume_options
def command(run: str, call: str, for_session: bool, **options: Any) -> int:
    """Approve CALL of RUN, which waits for it, and continue the run. This also ends a deferral `until: person`.

    RUN is named as for `agentrun resume`; CALL is the id of a call such as c1.0, or `input`, `output` or
    `deliver:SINK`. A call of a sub-agent is approved in the run of the sub-agent, such as
    run-5f0c6d1e8a7b9c24.c1.0. `agentrun approvals` shows what waits, and exactly what would run.

    The first answer counts. If another process works on the run, it continues with the answer; otherwise this command
    continues the run, and its exit code is that of the run.

    \b
    Examples:
      agentrun approve run-5f0c6d1e8a7b9c24 c2.0
      agentrun approve - c2.0 --for-session
      agentrun approve 5f0c c2.0 --by Ada --no-resume
    """
    return answer_question(run, call, "approved_for_session" if for_session else "approved", None, options)


def answer_question(run: str, call: str, answer: ApprovalAnswer, reason: str | None, options: dict[str, Any]) -> int:
    """Answer the question about a call, and continue the run."""
    wanted, by = options.pop("question"), author(options.pop("by"))
    if wanted is not None and len(wanted.removeprefix("sha256:")) < MIN_HASH_LENGTH:
        raise click.UsageError(f"--question needs at least {MIN_HASH_LENGTH} characters of the hash")

    def make(store: FileStore, name: str) -> RunInput:
        from agentrun.engine.answers import make_answer

        question = _find_question(store, name, call, wanted)
        with refuse_bad_values():
            fact = make_answer(question, answer, by, reason)
        return RunInput(fact, _label(question, name, fact), {"answered": answer, "by": by, "question": fact.question})

    return give_input(run, call, options, make)


def _label(question: Question, run: str, fact: ApprovalAnswered) -> str:
    what = question.target if question.target == question.subject else f"{question.target} ({question.subject})"
    return f"{what} of {run} is {_TEXTS[fact.answer].format(fact.by)}"


def _find_question(store: FileStore, run: str, call: str, wanted: str | None) -> Question:
    """The open question about a call. Raises `run.invalid_state`."""
    from agentrun.engine.answers import open_questions

    asked = [each for each in open_questions(store, run) if each.subject == call]
    if not asked:
        raise _not_asked_error(store, run, call)
    if wanted is not None and not asked[0].question.removeprefix("sha256:").startswith(wanted.removeprefix("sha256:")):
        message = f"the question about {asked[0].target} ({call}) is another one now: {asked[0].question}"
        raise _state_error(run, call, message, "altered", "look at it again: agentrun approvals")
    return asked[0]


def _not_asked_error(store: FileStore, run: str, call: str) -> RequestError:
    from agentrun.core.evolve import fold
    from agentrun.core.facts import ApprovalAnswered, ApprovalAsked
    from agentrun.core.state import find_call
    from agentrun.report.render_facts import until_text
    from agentrun.spec.problems import quote_text

    records = store.records(run)
    facts, found = [record.fact for record in records], find_call(fold(records), call)
    if found is not None and found.status == "deferred" and not found.gate.person:
        message = (
            f"no person is asked about {quote_text(found.tool)} ({call}): a rule deferred it{until_text(found.gate)}"
        )
        return _state_error(run, call, message, "deferred", f"agentrun resume {run} asks the rule again")
    asked = [fact for fact in facts if isinstance(fact, ApprovalAsked) and fact.subject == call]
    if not asked:
        message = f"the run {run} does not ask about {quote_text(call)}"
        return _state_error(run, call, message, "unknown", "agentrun approvals lists what waits")
    about = f"the question about {quote_text(asked[-1].target)} ({call})"
    for fact in facts:
        if isinstance(fact, ApprovalAnswered) and fact.question == asked[-1].question:
            return _state_error(run, call, f"{about} is already answered: {fact.answer} by {fact.by}", "closed")
    return _state_error(run, call, f"{about} is no longer asked: the run went on without an answer", "stale")


def _state_error(run: str, call: str, message: str, actual: str, hint: str | None = None) -> RequestError:
    fields = {"run": run, "subject": call, "expected": "open", "actual": actual}
    return RequestError("run.invalid_state", message, hint=hint, fields=fields)
