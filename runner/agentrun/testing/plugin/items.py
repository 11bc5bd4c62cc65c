"""Cases as pytest items.

Rule 1  A file is read once, and an agent is compiled once, for all their cases.
Rule 2  The verdict is that of `agentrun test`. Skipped cases and expected failures are left to pytest, which has its
        own options for them.
Rule 3  Tags become marks.
Rule 4  A failure is shown in the words of `agentrun test`, without a traceback.
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
"""The exit code of `agentrun test` if consent is missing."""
RESERVED_MARKS = frozenset({"skip", "skipif", "xfail"})
"""Tags that have a meaning as pytest marks."""


class CaseSession:
    """State that all cases of a session share."""

    def __init__(self, config: pytest.Config) -> None:
        self._recordings: dict[str, str] = {}
        """Descriptions of recordings, by the id of the case."""
        run_case = replay_runner_for(config)
        if config.option.agentrun_record is not None:
            run_case = recording_runner_for(config, self._recordings)
        self._suite = SuiteRunner(SuiteOptions(repeat=config.option.agentrun_repeat), run_case)

    def verdict(self, item: CaseItem, compare: SnapshotLookup) -> CaseVerdict:
        verdict = self._suite.run_case(item.located, compare).verdict
        if item.located.id in self._recordings:
            item.user_properties.append((RECORDED_PROPERTY, self._recordings.pop(item.located.id)))
        item.user_properties += [(LIVE_PROPERTY, function) for function in verdict.live]
        return verdict


SESSION_KEY = pytest.StashKey[CaseSession]()


class Cases(pytest.File):
    with_snapshot: frozenset[str] = frozenset()
    """The cases with a journal snapshot."""

    def collect(self) -> Iterator[CaseItem]:
        try:
            cases = read_located_cases(self.path)
        except SpecError as error:
            texts = ("\n".join(safe_lines(render_problem(problem))) for problem in error.problems)
            raise self.CollectError("\n".join(texts)) from None
        self.with_snapshot = frozenset(located.case.name for located in cases if located.snapshot is not None)
        for tag in sorted({tag for located in cases for tag in located.case.tags}):
            self.config.addinivalue_line("markers", f"{tag}: a tag of agentrun cases")
        for located in cases:
            yield CaseItem.from_parent(self, name=located.case.name, located=located)


def case() -> None:
    """A case in a case file."""


class CaseItem(pytest.Function):
    """A case. It is a Python function to pytest, because syrupy supports no other items."""

    def __init__(self, *, located: LocatedCase, **options: Any) -> None:
        super().__init__(callobj=case, **options)
        expected = UNSET if self.config.option.runxfail else located.case.xfail
        self.located = replace(located, case=replace(located.case, skip=UNSET, xfail=expected))
        self.path = located.spec  # syrupy looks for snapshots in the folder with the name of this file
        for tag in located.case.tags:
            if tag not in RESERVED_MARKS:
                self.add_marker(tag)
        if located.case.skip is not UNSET:
            self.add_marker(pytest.mark.skip(reason=" ".join(safe_lines(located.case.skip.strip()))))
        if located.case.xfail is not UNSET:
            reason = " ".join(safe_lines(located.case.xfail.strip()))
            self.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=CaseFailedAsExpected))

    @property
    def cases(self) -> Cases:
        assert isinstance(self.parent, Cases), "only `Cases` makes items"
        return self.parent

    def runtest(self) -> None:
        verdict = self._verdict()
        if verdict.status == "xfailed":
            raise CaseFailedAsExpected(verdict)
        passed_unexpectedly = any(each.claim == "xfail" for each in verdict.complaints)  # pytest reports it by the mark
        if verdict.is_bad and not passed_unexpectedly:
            raise CaseFailed(verdict)

    def _verdict(self) -> CaseVerdict:
        session = self.config.stash.setdefault(SESSION_KEY, CaseSession(self.config))
        if not has_syrupy(self.config):
            return session.verdict(self, accepted_snapshot)
        from agentrun.testing.plugin.syrupy_snapshots import CaseSnapshot  # late: syrupy may not be installed

        snapshot = CaseSnapshot(self, has_snapshot=self.name in self.cases.with_snapshot)
        return snapshot.settle(session.verdict(self, snapshot.compare))

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        # Not the end of the id, because pytest would turn its dots into colons.
        return self.located.file, self.located.line - 1, f"{self.located.spec.stem}/{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]  # as pytest's
        """A failed case as a class of pytest, because pytest-xdist passes on no other with its last line."""
        if not isinstance(excinfo.value, CaseFailed):
            return super().repr_failure(excinfo)
        verdict, text = excinfo.value.verdict, str(excinfo.value)
        place = ReprFileLocation(verdict.file, verdict.line, text.partition("\n")[0])
        lines = [*text.split("\n"), "", f"{verdict.file}:{verdict.line}: {verdict.status}"]
        whole = ReprTraceback([ReprEntryNative([f"{line}\n" for line in lines])], extraline=None, style="native")
        return ReprExceptionInfo(reprtraceback=whole, reprcrash=place)


def recording_preview_lines(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    preview = _recording_preview(config, items)
    return [] if preview is None else [f"agentrun: {line}" for line in preview.lines()]


def require_recording_consent(config: pytest.Config, items: list[pytest.Item]) -> None:
    """End the session before anything runs if a recording needs consent that was not given."""
    preview = _recording_preview(config, items)
    if preview is None or not preview.needs_consent:
        return
    if not config.option.agentrun_yes and not config.option.collectonly:
        pytest.exit(f"{preview.reason()}; add --agentrun-yes", returncode=USAGE_EXIT_CODE)


def _recording_preview(config: pytest.Config, items: list[pytest.Item]) -> RecordingPreview | None:
    """None: nothing is recorded."""
    cases = (item for item in items if isinstance(item, CaseItem) and item.get_closest_marker("skip") is None)
    plans = plan_cassettes(item.located for item in cases)
    return preview_recording(plans, config.option.agentrun_record, ApprovalSources()) if plans else None


def reuses_cassette(item: pytest.Item) -> bool:
    """Whether a case plays the cassette of another case. It must run after the cases that record."""
    if not isinstance(item, CaseItem):
        return False
    return cassette_owner(item.located.case, item.located.file) != item.located.case.name


# --- Failures --------------------------------------------------------------------------------------------------


class CaseFailed(Exception):
    def __init__(self, verdict: CaseVerdict) -> None:
        self.verdict = verdict
        super().__init__(render_failure(verdict))


class CaseFailedAsExpected(CaseFailed):
    """A case with `xfail` failed."""
