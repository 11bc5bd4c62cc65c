"""The approvals that the runs of a store wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import UNSET, Struct

from agentrun.core.evolve import fold
from agentrun.core.facts import ApprovalAsked, RunStarted
from agentrun.engine.answers import open_questions, package_of_run
from agentrun.engine.approvals import DetailedQuestion, add_details
from agentrun.errors import AgentrunError
from agentrun.store.files import FileStore
from agentrun.store.index import RunFilter, RunIndex
from agentrun.store.run_ids import root_run


class WaitingQuestion(Struct, frozen=True):
    """An approval that a run waits for."""

    run: str
    agent: str
    """The agent that the user started."""
    question: DetailedQuestion
    asked: int
    """Milliseconds since 1970."""


def list_waiting_questions(
    store: FileStore, damaged: Callable[[str, AgentrunError], None] = lambda run, error: None
) -> list[WaitingQuestion]:
    """All open questions, the oldest first, including those that a process asks at a terminal. `damaged`: called for a
    run that cannot be read."""
    return sorted(_find(store, damaged), key=lambda each: (each.asked, each.run, each.question.subject))


def _find(store: FileStore, damaged: Callable[[str, AgentrunError], None]) -> Iterator[WaitingQuestion]:
    wanted = RunFilter(status=("running", "waiting", "interrupted"), sub_agents=True)
    unfinished = {summary.run for summary in RunIndex(store.project).select(wanted)}
    for run in sorted(unfinished):
        if root_run(run) in unfinished:
            try:
                yield from _questions_of(store, run)
            except AgentrunError as error:  # the other runs can still be answered
                damaged(run, error)


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
