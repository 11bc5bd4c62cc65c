"""The pytest plugin: files of cases are collected, and Python tests get the fixtures `agentrun` and `journal_snapshot`.

Rule 1  pytest loads this wherever agentrun is installed: it costs next to nothing until a case or a fixture is used.
Rule 2  No rules but this one: what is done is done in `agentrun.testing.plugin`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentrun.testing.plugin.options import leave_as_it_is, need_syrupy, refuse_contradictions, tell_at_the_end

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from agentrun.testing.plugin.items import Cases
    from agentrun.testing.plugin.runs import Agents

ENDING = ".cases.yaml"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    leave_as_it_is(pluginmanager)
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
    refuse_contradictions(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Cases | None:
    if not file_path.name.endswith(ENDING) or file_path.name.startswith("."):
        return None
    from agentrun.testing.plugin.items import Cases  # late: only where there are cases

    return Cases.from_parent(parent, path=file_path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.agentrun_record is not None:
        from agentrun.testing.plugin.items import plays_another  # late: only where something is recorded

        items.sort(key=plays_another)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    if config.option.agentrun_record is None:
        return []
    from agentrun.testing.plugin.items import announced_recording  # late: only where something is recorded

    return announced_recording(config, items)


@pytest.hookimpl(trylast=True)  # after the announcement
def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.agentrun_record is not None:
        from agentrun.testing.plugin.items import refuse_recording  # late: only where something is recorded

        refuse_recording(session.config, session.items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tell_at_the_end(terminalreporter)


@pytest.fixture
def agentrun(request: pytest.FixtureRequest) -> Agents:
    """Runs an agent: a case from its recording, or any message with a model and tools that do as they are told.

        run = agentrun("specs/support.yaml", case="default")
        run = agentrun("specs/support.yaml", message="Hello?", model=scripted(text("Hello.")))
        assert run.outcome == "completed" and run.output == "Hello."

    A run has `output`, `outcome`, `calls`, `rulings`, `approvals`, `spend`, `journal` and `canonical`.
    """
    from agentrun.testing.plugin.runs import Agents  # late: only where it is used

    return Agents(request.config, request.path.parent)


@pytest.fixture
def journal_snapshot(request: pytest.FixtureRequest) -> SnapshotAssertion:
    """The journal of a run as it was accepted: `assert run == journal_snapshot`.

    It is kept in `__snapshots__/<module>/<test>.journal`; `pytest --snapshot-update` accepts what is new.
    """
    need_syrupy(request.config)
    from agentrun.testing.plugin.journals import JournalFile, assertion  # late: only where it is used

    return assertion(request.node, JournalFile)
