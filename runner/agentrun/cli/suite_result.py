"""The result of a suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from agentrun.credentials import hidden_secrets
from agentrun.engine.spending import Spending
from agentrun.errors import code_of
from agentrun.secret import mask
from agentrun.testing.suite.causes import Cause, group_by_cause
from agentrun.testing.suite.coverage import Coverage
from agentrun.testing.suite.runner import CaseResult
from agentrun.testing.suite.verdict import CaseChange, CaseFailure, CaseStatus, CaseVerdict, suite_exit_code

if TYPE_CHECKING:
    from agentrun.engine.recording import RecordingResult
    from agentrun.testing.suite.discovery import LocatedCase

CASE_STATUSES: tuple[CaseStatus, ...] = get_args(CaseStatus)
CHANGES_TITLE = "What changed:"
CHANGED_TOOLS_TITLE = "Tools whose source changed since the recording; a replay uses what they returned then:"
LIVE_TITLE = "Live assertions (network: true), not replayed:"
UNUSED_SNAPSHOT = "no case uses this snapshot"
UNUSED_SNAPSHOTS = "Snapshots that no case uses:"
ACCEPTED_JOURNALS = "Cases with several accepted journals:"
UNMATCHED_PATHS = "Paths of `ignore` that match nothing:"


class RecordedCase(Struct, frozen=True, kw_only=True):
    """A case that was recorded, or should have been."""

    id: str
    spent: Spending
    failed_calls: tuple[str, ...]
    is_saved: bool


class SuiteResult(Struct, kw_only=True):
    """A suite that is finished or was interrupted."""

    paths: tuple[str, ...]
    """As on the command line."""
    results: list[CaseResult]
    """In order. Files that could not be read come first."""
    cases: int
    unused_snapshots: list[str] = []
    removed: list[str] = []
    """Unused snapshots that `--update` removed."""
    unmatched_paths: list[tuple[str, str]] = []
    """Paths of `ignore` that match nothing, each after its file of cases."""
    recorded: list[RecordedCase] = []
    coverage: Coverage | None = None
    min_coverage: float | None = None
    seconds: float = 0
    was_interrupted: bool = False

    def add_recorded(self, found: LocatedCase, recorded: RecordingResult) -> None:
        calls = tuple(mask(hidden_secrets.redactor.redact_excerpt(call)) for call in recorded.failed_calls)
        case = RecordedCase(id=found.id, spent=recorded.spent, failed_calls=calls, is_saved=recorded.is_saved)
        self.recorded.append(case)

    @property
    def verdicts(self) -> list[CaseVerdict]:
        return [result.verdict for result in self.results]

    @property
    def counts(self) -> dict[str, int]:
        """The number of cases by status, without zeros."""
        found = Counter(verdict.status for verdict in self.verdicts)
        return {status: found[status] for status in CASE_STATUSES if found[status]}

    @property
    def counts_text(self) -> str:
        """`3 passed, 1 failed`."""
        return ", ".join(f"{count} {status}" for status, count in self.counts.items()) or "no cases"

    @property
    def changes(self) -> dict[str, list[str]]:
        """What the agents do differently, in words, and the cases that show it."""
        return _group_changes(self.verdicts)

    @property
    def accepted_changes(self) -> dict[str, list[str]]:
        """The changes of cases that are not failures: `--update` accepted them, or the case was recorded."""
        return _group_changes(verdict for verdict in self.verdicts if not verdict.is_bad)

    @property
    def causes(self) -> list[Cause]:
        """Why cases did not pass, each cause with its cases."""
        return group_by_cause(self.verdicts)

    @property
    def changed_tools(self) -> dict[str, list[str]]:
        """The tools whose source changed since the recording, and the cases that replay them."""
        return _group_cases((verdict.id, verdict.changed_tools) for verdict in self.verdicts)

    @property
    def live(self) -> dict[str, list[str]]:
        """The assertion functions that use the network, and their cases."""
        return _group_cases((verdict.id, verdict.live) for verdict in self.verdicts)

    @property
    def spent(self) -> Spending:
        """What all recorded runs spent, including those that were not saved."""
        return sum((each.spent for each in self.recorded), Spending())

    @property
    def sweep_counts(self) -> tuple[int, dict[str, int]]:
        """The number of injected faults, and how the runs with them ended."""
        endings: Counter[str] = Counter()
        for result in self.results:
            endings.update({} if result.swept is None else result.swept.endings)
        tried = sum(result.swept.tried for result in self.results if result.swept is not None)
        return tried, dict(sorted(endings.items(), key=lambda each: (-each[1], each[0])))

    @property
    def is_below_min_coverage(self) -> bool:
        return (
            self.coverage is not None and self.min_coverage is not None and not self.coverage.reaches(self.min_coverage)
        )

    @property
    def exit_code(self) -> int:
        if self.was_interrupted:
            return code_of("cancelled").exit
        code = suite_exit_code(self.verdicts)
        return 1 if self.unused_snapshots or self.is_below_min_coverage else code

    def as_json(self) -> dict[str, Any]:
        tried, endings = self.sweep_counts
        data: dict[str, Any] = {
            "exit": self.exit_code,
            "cases": self.cases,
            **{status: self.counts.get(status, 0) for status in CASE_STATUSES},
            "interrupted": self.was_interrupted,
            "seconds": round(self.seconds, 3),
            "causes": [_cause_data(each) for each in self.causes],
            "changed_tools": [{"tool": tool, "cases": ids} for tool, ids in self.changed_tools.items()],
            "changes": [{"text": text, "cases": ids} for text, ids in self.changes.items()],
            "live": [{"function": function, "cases": ids} for function, ids in self.live.items()],
            "written": [to_builtins(each.written) for each in self.results if each.written is not None],
            "unwritten": [to_builtins(each.unwritten) for each in self.results if each.unwritten is not None],
            "removed": self.removed,
            "unused_snapshots": self.unused_snapshots,
            "unmatched_paths": [{"file": file, "path": path} for file, path in self.unmatched_paths],
        }
        if self.recorded:
            data["recorded"] = {"spent": to_builtins(self.spent), "cases": to_builtins(self.recorded)}
        if tried:
            data["sweep"] = {"tried": tried, "endings": endings}
        if self.coverage is not None:
            data["coverage"] = {
                **self.coverage.as_json(),
                "least": self.min_coverage,
                "short": self.is_below_min_coverage,
            }
        return data


def _cause_data(cause: Cause) -> dict[str, Any]:
    ids = [verdict.id for verdict in cause.verdicts]
    return {"title": cause.title, "texts": cause.texts, "file": cause.file, "line": cause.line, "cases": ids}


def _group_changes(verdicts: Iterable[CaseVerdict]) -> dict[str, list[str]]:
    return _group_cases((each.id, tuple(dict.fromkeys(change.text for change in each.changes))) for each in verdicts)


def _group_cases(found: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, list[str]]:
    """Text → the ids of the cases that have it."""
    grouped: dict[str, list[str]] = {}
    for case, texts in found:
        for text in texts:
            grouped.setdefault(text, []).append(case)
    return grouped


def redact_result(result: CaseResult) -> CaseResult:
    """The result without secrets. A case that passed without changes contains no text to redact."""
    verdict = result.verdict
    if not verdict.failures and not verdict.notes and not verdict.changes and verdict.reason is None:
        return result
    verdict = replace(
        verdict,
        reason=None if verdict.reason is None else _redact_text(verdict.reason),
        failures=tuple(_redact_failure(each) for each in verdict.failures),
        notes=tuple(_redact_failure(each) for each in verdict.notes),
        changes=tuple(_redact_change(each) for each in verdict.changes),
        steps=_redact_text(verdict.steps),
    )
    written = result.written
    return replace(
        result,
        verdict=verdict,
        written=written if written is None else replace(written, changes=tuple(map(_redact_text, written.changes))),
    )


def _redact_failure(wrong: CaseFailure) -> CaseFailure:
    hint = None if wrong.hint is None else _redact_text(wrong.hint)
    return replace(wrong, message=_redact_text(wrong.message), detail=_redact_text(wrong.detail), hint=hint)


def _redact_change(change: CaseChange) -> CaseChange:
    lines = (change.recorded_line, change.current_line)
    recorded, current = (None if line is None else _redact_text(line) for line in lines)
    title, text = _redact_text(change.title), _redact_text(change.text)
    return replace(change, title=title, text=text, recorded_line=recorded, current_line=current)


def _redact_text(text: str) -> str:
    return mask(hidden_secrets.redactor.redact_excerpt(text)) if text else text
