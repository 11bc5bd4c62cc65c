"""The pytest plugin: collects case files, and provides the fixtures `agentrun` and `journal_snapshot`.

Rule 1  pytest loads this module wherever agentrun is installed, so it imports almost nothing until it is used.
Rule 2  The hooks only delegate to `agentrun.testing.plugin`.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentrun.cassette.match_tiers import DEFAULT_TIER, MATCH_TIERS
from agentrun.testing.plugin import options

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from agentrun.testing.plugin.fixture import AgentRunner
    from agentrun.testing.plugin.items import Cases

CASES_SUFFIX = ".cases.yaml"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    options.skip_assert_rewriting(pluginmanager)
    group = parser.getgroup("agentrun", "agentrun cases")
    group.addoption(
        "--agentrun-record",
        metavar="HOW",
        help="Run cases live and record their cassettes: only interactions that are missing (`new`), everything "
        "(`all`), or everything from interaction N on (`from:N`). Not available in CI.",
    )
    group.addoption(
        "--agentrun-yes",
        action="store_true",
        help="Consent to record when a tool without `effect: read` may run, or when a file answers approvals.",
    )
    group.addoption(
        "--agentrun-add",
        metavar="NAME",
        help="With --snapshot-update: accept new journals in addition to the others, as TEST.NAME.journal.",
    )
    group.addoption("--agentrun-live-tools", action="store_true", help="Run tools live; replay only the model.")
    group.addoption("--agentrun-live-model", action="store_true", help="Call the model live; replay everything else.")
    group.addoption(
        "--agentrun-repeat", metavar="N", type=int, default=1, help="Run each case N times and fail if two runs differ."
    )
    group.addoption(
        "--agentrun-require-tier",
        metavar="TIER",
        choices=MATCH_TIERS,
        default=DEFAULT_TIER,
        help=f"Fail if a request matches its recorded one less exactly than this: {', '.join(MATCH_TIERS)} "
        f"(default: {DEFAULT_TIER}, which ignores the volatile fields of the spec).",
    )


def pytest_configure(config: pytest.Config) -> None:
    options.validate_plugin_options(config)


@pytest.hookimpl(trylast=True)  # after syrupy's
def pytest_sessionstart(session: pytest.Session) -> None:
    if options.has_syrupy(session.config):
        options.hide_journals_from_others(session.config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Cases | None:
    if not file_path.name.endswith(CASES_SUFFIX) or file_path.name.startswith("."):
        return None
    from agentrun.testing.plugin.items import Cases  # late: only if there are cases

    parent.config.stash[options.HAS_CASES] = True
    return Cases.from_parent(parent, path=file_path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.agentrun_record is not None:
        from agentrun.testing.plugin.items import reuses_cassette  # late: only for recording

        items.sort(key=reuses_cassette)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    if config.option.agentrun_record is None:
        return []
    from agentrun.testing.plugin.items import recording_preview_lines  # late: only for recording

    return recording_preview_lines(config, items)


@pytest.hookimpl(trylast=True)  # after the preview
def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.agentrun_record is not None:
        from agentrun.testing.plugin.items import require_recording_consent  # late: only for recording

        require_recording_consent(session.config, session.items)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    if not session.config.stash.get(options.HAS_CASES, False) or not options.has_syrupy(session.config):
        return (yield)
    from agentrun.testing.plugin.items import CaseItem  # late: only if there are cases
    from agentrun.testing.plugin.syrupy_snapshots import cases_at_their_specs  # late: syrupy may not be installed

    with cases_at_their_specs(item for item in session.items if isinstance(item, CaseItem)):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    options.write_summary_sections(terminalreporter)


@pytest.fixture
def agentrun(request: pytest.FixtureRequest) -> AgentRunner:
    """Run an agent: replay a case, or send any message to a scripted model.

        run = agentrun("specs/support.yaml", case="default")
        run = agentrun("specs/support.yaml", message="Hello?", model=scripted(text("Hello.")))
        assert run.outcome == "completed" and run.output == "Hello."

    A run has `output`, `outcome`, `calls`, `rulings`, `approvals`, `spend`, `journal` and `canonical`.
    """
    from agentrun.testing.plugin.fixture import AgentRunner  # late: only if it is used

    return AgentRunner(request.config, request.path.parent)


@pytest.fixture
def journal_snapshot(request: pytest.FixtureRequest) -> SnapshotAssertion:
    """The accepted journals of a run: `assert run == journal_snapshot`.

    The file is `__snapshots__/<module>/<test>.journal`. `pytest --snapshot-update` accepts the new journal, and
    `--agentrun-add NAME` accepts it as `<test>.<name>.journal` in addition to the others. `usage` and `ignore` of the
    assertion `journal-snapshot` are arguments: `run == journal_snapshot(usage="none")`.
    """
    options.require_syrupy(request.config)
    from agentrun.testing.plugin.syrupy_snapshots import (  # late: only if it is used
        JournalSnapshotExtension,
        make_journal_assertion,
    )

    return make_journal_assertion(request.node, JournalSnapshotExtension)
