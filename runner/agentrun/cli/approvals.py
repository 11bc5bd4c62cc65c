"""`agentrun approvals`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from shlex import quote
from typing import Any

import click

from agentrun.cli.approval_prompt import build_approval_question
from agentrun.cli.console import json_line, json_option, print_stderr
from agentrun.cli.run_files import working_project
from agentrun.core.outcome import Question
from agentrun.credentials import hidden_secrets
from agentrun.engine.waiting_questions import WaitingQuestion, list_waiting_questions
from agentrun.errors import AgentrunError
from agentrun.report.approval_question import short_question_lines
from agentrun.report.formatting import format_time
from agentrun.report.screen import SafeStream
from agentrun.store.files import FileStore

PIPE_WIDTH = 100
"""Columns if the output is not a terminal."""
ANY_HEIGHT = 10**9
SHOWN_HASH_LENGTH = 16


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
    found = list_waiting_questions(FileStore(working_project()), _report_damage)
    for waiting in found:
        if as_json:
            click.echo(json_line(_json_object(waiting)))
        else:
            click.echo(hidden_secrets.redactor.redact_text("\n".join(_text_lines(waiting))))
    if not found and not as_json:
        print_stderr("nothing waits for an approval")
    return 0


def _report_damage(run: str, error: AgentrunError) -> None:
    print_stderr(f"{run}: {error.code}: agentrun verify {run} says more")


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
