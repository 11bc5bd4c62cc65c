"""The command line options of the pytest plugin: contradictions are rejected before anything is collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from agentrun.engine.ci import in_ci

if TYPE_CHECKING:
    from agentrun.testing.suite.verdict import SnapshotMatch

RECORDED_PROPERTY = "agentrun_recorded"
LIVE_PROPERTY = "agentrun_live"
IGNORED_PROPERTY = "agentrun_ignored"
"""A path of `ignore` after the number of values that it replaced: `2 model_replied.reply.model`."""
ACCEPTED_PROPERTY = "agentrun_accepted"
HAS_CASES = pytest.StashKey[bool]()
CAUSE_PROPERTY = "agentrun_cause"
TOOL_PROPERTY = "agentrun_changed_tool"


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
    if option.agentrun_add is not None:
        _validate_add_option(config)


def _validate_add_option(config: pytest.Config) -> None:
    from agentrun.testing.suite.snapshots import JOURNAL_NAME_FORM, is_journal_name  # late: rarely used

    name = config.option.agentrun_add
    if not is_journal_name(name):
        raise pytest.UsageError(f"--agentrun-add {name}: it must be {JOURNAL_NAME_FORM}")
    if not getattr(config.option, "update_snapshots", False):
        raise pytest.UsageError("--agentrun-add needs --snapshot-update")


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
    """Print the causes that several cases share, the tools that changed, what was recorded, which assertions were live,
    which accepted journals the runs equal, and which paths of `ignore` match nothing, in all processes."""
    causes = ((text, count) for text, count in _count_properties(reporter, CAUSE_PROPERTY) if count > 1)
    _write_section(reporter, "agentrun causes", (f"{count} cases: {text}" for text, count in causes))
    tools = _count_properties(reporter, TOOL_PROPERTY)
    _write_section(
        reporter,
        "agentrun tools whose source changed since the recording",
        (f"{tool} ({count} case{'s' * (count > 1)})" for tool, count in tools),
    )
    for kind, heading in (
        (RECORDED_PROPERTY, "agentrun recorded cassettes"),
        (LIVE_PROPERTY, "agentrun live assertions (network: true)"),
        (ACCEPTED_PROPERTY, "agentrun runs with several accepted journals"),
    ):
        _write_section(reporter, heading, sorted(f"{test}: {text}" for test, text in _properties(reporter, kind)))
    if not reporter.stats.get("deselected") and not any("::" in each for each in reporter.config.args):
        _write_section(reporter, "agentrun paths of `ignore` that match nothing", sorted(_unmatched_paths(reporter)))


def _count_properties(reporter: pytest.TerminalReporter, kind: str) -> list[tuple[str, int]]:
    """The texts of one kind, each with its number of cases. The most frequent come first."""
    return Counter(text for _, text in sorted(_properties(reporter, kind))).most_common()


def match_properties(match: SnapshotMatch) -> list[tuple[str, object]]:
    """Which of several accepted journals a run equals."""
    return [(ACCEPTED_PROPERTY, match.text)] if match.others else []


def ignored_properties(ignored: Mapping[str, int | None]) -> list[tuple[str, object]]:
    """`ignored`: how many values each path replaced. None: the journal was not compared."""
    return [(IGNORED_PROPERTY, f"{'?' if count is None else count} {path}") for path, count in ignored.items()]


def _unmatched_paths(reporter: pytest.TerminalReporter) -> Iterator[str]:
    """Paths that replaced nothing in any case of their file, or in any run of their test."""
    counts: dict[tuple[str, str], set[str]] = {}
    for test, text in _properties(reporter, IGNORED_PROPERTY):
        count, path = text.split(" ", 1)
        file = test.partition("::")[0]
        owner = file if file.endswith(".yaml") else test.partition("[")[0]
        counts.setdefault((owner, path), set()).add(count)
    return (f"{owner}: {path}" for (owner, path), found in counts.items() if found == {"0"})


def _properties(reporter: pytest.TerminalReporter, kind: str) -> Iterator[tuple[str, str]]:
    """The ids of tests, and the texts of their properties of this kind."""
    for report in [report for reports in reporter.stats.values() for report in reports]:
        if getattr(report, "when", None) == "call":
            yield from ((report.nodeid, str(text)) for name, text in report.user_properties if name == kind)


def _write_section(reporter: pytest.TerminalReporter, heading: str, lines: Iterable[str]) -> None:
    if lines := list(lines):
        reporter.write_sep("-", heading)
        for line in lines:
            reporter.write_line(line)


def has_syrupy(config: pytest.Config) -> bool:
    return hasattr(config, "_syrupy")


def hide_journals_from_others(config: pytest.Config) -> None:
    """Let only our own extensions of syrupy find journals. Others would report journals that no test compared as unused
    and remove them, such as those of a case that is skipped or may differ."""
    session = config._syrupy  # type: ignore[attr-defined]  # noqa: SLF001  # the session of syrupy
    session.ignore_file_extensions = [*(session.ignore_file_extensions or ()), "journal"]


def require_syrupy(config: pytest.Config) -> None:
    if not has_syrupy(config):
        from agentrun.distribution import install_hint  # late: only for this hint

        pytest.fail(f"journal_snapshot needs syrupy: {install_hint('test')}", pytrace=False)
