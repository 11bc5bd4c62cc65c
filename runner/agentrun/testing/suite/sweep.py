"""Every fault at every place of a case, and what must hold all the same.

    for result in swept(found, prepared):
        print(result.yaml, result.ending, result.violations)

Rule 1  The places are those that the case itself comes to. It is replayed as it is first, and must fit its recording.
Rule 2  After a fault a run may ask what is not on the tape. A model, a hook or a sink then gives the recorded reply
        that is next in line; anything else ends the run with `cassette.miss`. Nothing is executed, and there is no
        network.
Rule 3  How a run ends under a fault is not judged: only what `invariants.py` says of every run, and that it is no
        mistake of ours that ends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, to_builtins

from agentrun.canonical_json import sorted_json
from agentrun.cassette.interactions import Cassette
from agentrun.cassette.player import LenientPlayer
from agentrun.cassette.redaction import RunRedaction
from agentrun.core.facts import ChildStarted, Record, RunStopped
from agentrun.core.outcome import Outcome, Suspended
from agentrun.core.package import Package
from agentrun.core.package_lookup import find_tool
from agentrun.core.package_tools import HttpTool
from agentrun.engine.run import FinishedRun, journal_run_id
from agentrun.errors import CassetteError
from agentrun.spec.v1.assertions import ApprovalAnswerSpec
from agentrun.spec.v1.cases import FaultInjectionSpec, InjectedFaultSpec
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.failure_text import run_story
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.testing.suite.invariants import broken_invariants, check_calls_journaled
from agentrun.testing.suite.replay import (
    CaseRuns,
    CompiledAgent,
    is_rest_of_shared_cassette,
    make_case_player,
    replay_case,
)
from agentrun.testing.suite.stubs_and_faults import FaultPlace

SWEEP_MESSAGE = "injected by the sweep"
NOT_APPROVED: tuple[ApprovalAnswerSpec, ...] = ("denied", "timed_out", "unavailable", "cancelled")


class SweepResult(Struct, frozen=True, kw_only=True):
    """What came of a case under one fault."""

    case: str
    """`specs/support.cases.yaml::default`"""
    fault: FaultInjectionSpec
    yaml: str
    """The fault as an item of `faults:`, to be put into the case."""
    ending: str
    """`completed`, `suspended`, or the code that it stopped with."""
    violations: tuple[str, ...] = ()
    """What must always hold and did not, in words."""
    story: str = ""
    """The run as it went, if something did not hold."""


class SweepReport(Struct, frozen=True, kw_only=True):
    """What came of a case under every fault."""

    case: str
    tried: int
    violations: tuple[SweepResult, ...]
    endings: dict[str, int]
    """How often it ended in which way, the most frequent first."""


def sweep(
    found: LocatedCase, prepared: CompiledAgent, on_result: Callable[[SweepResult], None] = lambda result: None
) -> SweepReport:
    """Try all, and sum it up. `on_result`: told of each as it is there. Raises as `sweep_results` does."""
    results = []
    for result in sweep_results(found, prepared):
        on_result(result)
        results.append(result)
    counts = Counter(result.ending for result in results)
    return SweepReport(
        case=found.id,
        tried=len(results),
        violations=tuple(result for result in results if result.violations),
        endings=dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))),
    )


def sweep_results(found: LocatedCase, prepared: CompiledAgent) -> Iterator[SweepResult]:
    """Try every fault at every place of a case.

    Raises what keeps the case from being replayed as it is: `cassette.miss`, `cassette.damaged`, `cassette.unused`, and
    whatever a run may not start for. What goes wrong under a fault is in its result.
    """
    tape = prepared.load_cassette(found)
    clean, places = _run_without_fault(found, prepared, tape)
    agents = {path: agent for run in clean for path, agent, _ in _agent_journals(prepared.file.agent, run)}
    for place in places:
        for inject in fault_variants(place, agents[place.run_path.path]):
            yield _run_with_fault(FaultInjectionSpec(at=place.at, inject=inject), found, prepared, tape)


def fault_variants(place: FaultPlace, package: Package) -> Iterator[InjectedFaultSpec]:
    """What can go wrong at a place. `package`: of the agent that comes to it."""
    match place.kind:
        case "model":
            yield InjectedFaultSpec(status=429)
            if package.retry.attempts > 1:
                yield InjectedFaultSpec(status=429, times=min(package.retry.attempts, 1000))
            yield InjectedFaultSpec(status=500)
            yield InjectedFaultSpec(refused=True)
            yield InjectedFaultSpec(timeout=True)
            for after in sorted({0, place.pieces // 2, place.pieces}):
                yield InjectedFaultSpec(cut_after_chunk=after)
            yield InjectedFaultSpec(empty=True)
        case "tool":
            yield from (
                InjectedFaultSpec(timeout=True),
                InjectedFaultSpec(error=SWEEP_MESSAGE),
                InjectedFaultSpec(fatal=SWEEP_MESSAGE),
            )
            if isinstance(find_tool(package, place.name), HttpTool):
                yield from (InjectedFaultSpec(status=500), InjectedFaultSpec(refused=True))
        case "approval":
            yield from (InjectedFaultSpec(answer=answer) for answer in NOT_APPROVED)
        case "hook" | "sink":
            yield from (InjectedFaultSpec(error=SWEEP_MESSAGE), InjectedFaultSpec(timeout=True))


def _run_without_fault(
    found: LocatedCase, prepared: CompiledAgent, tape: Cassette
) -> tuple[tuple[FinishedRun, ...], tuple[FaultPlace, ...]]:
    """The runs of a case without any further fault, and where they came to."""
    player = make_case_player(found, prepared, tape)
    laid = FaultInjection(found.case, player, watched=True)
    played = replay_case(found, prepared, player, laid)
    if played.any_error is not None and not is_rest_of_shared_cassette(found, played.any_error):
        raise played.any_error
    end = played.runs[-1].ending
    if isinstance(end, Outcome) and end.fault is not None and end.fault.code.startswith("cassette."):
        raise CassetteError(end.fault.code, end.fault.message, hint=end.fault.hint, fields=end.fault.fields)
    return played.runs, laid.places


def _run_with_fault(
    fault: FaultInjectionSpec, found: LocatedCase, prepared: CompiledAgent, tape: Cassette
) -> SweepResult:
    rules = prepared.file.agent.replay
    player = LenientPlayer(tape, volatile=rules.volatile, redaction=RunRedaction(rules.redact))
    laid = FaultInjection(found.case, player, (fault,))
    played = replay_case(found, prepared, player, laid)
    violations = tuple(_iter_violations(prepared.file.agent, played, laid.tool_runs))
    if not laid.was_triggered(fault):
        violations = (*violations, f"the run no longer comes to {fault.at}")
    return SweepResult(
        case=found.id,
        fault=fault,
        yaml=fault_yaml(fault),
        ending=_outcome_code(played),
        violations=violations,
        story=run_story(prepared, played) if violations else "",
    )


def fault_yaml(fault: FaultInjectionSpec) -> str:
    """The fault as an item of `faults:`."""
    inject = to_builtins(fault.inject)
    if inject.get("times") == 1:
        del inject["times"]
    return "- " + sorted_json({"at": fault.at, "inject": inject}).decode()


def _outcome_code(played: CaseRuns) -> str:
    if played.start_error is not None:
        return played.start_error.code
    end = played.runs[-1].ending
    return "suspended" if not isinstance(end, Outcome) else end.code or "completed"


def find_violations(prepared: CompiledAgent, played: CaseRuns) -> tuple[str, ...]:
    """What must always hold and did not in runs that are there already."""
    return tuple(_iter_violations(prepared.file.agent, played, {}))


def _iter_violations(package: Package, played: CaseRuns, carried_out: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for run in played.runs:
        waits = not isinstance(run.ending, Outcome)
        if isinstance(run.ending, Outcome) and run.ending.fault is not None and run.ending.code == "internal":
            yield f"the run ended with internal: {run.ending.fault.message}"
        if isinstance(run.ending, Suspended) and not (run.ending.questions or run.ending.waits_for):
            yield "the run waits, and for nobody"
        for path, agent, records in _agent_journals(package, run):
            asleep = waits and not (path and isinstance(records[-1].fact, RunStopped))
            calls = {call: times for (whose, call), times in carried_out.items() if whose == journal_run_id(records)}
            found = (*broken_invariants(agent, records, waits=asleep), *check_calls_journaled(records, calls))
            yield from (f"{path}: {each}" if path else each for each in found)


def _agent_journals(package: Package, run: FinishedRun) -> Iterator[tuple[str, Package, Sequence[Record]]]:
    """A run and the sub-agents below it that began: their paths, agents and journals."""
    root = journal_run_id(run.journal)

    def below(agent: Package, records: Sequence[Record]) -> Iterator[tuple[str, Package, Sequence[Record]]]:
        for name, tool in {
            each.fact.run: each.fact.tool for each in records if isinstance(each.fact, ChildStarted)
        }.items():
            if children := run.children.get(name):
                yield name.removeprefix(f"{root}."), agent.agents[tool], children
                yield from below(agent.agents[tool], children)

    yield "", package, run.journal
    yield from below(package, run.journal)
