"""Plays the recording of a case in memory, offline, and says what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from agentrun.cassette.file import load
from agentrun.cassette.shown import listed
from agentrun.cassette.tape import Cassette
from agentrun.cli.cassette_shelf import Filed, Owner
from agentrun.compiler.cases import cases_path
from agentrun.core.outcome import Outcome
from agentrun.errors import AgentrunError, CassetteError, StorageError
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import play, player_of
from agentrun.testing.suite.prepared import Preparations, Prepared


class Loaded(Struct, frozen=True):
    """A recording, or why there is none."""

    filed: Filed
    tape: Cassette | None = None
    error: AgentrunError | None = None

    @property
    def players(self) -> tuple[Owner, ...]:
        """The cases that play it, first the one that makes it."""
        return self.filed.players({} if self.tape is None else self.tape.metadata)

    @property
    def owner(self) -> Owner | None:
        return next(iter(self.players), None)

    @property
    def is_foreign(self) -> bool:
        """Whether something else recorded it: agentrun writes down of what."""
        return self.tape is not None and not isinstance(self.tape.metadata.get("fingerprint"), str)


class Played(Struct, frozen=True):
    """What a replay showed."""

    code: str | None = None
    """How the run ended. Null: it was completed."""
    fault: str | None = None
    """Why the run ended otherwise, or why there is none."""
    fields: dict[str, Any] = {}
    unused: tuple[int, ...] = ()
    answer: str | None = None

    @property
    def is_miss(self) -> bool:
        """Whether the recording is not what its case needs."""
        return self.code is not None and self.code in ("cassette.miss", "not_started")


class Packages:
    """Compiles each spec once with each profile."""

    def __init__(self) -> None:
        self._prepared = Preparations()

    def of(self, owner: Owner) -> Prepared:
        """Raises `SpecError`, `input.rejected`."""
        return self._prepared.under(owner.spec, owner.profile)

    def changed(self, owner: Owner, metadata: Mapping[str, Any]) -> str | None:
        """In words, what of the package is not as it was recorded. None: nothing."""
        try:
            file = self.of(owner).file
        except AgentrunError as error:
            return f"{owner.shown} does not compile now ({error.message})"
        if metadata.get("fingerprint") == file.fingerprint:
            return None
        before = metadata.get("sections")
        if not isinstance(before, dict):
            return f"the package of {owner.shown} changed since it was recorded"
        names = sorted(name for name, now in file.sections.items() if before.get(name) != now)
        return f"{listed(names) or 'the package'} of {owner.shown} changed since it was recorded"


def loaded(filed: Filed) -> Loaded:
    """Read a recording. What is wrong with it is told, not raised: there are others to look at."""
    try:
        return Loaded(filed, load(filed.path, filed.project.cassette_limit))
    except (CassetteError, StorageError) as error:
        return Loaded(filed, error=error)


def unused_by_all(came: Iterable[Played]) -> tuple[int, ...]:
    """The interactions that none of the cases plays."""
    left = [set(each.unused) for each in came]
    return tuple(sorted(set.intersection(*left))) if left else ()


def played(packages: Packages, owner: Owner, tape: Cassette) -> Played:
    """Replay the case of a recording."""
    case = owner.case
    try:
        prepared = packages.of(owner)
        found = Found(file=cases_path(owner.spec), spec=owner.spec, case=case, line=1)
        player = player_of(found, prepared, tape)
    except AgentrunError as error:
        return Played("not_started", f"{error.code}: {error.message}")
    all_ = play(found, prepared, player)
    if all_.error is not None:
        return Played("not_started", f"{all_.error.code}: {all_.error.message}")
    outcome = all_.runs[-1].ended
    unused = player.unused()
    if not isinstance(outcome, Outcome):
        return Played("suspended", "it waits for an answer that is not on the tape", unused=unused)
    if outcome.fault is None:
        return Played(unused=unused, answer=outcome.answer)
    return Played(outcome.fault.code, outcome.fault.message, outcome.fault.fields, unused)
