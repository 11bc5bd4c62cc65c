"""Cases as pytest items, and how they run: replayed, with the model or the tools live, or recorded.

Rule 1  A file is read once, and an agent is compiled once, for all their cases.
Rule 2  The verdict is that of `agentrun test`. Skipped cases and expected failures are left to pytest, which has its
        own options for them.
Rule 3  Output of tools and sinks is output of the test, which pytest captures. It is written when the run ends, because
        until then standard output may be redirected for the tool.
Rule 4  pytest shows what is logged, warned and raised during a live run, and writes it to its reports. So it is
        redacted first, and a bug in agentrun is shown without local variables.
Rule 5  There is no approver: approvals that the case does not answer are unavailable.
Rule 6  A case file is a module to pytest and a case is a function in it, because fixtures of all scopes, marks and most
        plugins need both. Neither is imported. The module stays empty: pytest gives names such as `setup_module` a
        meaning, and fixtures look for settings in it, while a case may have any name.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from traceback import format_exception
from types import ModuleType
from typing import Any

import pytest
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.compiler.cases import cassette_owner
from agentrun.credentials import hidden_secrets
from agentrun.errors import SpecError
from agentrun.spec.problems import render_problem
from agentrun.spec.project import working_secrets
from agentrun.testing.plugin.options import (
    CAUSE_PROPERTY,
    LIVE_PROPERTY,
    RECORDED_PROPERTY,
    TOOL_PROPERTY,
    has_syrupy,
    ignored_properties,
    match_properties,
)
from agentrun.testing.suite import recording_preview
from agentrun.testing.suite.causes import group_by_cause
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.failure_text import render_failure, safe_lines
from agentrun.testing.suite.recording import LiveCallbacks, partly_live_runner, recording_runner
from agentrun.testing.suite.replay import CaseRunner, CaseRuns, CompiledAgent, replay_case
from agentrun.testing.suite.runner import SuiteOptions, SuiteRunner
from agentrun.testing.suite.snapshots import SnapshotLookup, accepted_snapshots
from agentrun.testing.suite.verdict import CaseVerdict

USAGE_EXIT_CODE = 2
"""The exit code of `agentrun test` if consent is missing."""
GENERATE_HOOK = "pytest_generate_tests"
"""The name that pytest calls as a hook while it makes items of a module's functions."""


def replay_runner_for(config: pytest.Config) -> CaseRunner:
    """Replay cases, with the model or the tools live if an option says so."""
    option = config.option
    tier = option.agentrun_require_tier
    if option.agentrun_live_tools or option.agentrun_live_model:
        return _live_runner(
            lambda live: partly_live_runner("tools" if option.agentrun_live_tools else "model", live, tier), {}
        )
    return partial(replay_case, require=tier)


def _live_runner(make_runner: Callable[[LiveCallbacks], CaseRunner], descriptions: dict[str, str]) -> CaseRunner:
    """`descriptions` gets a description of each recording, by the id of the case."""
    hidden_secrets.read_environment(working_secrets)

    def describe(located: LocatedCase, text: str) -> None:
        descriptions[located.id] = text

    def run_case(located: LocatedCase, agent: CompiledAgent) -> CaseRuns:
        from agentrun.engine.live_providers import hide_run_secrets  # late: the import takes a second

        printed: list[str] = []
        live = LiveCallbacks(
            on_recording=describe,
            on_printed=lambda tool, text: printed.append(text),
            on_sink_line=printed.append,
            on_settings=hide_run_secrets,
        )
        try:
            with _redacted_logs(), _redacted_warnings():
                return make_runner(live)(located, agent)
        finally:
            for text in printed:
                sys.stdout.write("".join(f"{line}\n" for line in safe_lines(text.removesuffix("\n"))))

    return run_case


@contextmanager
def _redacted_logs() -> Iterator[None]:
    make_record = logging.getLogRecordFactory()

    def make_safe_record(*args: Any, **options: Any) -> logging.LogRecord:
        record = make_record(*args, **options)
        try:
            text = record.getMessage()
        except Exception as error:  # noqa: BLE001  # logging would print the arguments
            text = f"a message that cannot be formatted: {type(error).__name__}"
        record.msg, record.args = _safe_text(text), ()
        if record.exc_info:
            record.exc_text = _safe_text(logging.Formatter().formatException(record.exc_info))
        return record

    logging.setLogRecordFactory(make_safe_record)
    try:
        yield
    finally:
        logging.setLogRecordFactory(make_record)


