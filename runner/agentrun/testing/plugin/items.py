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

from agentrun.compiler.cases import maker_of
from agentrun.errors import SpecError
from agentrun.spec.v1.assertions import JournalSnapshot
from agentrun.testing.plugin.failure import FailedAsExpected, NotPassed, problems_text, shown_failure
from agentrun.testing.plugin.options import LIVE, RECORDED, has_syrupy
from agentrun.testing.plugin.ways import record, replay
from agentrun.testing.suite.announcement import Announcement, Answers, announcement_of, plans_of
from agentrun.testing.suite.carried import Orders, Suite
from agentrun.testing.suite.found import Found, read
from agentrun.testing.suite.snapshots import Compare, accepted
from agentrun.testing.suite.told import shown
from agentrun.testing.suite.verdict import Verdict

USAGE_EXIT = 2
"""The exit code of `agentrun test` where consent is missing."""
NO_MARKS = frozenset({"skip", "skipif", "xfail"})
"""Tags that would be orders to pytest."""


class CaseSession:
    """What all cases have in common."""

    def __init__(self, config: pytest.Config) -> None:
        self._said: dict[str, str] = {}
        """What was recorded, in words, by the id of the case."""
        play = replay(config) if config.option.agentrun_record is None else record(config, self._said)
        self._suite = Suite(Orders(repeat=config.option.agentrun_repeat), play)

    def verdict(self, item: CaseItem, compare: Compare) -> Verdict:
        verdict = self._suite.result(item.found, compare).verdict
        if item.found.id in self._said:
            item.user_properties.append((RECORDED, self._said.pop(item.found.id)))
        item.user_properties += [(LIVE, function) for function in verdict.live]
        return verdict


SESSION = pytest.StashKey[CaseSession]()


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


def _line(reason: str) -> str:
    """A reason as pytest may print it: on a line, with nothing that acts, and without a credential."""
    return " ".join(shown(reason.strip()))


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
            self.add_marker(pytest.mark.skip(reason=_line(found.case.skip)))
        if found.case.xfail is not UNSET:
            self.add_marker(pytest.mark.xfail(reason=_line(found.case.xfail), strict=True, raises=FailedAsExpected))

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
        session = self.config.stash.setdefault(SESSION, CaseSession(self.config))
        if not has_syrupy(self.config):
            return session.verdict(self, accepted)
        from agentrun.testing.plugin.journals import Accepted  # late: syrupy may not be there

        snapshot = Accepted(self, is_kept=self.name in self.cases.with_snapshot)
        return snapshot.settle(session.verdict(self, snapshot.compare))

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        # Not an end of the id: of that pytest would turn dots into colons.
        return self.found.file, self.found.line - 1, f"{self.found.spec.stem}/{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]  # as pytest's
        if isinstance(excinfo.value, NotPassed):
            return shown_failure(excinfo.value)
        return super().repr_failure(excinfo)


def announced_recording(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """What recording these cases does, in words."""
    announcement = _announcement(config, items)
    return [] if announcement is None else [f"agentrun: {line}" for line in announcement.lines()]


def refuse_recording(config: pytest.Config, items: list[pytest.Item]) -> None:
    """End the session before anything runs if a recording needs consent that was not given."""
    announcement = _announcement(config, items)
    if announcement is None or not announcement.needs_consent:
        return
    if not config.option.agentrun_yes and not config.option.collectonly:
        pytest.exit(f"{announcement.reason()}; add --agentrun-yes", returncode=USAGE_EXIT)


def _announcement(config: pytest.Config, items: list[pytest.Item]) -> Announcement | None:
    """None: nothing is recorded."""
    plans = plans_of(item.found for item in items if isinstance(item, CaseItem) and not _is_skipped(item))
    return announcement_of(plans, config.option.agentrun_record, Answers()) if plans else None


def _is_skipped(item: pytest.Item) -> bool:
    return item.get_closest_marker("skip") is not None


def plays_another(item: pytest.Item) -> bool:
    """Whether a case plays what another one records: it is run after all that record."""
    return isinstance(item, CaseItem) and maker_of(item.found.case, item.found.file) != item.found.case.name
