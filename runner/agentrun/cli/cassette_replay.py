"""Plays the recording of a case in memory, offline, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct

from agentrun.cassette.file import load
from agentrun.cassette.player import Player
from agentrun.cassette.redaction import Redaction
from agentrun.cassette.shown import listed
from agentrun.cassette.tape import Cassette
from agentrun.cli.approve import approver_of
from agentrun.cli.cassette_shelf import Filed, Owner
from agentrun.cli.here import here_of
from agentrun.cli.plan import Plan
from agentrun.compiler.compile import compiled_or_raise
from agentrun.compiler.fingerprint import PackageFile
from agentrun.compiler.resolve import Spec
from agentrun.core.outcome import Outcome
from agentrun.engine.assemble import replay_run
from agentrun.errors import AgentrunError, CassetteError, StorageError


class Loaded(Struct, frozen=True):
    """A recording, or why there is none."""

    filed: Filed
    tape: Cassette | None = None
    error: AgentrunError | None = None

    @property
    def owner(self) -> Owner | None:
        return self.filed.owner({} if self.tape is None else self.tape.metadata)

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
        self._known: dict[tuple[Path, str | None], tuple[Spec, PackageFile] | AgentrunError] = {}

    def of(self, owner: Owner) -> tuple[Spec, PackageFile]:
        """Raises `SpecError`, `input.rejected`."""
        key = owner.spec, owner.profile
        if key not in self._known:
            try:
                self._known[key] = compiled_or_raise(*key)
            except AgentrunError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, AgentrunError):
            raise found
        return found

    def changed(self, owner: Owner, metadata: Mapping[str, Any]) -> str | None:
        """In words, what of the package is not as it was recorded. None: nothing."""
        try:
            _, file = self.of(owner)
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
        return Loaded(filed, load(filed.path))
    except (CassetteError, StorageError) as error:
        return Loaded(filed, error=error)


def played(packages: Packages, filed: Filed, owner: Owner, tape: Cassette) -> Played:
    """Replay the case of a recording."""
    case = owner.case
    try:
        spec, file = packages.of(owner)
        message = None if case.input is UNSET else case.input
        plan = Plan(mode="replay", why="", case=case, cassette=filed.path, message=message, params=case.params)
        rules = file.agent.replay
        player = Player(
            tape,
            volatile=rules.volatile,
            redaction=Redaction(rules.redact),
            here=lambda: here_of(spec, file, plan, ()),
        )
        done = replay_run(
            file.agent,
            fingerprint=file.fingerprint,
            message=message,
            params=case.params,
            cassette=player,
            approver=approver_of(None, case, file.agent),
        )
    except AgentrunError as error:
        return Played("not_started", f"{error.code}: {error.message}")
    outcome = done.ended
    unused = player.unused()
    if not isinstance(outcome, Outcome):
        return Played("suspended", "it waits for an answer that is not on the tape", unused=unused)
    if outcome.fault is None:
        return Played(unused=unused, answer=outcome.answer)
    return Played(outcome.fault.code, outcome.fault.message, outcome.fault.fields, unused)
