"""What the command line of pytest asks of cases.

Rule 1  Contradictions are refused before anything is collected.
Rule 2  Nothing is recorded where CI is set: there a case that lacks its recording is a failure.
Rule 3  Nobody is asked anything: a recording that may do harm needs `--agentrun-yes`.
"""

from __future__ import annotations

import pytest

from agentrun.engine.ci import in_ci

RECORDED_PROPERTY = "agentrun_recorded"
"""The property of a report that says in words what was recorded."""


LIVE_PROPERTY = "agentrun_live"
"""The property of a report that names a function that judged the case with `network: true`."""


def skip_assert_rewriting(plugins: pytest.PytestPluginManager) -> None:
    """pytest writes every package anew that brings a plugin, for its asserts to tell more. Ours are no tests: it would
    cost more than a hundred cases wherever compiled files are not kept."""
    marked = getattr(plugins.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("agentrun")


def validate_plugin_options(config: pytest.Config) -> None:
    option = config.option
    if option.agentrun_repeat < 1:
        raise pytest.UsageError(f"--agentrun-repeat {option.agentrun_repeat}: a case is run once at least")
    if option.agentrun_live_tools and option.agentrun_live_model:
        raise pytest.UsageError("--agentrun-live-tools and --agentrun-live-model together leave nothing to replay")
    if option.agentrun_record is not None:
        _validate_record_option(config)
    elif option.agentrun_yes:
        raise pytest.UsageError("--agentrun-yes goes with --agentrun-record")


def _validate_record_option(config: pytest.Config) -> None:
    option, how = config.option, config.option.agentrun_record
    number = how.removeprefix("from:")
    if how not in ("new", "all") and not (how != number and number.isascii() and number.isdigit() and int(number)):
        raise pytest.UsageError(f"--agentrun-record {how}: it is new, all, or from:N with N from 1")
    if option.agentrun_live_tools or option.agentrun_live_model:
        raise pytest.UsageError("--agentrun-record records all of a run: it does not go with --agentrun-live-…")
    if option.agentrun_repeat > 1:
        raise pytest.UsageError("--agentrun-record records each case once: it does not go with --agentrun-repeat")
    if getattr(option, "numprocesses", None):
        raise pytest.UsageError("--agentrun-record records in one process: cases may share a recording; leave out -n")
    if in_ci():
        raise pytest.UsageError("--agentrun-record: CI is set, and nothing is recorded there; record where you write")


def write_summary_sections(reporter: pytest.TerminalReporter) -> None:
    """What was recorded, and which assertions were live: also those of other processes."""
    _write_section(reporter, RECORDED_PROPERTY, "agentrun recordings")
    _write_section(reporter, LIVE_PROPERTY, "agentrun live assertions (network: true)")


def _write_section(reporter: pytest.TerminalReporter, kind: str, heading: str) -> None:
    reports = [report for reports in reporter.stats.values() for report in reports]
    lines = [
        f"{report.nodeid}: {text}"
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, text in report.user_properties
        if name == kind
    ]
    if lines:
        reporter.write_sep("-", heading)
        for line in sorted(lines):
            reporter.write_line(line)


def has_syrupy(config: pytest.Config) -> bool:
    """Whether syrupy takes part. It may not be installed, or be switched off."""
    return hasattr(config, "_syrupy")


def require_syrupy(config: pytest.Config) -> None:
    if not has_syrupy(config):
        from agentrun.distribution import install_hint  # late: only for this hint

        pytest.fail(f"journal_snapshot needs syrupy: {install_hint('test')}", pytrace=False)
