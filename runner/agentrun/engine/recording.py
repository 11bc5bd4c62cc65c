"""Record a run, or the runs of a conversation, to a cassette.

Rule 1  Only one process records a cassette at a time. A second one fails before it sends a request.
Rule 2  Before the first request, a check shows that the cassette can be written. Interactions are appended to a log in
        the directory of the run. The cassette is made of it after the last run, completely or not at all.
Rule 3  A run that was cancelled or failed inside agentrun is not recorded. A run that failed at its provider, for
        example because of a wrong key or port, is recorded only if the case expects that. A run with an unanswered
        approval does not replace an existing cassette, unless the case declares it as `unavailable`.
Rule 4  The runs of a conversation share one recorder. A conversation ends with the first run that fails.
Rule 5  Without a store the log is a file without a name. If it cannot be written, the run goes on, and is not recorded.
Rule 6  The log stays until the cassette is written, or can never be. A run that was cut is resumed with it, unless it
        has the stubs or faults of a case, or is a part of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from datetime import UTC, datetime
from errno import EEXIST, EINVAL
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import data_hash
from agentrun.cassette.file import cassette_exists, load_cassette, save_cassette
from agentrun.cassette.interactions import TOOL_SOURCES_KEY, Interaction, is_recordable_failure, recorded_tool_sources
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.cassette.recording_log import LoggedInteraction, RecordingLog, read_header
from agentrun.cassette.redact_recording import RecordingRedaction
from agentrun.cassette.redaction import RunRedaction, redact_cassette
from agentrun.cassette.writer import dump_cassette
from agentrun.compiler.cases import cases_for_spec, expects_outcome
from agentrun.compiler.package_file import PackageFile
from agentrun.core.evolve import fold
from agentrun.core.facts import RunStarted, ToolFinished
from agentrun.core.messages import text_of
from agentrun.distribution import version
from agentrun.engine import cassette_encoding as encoding
from agentrun.engine.approvals import HOW_TO_ANSWER, NO_ANSWER, ApproverChain, PresetApprover
from agentrun.engine.begin import admit, jitter_seed, name_run_in_errors
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.live_providers import overridden_addresses
from agentrun.engine.ports import Approver
from agentrun.engine.recorded_history import RecordedHistory
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.run import (
    Announce,
    FinishedRun,
    announce_nothing,
    conversation,
    resume_in_world,
    run_in_world,
)
from agentrun.engine.settings import Settings
from agentrun.engine.spending import Spending, sum_spending
from agentrun.engine.world import World, Wrapper, wrap
from agentrun.engine.worlds.record import recording_wrapper
from agentrun.errors import AgentrunError, PolicyError, StorageError, storage_failed
from agentrun.files import ProjectTree
from agentrun.spec.project import Project
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.cases import Case
from agentrun.store.files import FileStore
from agentrun.store.run_recording import RunRecording
from agentrun.store.staged_cassettes import lock_cassette, staged_path
from agentrun.wire import SCRIPTED_PROVIDER_NAME

NOT_ANSWERED = (NO_ANSWER, ("unavailable", "approver"))
"""The answers of questions that no approver answered."""
NOT_FINISHED = "the run is not finished"
UNRECORDED_CODES = ("cancelled", "internal", "storage.", "journal.", "host.", "cassette.")


class NewCase(Struct, frozen=True, omit_defaults=True):
    """A case that is added to the cases file when its cassette is written. The journal has its values."""

    has_input: bool
    params: tuple[str, ...] = ()


class RecordingHeader(Struct, frozen=True, omit_defaults=True):
    """What a recording becomes: the first line of its log. It contains no values of the run."""

    cassette: str
    """Its path below the directory of the cassettes."""
    began: str = ""
    spec: str | None = None
    case: str | None = None
    profile: str | None = None
    how: str = "all"
    """`new` or `from:N` if interactions of the present cassette are reused."""
    replaces: str | None = None
    """The hash of the present cassette. None: there is none."""
    is_staged: bool = False
    new_case: NewCase | None = None


class CassetteRecording:
    def __init__(
        self,
        project: Project,
        path: Path,
        spec: Path | None,
        case: Case | None,
        *,
        how: str = "all",
        old_player: Player | None = None,
        is_new: bool = False,
        is_taken: Callable[[], bool] = lambda: False,
        is_staged: bool = False,
        new_case: NewCase | None = None,
        resumes: RecordingHeader | None = None,
    ) -> None:
        """`path`: the cassette. `old_player`: the existing cassette, to reuse some of it, as `how` says. `is_new`:
        there was no cassette when the recording was planned, so there must be none when it starts. `is_taken`: whether
        another process has recorded the same in the meantime. `is_staged`: the new cassette is checked before it
        replaces the existing one. `resumes`: the recording that is continued."""
        self.project = project
        self.path = path
        self.case = case
        self.old_player = old_player
        self.until = int(how.removeprefix("from:")) - 1 if old_player and how.startswith("from:") else None
        self._is_new = is_new
        self._is_recorded_meanwhile = is_taken
        self._is_staged = is_staged
        self._resumes = resumes
        self._header = resumes or RecordingHeader(
            cassette=_relative_path(path, project.cassette_directory),
            spec=None if spec is None else _relative_path(spec, project.root),
            case=None if case is None else case.name,
            profile=None if case is None or case.profile is UNSET else case.profile,
            how=how if old_player is not None else "all",
            is_staged=is_staged,
            new_case=new_case,
        )
        self._recorder: Recorder
        self._redaction: RecordingRedaction
        self._file: RunRecording | None = None
        """None: the run is not stored."""

    @property
    def new_case(self) -> Case | None:
        """The case that is added to the cases file with its cassette. None: it is there."""
        return None if self._header.new_case is None else self.case

    @property
    def spec(self) -> Path:
        assert self._header.spec is not None, "only a recording of the command line has a new case"
        return self.project.root / self._header.spec

    @property
    def destination(self) -> tuple[ProjectTree, Path]:
        if self._is_staged:
            return self.project.store_tree, staged_path(self.project, self.path)
        return self.project.cassette_tree, self.path

    @contextmanager
    def start(self, approver: Approver) -> Iterator[None]:
        """Lock the cassette, and check that it can be written. Raises `storage.failed`."""
        with lock_cassette(self.project, self.path):
            if (self._is_new and self.path.exists()) or self._is_recorded_meanwhile():
                raise self._replaced_error()
            self.project.cassette_tree.check_writable(self.path)
            tree, path = self.destination
            tree.check_writable(path)
            tree.remove_leftovers(path)
            if self.old_player is not None and self.until is None:
                skip_overruled_answers(self.old_player, approver)
            if self._resumes is None:
                began = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                self._header = replace(self._header, began=began, replaces=self._present_hash())
            yield

    def _present_hash(self) -> str | None:
        return data_hash(self.path.read_bytes()) if cassette_exists(self.path) else None

    def _replaced_error(self) -> StorageError:
        message = f"another process has recorded {self.path.name} in the meantime; it was not replaced"
        return storage_failed("cassette", message, EEXIST)

    def open_recorder(self, world: World, package: PackageFile, store: FileStore | None) -> Recorder:
        """The recorder of a new run. Without a store, the recording is lost if the process ends."""
        header = msgspec.json.encode(self._header)
        self._file = None if store is None else store.record(world.run, header)
        log = None if self._file is None else RecordingLog(self._file, header)
        self._redaction = _recording_redaction(world, package)
        self._recorder = Recorder(SystemClock().now, log, self._redaction)
        return self._recorder

    def continue_recorder(self, world: World, package: PackageFile, store: FileStore) -> Recorder:
        """The recorder of a run that is resumed. Raises `storage.failed` if another process has recorded the cassette
        in the meantime."""
        history = RecordedHistory(store, world.run, package.agent)
        if not history.is_finished and self._present_hash() != self._header.replaces:
            raise self._replaced_error()
        header = msgspec.json.encode(self._header)
        self._file = store.recording(world.run)
        log = RecordingLog(self._file, header)
        kept = history.keep_finished(log.read())
        log.rewrite(kept)
        self._redaction = _recording_redaction(world, package)
        self._redaction.learn(history.documents())
        self._redaction.redact_earlier(log)
        for each in kept:
            if each.reused and self.old_player is not None:
                self.old_player.skip(each.reused)
        self._recorder = Recorder(SystemClock().now, log, self._redaction, kept)
        for call, reply, path in history.settled_calls(kept, world.blobs):
            self._recorder.add_settled(call, reply, path)
        return self._recorder

    def finish(
        self, package: PackageFile, runs: Sequence[FinishedRun], after_save: Callable[[], None]
    ) -> RecordingResult:
        """Write the cassette, completely or not at all. `after_save` is called before another process can record it.

        If the run is not finished, or the cassette cannot be written, the log stays for a resume."""
        done = replace(runs[-1], redaction=self._redaction.redaction)
        if not done.ending.is_finished:
            self._recorder.close()
            kept = None if self._file is None else display_path(self._file.path, self.project.root)
            return RecordingResult((*runs[:-1], done), self._recorder.count, 0, NOT_FINISHED, kept=kept)
        logged = self._recorder.logged()
        interactions, new = tuple(each.interaction for each in logged), [each for each in logged if not each.reused]
        unanswered = _unanswered_approvals(each.interaction for each in new)
        refusal = _refusal(done, interactions, self._expects)
        if refusal is None and unanswered and self.path.exists():
            error = _unanswered_error(unanswered)
            refusal, done = error.message, replace(done, save_error=error)
        if refusal is None:
            try:
                self._save(package, done, logged)
            except StorageError as error:
                done = replace(done, save_error=error)
            else:
                after_save()
        if refusal is not None or done.save_error is None or "place" in done.save_error.fields:
            self._recorder.remove()
        spent = sum_spending(package.agent, [each.interaction for each in new])
        earlier = (replace(run, redaction=done.redaction) for run in runs[:-1])  # it has learned the values of all runs
        reused = len(logged) - len(new)
        return RecordingResult((*earlier, done), len(interactions), reused, refusal, unanswered, spent)

    def _expects(self, code: str) -> bool:
        return self.case is not None and expects_outcome(self.case, code)

    def interrupt(self) -> None:
        """The run did not end in order. What was appended is redacted again."""
        with suppress(AgentrunError):
            self._recorder.close()

    def _save(self, package: PackageFile, done: FinishedRun, logged: Sequence[LoggedInteraction]) -> None:
        """Write the cassette. Raises `storage.failed`, for example above the size limit."""
        if self._recorder.error is not None:
            raise self._recorder.error
        metadata = redact_cassette(done.redaction, (), self._metadata(package, done, logged)).metadata
        if self._recorder.close():  # the metadata had a value
            logged = self._recorder.logged()
        text = dump_cassette((each.interaction for each in logged), metadata)
        tree, path = self.destination
        if self._resumes is not None and not self._is_staged and self._present_hash() != self._header.replaces:
            if self.path.read_bytes() == text.encode():  # by the process that was killed after that
                return
            raise self._replaced_error()
        save_cassette(tree, path, text, self.project.cassette_limit)

    def _metadata(self, package: PackageFile, done: FinishedRun, logged: Sequence[LoggedInteraction]) -> dict[str, Any]:
        """The metadata of the cassette. If interactions are reused, the original recording time is kept."""
        header, reused = self._header, [each.interaction for each in logged if each.reused]
        before = {} if self.old_player is None or not reused else self.old_player.cassette.metadata
        started = done.journal[0].fact
        assert isinstance(started, RunStarted), "a journal begins with run_started"
        about = {
            **{name: value for name in ("spec", "case", "profile") if (value := getattr(header, name)) is not None},
            "params": started.params,
            "recorded_at": before.get("recorded_at", header.began),
            "agentrun": version(),
            "where": list(dict.fromkeys([*_metadata_list(before, "where"), *_describe_servers(logged)])),
            "fingerprint": package.fingerprint,
            "sections": package.sections,
        }
        if sources := recorded_tool_sources(package.agent, before, reused):
            about[TOOL_SOURCES_KEY] = sources
        if reused:
            new = len(logged) - len(reused)
            line = {"at": header.began, "kept": len(reused), "recorded": new, "fingerprint": package.fingerprint}
            about["history"] = [*_metadata_list(before, "history"), line]
        return about


def _relative_path(path: Path, directory: Path) -> str:
    return (path.relative_to(directory) if path.is_relative_to(directory) else path).as_posix()


def _recording_redaction(world: World, package: PackageFile) -> RecordingRedaction:
    rules = package.agent.replay.redact
    return RecordingRedaction(RunRedaction(rules, world.redactor), rules)


def load_recording(store: FileStore, run: str, package: PackageFile) -> CassetteRecording | None:
    """The recording of a run that was cut. None: there is none. Raises `storage.failed`, `cassette.*`, SpecError."""
    file, project = store.recording(run), store.project
    if not file.exists():
        return None
    try:
        header = msgspec.json.decode(read_header(file.read()), type=RecordingHeader)
    except msgspec.MsgspecError as error:
        raise storage_failed("recording", f"the recording of the run {run} is damaged", EINVAL) from error
    path = project.cassette_directory / header.cassette
    spec = None if header.spec is None else project.root / header.spec
    player = None
    if header.how != "all":
        rules = package.agent.replay
        cassette = load_cassette(path, project.cassette_limit)
        player = Player(cassette, volatile=rules.volatile, redaction=RunRedaction(rules.redact))
    return CassetteRecording(
        project,
        path,
        spec,
        _recorded_case(header, spec, fold(store.records(run)).started),
        how=header.how,
        old_player=player,
        is_staged=header.is_staged,
        resumes=header,
    )


def _recorded_case(header: RecordingHeader, spec: Path | None, started: RunStarted) -> Case | None:
    if spec is None or header.case is None:
        return None
    if header.new_case is None:
        found = (each for each in cases_for_spec(spec) if each.name == header.case)
        return next(found, Case(name=header.case))
    message = "" if started.input is None else text_of(started.input.parts)
    return Case(
        name=header.case,
        input=message if header.new_case.has_input else UNSET,
        params={name: started.params[name] for name in header.new_case.params},
        profile=UNSET if header.profile is None else header.profile,
    )


class RecordingResult(Struct, frozen=True):
    runs: tuple[FinishedRun, ...]
    interactions: int
    reused: int
    refusal: str | None = None
    unanswered: tuple[str, ...] = ()
    """The tools, sinks and stages whose approval questions had no answer."""
    spent: Spending = Spending()
    kept: str | None = None
    """The file with what is recorded so far, if the run can be resumed."""

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
    store: FileStore | None = None,
    wrappers: tuple[Wrapper, ...] = (),
    announce: Announce = announce_nothing,
    after_save: Callable[[], None] = lambda: None,
) -> RecordingResult:
    """Run live and write a cassette. Several requests are a conversation. `open_world`: opens the live world of a run.
    `store`: None if the runs are not stored. `wrappers`: wrap the cassette. `announce`: for the first run."""
    with recording.start(approver):
        runs: list[FinishedRun] = []
        recorder: Recorder | None = None
        for request in requests:
            run = request.run or new_run_id()
            with name_run_in_errors(run):
                seed = jitter_seed(package.agent, admit(package.agent, request.message, request.params))
            async with open_world(run) as world:
                recorder = recorder or recording.open_recorder(world, package, store)
                wrapper = recording_wrapper(recorder, recording.old_player, recording.until)
                first = announce if not runs else announce_nothing
                request = replace(request, run=run, seed=seed)
                with _kept_recording(recording, recorder):
                    done = await run_in_world(wrap(world, wrapper, *wrappers), request, conversation(runs), first)
                runs.append(done)
            if runs[-1].ending.exit_code:
                break
        return recording.finish(package, runs, after_save)


async def resume_recording(
    recording: CassetteRecording,
    world: World,
    package: PackageFile,
    approver: Approver,
    *,
    store: FileStore,
    announce: Announce = announce_nothing,
    after_save: Callable[[], None] = lambda: None,
) -> RecordingResult:
    """Continue a recorded run, and write its cassette when it is finished. Raises `session.busy`, `storage.failed` and
    the errors of `resume_in_world`."""
    store.lock(world.run)
    with recording.start(approver):
        recorder = recording.continue_recorder(world, package, store)
        wrapper = recording_wrapper(recorder, recording.old_player, recording.until)
        with _kept_recording(recording, recorder):
            done = await resume_in_world(wrap(world, wrapper), package, announce)
        return recording.finish(package, [done], after_save)


@contextmanager
def _kept_recording(recording: CassetteRecording, recorder: Recorder) -> Iterator[None]:
    """If the log fails, a run that is stored is parked: then the error is that of the log."""
    try:
        yield
    except BaseException:
        recording.interrupt()
        raise
    if recorder.is_kept and recorder.error is not None and "place" not in recorder.error.fields:
        raise recorder.error


def _refusal(done: FinishedRun, interactions: tuple[Interaction, ...], expects: Callable[[str], bool]) -> str | None:
    """Why a finished run is not recorded (rule 3)."""
    if any(each.failure is not None and not is_recordable_failure(each.failure.code) for each in interactions):
        return "a request failed inside agentrun"
    code = done.outcome.code or ""
    if code.startswith(UNRECORDED_CODES):
        return f"the run ended with {code}"
    if code.startswith("provider.") and not expects(code):
        assertion = f"{{type: outcome, value: {code}}}"
        return f"the run failed with {code}; to record such a failure, a case needs the assertion {assertion}"
    return None


def _unanswered_approvals(new: Iterable[Interaction]) -> tuple[str, ...]:
    """The targets of new approval questions without an answer. Questions that the case declares as `unavailable` have
    an answer."""
    whole = [each for each in new if each.failure is None and not each.stopped]
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


def _describe_servers(logged: Iterable[LoggedInteraction]) -> list[str]:
    """The servers that answered, without credentials and without details of this machine."""
    settings = Settings()
    others = overridden_addresses(settings)
    descriptions: list[str] = []
    servers = {each.interaction.request.url: each.server for each in logged if each.server is not None}
    for url, server in servers.items():
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
