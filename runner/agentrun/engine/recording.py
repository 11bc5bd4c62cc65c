"""Record a run, or the runs of a conversation, to a cassette.

Rule 1  Only one process records a cassette at a time. A second one fails before it sends a request.
Rule 2  Before the first request, a check shows that the cassette can be written. It is written after the last run,
        completely or not at all.
Rule 3  A run that was cancelled or failed inside agentrun is not recorded. A run that failed at its provider, for
        example because of a wrong key or port, is recorded only if the case expects that. A run with an unanswered
        approval does not replace an existing cassette, unless the case declares it as `unavailable`.
Rule 4  The runs of a conversation share one recorder. A conversation ends with the first run that fails.
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

from agentrun.cassette.file import save_cassette
from agentrun.cassette.interactions import TOOL_SOURCES_KEY, Interaction, is_recordable_failure, recorded_tool_sources
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.cassette.redact_recording import redact_recording
from agentrun.cassette.redaction import RunRedaction
from agentrun.cassette.writer import dump_cassette
from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import ToolFinished
from agentrun.distribution import version
from agentrun.engine import cassette_encoding as encoding
from agentrun.engine.approvals import HOW_TO_ANSWER, NO_ANSWER, ApproverChain, PresetApprover
from agentrun.engine.begin import admit, jitter_seed, name_run_in_errors
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.live_providers import overridden_addresses
from agentrun.engine.ports import Approver
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.run import Announce, FinishedRun, announce_nothing, conversation, run_in_world
from agentrun.engine.settings import Settings
from agentrun.engine.spending import Spending, sum_spending
from agentrun.engine.world import World, Wrapper, wrap
from agentrun.engine.worlds.record import recording_wrapper
from agentrun.errors import PolicyError, StorageError, storage_failed
from agentrun.files import ProjectTree
from agentrun.spec.project import Project
from agentrun.store.staged_cassettes import lock_cassette, staged_path
from agentrun.wire import SCRIPTED_PROVIDER_NAME

NOT_ANSWERED = (NO_ANSWER, ("unavailable", "approver"))
"""The answers of questions that no approver answered."""
UNRECORDED_CODES = ("cancelled", "internal", "storage.", "journal.", "host.", "cassette.")


class CassetteRecording:
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
        expects: Callable[[str], bool] = lambda code: False,
        is_staged: bool = False,
    ) -> None:
        """`path`: the cassette. `about`: metadata about what is recorded. `old_player`: the existing cassette, to reuse
        some of it; `until`: the first `until` interactions, which must match; None: all that match. `is_new`: there was
        no cassette when the recording was planned, so there must be none when it starts. `is_taken`: whether another
        process has recorded the same in the meantime. `expects`: whether the case expects a run that ends with this
        code. `is_staged`: the new cassette is checked before it replaces the existing one."""
        self.project = project
        self.path = path
        self._about = about
        self._old_player = old_player
        self._until = until
        self._is_new = is_new
        self._is_recorded_meanwhile = is_taken
        self._expects = expects
        self._is_staged = is_staged
        self._recorder: Recorder
        self._began: datetime

    @property
    def destination(self) -> tuple[ProjectTree, Path]:
        if self._is_staged:
            return self.project.store_tree, staged_path(self.project, self.path)
        return self.project.cassette_tree, self.path

    @contextmanager
    def start(self, approver: Approver) -> Iterator[Wrapper]:
        """Lock the cassette, check that it can be written, and yield the recording wrapper. Raises `storage.failed`."""
        with lock_cassette(self.project, self.path):
            if (self._is_new and self.path.exists()) or self._is_recorded_meanwhile():
                message = f"another process has recorded {self.path.name} in the meantime; it was not replaced"
                raise storage_failed("cassette", message, EEXIST)
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
        """Write the cassette, completely or not at all. `after_save` is called before another process can record it."""
        done = runs[-1]
        interactions, unanswered = self._recorder.interactions(), _unanswered_approvals(self._recorder)
        refusal = _refusal(done, interactions, self._expects)
        if refusal is None and unanswered and self.path.exists():
            error = _unanswered_error(unanswered)
            refusal, done = error.message, replace(done, save_error=error)
        if refusal is None:
            try:
                self._save(package, done.redaction, interactions)
            except StorageError as error:
                done = replace(done, save_error=error)
            else:
                after_save()
        spent = sum_spending(package.agent, self._recorder.new_interactions())
        earlier = (replace(run, redaction=done.redaction) for run in runs[:-1])  # it has learned the values of all runs
        return RecordingResult((*earlier, done), len(interactions), self._recorder.reused, refusal, unanswered, spent)

    def _save(self, package: PackageFile, redaction: RunRedaction, interactions: Sequence[Interaction]) -> None:
        """Write the cassette. Raises `storage.failed`, for example above the size limit."""
        metadata = self._metadata(package, len(interactions))
        clean = redact_recording(redaction, package.agent.replay.redact, interactions, metadata)
        text = dump_cassette(clean.interactions, clean.metadata)
        tree, path = self.destination
        save_cassette(tree, path, text, self.project.cassette_limit)

    def _metadata(self, package: PackageFile, total: int) -> dict[str, Any]:
        """The metadata of the cassette. If interactions are reused, the original recording time is kept."""
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
        if sources := recorded_tool_sources(package.agent, before, self._recorder.reused_interactions()):
            about[TOOL_SOURCES_KEY] = sources
        if reused:
            line = {"at": now, "kept": reused, "recorded": total - reused, "fingerprint": package.fingerprint}
            about["history"] = [*_metadata_list(before, "history"), line]
        return about


class RecordingResult(Struct, frozen=True):
    runs: tuple[FinishedRun, ...]
    interactions: int
    reused: int
    refusal: str | None = None
    unanswered: tuple[str, ...] = ()
    """The tools, sinks and stages whose approval questions had no answer."""
    spent: Spending = Spending()

    @property
    def run(self) -> FinishedRun:
        return self.runs[-1]

    @property
    def failed_calls(self) -> tuple[str, ...]:
        """The tool calls that failed, as `tool (code)`, including those of sub-agents."""
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
    announce: Announce = announce_nothing,
    after_save: Callable[[], None] = lambda: None,
) -> RecordingResult:
    """Run live and write a cassette. Several requests are a conversation. `open_world`: opens the live world of a run.
    `wrappers`: wrap the cassette. `announce`: for the first run."""
    with recording.start(approver) as recorder:
        runs: list[FinishedRun] = []
        for request in requests:
            run = request.run or new_run_id()
            with name_run_in_errors(run):
                seed = jitter_seed(package.agent, admit(package.agent, request.message, request.params))
            async with open_world(run) as world:
                world = wrap(world, recorder, *wrappers)
                first = announce if not runs else announce_nothing
                request = replace(request, run=run, seed=seed)
                runs.append(await run_in_world(world, request, conversation(runs), first))
            if runs[-1].ending.exit_code:
                break
        return recording.finish(package, runs, after_save)


def _refusal(done: FinishedRun, interactions: tuple[Interaction, ...], expects: Callable[[str], bool]) -> str | None:
    """Why a run is not recorded (rule 3)."""
    if not done.ending.is_finished:
        return "the run is not finished"
    if any(each.failure is not None and not is_recordable_failure(each.failure.code) for each in interactions):
        return "a request failed inside agentrun"
    code = done.outcome.code or ""
    if code.startswith(UNRECORDED_CODES):
        return f"the run ended with {code}"
    if code.startswith("provider.") and not expects(code):
        assertion = f"{{type: outcome, value: {code}}}"
        return f"the run failed with {code}; to record such a failure, a case needs the assertion {assertion}"
    return None


def _unanswered_approvals(recorder: Recorder) -> tuple[str, ...]:
    """The targets of new approval questions without an answer. Questions that the case declares as `unavailable` have
    an answer."""
    whole = [each for each in recorder.new_interactions() if each.failure is None and not each.stopped]
    asked = [(target, each.reply) for each in whole if (target := encoding.approval_target(each.request))]
    return tuple(sorted({target for target, reply in asked if encoding.decode_answer(reply) in NOT_ANSWERED}))


def _unanswered_error(targets: tuple[str, ...]) -> PolicyError:
    verb = "needs approval" if len(targets) == 1 else "need approval"
    return PolicyError(
        "approval.unavailable",
        f"{', '.join(targets)} {verb}, but there is no terminal and no --approve; the existing cassette was kept",
        hint=f"{HOW_TO_ANSWER}; to record it without an answer, write in the case: "
        f"`approvals: {{{targets[0]}: unavailable}}`",
        fields={"targets": list(targets)},
    )


def _metadata_list(before: Mapping[str, Any], key: str) -> list[Any]:
    """A list in the metadata. It may be missing or of another type, because other programs write cassettes too."""
    value = before.get(key)
    return list(value) if isinstance(value, list) else []


def _describe_servers(recorder: Recorder) -> list[str]:
    """The servers that answered, without credentials and without details of this machine."""
    settings = Settings()
    others = overridden_addresses(settings)
    descriptions: list[str] = []
    for url, server in recorder.servers().items():
        text = url.partition("?")[0]
        home = next((each for each in others if url.startswith(each + "/")), None)
        if home is not None:
            host = urlsplit(settings.secret(others[home]).reveal()).hostname
            text = f"{home}, sent to {host} by {others[home]}"
        if server == SCRIPTED_PROVIDER_NAME:
            text += " (a scripted provider: no model was asked)"
        descriptions.append(text)
    return list(dict.fromkeys(descriptions))


def skip_overruled_answers(old_player: Player, approver: Approver) -> None:
    """Skip the recorded approvals that the approver's preset answers contradict."""
    if not isinstance(approver, PresetApprover | ApproverChain):
        return
    for number, interaction in enumerate(old_player.cassette.interactions, 1):
        if target := encoding.approval_target(interaction.request):
            answer = approver.preset_answer(target)
            if answer is not None and answer != encoding.recorded_answer(interaction):
                old_player.skip(number)
