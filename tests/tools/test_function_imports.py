"""Functions are imported before a run, in this process or in one of their own, and failures are named."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrun.compiler.python_functions import find_function
from agentrun.errors import HostError, ToolError
from agentrun.spec.project import Project
from agentrun.tools import project_modules
from agentrun.tools.function_imports import (
    PROGRAM_VARIABLES,
    FailedImport,
    PythonPart,
    check_environment,
    describe_failed_import,
    import_functions,
    import_in_processes,
)

from .python_desk import Desk

GOOD = "def look(order: str) -> str: return order\n"
DEAD = {
    "missing module": ("import nowhere", "ModuleNotFoundError: No module named 'nowhere' (desk.py:1)"),
    "exception": ("raise LookupError('no order')", "LookupError: no order (desk.py:1)"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3 (desk.py:1)"),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt (desk.py:1)"),
    "syntax error": ("import other", "SyntaxError: unmatched ')' (other.py, line 1) (desk.py:1)"),
    "error in another file": ("import shop.orders", "ZeroDivisionError: division by zero (shop/orders.py:2)"),
}
MISSING = {"deleted": "del look", "not callable": "look = 'text'", "none": "look = None"}


def part(desk: Desk, reference: str, **changes: Any) -> PythonPart:
    """A function, pinned as the compiler pins it now."""
    function = find_function(Project(desk.root), reference)
    kept = {"what": "tool", "name": function.name, "isolated": False, **changes}
    return PythonPart(module=function.module, function=function.name, source=function.source, **kept)


def write(desk: Desk, *before: str, after: str = "") -> None:
    desk.write("desk.py", "\n".join([*before, GOOD, after]))


def imported(desk: Desk, *parts: PythonPart, **options: Any) -> str | None:
    """What is said about the functions. None: all of them can be called."""
    try:
        asyncio.run(import_functions(parts, [desk.root], desk.root.parent, **options))
    except HostError as error:
        return error.message
    return None


def checked(desk: Desk, *parts: PythonPart, environment: dict[str, str] | None = None, **options: Any) -> list[str]:
    given = check_environment() if environment is None else environment
    failed: list[FailedImport] = asyncio.run(import_in_processes(parts, [desk.root], given, **options))
    return [describe_failed_import(each, [desk.root], desk.root.parent) for each in failed]


@pytest.mark.parametrize("isolated", [False, True], ids=["thread", "process"])
def test_functions_that_can_be_called_pass(desk: Desk, isolated: bool) -> None:
    write(desk)
    assert imported(desk, part(desk, "desk:look", isolated=isolated)) is None
    is_imported = any(name.rpartition(".")[2] == "desk" for name in sys.modules)
    assert is_imported is not isolated, "an isolated tool is not imported here"


def write_helpers(desk: Desk) -> None:
    desk.write("other.py", "def ))(\n")
    desk.write("shop/__init__.py", "")
    desk.write("shop/orders.py", "\n1 / 0\n")


@pytest.mark.parametrize("name", DEAD)
def test_module_that_cannot_be_imported_is_named_with_its_file_and_error(desk: Desk, name: str) -> None:
    line, error = DEAD[name]
    write_helpers(desk)
    write(desk, line)
    message = imported(desk, part(desk, "desk:look"))
    assert message == f"desk (python/desk.py) cannot be imported: {error} (needed by tool look)"


@pytest.mark.parametrize("name", MISSING)
def test_function_that_is_gone_after_the_import_is_named(desk: Desk, name: str) -> None:
    write(desk, after=MISSING[name])
    message = imported(desk, part(desk, "desk:look"))
    why = 'the module "desk" has no function "look" after it was imported'
    assert message == f"desk (python/desk.py) cannot be imported: {why} (needed by tool look)"


def test_modules_of_every_kind_are_named_by_a_check(desk: Desk) -> None:
    """One process imports them all."""
    write_helpers(desk)
    expected = []
    for number, (line, error) in enumerate(DEAD.values()):
        desk.write(f"dead{number}.py", f"{line}\n{GOOD}")
        expected.append(f"dead{number} (python/dead{number}.py) cannot be imported: {error}")
    for number, line in enumerate(MISSING.values(), len(DEAD)):
        desk.write(f"dead{number}.py", f"{GOOD}\n{line}\n")
        why = f'the module "dead{number}" has no function "look" after it was imported'
        expected.append(f"dead{number} (python/dead{number}.py) cannot be imported: {why}")
    found = checked(desk, *[part(desk, f"dead{number}:look") for number in range(len(expected))])
    assert found == [each.replace("(desk.py:", f"(dead{number}.py:") for number, each in enumerate(expected)]


def test_error_has_fields_for_programs(desk: Desk) -> None:
    write(desk, "import nowhere")
    with pytest.raises(HostError) as caught:
        asyncio.run(import_functions([part(desk, "desk:look")], [desk.root], desk.root.parent))
    assert (caught.value.code, caught.value.exit_code) == ("host.missing", 2)
    assert caught.value.fields == {
        "name": "desk",
        "names": ["desk"],
        "module": "desk",
        "file": "python/desk.py",
        "error": "ModuleNotFoundError: No module named 'nowhere'",
    }
    assert "agentrun validate --imports" in (caught.value.hint or "")


def test_all_failures_are_in_one_error_and_hooks_count(desk: Desk) -> None:
    desk.write("desk.py", "import nowhere\ndef look(): ...\ndef pay(): ...\n")
    desk.write("other.py", "def watch(question): ...\nwatch = None\n")
    parts = [
        part(desk, "desk:look"),
        part(desk, "desk:pay", isolated=True),
        part(desk, "other:watch", what="hook", name="careful"),
    ]
    message = imported(desk, *parts)
    assert message == (
        "desk (python/desk.py) cannot be imported: ModuleNotFoundError: No module named 'nowhere' (desk.py:1)"
        " (needed by tool look, tool pay); "
        'other (python/other.py) cannot be imported: the module "other" has no function "watch" after it was imported'
        " (needed by hook careful)"
    )


@pytest.mark.parametrize("isolated", [False, True], ids=["thread", "process"])
def test_module_that_hangs_is_given_up(desk: Desk, isolated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module has a name of its own: the thread that imports it holds Python's lock of that name for ever."""
    monkeypatch.setattr(project_modules, "LOCK_SECONDS", 0.1)
    desk.write("stuck.py", "import threading\nthreading.Event().wait()\ndef look(): ...\ndef pay(): ...\n")
    desk.write("other.py", "def find(): ...\ndel find\n")
    parts = [part(desk, name, isolated=isolated) for name in ("stuck:look", "stuck:pay", "other:find")]
    message = imported(desk, *parts, seconds=1)
    assert message is not None
    assert "stuck (python/stuck.py) cannot be imported: the import took longer than 1 s" in message
    assert "(needed by tool look, tool pay)" in message, "it is tried once"
    assert "other (python/other.py)" in message, "the others are still imported"