@contextmanager
def _redacted_warnings() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        yield
    for each in caught:
        warnings.warn_explicit(_safe_text(str(each.message)), each.category, each.filename, each.lineno)


def _safe_text(text: str) -> str:
    return "\n".join(safe_lines(text))


class CaseSession:
    def __init__(self, config: pytest.Config) -> None:
        self._recordings: dict[str, str] = {}
        run_case = replay_runner_for(config)
        if (how := config.option.agentrun_record) is not None:
            run_case = _live_runner(lambda live: recording_runner(how, live), self._recordings)
        self._suite = SuiteRunner(SuiteOptions(repeat=config.option.agentrun_repeat), run_case)

    def verdict(self, item: CaseItem, compare: SnapshotLookup) -> CaseVerdict:
        verdict = self._suite.run_case(item.located, compare).verdict
        if item.located.id in self._recordings:
            item.user_properties.append((RECORDED_PROPERTY, self._recordings.pop(item.located.id)))
        item.user_properties += [(LIVE_PROPERTY, function) for function in verdict.live]
        snapshot = item.located.snapshot
        paths = () if snapshot is None else snapshot.ignore
        item.user_properties += ignored_properties({path: verdict.ignored.get(path) for path in paths})
        item.user_properties += [] if verdict.snapshot is None else match_properties(verdict.snapshot)
        item.user_properties += [(TOOL_PROPERTY, tool) for tool in verdict.changed_tools]
        causes = (" ".join(safe_lines(cause.placed_title)) for cause in group_by_cause([verdict]))
        item.user_properties += [(CAUSE_PROPERTY, cause) for cause in causes]
        return verdict


SESSION_KEY = pytest.StashKey[CaseSession]()


class Cases(pytest.Module):
    with_snapshot: frozenset[str] = frozenset()

    def _getobj(self) -> ModuleType:
        module = ModuleType(self.nodeid.removesuffix(".yaml").replace("/", "."))
        module.__file__ = str(self.path)
        return module

    def collect(self) -> Iterator[CaseItem]:
        try:
            cases = read_located_cases(self.path)
        except SpecError as error:
            texts = ("\n".join(safe_lines(render_problem(problem))) for problem in error.problems)
            raise self.CollectError("\n".join(texts)) from None
        self.with_snapshot = frozenset(located.case.name for located in cases if located.snapshot is not None)
        for tag in sorted({tag for located in cases for tag in located.case.tags}):
            self.config.addinivalue_line("markers", f"{tag}: a tag of agentrun cases")
        not_tags = _marks_with_arguments(self.config)
        for located in cases:
            yield from self._items(located, not_tags)

    def _items(self, located: LocatedCase, not_tags: frozenset[str]) -> Iterator[CaseItem]:
        """One item, or several if a fixture or a hook of the project has parameters for it."""
        name, function = located.case.name, _make_function(located, self.obj.__name__, not_tags)
        if name == GENERATE_HOOK:
            yield CaseItem.from_parent(self, name=name, callobj=function, located=located)
            return
        setattr(self.obj, name, function)  # pytest looks for it there
        try:
            functions = list(self._genfunctions(name, function))
        finally:
            delattr(self.obj, name)
        for each in functions:
            yield CaseItem.from_parent(
                self,
                name=each.name,
                originalname=name,
                callobj=function,
                callspec=getattr(each, "callspec", None),
                fixtureinfo=each._fixtureinfo,  # noqa: SLF001  # as pytest-asyncio makes its items
                keywords=each.keywords,
                located=located,
            )


def _marks_with_arguments(config: pytest.Config) -> frozenset[str]:
    """The marks of pytest, plugins and the project that need arguments, such as `timeout(seconds)`. A tag has none."""
    names = (line.partition(":")[0] for line in config.getini("markers"))
    return frozenset(name.partition("(")[0] for name in names if "(" in name)


def _make_function(
    located: LocatedCase, module: str, not_tags: frozenset[str]
) -> Callable[[pytest.FixtureRequest], None]:
    """The function that runs a case, with its name and its marks."""

    def run_case(request: pytest.FixtureRequest) -> None:
        request.node.run_case()

    run_case.__name__ = run_case.__qualname__ = located.case.name
    run_case.__module__ = module
    for mark in _marks(located, not_tags):
        mark(run_case)
    return run_case


