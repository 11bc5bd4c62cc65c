"""Hypothesis profiles, signal handling and the cleanup of imported projects for all tests.

`AGENTRUN_TESTS=normal`, the default: few examples, the same in every run: what is red is red for everybody.
`AGENTRUN_TESTS=long`: many more examples, different in each run; a failure prints how to repeat it.
"""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

pytest_plugins = ("pytester",)
collect_ignore = ["golden"]
"""Specs with cases that are examined, not run: some are wrong on purpose."""

_PROJECTS = (os.path.realpath(tempfile.gettempdir()) + os.sep, str(Path(__file__).parents[1] / "specs") + os.sep)
"""Where the Python modules of agents are."""

LONGEST = (
    "tests/attacks/test_cassette_secrets.py::test_record_live_and_replay_leak_no_secret",
    "tests/attacks/test_cassette_secrets.py::test_search_finds_the_secrets_without_redaction",
    "tests/attacks/test_spec_bounds.py::test_very_large_sections_are_refused",
    "tests/attacks/test_spec_bounds.py::test_very_large_policies_are_refused",
    "tests/attacks/test_spec_contents.py::test_10_circular_and_growing_schemas_are_refused",
    "tests/attacks/test_tool_python.py::test_42_hostile_functions_do_not_end_the_run_or_leak_secrets",
    "tests/cli/test_approval_prompt.py::test_approval_timeout_begins_when_the_question_is_shown",
    "tests/compiler/test_template_attacks.py::test_attacks_are_stopped_and_missing_guards_are_seen",
    "tests/docs/test_testing.py::test_commands_print_what_the_page_shows",
    "tests/examples/test_suites.py::test_suites_pass_in_two_processes",
    "tests/tools/test_processes.py::test_start_cancelled_at_any_moment_leaves_nothing",
    "tests/tools/test_python_process.py::test_process_gives_the_same_results_as_a_thread",
)
"""Tests that take seconds. They come first: while one that begins last goes on, the other workers are idle."""

GC_THRESHOLD = 20_000
"""New objects between two searches for garbage, instead of Python's 700."""

os.environ["XDG_STATE_HOME"] = f"{tempfile.gettempdir()}/agentrun-tests"
"""The ids of the stores that tests make are not in the home directory."""

settings.register_profile(
    "normal",
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no bug
)
settings.register_profile(
    "long",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # slow examples are what the long run is for
)
settings.load_profile(os.environ.get("AGENTRUN_TESTS", "normal"))

# `nohup` ignores SIGHUP, a shell ignores SIGINT and SIGQUIT in what it puts into the background, and every process that
# a test starts would inherit that. A handler is not inherited: pytest goes on as it was started, and a process that a
# test starts is ended by a signal as usual.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` is: more workers than cores, for a worker waits while the commands that it has started work."""
    cores = os.cpu_count() or 1
    return cores * 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests that are collected stay to the end, so looking for garbage among them is in vain, now and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker does not report a setup or teardown that passed, nor where a test begins and ends.

    The controller shows none of it, but to send and read it takes as long as to run a short test.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture(autouse=True)
def _forget_imported_projects() -> Iterator[None]:
    """What a test imported from the folder of an agent is not there for the next one, under whatever name."""
    modules, path = set(sys.modules), [*sys.path]
    yield
    if "agentrun.tools.project_modules" in sys.modules:
        sys.modules["agentrun.tools.project_modules"].finder.forget_projects()
    for name in sys.modules.keys() - modules:
        if name.startswith("agentrun_project_"):
            del sys.modules[name]
    for name in sys.modules.keys() - modules:
        module = sys.modules[name]
        places = (getattr(module, "__file__", None) or "", *getattr(module, "__path__", ()))
        if any(str(place).startswith(_PROJECTS) for place in places):
            del sys.modules[name]
    if sys.path != path:
        sys.path[:] = path
