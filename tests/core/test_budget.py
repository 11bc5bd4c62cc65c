"""Tokens: reserved before a call, settled after it."""

import pytest

from agentrun.core import decide as module
from agentrun.core.budget import estimated, reservation, settled
from agentrun.core.evolve import fold
from agentrun.core.facts import Fault, ModelAsked
from agentrun.core.messages import Assistant, Refusal, Text, ToolCall, ToolResult, Usage, User

from ..packages import package, typed
from ..worlds import BAD, GOOD
from .script import STARTED, Run, records, said


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (User(()), 4),
        (User((Text("a"),)), 5),
        (User((Text("abc"),)), 5),
        (User((Text("abcd"),)), 6),
        (User((Text("ää"),)), 6),
        (User((Text("abc"), Text("abc"))), 6),
        (Assistant((Refusal("abc"), ToolCall("c1.0", "ab", "{}"))), 7),
        (ToolResult("c1.0", (Text("\ud800"),)), 5),
    ],
)
def test_estimate(message: User | Assistant | ToolResult, tokens: int) -> None:
    assert estimated(message) == tokens


def test_reservation() -> None:
    state = fold(records([STARTED]))
    bare = reservation(package(), state)
    assert bare == 4 + 5 + 4 + 3, "instructions and input"
    assert reservation(package(model={"max_output_tokens": 100}), state) == bare + 100
    assert reservation(package(output={"schema": {"a": 1}}), state) == bare + 3


def test_settled() -> None:
    assert settled(Usage(20, 5, 3, 2), 100) == 25
    for unknown in (None, Usage(), Usage(input=20), Usage(output=5)):
        assert settled(unknown, 100) == 100, "never 0"


def needed(*facts_before: str) -> int:
    """The limit with which a run of these answers just comes to its end."""
    run = Run(typed(), *(said(answer) for answer in facts_before))
    run.finish()
    asked = [fact for fact in run.facts if isinstance(fact, ModelAsked)]
    return 25 * (len(asked) - 1) + asked[-1].reserved


@pytest.mark.parametrize("answers", [(GOOD,), (BAD, GOOD), (BAD, BAD, GOOD)])
def test_limit(answers: tuple[str, ...]) -> None:
    limit = needed(*answers)
    replies = [said(answer) for answer in answers]
    assert Run(typed(budgets={"tokens": limit}), *replies).finish().status == "completed"
    run = Run(typed(budgets={"tokens": limit - 1}), *replies)
    outcome = run.finish()
    used = 25 * (len(answers) - 1)
    assert (outcome.status, outcome.code, outcome.exit_code) == ("failed", "budget.tokens", 5)
    assert outcome.fields == {"used": used, "reserved": limit - used, "limit": limit - 1}
    assert len(run.requests) == len(answers) - 1, "the call that might overshoot is not made"


def test_limit_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the reservation the call is made."""
    monkeypatch.setattr(module, "reservation", lambda package, state: 0)
    assert Run(typed(budgets={"tokens": 1}), said(GOOD)).finish().status == "completed"


def test_unreported_usage_counts_as_reserved() -> None:
    run = Run(typed(), said(BAD, usage=None), said(GOOD, usage=None))
    run.finish()
    asked = [fact for fact in run.facts if isinstance(fact, ModelAsked)]
    assert run.state.tokens == sum(fact.reserved for fact in asked)
    assert asked[1].reserved > asked[0].reserved, "the history is read again"


def test_overshooting_reply_is_kept() -> None:
    run = Run(typed(budgets={"tokens": 1000}), said(GOOD, usage=Usage(20, 5000, 0, 0)))
    assert run.finish().status == "completed"
    assert run.state.tokens == 5020


def test_failed_call_gives_its_reservation_back() -> None:
    run = Run(typed(), Fault("provider.fatal", "no"))
    run.finish()
    assert (run.state.reserved, run.state.tokens) == (0, 0)


def test_the_estimate_of_a_state_is_that_of_its_messages() -> None:
    run = Run(typed(), said(BAD), said(GOOD))
    run.finish()
    assert run.state.estimate == sum(map(estimated, run.state.transcript))
