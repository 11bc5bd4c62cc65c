"""`agentrun approvals`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from shlex import quote
from typing import Any

import click
from msgspec import UNSET, Struct

from agentrun.cli.approval_prompt import build_approval_question
from agentrun.cli.console import json_line, json_option, print_stderr
from agentrun.cli.run_files import working_project
from agentrun.core.evolve import fold
from agentrun.core.facts import ApprovalAsked, RunStarted
from agentrun.core.outcome import Question
from agentrun.credentials import hidden_secrets
from agentrun.engine.answers import open_questions, package_of_run
from agentrun.engine.approvals import DetailedQuestion, add_details
from agentrun.errors import AgentrunError
from agentrun.report.approval_question import short_question_lines
from agentrun.report.formatting import format_time
from agentrun.report.screen import SafeStream
from agentrun.store.files import FileStore
from agentrun.store.index import RunFilter, RunIndex
from agentrun.store.run_ids import root_run

PIPE_WIDTH = 100
"""Columns if the output is not a terminal."""
ANY_HEIGHT = 10**9
SHOWN_HASH_LENGTH = 16


class WaitingQuestion(Struct, frozen=True):
    run: str
    agent: str
    """The agent that the user started."""
    question: DetailedQuestion
    asked: int
    """Milliseconds since 1970."""


@click.command("approvals")
@json_option
def command(as_json: bool) -> int:
    """List the approvals that runs wait for, with exactly what would run. The oldest question is first.

    This includes questions that a process asks at a terminal at this moment: the first answer counts.

    \b
    Examples:
      agentrun approvals
      agentrun approvals --json | jq -r '"agentrun approve \\(.run) \\(.call) --question \\(.question)"'
    """
    store = FileStore(working_project())
    found = sorted(_waiting_questions(store), key=lambda each: (each.asked, each.run, each.question.subject))
    for waiting in found:
        if as_json:
            click.echo(json_line(_json_object(waiting)))
        else:
            click.echo(hidden_secrets.redactor.redact_text("\n".join(_text_lines(waiting))))
    if not found and not as_json:
        print_stderr("nothing waits for an approval")
    return 0


def _waiting_questions(store: FileStore) -> Iterator[WaitingQuestion]:
    wanted = RunFilter(status=("running", "waiting", "interrupted"), sub_agents=True)
    unfinished = {summary.run for summary in RunIndex(store.project).select(wanted)}
    for run in sorted(unfinished):
        if root_run(run) in unfinished:
            try:
                yield from _questions_of(store, run)
            except AgentrunError as error:  # the other runs can still be answered
                print_stderr(f"{run}: {error.code}: agentrun verify {run} says more")


def _questions_of(store: FileStore, run: str) -> Iterator[WaitingQuestion]:
    questions = open_questions(store, run)
    if not questions:
        return
    records, package = store.records(run), package_of_run(store, run)
    asked = {record.fact.question: record.at for record in records if isinstance(record.fact, ApprovalAsked)}
    started = fold(records).started
    programs = {} if started.programs is UNSET else started.programs
    agent = _root_agent(store, run)
    for question in questions:
        yield WaitingQuestion(run, agent, add_details(package, programs, question), asked[question.question])


def _root_agent(store: FileStore, run: str) -> str:
    first = store.records(root_run(run))[0].fact
    return first.agent if isinstance(first, RunStarted) else ""


def _json_object(waiting: WaitingQuestion) -> dict[str, Any]:
    question: Question = waiting.question
    time = datetime.fromtimestamp(waiting.asked / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "run": waiting.run,
        "call": question.subject,
        "tool": question.target,
        "arguments": question.value,
        "rule": ", ".join(question.rules) or None,
        "reason": question.reason,
        "question": question.question,
        "asked": time.replace("+00:00", "Z"),
    }


def _text_lines(waiting: WaitingQuestion) -> Iterator[str]:
    width = SafeStream(sys.stdout).size()[0] - 1 if sys.stdout.isatty() else PIPE_WIDTH
    shown = build_approval_question(waiting.question, waiting.agent)
    subject = quote(waiting.question.subject)
    bound = f"--question {waiting.question.question.removeprefix('sha256:')[:SHOWN_HASH_LENGTH]}"
    yield f"{waiting.run} of {waiting.agent}, {waiting.question.subject}, asked at {format_time(waiting.asked)}"
    for line in short_question_lines(shown, width, ANY_HEIGHT, 0):
        yield line.text
    yield f"  → agentrun approve {waiting.run} {subject} {bound}"
    yield f"  → agentrun deny {waiting.run} {subject} {bound} --reason TEXT"
