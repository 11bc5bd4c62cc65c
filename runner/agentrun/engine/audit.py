"""Audits as errors: `audit.diverged` at the first decision of a journal that this release would not make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from agentrun.core.audit import find_divergence
from agentrun.core.facts import Record, fact_kind
from agentrun.core.package import Package
from agentrun.errors import AuditError
from agentrun.journal.family import call_of


def refuse_divergence(records: Iterable[Record], package: Package, others: Mapping[str, Package] | None = None) -> None:
    """`others`: the packages that the run was resumed with, by fingerprint."""
    divergence = find_divergence(package, records, others)
    if divergence is None:
        return
    recorded, now = divergence.was, divergence.instead[0] if divergence.instead else None
    name = "nothing" if now is None else fact_kind(now)
    message = f"record {divergence.seq} is {fact_kind(recorded)}, but this release would write {name}"
    if now is not None and fact_kind(now) == fact_kind(recorded):
        message = f"record {divergence.seq}, {fact_kind(recorded)}, has other values than this release would write"
    fields = {"seq": divergence.seq, "was": msgspec.to_builtins(recorded), "is": msgspec.to_builtins(now)}
    raise AuditError("audit.diverged", message, fields={**fields, "call": call_of(recorded)})
