"""The result of replaying a case against its cassette.

The engine is above this package, so a replay is handed in: `testing/suite/case_replays.py` has the implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from agentrun.cassette.select import Owner
from agentrun.cassette.tape import Cassette
from agentrun.compiler.fingerprint import PackageFile
from agentrun.errors import AgentrunError
from agentrun.spec.text import join_words


class ReplayResult(Struct, frozen=True):
    """How a replay ended."""

    code: str | None = None
    """Null: the run was completed."""
    message: str | None = None
    """Why the run was not completed, or not started."""
    fields: dict[str, Any] = {}
    unused: tuple[int, ...] = ()
    """The numbers of the interactions that were not played."""
    answer: str | None = None

    @property
    def is_miss(self) -> bool:
        """Whether the cassette does not have what the case needs."""
        return self.code is not None and self.code in ("cassette.miss", "not_started")


class CaseReplays(Protocol):
    """Compiles specs and replays cases in memory, without the network."""

    def package(self, owner: Owner) -> PackageFile:
        """The compiled spec of a case under its profile. Raises `SpecError`, `input.rejected`."""

    def replay(self, owner: Owner, cassette: Cassette) -> ReplayResult:
        """Replay a case against a cassette. Never raises: errors are in the result."""


def find_unused(results: Iterable[ReplayResult]) -> tuple[int, ...]:
    """The interactions that none of the replays played."""
    left = [set(each.unused) for each in results]
    return tuple(sorted(set.intersection(*left))) if left else ()


def describe_change(replays: CaseReplays, owner: Owner, metadata: Mapping[str, Any]) -> str | None:
    """Say which sections of the package changed since the cassette was recorded. None: no section did."""
    try:
        file = replays.package(owner)
    except AgentrunError as error:
        return f"{owner.spec_label} does not compile now ({error.message})"
    if metadata.get("fingerprint") == file.fingerprint:
        return None
    before = metadata.get("sections")
    if not isinstance(before, dict):
        return f"the package of {owner.spec_label} changed since it was recorded"
    names = sorted(name for name, now in file.sections.items() if before.get(name) != now)
    return f"{join_words(names) or 'the package'} of {owner.spec_label} changed since it was recorded"
