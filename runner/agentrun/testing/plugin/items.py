"""Cases as items of pytest.

Rule 1  A file is read once, and an agent compiled once, however many cases they have.
Rule 2  The verdict is that of `agentrun test`. Skipping and expecting failure are left to pytest, which has its own
        ways to show and to overrule them.
Rule 3  Tags are marks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.errors import SpecError
from agentrun.spec.v1.assertions import JournalSnapshot
from agentrun.testing.plugin.failure import FailedAsExpected, NotPassed, problems_text, shown_failure
from agentrun.testing.plugin.options import RECORDED, has_syrupy
from agentrun.testing.plugin.ways import record, replay
from agentrun.testing.suite.found import Found, read
from agentrun.testing.suite.prepared import Preparations
from agentrun.testing.suite.repeated import evaluate_repeatedly
from agentrun.testing.suite.snapshots import Compare, accepted
from agentrun.testing.suite.verdict import Verdict

PREPARED = pytest.StashKey[Preparations]()
NO_MARKS = frozenset({"skip", "skipif", "xfail"})
"""Tags that would be orders to pytest."""


class Cases(pytest.File):
    """A file of cases."""

    with_snapshot: frozenset[str] = frozenset()
    """The cases whose journals are kept."""

    def collect(self) -> Iterator[CaseItem]:
        try:
            cases = read(self.path)
        except SpecError as error:
            raise self.CollectError(problems_text(error)) from None
        self.with_snapshot = frozenset(found.case.name for found in cases if _snapshots(found))
        for tag in sorted({tag for found in cases for tag in found.case.tags}):
            self.config.addinivalue_line("markers", f"{tag}: a tag of agents' cases")
        for found in cases:
            yield CaseItem.from_parent(self, name=found.case.name, found=found)


def _snapshots(found: Found) -> list[JournalSnapshot]:
    return [claim for claim in found.case.claims if isinstance(claim, JournalSnapshot)]


def _passed_unexpectedly(verdict: Verdict) -> bool:
    return any(wrong.claim == "xfail" for wrong in verdict.complaints)


def case() -> None:
    """A case of an agent, in a file of cases."""


class CaseItem(pytest.Function):
    """A case: a function of Python to pytest, because syrupy knows no other items."""

    def __init__(self, *, found: Found, **given: Any) -> None:
        super().__init__(callobj=case, **given)
        expected = UNSET if self.config.option.runxfail else found.case.xfail
        self.found = replace(found, case=replace(found.case, skip=UNSET, xfail=expected))
        self.path = found.spec  # syrupy looks for snapshots in the folder that has the name of this file
        for tag in found.case.tags:
            if tag not in NO_MARKS:
                self.add_marker(tag)
        if found.case.skip is not UNSET:
            self.add_marker(pytest.mark.skip(reason=found.case.skip))
        if found.case.xfail is not UNSET:
            self.add_marker(pytest.mark.xfail(reason=found.case.xfail, strict=True, raises=FailedAsExpected))

    @property
    def cases(self) -> Cases:
        """The file."""
        assert isinstance(self.parent, Cases), "none else makes them"
        return self.parent

    def runtest(self) -> None:
        verdict = self._verdict()
        if verdict.status == "xfailed":
            raise FailedAsExpected(verdict)
        if verdict.is_bad and not _passed_unexpectedly(verdict):  # of that pytest knows by the mark
            raise NotPassed(verdict)

    def _verdict(self) -> Verdict:
        prepared = self.config.stash.setdefault(PREPARED, Preparations())
        option = self.config.option
        if option.agentrun_record is None:
            play = replay(self.config)
            return evaluate_repeatedly(option.agentrun_repeat, self.found, prepared, self._compare(), play)
        said: dict[str, str] = {}
        verdict = evaluate_repeatedly(1, self.found, prepared, self._compare(), record(self.config, said))
        self.user_properties += [(RECORDED, text) for text in said.values()]
        return verdict

    def _compare(self) -> Compare:
        if not has_syrupy(self.config):
            return accepted
        from agentrun.testing.plugin.journals import Accepted  # late: syrupy may not be there

        snapshot = Accepted(self)
        is_negated = any(claim.negated for claim in _snapshots(self.found))
        return accepted if is_negated else snapshot.compare  # what must not come back is not accepted either

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        return self.found.file, self.found.line - 1, f"{self.cases.name}::{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]  # as pytest's
        if isinstance(excinfo.value, NotPassed):
            return shown_failure(excinfo.value)
        return super().repr_failure(excinfo)
