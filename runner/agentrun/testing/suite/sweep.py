"""Every fault at every place of a case, and what must hold all the same.

    for result in swept(found, prepared):
        print(result.yaml, result.ending, result.violations)

Rule 1  The places are those that the case itself comes to. It is replayed as it is first, and must fit its recording.
Rule 2  After a fault a run may ask what is not on the tape. A model, a hook or a sink then gives the recorded reply
        that is next in line; anything else ends the run with `cassette.miss`. Nothing is executed, and there is no
        network.
Rule 3  How a run ends under a fault is not judged: only what `upheld.py` says of every run, and that it is no mistake
        of ours that ends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, to_builtins

from agentrun.canon import compact
from agentrun.cassette.loose import LoosePlayer
from agentrun.cassette.redaction import Redaction
from agentrun.cassette.tape import Cassette
from agentrun.core.facts import Record, RunStopped
from agentrun.core.facts_calls import ChildStarted
from agentrun.core.names import find_tool
from agentrun.core.outcome import Outcome, Suspended
from agentrun.core.package import Package
from agentrun.core.package_tools import HttpTool
from agentrun.engine.run import FinishedRun, run_of
from agentrun.errors import CassetteError
from agentrun.spec.v1.assertions import Answer
from agentrun.spec.v1.cases import FaultAt, Inject
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.overlay.laid_over import LaidOver
from agentrun.testing.suite.overlay.places import Place
from agentrun.testing.suite.played import Played, is_left_to_another, play, player_of
from agentrun.testing.suite.prepared import Prepared
from agentrun.testing.suite.told import story_of
from agentrun.testing.suite.upheld import broken, told

INJECTED = "injected by the sweep"
NO_APPROVAL: tuple[Answer, ...] = ("denied", "timed_out", "unavailable", "cancelled")


class SweepResult(Struct, frozen=True, kw_only=True):
    """What came of a case under one fault."""

    case: str
    """`specs/support.cases.yaml::default`"""
    fault: FaultAt
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
    found: Found, prepared: Prepared, on_result: Callable[[SweepResult], None] = lambda result: None
) -> SweepReport:
    """Try all, and sum it up. `on_result`: told of each as it is there. Raises as `swept` does."""
    results = []
    for result in swept(found, prepared):
        on_result(result)
        results.append(result)
    counts = Counter(result.ending for result in results)
    return SweepReport(
        case=found.id,
        tried=len(results),
        violations=tuple(result for result in results if result.violations),
        endings=dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))),
    )


def swept(found: Found, prepared: Prepared) -> Iterator[SweepResult]:
    """Try every fault at every place of a case.

    Raises what keeps the case from being replayed as it is: `cassette.miss`, `cassette.damaged`, `cassette.unused`, and
    whatever a run may not start for. What goes wrong under a fault is in its result.
    """
    tape = prepared.load_cassette(found)
    clean, places = _clean(found, prepared, tape)
    agents = {path: agent for run in clean for path, agent, _ in _family(prepared.file.agent, run)}
    for place in places:
        for inject in variants(place, agents[place.member.path]):
            yield _under(FaultAt(at=place.at, inject=inject), found, prepared, tape)


def variants(place: Place, package: Package) -> Iterator[Inject]:
    """What can go wrong at a place. `package`: of the agent that comes to it."""
    match place.kind:
        case "model":
            yield Inject(status=429)
            if package.retry.attempts > 1:
                yield Inject(status=429, times=min(package.retry.attempts, 1000))
            yield Inject(status=500)
            yield Inject(refused=True)
            yield Inject(timeout=True)
            for after in sorted({0, place.pieces // 2, place.pieces}):
                yield Inject(cut_after_chunk=after)
            yield Inject(empty=True)
        case "tool":
            yield from (Inject(timeout=True), Inject(error=INJECTED), Inject(fatal=INJECTED))
            if isinstance(find_tool(package, place.name), HttpTool):
                yield from (Inject(status=500), Inject(refused=True))
        case "approval":
            yield from (Inject(answer=answer) for answer in NO_APPROVAL)
        case "hook" | "sink":
            yield from (Inject(error=INJECTED), Inject(timeout=True))


def _clean(found: Found, prepared: Prepared, tape: Cassette) -> tuple[tuple[FinishedRun, ...], tuple[Place, ...]]:
    """The runs of a case without any further fault, and where they came to."""
    player = player_of(found, prepared, tape)
    laid = LaidOver(found.case, player, watched=True)
    played = play(found, prepared, player, laid)
    if played.problem is not None and not is_left_to_another(found, played.problem):
        raise played.problem
    end = played.runs[-1].ended
    if isinstance(end, Outcome) and end.fault is not None and end.fault.code.startswith("cassette."):
        raise CassetteError(end.fault.code, end.fault.message, hint=end.fault.hint, fields=end.fault.fields)
    return played.runs, laid.places


def _under(fault: FaultAt, found: Found, prepared: Prepared, tape: Cassette) -> SweepResult:
    rules = prepared.file.agent.replay
    player = LoosePlayer(tape, volatile=rules.volatile, redaction=Redaction(rules.redact))
    laid = LaidOver(found.case, player, (fault,))
    played = play(found, prepared, player, laid)
    violations = tuple(_broken(prepared.file.agent, played, laid.carried_out))
    if not laid.has_struck(fault):
        violations = (*violations, f"the run no longer comes to {fault.at}")
    return SweepResult(
        case=found.id,
        fault=fault,
        yaml=as_yaml(fault),
        ending=_ending(played),
        violations=violations,
        story=story_of(prepared, played) if violations else "",
    )


def as_yaml(fault: FaultAt) -> str:
    """The fault as an item of `faults:`."""
    inject = to_builtins(fault.inject)
    if inject.get("times") == 1:
        del inject["times"]
    return "- " + compact({"at": fault.at, "inject": inject}).decode()


def _ending(played: Played) -> str:
    if played.error is not None:
        return played.error.code
    end = played.runs[-1].ended
    return "suspended" if not isinstance(end, Outcome) else end.code or "completed"


def broken_by(prepared: Prepared, played: Played) -> tuple[str, ...]:
    """What must always hold and did not in runs that are there already."""
    return tuple(_broken(prepared.file.agent, played, {}))


def _broken(package: Package, played: Played, carried_out: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for run in played.runs:
        waits = not isinstance(run.ended, Outcome)
        if isinstance(run.ended, Outcome) and run.ended.fault is not None and run.ended.code == "internal":
            yield f"the run ended with internal: {run.ended.fault.message}"
        if isinstance(run.ended, Suspended) and not (run.ended.questions or run.ended.waits_for):
            yield "the run waits, and for nobody"
        for path, agent, records in _family(package, run):
            asleep = waits and not (path and isinstance(records[-1].fact, RunStopped))
            calls = {call: times for (whose, call), times in carried_out.items() if whose == run_of(records)}
            found = (*broken(agent, records, waits=asleep), *told(records, calls))
            yield from (f"{path}: {each}" if path else each for each in found)


def _family(package: Package, run: FinishedRun) -> Iterator[tuple[str, Package, Sequence[Record]]]:
    """A run and the sub-agents below it that began: their paths, agents and journals."""
    root = run_of(run.journal)

    def below(agent: Package, records: Sequence[Record]) -> Iterator[tuple[str, Package, Sequence[Record]]]:
        for name, tool in {
            each.fact.run: each.fact.tool for each in records if isinstance(each.fact, ChildStarted)
        }.items():
            if children := run.children.get(name):
                yield name.removeprefix(f"{root}."), agent.agents[tool], children
                yield from below(agent.agents[tool], children)

    yield "", package, run.journal
    yield from below(package, run.journal)
