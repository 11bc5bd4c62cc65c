"""Records a run, or the runs of a conversation, on a cassette.

Rule 1  One process records a cassette at a time; another is refused before it spends anything.
Rule 2  Whether it can be written is found out first. It is written when the last run is over, whole or not at all.
Rule 3  A run that was cancelled, or that failed in us, is not recorded. One that failed at its provider does not take
        the place of a recording that is there: a wrong key must not cost a good one. The same holds for one that
        found nobody to ask, unless the case says that there is nobody.
Rule 4  A conversation is recorded as a whole: its runs share one recorder, and it ends with the first that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from errno import EEXIST
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.file import dump, save
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.cassette.tape import Interaction, may_fail
from agentrun.core.facts_calls import ToolFinished
from agentrun.core.outcome import Outcome
from agentrun.distribution import version
from agentrun.engine import tape_forms as form
from agentrun.engine.admission import admit, tape_seed
from agentrun.engine.approvals import NOBODY, TO_ANSWER
from agentrun.engine.assemble import FinishedRun
from agentrun.engine.live import elsewhere
from agentrun.engine.overruled_answers import leave_out_overruled
from agentrun.engine.real_time import Job, Tapes, live_run
from agentrun.engine.settings import Settings
from agentrun.engine.spending import Spending, spending_of
from agentrun.engine.system_clock import SystemClock
from agentrun.engine.taped import Recording
from agentrun.errors import PolicyError, StorageError
from agentrun.files import ProjectTree
from agentrun.spec.project import Project
from agentrun.store.lock import cassette_lock, locked
from agentrun.store.staged import staged_path
from agentrun.wire import SCRIPTED

LOST = (NOBODY, ("unavailable", "approver"))
"""Answers that nobody gave."""
NOT_RECORDED = ("cancelled", "internal", "storage.", "journal.", "host.", "cassette.")


class Target(Struct, frozen=True, kw_only=True):
    """Where a recording goes, and what is kept of the one that is there."""

    project: Project
    path: Path
    """The cassette."""
    about: Mapping[str, Any]
    """For the metadata: what was recorded."""
    kept: Player | None = None
    """The recording that is there, if some of it is kept."""
    until: int | None = None
    """The first so many interactions are kept, and must fit. None: all that fit."""
    is_new: bool = False
    """Whether there was no cassette when the recording was planned: then there may be none when it begins."""
    is_taken: Callable[[], bool] = lambda: False
    """Whether another process has recorded the same since the recording was planned."""
    after_save: Callable[[], None] = lambda: None
    """What has to be done with the new recording before another process may record it again."""
    is_staged: bool = False
    """Whether the recording is judged before it takes the place of the cassette; until then it is staged."""

    @property
    def destination(self) -> tuple[ProjectTree, Path]:
        """Where the recording is written."""
        if self.is_staged:
            return self.project.data_tree, staged_path(self.project, self.path)
        return self.project.cassette_tree, self.path

    def prepare(self) -> None:
        """Find out whether it can be written, before anything is spent. Raises `storage.failed`."""
        if (self.is_new and self.path.exists()) or self.is_taken():
            message = f"another process has recorded {self.path.name} meanwhile: it is left as it is"
            raise StorageError("storage.failed", message, fields={"path": "cassette", "errno": EEXIST})
        self.project.cassette_tree.check(self.path)
        tree, path = self.destination
        tree.check(path)
        tree.clear(path)

    def save(self, text: str) -> None:
        """Write the recording, unless it is larger than a replay reads. Raises `storage.failed`."""
        tree, path = self.destination
        save(tree, path, text, self.project.cassette_limit)


class Recorded(Struct, frozen=True):
    """What came of it."""

    runs: tuple[FinishedRun, ...]
    interactions: int
    kept: int
    """How many of them are from the recording before."""
    refused: str | None = None
    """Why nothing was written."""
    unasked: tuple[str, ...] = ()
    """What nobody could be asked about."""
    spent: Spending = Spending()
    """What the requests used that were sent now."""

    @property
    def run(self) -> FinishedRun:
        """The last one."""
        return self.runs[-1]

    @property
    def failed_calls(self) -> tuple[str, ...]:
        """The tool calls that failed, as `tool (code)`, also those of sub-agents."""
        records = [each for run in self.runs for journal in (run.journal, *run.children.values()) for each in journal]
        faults = [fact.fault for each in records if isinstance(fact := each.fact, ToolFinished) and fact.fault]
        return tuple(f"{fault.fields.get('tool', 'a tool')} ({fault.code})" for fault in faults)

    @property
    def is_saved(self) -> bool:
        return self.refused is None and self.run.unsaved is None


async def record_run(job: Job, target: Target) -> Recorded:
    """Run for real, and write what the run saw of the world to a cassette."""
    return await record_runs(job, (job.message,), target)


async def record_runs(job: Job, messages: Sequence[str | None], target: Target) -> Recorded:
    """The same for a conversation: one run for each message, each after the ones before. One at least."""
    lock = cassette_lock(target.project, target.path)
    with locked(target.project, lock, f"another process is recording {target.path.name}"):
        target.prepare()
        recorder = Recorder(SystemClock().now)
        began = datetime.now(UTC)
        if target.kept is not None and target.until is None:
            leave_out_overruled(target.kept, job.approver)
        tape = Recording(recorder, target.kept, target.until)
        runs = await _runs(job, messages, Tapes(models=tape, others=tape))
        done = runs[-1]
        interactions = recorder.interactions()
        kept = recorder.kept
        unasked = _unasked(recorder)
        refused = _refusal(done, target, interactions)
        if refused is None and unasked and target.path.exists():
            error = _nobody(unasked)
            refused, done = error.message, replace(done, unsaved=error)
        if refused is None:
            try:
                written = done.redaction.clean(interactions)
                about = done.redaction.data(_metadata(job, target, recorder, began, len(written)))
                target.save(dump(written, about))
            except StorageError as error:
                done = replace(done, unsaved=error)
            else:
                target.after_save()
    spent = spending_of(job.file.agent, recorder.fresh())
    return Recorded((*runs[:-1], done), len(interactions), kept, refused, unasked, spent)


async def _runs(job: Job, messages: Sequence[str | None], tapes: Tapes) -> list[FinishedRun]:
    runs: list[FinishedRun] = []
    for message in messages:
        seed = tape_seed(job.file.agent, admit(job.file.agent, message, job.params))
        done = await live_run(replace(job, message=message, seed=seed, after=tuple(runs)), tapes)
        runs.append(done)
        if done.ended.exit_code:
            break
    return runs


def _refusal(done: FinishedRun, target: Target, interactions: tuple[Interaction, ...]) -> str | None:
    if not isinstance(done.ended, Outcome):
        return "the run is not over"
    if any(each.failure is not None and not may_fail(each.failure.code) for each in interactions):
        return "a request failed in us"
    code = done.outcome.code or ""
    if code.startswith(NOT_RECORDED):
        return f"the run ended with {code}"
    if code.startswith("provider.") and target.path.exists():
        return f"the run failed with {code}, and there is a recording; remove it if the failure is what you want"
    return None


def _unasked(recorder: Recorder) -> tuple[str, ...]:
    """What nobody could be asked about in this run. What an earlier one found out is not asked again, and what the case
    itself declares unavailable is meant."""
    whole = [each for each in recorder.fresh() if each.failure is None and not each.stopped]
    asked = [each for each in whole if each.call.url.startswith("approval://")]
    lost = [each.call.url for each in asked if form.approval_answer(each.reply) in LOST]
    return tuple(sorted({url.removeprefix("approval://") for url in lost}))


def _nobody(unasked: tuple[str, ...]) -> PolicyError:
    return PolicyError(
        "approval.unavailable",
        f"there was nobody to ask about {', '.join(unasked)}: the recording that is there stays as it is",
        hint=f"{TO_ANSWER}; if nobody shall answer, say so in the case: `approvals: {{{unasked[0]}: unavailable}}`",
        fields={"targets": list(unasked)},
    )


def _metadata(job: Job, target: Target, recorder: Recorder, began: datetime, total: int) -> dict[str, Any]:
    """What the recording was made of. Of what is kept, the beginning stays the beginning."""
    before = {} if target.kept is None or not recorder.kept else target.kept.cassette.metadata
    now = began.isoformat(timespec="seconds").replace("+00:00", "Z")
    about = {
        **target.about,
        "recorded_at": before.get("recorded_at", now),
        "agentrun": version(),
        "where": list(dict.fromkeys([*_list(before, "where"), *_where(recorder)])),
        "fingerprint": job.file.fingerprint,
        "sections": job.file.sections,
    }
    if recorder.kept:
        line = {
            "at": now,
            "kept": recorder.kept,
            "recorded": total - recorder.kept,
            "fingerprint": job.file.fingerprint,
        }
        about["history"] = [*_list(before, "history"), line]
    return about


def _list(before: Mapping[str, Any], key: str) -> list[Any]:
    """What a recording says of itself may be missing, or be anything: others make cassettes too."""
    value = before.get(key)
    return list(value) if isinstance(value, list) else []


def _where(recorder: Recorder) -> list[str]:
    """Who answered, without credentials or anything that differs between two machines."""
    settings = Settings()
    others = elsewhere(settings)
    found: dict[str, str] = {}
    for url, server in recorder.servers().items():
        words = url.partition("?")[0]
        home = next((each for each in others if url.startswith(each + "/")), None)
        if home is not None:
            host = urlsplit(settings.secret(others[home]).reveal()).hostname
            words = f"{home}, sent to {host} by {others[home]}"
        if server == SCRIPTED:
            words += " (a scripted provider: no model was asked)"
        found[words] = ""
    return list(found)
