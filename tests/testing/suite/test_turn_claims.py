"""Assertions of single turns of a conversation."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.spec.v1.assertions import Contains, OutcomeIs, ToolCalls
from agentrun.spec.v1.cases import FaultAt, Inject, Turn
from agentrun.testing.suite.evaluate import evaluate
from agentrun.testing.suite.found import Found, read
from agentrun.testing.suite.played import Played, play
from agentrun.testing.suite.prepared import Preparations, Prepared
from agentrun.testing.suite.snapshots import accepted

CASES = Path(__file__).parents[3] / "specs" / "support.cases.yaml"
REFUNDS = ToolCalls(tool="refund", value=1)
NO_REFUNDS = ToolCalls(tool="refund", value=0)
ENDED_BEFORE = "turn 2: the conversation ended before it"


@pytest.mark.parametrize(
    ("first", "second", "complaints"),
    [
        ([REFUNDS], [], []),
        ([NO_REFUNDS], [], [("tool-calls", "turn 1: 1 call of refund made; wanted: exactly 0 calls")]),
        (
            [replace(REFUNDS, negated=True)],
            [],
            [("not-tool-calls", "turn 1: 1 call of refund made; wanted: not exactly 1 call")],
        ),
        ([], [Contains(value="x")], [("contains", "turn 2: the conversation ended before it")]),
        ([], [Contains(value="x", negated=True)], [("not-contains", "turn 2: the conversation ended before it")]),
    ],
)
def test_turns(first: list[Any], second: list[Any], complaints: list[tuple[str, str]]) -> None:
    """A conversation that comes no further than its first turn, as is said of it."""
    default = next(each for each in read(CASES) if each.case.name == "default")
    turns: list[str | Turn] = [Turn(input="a", claims=first), Turn(input="b", claims=second)]
    talk = replace(default, case=replace(default.case, turns=turns, claims=[OutcomeIs(value="completed")]))

    def once(found: Found, prepared: Prepared) -> Played:
        return play(default, prepared)

    verdict = evaluate(talk, Preparations(), accepted, once)
    assert [(each.claim, each.message) for each in verdict.complaints] == complaints


@pytest.mark.parametrize(
    ("claims", "complaints"),
    [
        ([[OutcomeIs(value="provider.fatal")], []], []),
        ([[], []], ["the outcome is provider.fatal, not completed"]),
        ([[], [OutcomeIs(value="completed")]], ["the outcome is provider.fatal, not completed", ENDED_BEFORE]),
        ([[OutcomeIs(value="completed")], []], ["turn 1: the outcome is provider.fatal, not completed"]),
    ],
)
def test_the_turn_that_ends_a_conversation_may_say_how(claims: list[list[Any]], complaints: list[str]) -> None:
    default = next(each for each in read(CASES) if each.case.name == "default")
    turns: list[str | Turn] = [Turn(input="a", claims=claims[0]), Turn(input="b", claims=claims[1])]
    broken = FaultAt(at="model#1", inject=Inject(status=401, times=2))
    once = replace(default, case=replace(default.case, faults=[broken], claims=[]))
    talk = replace(default, case=replace(default.case, turns=turns, claims=[]))
    verdict = evaluate(talk, Preparations(), accepted, lambda _, prepared: play(once, prepared))
    assert [each.message for each in verdict.complaints] == complaints
