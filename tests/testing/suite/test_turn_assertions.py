"""Assertions of single turns of a conversation."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.spec.v1.assertions import Contains, OutcomeIs, ToolCalls
from agentrun.spec.v1.cases import CaseTurn, FaultInjectionSpec, InjectedFaultSpec
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.evaluation import evaluate_case
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent, CompiledAgents, replay_case
from agentrun.testing.suite.snapshots import accepted_snapshots

CASES = Path(__file__).parents[3] / "specs" / "support.cases.yaml"
REFUNDS = ToolCalls(tool="refund", value=1)
NO_REFUNDS = ToolCalls(tool="refund", value=0)
ENDED_BEFORE = "turn 2: the conversation ended before this turn"


@pytest.mark.parametrize(
    ("first", "second", "failures"),
    [
        ([REFUNDS], [], []),
        ([NO_REFUNDS], [], [("tool-calls", "turn 1: 1 call of refund made; expected: exactly 0 calls")]),
        (
            [replace(REFUNDS, negated=True)],
            [],
            [("not-tool-calls", "turn 1: 1 call of refund made; expected: not exactly 1 call")],
        ),
        ([], [Contains(value="x")], [("contains", "turn 2: the conversation ended before this turn")]),
        (
            [],
            [Contains(value="x", negated=True)],
            [("not-contains", "turn 2: the conversation ended before this turn")],
        ),
    ],
)
def test_turn_assertions_of_a_conversation_that_ended_early(
    first: list[Any], second: list[Any], failures: list[tuple[str, str]]
) -> None:
    """A conversation that comes no further than its first turn, as is said of it."""
    default = next(each for each in read_located_cases(CASES) if each.case.name == "default")
    turns: list[str | CaseTurn] = [CaseTurn(input="a", assertions=first), CaseTurn(input="b", assertions=second)]
    talk = replace(default, case=replace(default.case, turns=turns, assertions=[OutcomeIs(value="completed")]))

    def once(found: LocatedCase, prepared: CompiledAgent) -> CaseRuns:
        return replay_case(default, prepared)

    verdict = evaluate_case(talk, CompiledAgents(), accepted_snapshots, once)
    assert [(each.assertion, each.message) for each in verdict.failures] == failures


@pytest.mark.parametrize(
    ("assertions", "failures"),
    [
        ([[OutcomeIs(value="provider.fatal")], []], []),
        ([[], []], ["the outcome is provider.fatal, not completed"]),
        ([[], [OutcomeIs(value="completed")]], ["the outcome is provider.fatal, not completed", ENDED_BEFORE]),
        ([[OutcomeIs(value="completed")], []], ["turn 1: the outcome is provider.fatal, not completed"]),
    ],
)
def test_last_turn_may_assert_the_failed_outcome(assertions: list[list[Any]], failures: list[str]) -> None:
    default = next(each for each in read_located_cases(CASES) if each.case.name == "default")
    turns: list[str | CaseTurn] = [
        CaseTurn(input="a", assertions=assertions[0]),
        CaseTurn(input="b", assertions=assertions[1]),
    ]
    broken = FaultInjectionSpec(at="model#1", inject=InjectedFaultSpec(status=401, times=2))
    once = replace(default, case=replace(default.case, faults=[broken], assertions=[]))
    talk = replace(default, case=replace(default.case, turns=turns, assertions=[]))
    verdict = evaluate_case(talk, CompiledAgents(), accepted_snapshots, lambda _, prepared: replay_case(once, prepared))
    assert [each.message for each in verdict.failures] == failures
