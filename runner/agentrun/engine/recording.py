"""Records a run, or the runs of a conversation, on a cassette.

Rule 1  One process records a cassette at a time; another is refused before it spends anything.
Rule 2  Whether it can be written is found out first. It is written when the last run is over, whole or not at all.
Rule 3  A run that was cancelled, or that failed in us, is not recorded. One that failed at its provider does not take
        the place of a recording that is there: a wrong key must not cost a good one. The same holds for one that
        found nobody to ask, unless the case says that there is nobody.
Rule 4  A conversation is recorded as a whole: its runs share one recorder, and it ends with the first that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime
from errno import EEXIST
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.file import dump_cassette, save_cassette
from agentrun.cassette.interactions import Interaction, is_recordable_failure
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.cassette.redaction import RunRedaction
from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import ToolFinished
from agentrun.core.outcome import Outcome
from agentrun.distribution import version
from agentrun.engine import cassette_encoding as form
from agentrun.engine.approvals import HOW_TO_ANSWER, NO_ANSWER, ApproverChain, PresetApprover
from agentrun.engine.begin import admit, jitter_seed
from agentrun.engine.live_providers import overridden_addresses
from agentrun.engine.ports import Approver
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.run import FinishedRun, run_in_world
from agentrun.engine.settings import Settings
from agentrun.engine.spending import Spending, sum_spending
from agentrun.engine.system_clock import SystemClock
from agentrun.engine.world import World, Wrapper, wrap
from agentrun.engine.worlds.record import recording_wrapper
from agentrun.errors import PolicyError, StorageError
from agentrun.files import ProjectTree
from agentrun.spec.project import Project
from agentrun.store.cassettes import lock_cassette, staged_path
from agentrun.wire import SCRIPTED_PROVIDER_NAME

NOT_ANSWERED = (NO_ANSWER, ("unavailable", "approver"))
"""Answers that nobody gave."""
UNRECORDED_CODES = ("cancelled", "internal", "storage.", "journal.", "host.", "cassette.")


class CassetteRecording:
    """A cassette that is being recorded: the wrapper that records, and what is written when the last run is over."""

    def __init__(
        self,
        project: Project,
        path: Path,
        about: Mapping[str, Any],
        *,
        old_player: Player | None = None,
        until: int | None = None,
        is_new: bool = False,
        is_taken: Callable[[], bool] = lambda: False,
        is_staged: bool = False,
    ) -> None:
        """`path`: the cassette. `about`: for the metadata, what was recorded. `old_player`: the existing cassette, if
        some of it is kept; `until`: the first so many interactions, which must fit; None: all that fit. `is_new`:
        whether there was no cassette when the recording was planned: then there may be none when it begins.
        `is_taken`: whether another process has recorded the same since then. `is_staged`: the recording is judged
        before it takes the place of the cassette."""
        self.project = project
        self.path = path
        self._about = about
        self._old_player = old_player
        self._until = until
        self._is_new = is_new
        self._is_recorded_meanwhile = is_taken
        self._is_staged = is_staged
        self._recorder: Recorder
        self._began: datetime

    @property
    def destination(self) -> tuple[ProjectTree, Path]:
        """Where the recording is written."""
        if self._is_staged:
            return self.project.data_tree, staged_path(self.project, self.path)
        return self.project.cassette_tree, self.path

    @contextmanager
    def start(self, approver: Approver) -> Iterator[Wrapper]:
        """Ours as long as it is made: whether it can be written is found out before anything is spent. Gives what
        records the runs.

        Raises `storage.failed`.
        """
        with lock_cassette(self.project, self.path):
            if (self._is_new and self.path.exists()) or self._is_recorded_meanwhile():
                message = f"another process has recorded {self.path.name} meanwhile: it is left as it is"
                raise StorageError("storage.failed", message, fields={"path": "cassette", "errno": EEXIST})
            self.project.cassette_tree.check_writable(self.path)
            tree, path = self.destination
            tree.check_writable(path)
            tree.remove_leftovers(path)
            if self._old_player is not None and self._until is None:
                skip_overruled_answers(self._old_player, approver)
            self._recorder, self._began = Recorder(SystemClock().now), datetime.now(UTC)
            yield recording_wrapper(self._recorder, self._old_player, self._until)

    def finish(
        self, package: PackageFile, runs: Sequence[FinishedRun], after_save: Callable[[], None]
    ) -> RecordingResult:
        """Write what the runs saw of the world, whole or not at all. `after_save`: what has to be done before another
        process may record it again."""
        done = runs[-1]
        interactions, unasked = self._recorder.interactions(), _unanswered_approvals(self._recorder)
        refused = _refusal(done, interactions, is_there=self.path.exists())
        if refused is None and unasked and self.path.exists():
            error = _nobody_to_ask_error(unasked)
            refused, done = error.message, replace(done, save_error=error)
        if refused is None:
            try:
                self._save(package, done.redaction, interactions)
            except StorageError as error:
                done = replace(done, save_error=error)
            else:
                after_save()
        spent = sum_spending(package.agent, self._recorder.new_interactions())
        return RecordingResult((*runs[:-1], done), len(interactions), self._recorder.reused, refused, unasked, spent)

    def _save(self, package: PackageFile, redaction: RunRedaction, interactions: Sequence[Interaction]) -> None:
        """Write the recording, unless it is larger than a replay reads. Raises `storage.failed`."""
        written = redaction.redact_interactions(interactions)
        text = dump_cassette(written, redaction.data(self._metadata(package, len(written))))
        tree, path = self.destination
        save_cassette(tree, path, text, self.project.cassette_limit)

    def _metadata(self, package: PackageFile, total: int) -> dict[str, Any]:
        """What the recording was made of. Of what is kept, the beginning stays the beginning."""
        reused = self._recorder.reused
        before = {} if self._old_player is None or not reused else self._old_player.cassette.metadata
        now = self._began.isoformat(timespec="seconds").replace("+00:00", "Z")
        about = {
            **self._about,
            "recorded_at": before.get("recorded_at", now),
            "agentrun": version(),
            "where": list(dict.fromkeys([*_metadata_list(before, "where"), *_describe_servers(self._recorder)])),
            "fingerprint": package.fingerprint,
            "sections": package.sections,
        }
        if reused:
            line = {"at": now, "kept": reused, "recorded": total - reused, "fingerprint": package.fingerprint}
            about["history"] = [*_metadata_list(before, "history"), line]
        return about


class RecordingResult(Struct, frozen=True):
    """What came of it."""

    runs: tuple[FinishedRun, ...]
    interactions: int
    reused: int
    """How many of them are from the recording before."""
    refusal: str | None = None
    """Why nothing was written."""
    unanswered: tuple[str, ...] = ()
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
        return self.refusal is None and self.run.save_error is None


async def record_runs(
    recording: CassetteRecording,
    open_world: Callable[[str], AbstractAsyncContextManager[World]],
    package: PackageFile,
    requests: Sequence[Request],
    approver: Approver,
    *,
    wrappers: tuple[Wrapper, ...] = (),
    after_save: Callable[[], None] = lambda: None,
) -> RecordingResult:
    """Run for real, and write what the runs saw of the world to a cassette. Several are a conversation, each after the
    ones before. `open_world`: the live world of a run. `wrappers`: what is before the cassette."""
    with recording.start(approver) as recorder:
        runs: list[FinishedRun] = []
        for request in requests:
            seed = jitter_seed(package.agent, admit(package.agent, request.message, request.params))
            run = new_run_id()
            async with open_world(run) as world:
                before = [each.journal for each in runs]
                world = wrap(world, recorder, *wrappers)
                runs.append(await run_in_world(world, replace(request, run=run, seed=seed), before))
            if runs[-1].ending.exit_code:
                break
        return recording.finish(package, runs, after_save)


def _refusal(done: FinishedRun, interactions: tuple[Interaction, ...], *, is_there: bool) -> str | None:
    if not isinstance(done.ending, Outcome):
        return "the run is not over"
    if any(each.failure is not None and not is_recordable_failure(each.failure.code) for each in interactions):
        return "a request failed in us"
    code = done.outcome.code or ""
    if code.startswith(UNRECORDED_CODES):
        return f"the run ended with {code}"
    if code.startswith("provider.") and is_there:
        return f"the run failed with {code}, and there is a recording; remove it if the failure is what you want"
    return None


def _unanswered_approvals(recorder: Recorder) -> tuple[str, ...]:
    """What nobody could be asked about in this run. What an earlier one found out is not asked again, and what the case
    itself declares unavailable is meant."""
    whole = [each for each in recorder.new_interactions() if each.failure is None and not each.stopped]
    asked = [each for each in whole if each.call.url.startswith("approval://")]
    lost = [each.call.url for each in asked if form.decode_answer(each.reply) in NOT_ANSWERED]
    return tuple(sorted({url.removeprefix("approval://") for url in lost}))


def _nobody_to_ask_error(unasked: tuple[str, ...]) -> PolicyError:
    return PolicyError(
        "approval.unavailable",
        f"there was nobody to ask about {', '.join(unasked)}: the recording that is there stays as it is",
        hint=f"{HOW_TO_ANSWER}; if nobody shall answer, say so in the case: `approvals: {{{unasked[0]}: unavailable}}`",
        fields={"targets": list(unasked)},
    )


def _metadata_list(before: Mapping[str, Any], key: str) -> list[Any]:
    """What a recording says of itself may be missing, or be anything: others make cassettes too."""
    value = before.get(key)
    return list(value) if isinstance(value, list) else []


def _describe_servers(recorder: Recorder) -> list[str]:
    """Who answered, without credentials or anything that differs between two machines."""
    settings = Settings()
    others = overridden_addresses(settings)
    found: dict[str, str] = {}
    for url, server in recorder.servers().items():
        words = url.partition("?")[0]
        home = next((each for each in others if url.startswith(each + "/")), None)
        if home is not None:
            host = urlsplit(settings.secret(others[home]).reveal()).hostname
            words = f"{home}, sent to {host} by {others[home]}"
        if server == SCRIPTED_PROVIDER_NAME:
            words += " (a scripted provider: no model was asked)"
        found[words] = ""
    return list(found)


# --- recorded answers to approvals that no longer count -------------------------------------------------------


APPROVAL_SCHEME = "approval://"


def skip_overruled_answers(old_player: Player, approver: Approver) -> None:
    """Leave out the recorded answers that the approver answers differently in advance."""
    if not isinstance(approver, PresetApprover | ApproverChain):
        return
    for number, interaction in enumerate(old_player.cassette.interactions, 1):
        if interaction.call.url.startswith(APPROVAL_SCHEME):
            answer = approver.preset_answer(interaction.call.url.removeprefix(APPROVAL_SCHEME))
            if answer is not None and answer != form.recorded_answer(interaction):
                old_player.skip(number)