ENDS = {
    "import os; os._exit(7)": "the process exited with code 7 during the import",
    "import os; os.kill(os.getpid(), 9)": "the process was killed by SIGKILL during the import",
    "import os; os.write(3, b'no JSON\\n')": "the module wrote to descriptor 3, which belongs to agentrun",
    "import os; os.write(3, b'x' * 100_000)": "the module wrote to descriptor 3, which belongs to agentrun",
    "import os; os.close(3)": "the process exited with code",
}


def test_module_that_ends_the_process_of_a_check_is_named(desk: Desk) -> None:
    """The modules after it are imported in another process."""
    for number, line in enumerate(ENDS):
        desk.write(f"ends{number}.py", f"{line}\ndef look(): ...\ndef pay(): ...\n")
    desk.write("other.py", "def find(): ...\n")
    modules = [f"ends{number}" for number in range(len(ENDS))]
    parts = [part(desk, f"{module}:{name}") for name in ("look", "pay") for module in modules]
    found = checked(desk, *parts, part(desk, "other:find"))
    assert len(found) == 2 * len(ENDS), "both functions of each module, and no other"
    for module, why in zip(modules, ENDS.values(), strict=True):
        start = f"{module} (python/{module}.py) cannot be imported: {why}"
        assert sum(each.startswith(start) for each in found) == 2


def test_broken_module_is_tried_once(desk: Desk) -> None:
    trace = desk.root / "trace.txt"
    lines = (
        f"with open({str(trace)!r}, 'a') as file: file.write('x')\nraise ValueError\ndef look(): ...\ndef pay(): ...\n"
    )
    desk.write("desk.py", lines)
    assert imported(desk, part(desk, "desk:look"), part(desk, "desk:pay")) is not None
    assert trace.read_text() == "x"
    assert len(checked(desk, part(desk, "desk:look"), part(desk, "desk:pay"))) == 2
    assert trace.read_text() == "xx"


def test_process_of_a_check_gets_no_secrets_and_no_input(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "DB_PASSWORD", "PYTHONPATH", "AGENTRUN_STORE", "SHOP"):
        monkeypatch.setenv(name, "sk-proj-abcdefghij0123456789")
    seen = desk.root / "seen.json"
    desk.write(
        "desk.py",
        f"""
        import json, os, sys
        open({str(seen)!r}, "w").write(json.dumps([dict(os.environ), sys.stdin.read()]))
        print("printed by the module")
        def look(): ...
        """,
    )
    assert checked(desk, part(desk, "desk:look")) == []
    environment, text = json.loads(seen.read_text())
    assert set(environment) - {"LC_CTYPE"} <= {*PROGRAM_VARIABLES, "PYTHONDONTWRITEBYTECODE"}
    assert environment["PATH"] == os.environ["PATH"]
    assert text == ""
    assert not list(desk.root.rglob("__pycache__")), "it leaves nothing in the project"


def test_output_of_a_module_is_captured_and_its_secrets_are_hidden(desk: Desk) -> None:
    secret = "hunter2-hunter2"  # made up
    write(desk, f"print('loading'); raise ValueError('{secret}')")
    heard: list[tuple[str, str]] = []
    message = imported(
        desk,
        part(desk, "desk:look"),
        printed=lambda name, text: heard.append((name, text)),
        clean=lambda text: text.replace(secret, "***"),
    )
    assert heard == [("look", "loading\n")]
    assert message is not None
    assert secret not in message
    assert "ValueError: ***" in message


@pytest.mark.parametrize("isolated", [False, True], ids=["thread", "process"])
def test_module_that_differs_from_its_pin_is_not_imported(desk: Desk, isolated: bool) -> None:
    write(desk)
    pinned = part(desk, "desk:look", isolated=isolated)
    trace = desk.root / "trace.txt"
    write(desk, f"open({str(trace)!r}, 'w')")
    with pytest.raises(ToolError) as caught:
        imported(desk, pinned)
    assert caught.value.code == "tool.drift"
    assert not trace.exists()


def test_process_that_cannot_be_started_is_reported(desk: Desk) -> None:
    write(desk)
    (found,) = checked(desk, part(desk, "desk:look"), environment={"A": "\0"})
    assert found == "desk (python/desk.py) cannot be imported: its process cannot be started: ValueError"


def test_nothing_to_import_starts_no_process(desk: Desk, tmp_path: Path) -> None:
    assert checked(desk) == []
    assert imported(desk) is None
