"""`ask_hook`: answers, exceptions, timeouts and invalid answers of hooks."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.core.facts import Continue, Deny, HookAnswered, HookFailure, Inject, Modify
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.hooks import HookQuestion, ask_hook
from agentrun.engine.world import world_of_run

from .memory_worlds import Place, hook


def answer_of_hook(function: Callable[[Any], Any], place: Place | None = None, **changes: Any) -> HookAnswered:
    place = place or Place()
    world = world_of_run(Place(clock=place.clock, hooks={"careful": function}).world, "run-1")
    return place.clock.run(ask_hook(world, hook(**changes)))


def test_hook_gets_the_question_and_its_answer_is_recorded() -> None:
    seen: list[HookQuestion] = []

    def careful(question: HookQuestion) -> Deny:
        seen.append(question)
        return Deny("too much")

    assert answer_of_hook(careful) == HookAnswered(
        "h.1", "careful", "before_tool", "c1.0", Deny("too much"), closes=True
    )
    assert seen == [HookQuestion("run-1", "before_tool", "c1.0", "refund", {"amount": 10}, effect="h.1")]


@pytest.mark.parametrize(
    ("point", "value", "answer"),
    [
        ("before_tool", {"amount": 1}, Continue()),
        ("before_tool", {"amount": 1}, Modify({"amount": 2})),
        ("on_input", "hello", Inject("be brief")),
        ("after_tool", "text", Modify("another")),
    ],
)
def test_hook_may_be_a_function_a_coroutine_or_a_callable_object(point: str, value: Any, answer: Any) -> None:
    async def later(question: HookQuestion) -> Any:
        return answer

    class Callable:
        async def __call__(self, question: HookQuestion) -> Any:
            return answer

    for function in (lambda question: answer, later, Callable()):
        given = answer_of_hook(function, at=point, value=value)
        assert (given.answer, given.closes) == (answer, False)


@pytest.mark.parametrize("error", [ValueError("with a secret"), TimeoutError("its own"), SystemExit(1)])
@pytest.mark.parametrize(
    ("point", "on_failure", "closes"),
    [
        ("after_tool", "deny", True),
        ("after_tool", "continue", False),
        ("before_tool", "deny", True),
        ("before_tool", "continue", True),
    ],
)
def test_hook_that_raises_follows_on_failure(error: BaseException, point: str, on_failure: str, closes: bool) -> None:
    def careful(question: HookQuestion) -> None:
        raise error

    given = answer_of_hook(careful, at=point, on_failure=on_failure)
    assert given.closes == closes
    assert isinstance(given.answer, HookFailure)
    assert given.answer.fault.code == "policy.denied"
    assert given.answer.fault.fields == {"hook": "careful", "reason": "exception", "error": type(error).__name__}
    assert "secret" not in given.answer.fault.message


@pytest.mark.parametrize(("wait", "late"), [(1000, False), (1001, True)])
def test_hook_that_takes_too_long_fails(wait: int, late: bool) -> None:
    place = Place()

    async def careful(question: HookQuestion) -> Continue:
        await place.clock.sleep_until(place.clock.now() + wait)
        return Continue()

    given = answer_of_hook(careful, place)
    assert given.closes == late
    if late:
        assert isinstance(given.answer, HookFailure)
        assert given.answer.fault.fields == {"hook": "careful", "reason": "timeout", "limit": 1000}


@pytest.mark.parametrize("rubbish", [None, True, "deny", Inject("not here"), Modify("a text")])
def test_answer_not_allowed_at_the_point_is_a_failure(rubbish: Any) -> None:
    given = answer_of_hook(lambda question: rubbish)
    assert given.closes
    assert isinstance(given.answer, HookFailure)


@pytest.mark.parametrize("value", [{"amount": object()}, {"text": "\ud800"}])
def test_answer_that_cannot_be_journaled_is_a_failure(value: Any) -> None:
    given = answer_of_hook(lambda question: Modify(value))
    assert given.closes
    assert isinstance(given.answer, HookFailure)
    assert given.answer.fault.fields == {"hook": "careful", "reason": "answer"}


def test_hook_cannot_change_what_it_is_asked_about() -> None:
    arguments = {"order": {"amount": 10}}

    def sly(question: HookQuestion) -> Continue:
        question.value["order"]["amount"] = 10_000
        return Continue()

    answer_of_hook(sly, value=arguments)
    assert arguments == {"order": {"amount": 10}}


def test_plain_hook_runs_in_a_thread() -> None:
    """A hook that blocks does not block the others."""
    threads: list[int] = []

    def careful(question: HookQuestion) -> Continue:
        threads.append(threading.get_ident())
        return Continue()

    world = Place(clock=SystemClock(), hooks={"careful": careful}).world
    assert asyncio.run(ask_hook(world, hook())).answer == Continue()
    assert threads != [threading.get_ident()]
