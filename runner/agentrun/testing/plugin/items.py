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
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.compiler.cases import cassette_owner
from agentrun.errors import SpecError
from agentrun.spec.problems import render_problem
from agentrun.spec.v1.assertions import JournalSnapshot
from agentrun.testing.plugin.options import LIVE_PROPERTY, RECORDED_PROPERTY, has_syrupy
from agentrun.testing.plugin.run_modes import recording_runner_for, replay_runner_for
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.failure_text import render_failure, safe_lines
from agentrun.testing.suite.recording_preview import (
    ApprovalSources,
    RecordingPreview,
    plan_cassettes,
    preview_recording,
)
from agentrun.testing.suite.runner import SuiteOptions, SuiteRunner
from agentrun.testing.suite.snapshots import SnapshotLookup, accepted_snapshot
from agentrun.testing.suite.verdict import CaseVerdict

USAGE_EXIT_CODE = 2
"""The exit code of `agentrun test` where consent is missing."""
RESERVED_MARKS = frozenset({"skip", "skipif", "xfail"})
"""Tags that would be orders to pytest."""


class CaseSession:
    """What all cases have in common."""

    def __init__(self, config: pytest.Config) -> None:
        self._said: dict[str, str] = {}
        """What was recorded, in words, by the id of the case."""
        play = (
            replay_runner_for(config)
            if config.option.agentrun_record is None
            else recording_runner_for(config, self._said)
        )
        self._suite = SuiteRunner(SuiteOptions(repeat=config.option.agentrun_repeat), play)

    def verdict(self, item: CaseItem, compare: SnapshotLookup) -> CaseVerdict:
        verdict = self._suite.run_case(item.found, compare).verdict
        if item.found.id in self._said:
            item.user_properties.append((RECORDED_PROPERTY, self._said.pop(item.found.id)))
        item.user_properties += [(LIVE_PROPERTY, function) for function in verdict.live]
        return verdict


SESSION_KEY = pytest.StashKey[CaseSession]()


class Cases(pytest.File):
    """A file of cases."""

    with_snapshot: frozenset[str] = frozenset()
    """The cases whose journals are kept."""

    def collect(self) -> Iterator[CaseItem]:
        try:
            cases = read_located_cases(self.path)
        except SpecError as error:
            raise self.CollectError(problems_text(error)) from None
        self.with_snapshot = frozenset(found.case.name for found in cases if _snapshot_assertions(found))
        for tag in sorted({tag for found in cases for tag in found.case.tags}):
            self.config.addinivalue_line("markers", f"{tag}: a tag of agents' cases")
        for found in cases:
            yield CaseItem.from_parent(self, name=found.case.name, found=found)


def _snapshot_assertions(found: LocatedCase) -> list[JournalSnapshot]:
    return [claim for claim in found.case.assertions if isinstance(claim, JournalSnapshot)]


def _safe_line(reason: str) -> str:
    """A reason as pytest may print it: on a line, with nothing that acts, and without a credential."""
    return " ".join(safe_lines(reason.strip()))


def _passed_unexpectedly(verdict: CaseVerdict) -> bool:
    return any(wrong.claim == "xfail" for wrong in verdict.complaints)


def case() -> None:
    """A case of an agent, in a file of cases."""