def _marks(located: LocatedCase, not_tags: frozenset[str]) -> Iterator[pytest.MarkDecorator]:
    for tag in located.case.tags:
        if tag not in not_tags:
            yield getattr(pytest.mark, tag)
    if located.case.skip is not UNSET:
        yield pytest.mark.skip(reason=" ".join(safe_lines(located.case.skip.strip())))
    if located.case.xfail is not UNSET:
        reason = " ".join(safe_lines(located.case.xfail.strip()))
        yield pytest.mark.xfail(reason=reason, strict=True, raises=CaseFailedAsExpected)


class CaseItem(pytest.Function):
    def __init__(self, *, located: LocatedCase, **options: Any) -> None:
        super().__init__(**options)
        self._bug: Exception | None = None
        expected = UNSET if self.config.option.runxfail else located.case.xfail
        self.located = replace(located, case=replace(located.case, skip=UNSET, xfail=expected))

    @property
    def cases(self) -> Cases:
        assert isinstance(self.parent, Cases), "only `Cases` makes items"
        return self.parent

    def run_case(self) -> None:
        try:
            verdict = self._verdict()
        except Exception as error:
            self._bug = error
            raise
        if verdict.status == "xfailed":
            raise CaseFailedAsExpected(verdict)
        passed_unexpectedly = any(each.assertion == "xfail" for each in verdict.failures)  # reported by the mark
        if verdict.is_bad and not passed_unexpectedly:
            raise CaseFailed(verdict)

    def _verdict(self) -> CaseVerdict:
        session = self.config.stash.setdefault(SESSION_KEY, CaseSession(self.config))
        if not has_syrupy(self.config):
            return session.verdict(self, accepted_snapshots)
        from agentrun.testing.plugin.syrupy_snapshots import CaseSnapshot  # late: syrupy may not be installed

        snapshot = CaseSnapshot(self)
        return snapshot.settle(session.verdict(self, snapshot.compare))

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        # Not the end of the id, because pytest would turn its dots into colons.
        return self.located.file, self.located.line - 1, f"{self.located.spec.stem}/{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]  # as pytest's
        """A failed case as a class of pytest, because pytest-xdist passes on no other with its last line."""
        if excinfo.value is self._bug:
            text = _safe_text("".join(format_exception(self._bug))).rstrip()
            return _failure_repr(text.split("\n"), str(self.located.file), self.located.line, text.rpartition("\n")[2])
        if not isinstance(excinfo.value, CaseFailed):
            return super().repr_failure(excinfo)
        verdict, text = excinfo.value.verdict, str(excinfo.value)
        file, line = verdict.failure_place
        lines = [*text.split("\n"), "", f"{file}:{line}: {verdict.status}"]
        return _failure_repr(lines, file, line, text.partition("\n")[0])


def _failure_repr(lines: list[str], file: str, line: int, message: str) -> ReprExceptionInfo:
    whole = ReprTraceback([ReprEntryNative([f"{each}\n" for each in lines])], extraline=None, style="native")
    return ReprExceptionInfo(reprtraceback=whole, reprcrash=ReprFileLocation(file, line, message))


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


def _recording_preview(config: pytest.Config, items: list[pytest.Item]) -> recording_preview.RecordingPreview | None:
    """None: nothing is recorded."""
    cases = (item for item in items if isinstance(item, CaseItem) and item.get_closest_marker("skip") is None)
    plans = recording_preview.plan_cassettes(item.located for item in cases)
    answers = recording_preview.ApprovalSources()
    return recording_preview.preview_recording(plans, config.option.agentrun_record, answers) if plans else None


def reuses_cassette(item: pytest.Item) -> bool:
    """Whether a case plays the cassette of another case. It must run after the cases that record."""
    if not isinstance(item, CaseItem):
        return False
    return cassette_owner(item.located.case, item.located.file) != item.located.case.name


class CaseFailed(Exception):
    def __init__(self, verdict: CaseVerdict) -> None:
        self.verdict = verdict
        super().__init__(render_failure(verdict))


class CaseFailedAsExpected(CaseFailed):
    """A case with `xfail` failed."""
