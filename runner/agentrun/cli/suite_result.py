"""What came of a suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from agentrun.cli.console import environment_redactor
from agentrun.engine.spending import Spending
from agentrun.errors import code_of
from agentrun.redactor import mask_except_placeholders
from agentrun.testing.suite.coverage import Coverage
from agentrun.testing.suite.runner import CaseResult
from agentrun.testing.suite.verdict import CaseStatus, CaseVerdict, Complaint, suite_exit_code

if TYPE_CHECKING:
    from agentrun.engine.recording import RecordingResult
    from agentrun.testing.suite.discovery import LocatedCase

CASE_STATUSES: tuple[CaseStatus, ...] = get_args(CaseStatus)


class RecordedCase(Struct, frozen=True, kw_only=True):
    """A case that was run for real to be recorded."""

    id: str
    spent: Spending
    failed_calls: tuple[str, ...]
    is_saved: bool


class SuiteResult(Struct, kw_only=True):
    """A suite that is over, or was ended."""

    paths: tuple[str, ...]
    """As they were given."""
    results: list[CaseResult]
    """In order; files that could not be read first."""
    cases: int
    """How many were to be run."""
    unclaimed: list[str] = []
    """Snapshots that no case claims."""
    removed: list[str] = []
    """Those that were removed."""
    recorded: list[RecordedCase] = []
    coverage: Coverage | None = None
    min_coverage: float | None = None
    """How many percent must be covered."""
    seconds: float = 0
    was_interrupted: bool = False

    def add_recorded(self, found: LocatedCase, recorded: RecordingResult) -> None:
        calls = tuple(
            mask_except_placeholders(environment_redactor().redact_excerpt(call)) for call in recorded.failed_calls
        )
        case = RecordedCase(id=found.id, spent=recorded.spent, failed_calls=calls, is_saved=recorded.is_saved)
        self.recorded.append(case)

    @property
    def verdicts(self) -> list[CaseVerdict]:
        return [result.verdict for result in self.results]

    @property
    def counts(self) -> dict[str, int]:
        """By status, those that there are."""
        found = Counter(verdict.status for verdict in self.verdicts)
        return {status: found[status] for status in CASE_STATUSES if found[status]}

    @property
    def changes(self) -> dict[str, list[str]]:
        """What is done differently, in words, and the cases in which it is."""
        found: dict[str, list[str]] = {}
        for verdict in self.verdicts:
            for change in dict.fromkeys(verdict.changes):
                found.setdefault(change, []).append(verdict.id)
        return found

    @property
    def live(self) -> dict[str, list[str]]:
        """The functions that had the network, and the cases that they judged."""
        found: dict[str, list[str]] = {}
        for verdict in self.verdicts:
            for function in verdict.live:
                found.setdefault(function, []).append(verdict.id)
        return found

    @property
    def spent(self) -> Spending:
        """What recording cost, also of cases that were not saved."""
        return sum((each.spent for each in self.recorded), Spending())

    @property
    def sweep_counts(self) -> tuple[int, dict[str, int]]:
        """How many faults were tried, and how the runs ended under them."""
        endings: Counter[str] = Counter()
        for result in self.results:
            endings.update({} if result.swept is None else result.swept.endings)
        tried = sum(result.swept.tried for result in self.results if result.swept is not None)
        return tried, dict(sorted(endings.items(), key=lambda each: (-each[1], each[0])))

    @property
    def is_below_min_coverage(self) -> bool:
        """Whether too little is covered."""
        return (
            self.coverage is not None and self.min_coverage is not None and not self.coverage.reaches(self.min_coverage)
        )

    @property
    def exit_code(self) -> int:
        if self.was_interrupted:
            return code_of("cancelled").exit
        code = suite_exit_code(self.verdicts)
        return 1 if self.unclaimed or self.is_below_min_coverage else code

    def as_json(self) -> dict[str, Any]:
        tried, endings = self.sweep_counts
        data: dict[str, Any] = {
            "exit": self.exit_code,
            "cases": self.cases,
            **{status: self.counts.get(status, 0) for status in CASE_STATUSES},
            "interrupted": self.was_interrupted,
            "seconds": round(self.seconds, 3),
            "changes": [{"text": text, "cases": ids} for text, ids in self.changes.items()],
            "live": [{"function": function, "cases": ids} for function, ids in self.live.items()],
            "written": [to_builtins(each.written) for each in self.results if each.written is not None],
            "removed": self.removed,
            "unclaimed": self.unclaimed,
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


def redact_result(result: CaseResult) -> CaseResult:
    """The result without what nobody may see. What passed and changed nothing has nothing foreign in it."""
    verdict = result.verdict
    if not verdict.complaints and not verdict.notes and not verdict.changes and verdict.reason is None:
        return result
    verdict = replace(
        verdict,
        reason=None if verdict.reason is None else _redact_text(verdict.reason),
        complaints=tuple(_redact_complaint(each) for each in verdict.complaints),
        notes=tuple(_redact_complaint(each) for each in verdict.notes),
        changes=_redact_texts(verdict.changes),
        story=_redact_text(verdict.story),
    )
    written = result.written
    return replace(
        result,
        verdict=verdict,
        written=written if written is None else replace(written, changes=_redact_texts(written.changes)),
    )


def _redact_complaint(wrong: Complaint) -> Complaint:
    hint = None if wrong.hint is None else _redact_text(wrong.hint)
    return replace(wrong, message=_redact_text(wrong.message), detail=_redact_text(wrong.detail), hint=hint)


def _redact_texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(_redact_text, texts))


def _redact_text(text: str) -> str:
    return mask_except_placeholders(environment_redactor().redact_excerpt(text)) if text else text
