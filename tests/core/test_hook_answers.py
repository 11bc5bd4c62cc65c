"""Hook answers: which are legal at which point, how illegal ones are treated, and the order of hooks."""

import itertools
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core import hook_answers as module
from agentrun.core.facts import Continue, Deny, HookAnswered, HookFailure, Inject, Modify
from agentrun.core.fault import Fault
from agentrun.core.hook_answers import LEGAL_ANSWERS, is_legal_answer, make_hook_answered
from agentrun.core.package import Hook, HookPoint, hooks_at

from ..packages import package
from .script import Run, calls_reply, hook, text_reply, tool

POINTS: tuple[HookPoint, ...] = get_args(HookPoint)
FAULT = Fault("internal", "it broke")
ANSWERS: dict[str, Any] = {
    "continue": Continue(),
    "failed": HookFailure(FAULT),
    "deny": Deny("no"),
    "modify": Modify("text"),
    "arguments": Modify({"q": "x"}),
    "inject": Inject("more"),
}
TABLE = {
    "on_input": {"continue", "failed", "deny", "modify", "inject"},
    "before_model": {"continue", "failed", "deny", "inject"},
    "after_model": {"continue", "failed", "deny", "modify"},
    "before_tool": {"continue", "failed", "deny", "arguments"},
    "after_tool": {"continue", "failed", "deny", "modify"},
    "on_output": {"continue", "failed", "deny", "modify", "inject"},
    "on_stop": {"continue", "failed"},
}


def at(point: str, **changes: Any) -> Hook:
    return package(hooks=[hook(point, **changes)]).hooks[0]


def test_every_hook_point_is_in_the_table() -> None:
    assert tuple(LEGAL_ANSWERS) == POINTS == tuple(TABLE)


@pytest.mark.parametrize(("point", "says"), list(itertools.product(POINTS, ANSWERS)))
def test_legal_answers_of_each_hook_point(point: HookPoint, says: str) -> None:
    assert is_legal_answer(point, ANSWERS[says]) == (says in TABLE[point])


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("foreign", [None, True, "continue", {"answer": "continue"}, Continue, 7])
def test_values_that_are_no_answer_are_failures(point: HookPoint, foreign: object) -> None:
    assert not is_legal_answer(point, foreign)
    fact = make_hook_answered("h", at(point), "s", foreign)
    assert fact.closes == (point != "on_stop")
    assert fact.answer == HookFailure(
        Fault(
            "policy.denied",
            f"the hook watch returned {type(foreign).__name__}, which is not an answer at {point}",
            {"hook": "watch", "point": point},
        )
    )


@pytest.mark.parametrize(("point", "says"), list(itertools.product(POINTS, ANSWERS)))
@pytest.mark.parametrize("on_failure", ["deny", "continue"])
def test_denial_and_failure_close_unless_on_failure_is_continue(point: HookPoint, says: str, on_failure: str) -> None:
    """A denial closes. So does a failure, or an answer that is not legal, unless the hook was declared otherwise
    and is not asked before a tool call."""
    fact = make_hook_answered("h", at(point, on_failure=on_failure), "s", ANSWERS[says])
    legal = says in TABLE[point]
    is_failure = says == "failed" or not legal
    is_ignored = point == "on_stop" or (on_failure == "continue" and point != "before_tool")
    closes = (legal and says == "deny") or (is_failure and not is_ignored)
    assert (fact.effect, fact.hook, fact.point, fact.subject, fact.closes) == ("h", "watch", point, "s", closes)
    assert fact.answer == ANSWERS[says] if legal else isinstance(fact.answer, HookFailure)
    assert is_legal_answer(point, fact.answer), "what is written can be folded"


def test_planted_legality_check_lets_a_wrong_answer_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything legal, an answer of the wrong form goes through."""
    monkeypatch.setattr(module, "is_legal_answer", lambda point, answer: True)
    assert not make_hook_answered("h", at("before_tool"), "s", Modify("text")).closes


@given(st.permutations([("b", 0), ("a", 1), ("c", 0), ("d", -1), ("a2", 1)]))
def test_hooks_are_sorted_by_order_then_id(named: list[tuple[str, int]]) -> None:
    """By order, then by id, whatever the order in the package."""
    given = package(hooks=[hook("on_stop", id="z"), *[hook("on_input", id=id, order=order) for id, order in named]])
    assert [each.id for each in hooks_at(given, "on_input")] == ["d", "b", "c", "a", "a2"]
    assert [each.id for each in hooks_at(given, "on_stop")] == ["z"]
    assert hooks_at(given, "on_output") == ()


def test_hooks_of_a_run_are_asked_in_order() -> None:
    given = package(
        tools={"search": tool()},
        policy={"default": "allow"},
        hooks=[hook("before_tool", id="b", order=1), hook("before_tool", id="a", order=2), hook("on_stop", id="c")],
    )
    run = Run(given, calls_reply("search"), text_reply("Yes."))
    run.finish()
    assert [fact.hook for fact in run.of(HookAnswered)] == ["b", "a", "c"]


def test_first_denial_skips_the_remaining_hooks() -> None:
    given = package(
        tools={"search": tool()},
        policy={"default": "allow"},
        hooks=[hook("before_tool", id="a"), hook("before_tool", id="b")],
    )
    run = Run(given, calls_reply("search"), text_reply("Yes."), hooks={"a": Deny("never")})
    run.finish()
    assert [fact.hook for fact in run.of(HookAnswered)] == ["a"]
    assert run.ran == []
