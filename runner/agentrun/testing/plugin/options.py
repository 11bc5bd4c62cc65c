"""The command line options of the pytest plugin.

Rule 1  Contradictions are rejected before anything is collected.
Rule 2  Nothing is recorded in CI: a case without a cassette fails there.
Rule 3  There is no prompt: a recording that may cause side effects needs `--agentrun-yes`.
"""

from __future__ import annotations

import pytest

from agentrun.engine.ci import in_ci

RECORDED_PROPERTY = "agentrun_recorded"
"""The property of a report that describes the recording."""
LIVE_PROPERTY = "agentrun_live"
"""The property of a report that names an assertion function with `network: true`."""


def skip_assert_rewriting(plugins: pytest.PytestPluginManager) -> None:
    """Exempt this package from assertion rewriting, which pytest does for every package with a plugin. Without cached
    bytecode, rewriting would take longer than a hundred cases."""
    marked = getattr(plugins.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("agentrun")


def validate_plugin_options(config: pytest.Config) -> None:
    option = config.option
    if option.agentrun_repeat < 1:
        raise pytest.UsageError(f"--agentrun-repeat {option.agentrun_repeat}: it must be at least 1")
    if option.agentrun_live_tools and option.agentrun_live_model:
        raise pytest.UsageError("--agentrun-live-tools and --agentrun-live-model cannot be combined")
    if option.agentrun_record is not None:
        _validate_record_option(config)
    elif option.agentrun_yes:
        raise pytest.UsageError("--agentrun-yes needs --agentrun-record")


def _validate_record_option(config: pytest.Config) -> None:
    option, how = config.option, config.option.agentrun_record
    number = how.removeprefix("from:")
    if how not in ("new", "all") and not (how != number and number.isascii() and number.isdigit() and int(number)):
        raise pytest.UsageError(f"--agentrun-record {how}: it must be new, all, or from:N with N at least 1")
    live = "tools" if option.agentrun_live_tools else "model" if option.agentrun_live_model else None
    if live is not None:
        raise pytest.UsageError(f"--agentrun-record cannot be combined with --agentrun-live-{live}")
    if option.agentrun_repeat > 1:
        raise pytest.UsageError("--agentrun-record cannot be combined with --agentrun-repeat")
    if getattr(option, "numprocesses", None):
        raise pytest.UsageError(
            "--agentrun-record cannot be combined with -n because cases may share a cassette; leave out -n"
        )
    if in_ci():
        raise pytest.UsageError("--agentrun-record is not available in CI (the variable CI is set); record locally")


def write_summary_sections(reporter: pytest.TerminalReporter) -> None:
    """Print what was recorded, and which assertions were live, also those of other processes."""
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
    """Whether syrupy is installed and active."""
    return hasattr(config, "_syrupy")


def require_syrupy(config: pytest.Config) -> None:
    if not has_syrupy(config):
        from agentrun.distribution import install_hint  # late: only for this hint

        pytest.fail(f"journal_snapshot needs syrupy: {install_hint('test')}", pytrace=False)
