"""A Python tool runs the module that was compiled, or nothing."""

import asyncio
import os
import py_compile
import sys
from pathlib import Path

import pytest

from agentrun.canonical_json import text_hash
from agentrun.compiler.python_functions import find_function
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.fault import Fault
from agentrun.core.messages import text_of
from agentrun.core.package_tools import PythonTool
from agentrun.spec.project import Project
from agentrun.tools.python import PythonTools

from .python_desk import Desk, python_call

ONE = "def f() -> str:\n    return 'one'\n"
TWO = "def f() -> str:\n    return 'two'\n"


def run(tools: PythonTools, call: RunTool) -> ToolReturn:
    return asyncio.run(tools.run(call))


def pin(call: RunTool) -> str:
    assert isinstance(call.tool, PythonTool)
    return call.tool.source


def drift(returned: ToolReturn) -> Fault:
    assert returned.fault is not None
    assert returned.fault.code == "tool.drift"
    assert returned.parts == ()
    assert returned.fault.hint
    assert returned.fault.fields.keys() == {"tool", "pinned", "found"}
    return returned.fault


@pytest.mark.parametrize(
    ("files", "reference"),
    [
        (["desk.py"], "desk:f"),
        (["desk/__init__.py"], "desk:f"),
        (["desk/a.py"], "desk.a:f"),
        (["desk/__init__.py", "desk/a.py"], "desk.a:f"),
        (["desk/a/b/__init__.py"], "desk.a.b:f"),
        (["desk/__init__.py", "desk/a/b/c.py"], "desk.a.b.c:f"),
        (["desk/a.py", "desk/a/__init__.py"], "desk.a:f"),
    ],
)
def test_module_is_found_in_packages_and_folders(desk: Desk, files: list[str], reference: str) -> None:
    for file in files:
        desk.write(file, f"def f() -> str:\n    return {file!r}\n")
    shown = files[0] if files[0] == "desk/a.py" else files[-1]
    assert desk.text(reference) == shown


def test_module_can_import_other_modules_of_the_project(desk: Desk) -> None:
    """A module finds the others of its project, by their full names and relative to itself."""
    desk.write("other.py", "NAME = 'other'\n")
    desk.write("desk/parts.py", "PARTS = 2\n")
    text = "import other\nfrom desk.parts import PARTS\nfrom . import parts\n"
    desk.write("desk/main.py", text + "def f() -> list:\n    return [other.NAME, PARTS, parts.PARTS]\n")
    assert desk.text("desk.main:f") == '["other",2,2]'


def test_first_import_root_with_the_module_wins(desk: Desk, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for root, text in ((first, ONE), (second, TWO)):
        root.mkdir()
        (root / "desk.py").write_text(text)
    (second / "other.py").write_text(TWO)
    project = Project(tmp_path, ("first", "second"))
    tools = PythonTools([first, second])
    for reference, said in (("desk:f", "one"), ("other:f", "two")):
        function = find_function(project, reference)  # both find the same file
        assert text_of(run(tools, python_call(function.module, "f", function.source, {})).parts) == said


def test_changed_source_is_drift_and_not_imported(desk: Desk) -> None:
    path = desk.write("desk.py", ONE)
    call = desk.call("desk:f")
    path.write_text("raise SystemExit('imported')\n")
    fault = drift(run(desk.tools, call))
    assert fault.fields == {"tool": "f", "pinned": pin(call), "found": text_hash(path.read_text())}
    assert "desk" not in sys.modules


def test_missing_source_is_drift(desk: Desk) -> None:
    path = desk.write("desk.py", ONE)
    call = desk.call("desk:f")
    path.unlink()
    assert drift(run(desk.tools, call)).fields["found"] is None


@pytest.mark.parametrize("module", ["os", "os.path", "builtins", "../desk", "", "agentrun.errors", "__main__"])
def test_module_outside_the_project_is_drift(desk: Desk, module: str) -> None:
    """A package that names such a module was not made by the compiler."""
    drift(run(desk.tools, python_call(module, "system", "sha256:0", {"command": "true"})))


def test_source_replaced_by_a_link_is_drift(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(ONE)
    path = desk.write("desk.py", ONE)
    call = desk.call("desk:f")
    path.unlink()
    path.symlink_to(tmp_path / "outside.py")
    drift(run(desk.tools, call))
    assert "desk" not in sys.modules


def test_old_bytecode_does_not_run(desk: Desk) -> None:
    """Bytecode of an earlier source of the same size and second looks fresh to Python."""
    path = desk.write("desk.py", ONE)
    py_compile.compile(str(path))
    before = path.stat()
    path.write_text(TWO)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert desk.text("desk:f") == "two"


def test_source_changed_after_the_import_keeps_the_old_pin(desk: Desk) -> None:
    """What is imported stays what it was: the old pin still runs, a new one needs a new process."""
    path = desk.write("desk.py", ONE)
    old = desk.call("desk:f")
    assert text_of(run(desk.tools, old).parts) == "one"
    path.write_text(TWO)
    assert text_of(run(desk.tools, old).parts) == "one"
    fault = drift(run(PythonTools([desk.root]), desk.call("desk:f")))
    assert (fault.fields["found"], fault.hint) == (pin(old), "start a new process")


def test_import_root_wins_over_the_rest_of_the_path(desk: Desk, tmp_path: Path) -> None:
    """The import roots stand before whatever else is on the path."""
    (tmp_path / "desk.py").write_text(TWO)
    sys.path.insert(0, str(tmp_path))
    desk.write("desk.py", ONE)
    assert desk.text("desk:f") == "one"


def test_module_imported_by_the_program_is_reused(desk: Desk) -> None:
    desk.write("desk.py", ONE + "count = 0\ndef g() -> int:\n    return count\n")
    sys.path.insert(0, str(desk.root))
    import desk as own  # type: ignore[import-not-found]  # the test just wrote it

    own.count = 7
    assert desk.text("desk:g") == "7"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise RuntimeError('token: ' + 'sk-ant-' + 'a1B2c3D4' * 4)", "RuntimeError: token: ***"),
    ],
)
@pytest.mark.parametrize("where", ["desk/a.py", "desk/__init__.py"])
def test_failing_import_is_a_failure_with_the_reason(desk: Desk, text: str, said: str, where: str) -> None:
    path = desk.write("desk/a.py", ONE)
    if where == "desk/a.py":
        path.write_text(f"{ONE}\n{text}\n")
    else:
        desk.write(where, text)
    assert desk.failure("desk.a:f") == f"desk.a cannot be imported: {said}"
    assert desk.failure("desk.a:f") == f"desk.a cannot be imported: {said}"
    assert "desk.a" not in sys.modules


def test_function_missing_after_the_import_is_a_failure(desk: Desk) -> None:
    desk.write("desk.py", ONE + "del f\n")
    assert desk.failure("desk:f") == 'the module "desk" has no function "f" after it was imported'


def test_new_neighbour_is_found_despite_import_caches(desk: Desk) -> None:
    """Python remembers what is in a folder until the folder's time changes, which two quick writes may not show."""
    desk.write("desk.py", ONE)
    desk.write("shop.py", "import other\ndef f() -> str:\n    return other.f()\n")
    before = desk.root.stat()
    assert desk.failure("shop:f").endswith("No module named 'other'")
    desk.write("other.py", TWO)
    os.utime(desk.root, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert desk.text("shop:f") == "two"
