"""Case files are collected by pytest and selected like other tests."""

from __future__ import annotations

import pytest

from .projects import CASES, Project


def ids(result: pytest.RunResult) -> list[str]:
    """The items that `--co -q` lists."""
    return [line for line in result.outlines if "::" in line]


def test_items_are_named_by_file_and_case(project: Project) -> None:
    project.cases("name: default", "name: late-order", "name: late")
    project.write("specs/test_plain.py", "def test_plain(): pass\n")
    assert ids(project.run("--co", "-q", "specs")) == [
        "specs/desk.cases.yaml::default",
        "specs/desk.cases.yaml::late-order",
        "specs/desk.cases.yaml::late",
        "specs/test_plain.py::test_plain",
    ]
    project.run("specs").assert_outcomes(passed=4)


def test_single_case_is_selected_by_its_id(project: Project) -> None:
    project.cases("name: default", "name: late-order", "name: late")
    assert ids(project.run("--co", "-q", "specs/desk.cases.yaml::late")) == ["specs/desk.cases.yaml::late"]
    missing = project.run("specs/desk.cases.yaml::absent")
    assert missing.ret == pytest.ExitCode.USAGE_ERROR


def test_keyword_option_selects_cases(project: Project) -> None:
    project.cases("name: default", "name: late-order, tags: [slow]", "name: late")
    assert ids(project.run("--co", "-q", "-k", "late and not order")) == ["specs/desk.cases.yaml::late"]
    assert ids(project.run("--co", "-q", "-k", "slow")) == ["specs/desk.cases.yaml::late-order"]
    assert len(ids(project.run("--co", "-q", "-k", "desk"))) == 3


def test_mark_option_selects_cases_by_tag(project: Project) -> None:
    """Under --strict-markers, which the project asks for."""
    project.cases("name: default, tags: [smoke]", "name: other, tags: [smoke, big-orders]", "name: none")
    assert ids(project.run("--co", "-q", "-m", "smoke")) == [
        "specs/desk.cases.yaml::default",
        "specs/desk.cases.yaml::other",
    ]
    assert ids(project.run("--co", "-q", "-m", "big-orders")) == ["specs/desk.cases.yaml::other"]
    assert ids(project.run("--co", "-q", "-m", "not smoke")) == ["specs/desk.cases.yaml::none"]


@pytest.mark.parametrize("tag", ["skip", "xfail", "skipif", "parametrize", "usefixtures", "filterwarnings"])
def test_tag_named_like_a_pytest_mark_has_no_effect(project: Project, tag: str) -> None:
    project.cases(f"name: default, tags: [{tag}]")
    project.run().assert_outcomes(passed=1)


def test_tag_named_like_a_mark_with_arguments_is_no_mark(project: Project) -> None:
    """The plugin with that mark would look for its arguments."""
    project.cases("name: default, tags: [timeout, slow]")
    project.write(
        "conftest.py",
        """
def pytest_configure(config):
    config.addinivalue_line("markers", "timeout(seconds): end the test after so many seconds")
    config.addinivalue_line("markers", "slow: takes long")

def pytest_runtest_setup(item):
    assert [mark.name for mark in item.iter_markers()] == ["slow"]
""",
    )
    project.run("-m", "slow").assert_outcomes(passed=1)


def test_last_failed_option_selects_failed_cases(project: Project) -> None:
    project.cases("name: good", "name: bad, assert: [{type: contains, value: absent}]")
    project.run().assert_outcomes(passed=1, failed=1)
    result = project.run("--lf", "--co", "-q")
    assert ids(result) == ["specs/desk.cases.yaml::bad"]


def test_without_the_plugin_no_case_is_collected(project: Project) -> None:
    project.cases("name: default")
    assert project.run("-p", "no:agentrun").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_hidden_and_other_files_are_not_collected(project: Project) -> None:
    project.write("specs/.hidden.cases.yaml", CASES)
    project.write("specs/cases.yaml", CASES)
    assert project.run().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_unreadable_case_file_is_reported_with_its_problems(project: Project) -> None:
    """All that is wrong in it, with places, and nothing of ours."""
    project.write("specs/desk.cases.yaml", CASES + "  - {name: default, inptu: x}\n  - {name: 7}\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    said = result.stdout.str()
    assert "specs/desk.cases.yaml:3:21  spec.unknown_key" in said
    assert 'did you mean "input"?' in said
    assert "specs/desk.cases.yaml:4:12" in said
    assert "Traceback" not in said
    assert "agentrun/testing" not in said


def test_duplicate_case_name_is_reported(project: Project) -> None:
    project.cases("name: default", "name: default")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["specs/desk.cases.yaml:4:*spec.duplicate_name*"])


def test_case_file_without_a_spec_fails(project: Project) -> None:
    project.write("specs/lost.cases.yaml", CASES + "  - {name: default}\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    assert "spec.file_missing" in result.stdout.str()
    assert "agentrun/testing" not in result.stdout.str()


OPEN_WATCHER = """
import sys

opened = []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)

def pytest_unconfigure():
    loader = type(sys.modules["agentrun.testing.suite.evaluation"].__spec__.loader).__name__
    with open("opened.txt", "w") as file:
        file.write("\\n".join([loader, *opened]))
"""


def test_files_are_read_once_and_agents_compiled_once(project: Project) -> None:
    """The spec is read to check the cases, and once more when it is compiled. And no module of ours is written anew by
    pytest, as those of plugins are."""
    project.cases(*(f"name: case-{number}" for number in range(5)))
    project.write("conftest.py", OPEN_WATCHER)
    project.process().assert_outcomes(passed=5)
    loader, *opened = (project.root / "opened.txt").read_text(encoding="utf-8").split("\n")
    assert loader == "SourceFileLoader"
    assert sum(path.endswith("specs/desk.cases.yaml") for path in opened) == 1
    assert sum(path.endswith("specs/desk.yaml") for path in opened) <= 2
