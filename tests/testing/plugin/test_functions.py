"""To fixtures, hooks and plugins, a case is a function in the module of its file."""

from __future__ import annotations

import pytest

from .projects import CASES, SNAPSHOT_ASSERTION, Project
from .test_collect import ids
from .test_snapshots import with_unused_snapshots

SCOPES = ("session", "package", "module", "class", "function")
LOG = """
from pathlib import Path

def log(*words):
    with Path("log.txt").open("a", encoding="utf-8") as file:
        print(*words, file=file)
"""
EVERY_SCOPE = f"""
import pytest
{LOG}
""" + "".join(
    f"""
@pytest.fixture(scope="{scope}", autouse=True)
def in_{scope}(request):
    log("begin", "{scope}", request.node.nodeid)
    yield
    log("end", "{scope}", request.node.nodeid)
"""
    for scope in SCOPES
)


def log_of(project: Project) -> list[str]:
    return (project.root / "log.txt").read_text(encoding="utf-8").splitlines()


def add_second_file(project: Project) -> None:
    project.write("specs/more.yaml", (project.root / "specs/desk.yaml").read_text(encoding="utf-8"))
    project.write("specs/more.cases.yaml", CASES + "  - {name: default}\n  - {name: other, cassette: default}\n")
    project.write("cassettes/more/default.yaml", project.cassette.read_text(encoding="utf-8"))


def test_module_scoped_autouse_fixture(project: Project) -> None:
    project.cases("name: default")
    project.write(
        "conftest.py", 'import pytest\n@pytest.fixture(scope="module", autouse=True)\ndef server(request): pass\n'
    )
    project.run().assert_outcomes(passed=1)


def test_fixtures_of_every_scope_begin_and_end(project: Project) -> None:
    """A module is a file of cases. There is no class, so that such a fixture belongs to one case."""
    project.cases("name: default", "name: late-order")
    add_second_file(project)
    project.write("specs/__init__.py", "")
    project.write("specs/conftest.py", EVERY_SCOPE)
    project.run("specs").assert_outcomes(passed=4)
    desk, more = "specs/desk.cases.yaml", "specs/more.cases.yaml"

    def case(id: str) -> list[str]:
        return [f"{word} {id}" for word in ("begin class", "begin function", "end function", "end class")]

    assert log_of(project) == [
        "begin session ",
        "begin package specs",
        f"begin module {desk}",
        *case(f"{desk}::default"),
        *case(f"{desk}::late-order"),
        f"end module {desk}",
        f"begin module {more}",
        *case(f"{more}::default"),
        *case(f"{more}::other"),
        f"end module {more}",
        "end package specs",
        "end session ",
    ]


REQUEST = f"""
import sys
import types

import pytest
{LOG}

@pytest.fixture(autouse=True)
def look(request):
    module, function, node = request.module, request.function, request.node
    assert type(module) is types.ModuleType
    assert type(function) is types.FunctionType
    assert isinstance(node, pytest.Function)
    assert isinstance(node.parent, pytest.Module)
    assert node.parent.obj is module is node.module
    assert node.obj is function is node.function
    assert module.__file__ == str(request.path) == str(node.path) == str(node.fspath) == str(node.parent.path)
    assert module.__name__ not in sys.modules and "orders" not in sys.modules
    assert function.__module__ == module.__name__
    assert function.__qualname__ == function.__name__ == node.originalname
    assert request.cls is None and request.instance is None
    assert getattr(module, "default", "not set") == "not set"
    marks = [(mark.name, *mark.kwargs.items()) for mark in getattr(function, "pytestmark", [])]
    assert marks == [(mark.name, *mark.kwargs.items()) for mark in node.iter_markers()]
    names = [mark[0] for mark in marks]
    log(module.__name__, request.path.name, function.__name__, node.name, *names)
"""


