"""Replay cases against cassettes for `agentrun cassette`, in memory and offline."""

from __future__ import annotations

from agentrun.cassette.case_replay import ReplayResult
from agentrun.cassette.select import Owner
from agentrun.cassette.tape import Cassette
from agentrun.compiler.cases import cases_path
from agentrun.compiler.fingerprint import PackageFile
from agentrun.core.outcome import Outcome
from agentrun.errors import AgentrunError
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import play, player_of
from agentrun.testing.suite.prepared import Preparations, Prepared


class SuiteReplays:
    """Compiles each spec once with each profile."""

    def __init__(self) -> None:
        self._prepared = Preparations()

    def package(self, owner: Owner) -> PackageFile:
        """The compiled spec of a case under its profile. Raises `SpecError`, `input.rejected`."""
        return self._prepare(owner).file

    def replay(self, owner: Owner, cassette: Cassette) -> ReplayResult:
        """Replay a case against a cassette. Never raises: errors are in the result."""
        try:
            prepared = self._prepare(owner)
            found = Found(file=cases_path(owner.spec), spec=owner.spec, case=owner.case, line=1)
            player = player_of(found, prepared, cassette)
        except AgentrunError as error:
            return ReplayResult("not_started", f"{error.code}: {error.message}")
        played = play(found, prepared, player)
        if played.error is not None:
            return ReplayResult("not_started", f"{played.error.code}: {played.error.message}")
        outcome = played.runs[-1].ended
        unused = player.unused()
        if not isinstance(outcome, Outcome):
            return ReplayResult("suspended", "it waits for an answer that is not on the tape", unused=unused)
        if outcome.fault is None:
            return ReplayResult(unused=unused, answer=outcome.answer)
        return ReplayResult(outcome.fault.code, outcome.fault.message, outcome.fault.fields, unused)

    def _prepare(self, owner: Owner) -> Prepared:
        return self._prepared.under(owner.spec, owner.profile)