class CaseItem(pytest.Function):
    """A case: a function of Python to pytest, because syrupy knows no other items."""

    def __init__(self, *, found: LocatedCase, **given: Any) -> None:
        super().__init__(callobj=case, **given)
        expected = UNSET if self.config.option.runxfail else found.case.xfail
        self.found = replace(found, case=replace(found.case, skip=UNSET, xfail=expected))
        self.path = found.spec  # syrupy looks for snapshots in the folder that has the name of this file
        for tag in found.case.tags:
            if tag not in RESERVED_MARKS:
                self.add_marker(tag)
        if found.case.skip is not UNSET:
            self.add_marker(pytest.mark.skip(reason=_safe_line(found.case.skip)))
        if found.case.xfail is not UNSET:
            self.add_marker(
                pytest.mark.xfail(reason=_safe_line(found.case.xfail), strict=True, raises=CaseFailedAsExpected)
            )

    @property
    def cases(self) -> Cases:
        """The file."""
        assert isinstance(self.parent, Cases), "none else makes them"
        return self.parent

    def runtest(self) -> None:
        verdict = self._verdict()
        if verdict.status == "xfailed":
            raise CaseFailedAsExpected(verdict)
        if verdict.is_bad and not _passed_unexpectedly(verdict):  # of that pytest knows by the mark
            raise CaseFailed(verdict)

    def _verdict(self) -> CaseVerdict:
        session = self.config.stash.setdefault(SESSION_KEY, CaseSession(self.config))
        if not has_syrupy(self.config):
            return session.verdict(self, accepted_snapshot)
        from agentrun.testing.plugin.syrupy_snapshots import CaseSnapshot  # late: syrupy may not be there

        snapshot = CaseSnapshot(self, is_kept=self.name in self.cases.with_snapshot)
        return snapshot.settle(session.verdict(self, snapshot.compare))

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        # Not an end of the id: of that pytest would turn dots into colons.
        return self.found.file, self.found.line - 1, f"{self.found.spec.stem}/{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]  # as pytest's
        if isinstance(excinfo.value, CaseFailed):
            return failure_repr(excinfo.value)
        return super().repr_failure(excinfo)


def recording_preview_lines(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """What recording these cases does, in words."""
    announcement = _recording_preview(config, items)
    return [] if announcement is None else [f"agentrun: {line}" for line in announcement.lines()]


def require_recording_consent(config: pytest.Config, items: list[pytest.Item]) -> None:
    """End the session before anything runs if a recording needs consent that was not given."""
    announcement = _recording_preview(config, items)
    if announcement is None or not announcement.needs_consent:
        return
    if not config.option.agentrun_yes and not config.option.collectonly:
        pytest.exit(f"{announcement.reason()}; add --agentrun-yes", returncode=USAGE_EXIT_CODE)


def _recording_preview(config: pytest.Config, items: list[pytest.Item]) -> RecordingPreview | None:
    """None: nothing is recorded."""
    plans = plan_cassettes(item.found for item in items if isinstance(item, CaseItem) and not _is_skipped(item))
    return preview_recording(plans, config.option.agentrun_record, ApprovalSources()) if plans else None


def _is_skipped(item: pytest.Item) -> bool:
    return item.get_closest_marker("skip") is not None


def reuses_cassette(item: pytest.Item) -> bool:
    """Whether a case plays what another one records: it is run after all that record."""
    return isinstance(item, CaseItem) and cassette_owner(item.found.case, item.found.file) != item.found.case.name


# --- how a case that did not pass is shown by pytest: in the words of `agentrun test` -------------------------


class CaseFailed(Exception):
    """A case did not pass."""

    def __init__(self, verdict: CaseVerdict) -> None:
        self.verdict = verdict
        super().__init__(render_failure(verdict))


class CaseFailedAsExpected(CaseFailed):
    """It is known to fail, and does."""


def failure_repr(failed: CaseFailed) -> ReprExceptionInfo:
    """The failure as pytest's own kind of text: no other survives the way from another process with its last line."""
    verdict = failed.verdict
    text = str(failed)
    place = ReprFileLocation(verdict.file, verdict.line, text.partition("\n")[0])
    lines = [*text.split("\n"), "", f"{verdict.file}:{verdict.line}: {verdict.status}"]
    whole = ReprTraceback([ReprEntryNative([f"{line}\n" for line in lines])], extraline=None, style="native")
    return ReprExceptionInfo(reprtraceback=whole, reprcrash=place)


def problems_text(error: SpecError) -> str:
    """All that is wrong in a file of cases, with places."""
    return "\n".join("\n".join(safe_lines(render_problem(problem))) for problem in error.problems)