def test_request_has_module_function_and_node(project: Project) -> None:
    project.cases(
        "name: default",
        "name: late-order, tags: [smoke, big-orders]",
        "name: known, tags: [smoke], xfail: later, assert: [{type: contains, value: absent}]",
    )
    add_second_file(project)
    project.write("conftest.py", REQUEST)
    project.run("specs").assert_outcomes(passed=4, xfailed=1)
    assert log_of(project) == [
        "specs.desk.cases desk.cases.yaml default default",
        "specs.desk.cases desk.cases.yaml late-order late-order smoke big-orders",
        "specs.desk.cases desk.cases.yaml known known smoke xfail",
        "specs.more.cases more.cases.yaml default default",
        "specs.more.cases more.cases.yaml other other",
    ]


def test_names_that_mean_something_in_a_module(project: Project) -> None:
    """Or in Python."""
    names = ["setup_module", "teardown_function", "pytest_generate_tests", "pytestmark", "class", "a-b", "a_b", "x-"]
    project.cases(*(f"name: {name}" for name in names))
    project.write("conftest.py", EVERY_SCOPE)
    result = project.run("-v", "specs")
    result.assert_outcomes(passed=len(names))
    assert ids(project.run("--co", "-q", "specs")) == [f"specs/desk.cases.yaml::{name}" for name in names]
    assert sum(line.startswith("begin function") for line in log_of(project)) == len(names)


def test_fixture_with_parameters_runs_a_case_once_for_each(project: Project) -> None:
    """The journals of all of them are one snapshot."""
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}", f"name: gone, {SNAPSHOT_ASSERTION}")
    project.write(
        "conftest.py",
        'import pytest\n@pytest.fixture(params=["a", "b"], scope="module", autouse=True)\ndef server(request): pass\n',
    )
    assert ids(project.run("--co", "-q")) == [
        f"specs/desk.cases.yaml::{case}[{param}]" for param in "ab" for case in ("default", "gone")
    ]
    assert ids(project.run("--co", "-q", "specs/desk.cases.yaml::default[b]")) == ["specs/desk.cases.yaml::default[b]"]
    project.run("--snapshot-update").assert_outcomes(passed=4)
    assert project.kept() == ["default.journal", "gone.journal"]
    project.run("specs").assert_outcomes(passed=4)
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    result = project.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 snapshot passed. 1 snapshot unused."])


def test_hooks_of_functions_see_cases(project: Project) -> None:
    project.cases("name: default", "name: late-order")
    project.write(
        "conftest.py",
        f"""
import pytest
{LOG}

def pytest_generate_tests(metafunc):
    log("generate", metafunc.definition.nodeid, metafunc.function.__name__)

@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    log("call", pyfuncitem.nodeid)
    return (yield)
""",
    )
    project.run("-k", "late").assert_outcomes(passed=1, deselected=1)
    assert log_of(project) == [
        "generate specs/desk.cases.yaml::default default",
        "generate specs/desk.cases.yaml::late-order late-order",
        "call specs/desk.cases.yaml::late-order",
    ]


def test_failing_fixture_is_an_error_of_the_case(project: Project) -> None:
    project.cases("name: default", "name: other")
    project.write(
        "conftest.py",
        """
import pytest

@pytest.fixture(scope="module", autouse=True)
def server(): raise OSError("no port is free")
""",
    )
    result = project.run("-x")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*OSError: no port is free", "ERROR specs/desk.cases.yaml::default - OSError: *"])


def test_path_of_a_case_while_unused_snapshots_are_found(project: Project) -> None:
    """syrupy finds them by the name of the spec. To everything else, the path is that of the cases."""
    with_unused_snapshots(project)
    project.write(
        "conftest.py",
        f"""
{LOG}

def pytest_unconfigure(config):
    session = config.pluginmanager.get_plugin("session")
    log(*(item.path.name for item in session.items))
""",
    )
    result = project.run("specs")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["1 snapshot passed. 2 snapshots unused."])
    assert log_of(project) == ["desk.cases.yaml desk.cases.yaml"]
