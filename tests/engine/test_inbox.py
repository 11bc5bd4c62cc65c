"""A run that takes the messages in its inbox, at moments that a test with two processes cannot choose."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import ApprovalAnswer, ApprovalAnswered, CancelRequested, MessageQueued
from agentrun.core.messages import user_message
from agentrun.core.outcome import Question
from agentrun.engine.approvals import NO_ANSWER, PresetApprover
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.host_ports import providers_by_name
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun, run_in_world
from agentrun.files import ProjectTree
from agentrun.store.inbox import Inbox
from agentrun.testing import calls, scripted, stub

from .memory_runtime import ASKING_AGENT
from .memory_worlds import Place

RUN = "r1"


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    (tmp_path / "inbox").mkdir()
    return Inbox(ProjectTree(tmp_path, "run", private=True), tmp_path / "inbox", RUN)


class Asked:
    """An approver that knows no answer, and leaves messages when it is asked."""

    def __init__(self, inbox: Inbox, *answers: Any) -> None:
        self._inbox = inbox
        self._answers = answers

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        for answer, by in self._answers:
            self._inbox.leave(RUN, ApprovalAnswered(question.subject, question.question, answer, by))
        return NO_ANSWER


def run(inbox: Inbox, approver: Any, **parts: Any) -> tuple[FinishedRun, Any]:
    async def begin() -> tuple[FinishedRun, Any]:
        pay = stub("paid")
        model = scripted(calls("pay", q="x"), "Done.", "Again.")
        ports: dict[str, Any] = {"providers": providers_by_name(ASKING_AGENT, model), "executors": {"pay": pay}}
        given: dict[str, Any] = {
            "suspends": True,
            "inbox": inbox,
            "clock": SystemClock(),
            "approver": approver,
            **parts,
        }
        world = Place(run=RUN, **ports, **given).world
        file = seal_package(ASKING_AGENT)
        request = Request(agent=file.agent.name, package=file, message="Hi.", run=RUN)
        return await run_in_world(world, request), pay

    return asyncio.run(begin())


def answers(done: FinishedRun) -> list[tuple[str, str]]:
    facts = (record.fact for record in done.journal)
    return [(fact.answer, fact.by) for fact in facts if isinstance(fact, ApprovalAnswered)]


def test_question_without_an_answer_suspends_the_run(inbox: Inbox) -> None:
    done, pay = run(inbox, Asked(inbox))
    assert done.ending.status == "suspended"
    assert (len(done.ending.questions), answers(done), pay.calls) == (1, [], [])


def test_world_that_cannot_wait_has_no_answer(inbox: Inbox) -> None:
    done, pay = run(inbox, Asked(inbox), suspends=False)
    assert done.ending.is_finished
    assert (answers(done), pay.calls) == ([NO_ANSWER], [])


@pytest.mark.parametrize("answer", ["approved", "denied"])
def test_answer_that_comes_while_the_run_is_being_suspended_continues_it(inbox: Inbox, answer: str) -> None:
    """The second one is refused and removed."""
    done, pay = run(inbox, Asked(inbox, (answer, "ada"), ("approved", "bob")))
    assert (done.ending.answer, answers(done)) == ("Done.", [(answer, "ada")])
    assert (len(pay.calls), inbox.messages()) == (int(answer == "approved"), [])


def test_second_answer_is_removed_when_its_sender_can_read_the_first_one(inbox: Inbox) -> None:
    """Both are found at once, while a person is asked at a terminal."""
    journals, seen = MemoryJournals(), []

    class Watched(Inbox):
        def remove(self, id: str) -> None:
            facts = (record.fact for record in journals.records(RUN))
            seen.append([fact.by for fact in facts if isinstance(fact, ApprovalAnswered)])
            super().remove(id)

    class Prompt(Asked):
        async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
            await super().answer(question)
            await asyncio.Event().wait()
            raise AssertionError("the question is dropped")

    watched = Watched(inbox._tree, inbox._directory, RUN)
    done, pay = run(watched, Prompt(inbox, ("approved", "ada"), ("denied", "bob")), journals=journals)
    assert (answers(done), len(pay.calls)) == ([("approved", "ada")], 1)
    assert seen == [["ada"], ["ada"]]


def test_message_that_is_left_before_the_run_begins_is_taken(inbox: Inbox) -> None:
    inbox.leave(RUN, MessageQueued("", user_message("More.")))
    done, _ = run(inbox, Asked(inbox, ("approved", "ada")))
    assert (done.ending.answer, inbox.messages()) == ("Again.", [])


def test_cancellation_in_the_inbox_ends_a_run_that_would_be_suspended(inbox: Inbox) -> None:
    class Cancels(Asked):
        async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
            inbox.leave(RUN, CancelRequested("ada"))
            return await super().answer(question)

    done, pay = run(inbox, Cancels(inbox))
    assert (done.ending.code, done.ending.fields["by"], pay.calls) == ("cancelled", "ada", [])


def test_inbox_that_cannot_be_read_does_not_stop_the_run(inbox: Inbox, tmp_path: Path) -> None:
    (tmp_path / "inbox").rmdir()
    (tmp_path / "inbox").symlink_to(tmp_path)
    done, _ = run(inbox, PresetApprover({"pay": "approved"}, "ada"))
    assert done.ending.answer == "Done."
