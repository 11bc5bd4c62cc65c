"""The pytest plugin: files of cases are collected, and Python tests get the fixtures `agentrun` and `journal_snapshot`.

Rule 1  pytest loads this wherever agentrun is installed: it costs next to nothing until a case or a fixture is used.
Rule 2  No rules but this one: what is done is done in `agentrun.testing.plugin`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentrun.testing.plugin.options import (
    require_syrupy,
    skip_assert_rewriting,
    validate_plugin_options,
    write_summary_sections,
)

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from agentrun.testing.plugin.fixture import AgentRunner
    from agentrun.testing.plugin.items import Cases

CASES_SUFFIX = ".cases.yaml"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    skip_assert_rewriting(pluginmanager)
    group = parser.getgroup("agentrun", "cases of agents")
    group.addoption(
        "--agentrun-record",
        metavar="HOW",
        help="Run cases for real and record them, then replay: `new` what their recordings lack, `all` of it, or "
        "`from:N` with the first N-1 interactions kept. Never where CI is set.",
    )
    group.addoption(
        "--agentrun-yes",
        action="store_true",
        help="Record also where a tool that is not `effect: read` may run for real, or a file answers approvals.",
    )
    group.addoption(
        "--agentrun-live-tools",
        action="store_true",
        help="Run the tools of cases for real; only the model is replayed.",
    )
    group.addoption(
        "--agentrun-live-model",
        action="store_true",
        help="Ask the model of cases for real; all else is replayed.",
    )
    group.addoption(
        "--agentrun-repeat",
        metavar="N",
        type=int,
        default=1,
        help="Run each case so often; each time it must go the same way.",
    )
    group.addoption(
        "--agentrun-require-tier",
        metavar="TIER",
        choices=("exact", "normalised"),
        default="normalised",
        help="How well requests must fit the recording at least: `exact`, or `normalised` (the default), where fields "
        "that the spec calls volatile may differ.",
    )


def pytest_configure(config: pytest.Config) -> None:
    validate_plugin_options(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Cases | None:
    if not file_path.name.endswith(CASES_SUFFIX) or file_path.name.startswith("."):
        return None
    from agentrun.testing.plugin.items import Cases  # late: only where there are cases

    return Cases.from_parent(parent, path=file_path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.agentrun_record is not None:
        from agentrun.testing.plugin.items import reuses_cassette  # late: only where something is recorded

        items.sort(key=reuses_cassette)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    if config.option.agentrun_record is None:
        return []
    from agentrun.testing.plugin.items import recording_preview_lines  # late: only where something is recorded

    return recording_preview_lines(config, items)


@pytest.hookimpl(trylast=True)  # after the announcement
def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.agentrun_record is not None:
        from agentrun.testing.plugin.items import require_recording_consent  # late: only where something is recorded

        require_recording_consent(session.config, session.items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write_summary_sections(terminalreporter)


@pytest.fixture
def agentrun(request: pytest.FixtureRequest) -> AgentRunner:
    """Runs an agent: a case from its recording, or any message with a model and tools that do as they are told.

        run = agentrun("specs/support.yaml", case="default")
        run = agentrun("specs/support.yaml", message="Hello?", model=scripted(text("Hello.")))
        assert run.outcome == "completed" and run.output == "Hello."

    A run has `output`, `outcome`, `calls`, `rulings`, `approvals`, `spend`, `journal` and `canonical`.
    """
    from agentrun.testing.plugin.fixture import AgentRunner  # late: only where it is used

    return AgentRunner(request.config, request.path.parent)


@pytest.fixture
def journal_snapshot(request: pytest.FixtureRequest) -> SnapshotAssertion:
    """The journal of a run as it was accepted: `assert run == journal_snapshot`.

    It is kept in `__snapshots__/<module>/<test>.journal`; `pytest --snapshot-update` accepts what is new.
    """
    require_syrupy(request.config)
    from agentrun.testing.plugin.syrupy_snapshots import (  # late: only where it is used
        JournalSnapshotExtension,
        make_journal_assertion,
    )

    return make_journal_assertion(request.node, JournalSnapshotExtension)
