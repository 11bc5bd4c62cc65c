"""Inject every fault at every call of a case, and check the invariants.

Rule 1  The places are the calls of the case without further faults. It is replayed first, and must match its cassette.
Rule 2  After a fault a run may send requests that are not on the cassette. A model, a hook or a sink then gives the
        next recorded reply; any other request ends the run with `cassette.miss`. Nothing is executed or sent.
Rule 3  Any outcome is accepted, as long as the invariants are true (`invariants.py`) and the run does not end with an
        internal error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, to_builtins

from agentrun.canonical_json import sorted_json
from agentrun.cassette.interactions import Cassette
from agentrun.cassette.player import LenientPlayer
from agentrun.cassette.redaction import RunRedaction
from agentrun.core.facts import ChildStarted, Record, RunStopped
from agentrun.core.package import Package, find_tool
from agentrun.core.package_tools import HttpTool
from agentrun.engine.run import FinishedRun, journal_run_id
from agentrun.spec.v1.assertions import ApprovalAnswerSpec
from agentrun.spec.v1.cases import FaultInjectionSpec, InjectedFaultSpec
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.failure_text import run_steps
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.testing.suite.invariants import broken_invariants, check_calls_journaled
from agentrun.testing.suite.replay import (
    CaseRuns,
    CompiledAgent,
    ending_miss,
    is_rest_of_shared_cassette,
    make_case_player,
    replay_case,
)
from agentrun.testing.suite.stubs_and_faults import FaultPlace

SWEEP_MESSAGE = "injected by the sweep"
NOT_APPROVED: tuple[ApprovalAnswerSpec, ...] = ("denied", "timed_out", "unavailable", "cancelled")


class SweepResult(Struct, frozen=True, kw_only=True):
    fault: FaultInjectionSpec
    yaml: str
    """The fault as an item of `faults:`, to reproduce it."""
    ending: str
    """`completed`, `suspended`, or the code that it stopped with."""
    violations: tuple[str, ...] = ()
    steps: str = ""
    """The steps of the run, if there are violations."""


class SweepReport(Struct, frozen=True, kw_only=True):
    tried: int
    violations: tuple[SweepResult, ...]
    endings: dict[str, int]
    """How often each outcome occurred, the most frequent first."""


def sweep(located: LocatedCase, agent: CompiledAgent) -> SweepReport:
    """Inject every fault and sum up the results. Raises like `sweep_results`."""
    results = list(sweep_results(located, agent))
    violations = tuple(result for result in results if result.violations)
    counts = Counter(result.ending for result in results)
    endings = dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    return SweepReport(tried=len(results), violations=violations, endings=endings)


def sweep_results(located: LocatedCase, agent: CompiledAgent) -> Iterator[SweepResult]:
    """Inject every fault at every place of a case.

    Raises if the case cannot be replayed without a fault: `cassette.miss`, `cassette.damaged`, `cassette.unused`, or
    why a run does not start. Failures with a fault are in the results.
    """
    cassette = agent.load_cassette(located)
    player = make_case_player(located, agent, cassette)
    injection = FaultInjection(located.case, player, watched=True)
    clean = replay_case(located, agent, player, injection)
    if clean.any_error is not None and not is_rest_of_shared_cassette(located, clean.any_error):
        raise clean.any_error
    if (miss := ending_miss(clean.runs[-1])) is not None:
        raise miss
    packages = {path: package for run in clean.runs for path, package, _ in _agent_journals(agent.file.agent, run)}
    for place in injection.faults.places:
        for inject in fault_variants(place, packages[place.run_path.path]):
            yield _run_with_fault(FaultInjectionSpec(at=place.at, inject=inject), located, agent, cassette)


def fault_variants(place: FaultPlace, package: Package) -> Iterator[InjectedFaultSpec]:
    """The faults that can be injected at a place. `package`: of the agent that makes the call."""
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
            yield InjectedFaultSpec(timeout=True)
            yield InjectedFaultSpec(error=SWEEP_MESSAGE)
            yield InjectedFaultSpec(fatal=SWEEP_MESSAGE)
            if isinstance(find_tool(package, place.name), HttpTool):
                yield from (InjectedFaultSpec(status=500), InjectedFaultSpec(refused=True))
        case "approval":
            yield from (InjectedFaultSpec(answer=answer) for answer in NOT_APPROVED)
        case "hook" | "sink":
            yield from (InjectedFaultSpec(error=SWEEP_MESSAGE), InjectedFaultSpec(timeout=True))


def _run_with_fault(
    fault: FaultInjectionSpec, located: LocatedCase, agent: CompiledAgent, cassette: Cassette
) -> SweepResult:
    rules = agent.file.agent.replay
    player = LenientPlayer(cassette, volatile=rules.volatile, redaction=RunRedaction(rules.redact))
    injection = FaultInjection(located.case, player, (fault,))
    case_runs = replay_case(located, agent, player, injection)
    violations = tuple(find_violations(agent, case_runs, injection.tool_runs))
    if not injection.faults.was_triggered(fault.inject):
        violations = (*violations, f"the run no longer reaches {fault.at}")
    yaml, ending = fault_yaml(fault), case_runs.outcome_code
    steps = run_steps(agent, case_runs) if violations else ""
    return SweepResult(fault=fault, yaml=yaml, ending=ending, violations=violations, steps=steps)


def fault_yaml(fault: FaultInjectionSpec) -> str:
    inject = to_builtins(fault.inject)
    if inject.get("times") == 1:
        del inject["times"]
    return "- " + sorted_json({"at": fault.at, "inject": inject}).decode()


def find_violations(
    agent: CompiledAgent, case_runs: CaseRuns, tool_runs: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """The violated invariants. `tool_runs`: how often each call reached its tool, by run and call."""
    for run in case_runs.runs:
        waits = not run.ending.is_finished
        if run.ending.fault is not None and run.ending.code == "internal":
            yield f"the run ended with internal: {run.ending.fault.message}"
        if run.ending.status == "suspended" and not (run.ending.questions or run.ending.waits_for):
            yield "the run is suspended, but waits for nothing"
        for path, package, records in _agent_journals(agent.file.agent, run):
            is_suspended = waits and not (path and isinstance(records[-1].fact, RunStopped))
            calls = {call: times for (owner, call), times in tool_runs.items() if owner == journal_run_id(records)}
            broken = broken_invariants(package, records, waits=is_suspended)
            for violation in (*broken, *check_calls_journaled(records, calls)):
                yield f"{path}: {violation}" if path else violation


def _agent_journals(package: Package, run: FinishedRun) -> Iterator[tuple[str, Package, Sequence[Record]]]:
    """A run and its started sub-agents: path, agent and journal."""
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
