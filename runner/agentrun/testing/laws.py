"""Laws that every run keeps, to be tried on one's own agents.

    from agentrun.testing import laws, calls, scripted, stub, text

    def setting(clock):
        return laws.Setting(
            model=scripted(calls("refund", amount=5), text("Done.")),
            tools={"refund": stub("refunded", delay=20, clock=clock)},
            message="My money, please.",
        )

    def test_refunds_survive_crashes():
        laws.crash_everywhere(agentrun.compile("specs/refunds.yaml"), setting)

A law raises AssertionError with a story of what happened, and gives the number of runs that it tried.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agentrun.core.audit import audit
from agentrun.core.facts import Record, kind_of
from agentrun.engine.api import AnyPackage, package_of
from agentrun.testing.crashes import crash_everywhere
from agentrun.testing.orders import any_order
from agentrun.testing.setting import MakeSetting, Setting

__all__ = ["MakeSetting", "Setting", "any_order", "audit_ok", "crash_everywhere"]


def audit_ok(package: AnyPackage, records: Iterable[Record]) -> None:
    """Today's code would have made the decisions of this journal.

    laws.audit_ok(package, journals.records("run-1"))
    """
    found = audit(package_of(package).agent, records)
    if found is not None:
        today = [msgspec.json.encode(fact).decode() for fact in found.instead] or ["nothing: the run would wait"]
        raise AssertionError(
            f"record {found.seq} is {kind_of(found.was)}, which would not be written today\n"
            f"  was    {msgspec.json.encode(found.was).decode()}\n  is now {today[0]}"
        )
