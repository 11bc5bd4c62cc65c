"""Agents, compiled once however many cases they have."""

from __future__ import annotations

from pathlib import Path

from msgspec import UNSET, Struct

from agentrun.cassette.file import load
from agentrun.cassette.tape import Cassette
from agentrun.compiler.compile import compiled_or_raise
from agentrun.compiler.fingerprint import PackageFile
from agentrun.compiler.resolve import Spec
from agentrun.errors import AgentrunError
from agentrun.testing.suite.found import Found


class Prepared(Struct, frozen=True):
    """An agent under a profile."""

    spec: Spec
    file: PackageFile

    def cassette(self, found: Found) -> Path:
        """Where the recording of a case is, or would be."""
        return self.spec.project.cassette_directory / self.file.agent.name / f"{found.case.recording}.yaml"

    def load_cassette(self, found: Found) -> Cassette:
        """Read the recording of a case. Raises `cassette.miss`, `cassette.damaged`."""
        return load(self.cassette(found), self.spec.project.cassette_limit)


class Preparations:
    """Compiles each spec once with each profile."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str | None], Prepared | AgentrunError] = {}

    def of(self, found: Found) -> Prepared:
        """The agent of a case. Raises SpecError, for each of its cases the same."""
        return self.under(found.spec, None if found.case.profile is UNSET else found.case.profile)

    def under(self, spec: Path, profile: str | None) -> Prepared:
        """An agent under a profile. Raises SpecError, `input.rejected`."""
        key = (spec, profile)
        if key not in self._known:
            try:
                self._known[key] = Prepared(*compiled_or_raise(spec, profile))
            except AgentrunError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, AgentrunError):
            raise known
        return known
