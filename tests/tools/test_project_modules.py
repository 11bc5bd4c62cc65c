"""Projects with modules of the same names work side by side in one process, and do not change the imports of it."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

import agentrun
from agentrun.core.messages import text_of
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import HostError
from agentrun.testing import calls, scripted, text
from agentrun.testing.provider import ScriptedProvider
from agentrun.tools import process_owner, project_modules

from .python_desk import Desk, restored_process


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Desk, Desk]]:
    """Two projects."""
    with restored_process():
        desks = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            desks.append(Desk(tmp_path / name))
        yield desks[0], desks[1]


def write(desks: tuple[Desk, Desk], files: dict[str, str]) -> None:
    """The same files in both projects. In each of them NAME_OF_PROJECT is the name of the project."""
    for desk in desks:
        for name, content in files.items():
            desk.write(name, dedent(content).replace("NAME_OF_PROJECT", repr(desk.root.name)))


def check(desks: tuple[Desk, Desk], reference: str, *expected: str) -> None:
    """Each project gets its own modules, whichever comes first and however often."""
    for desk in (*desks, *reversed(desks)):
        assert desk.text(reference) == json.dumps([*expected, desk.root.name], separators=(",", ":"))


STATEMENTS = {
    "import": ("import helpers", "helpers.NAME"),
    "import as": ("import helpers as h", "h.NAME"),
    "from import": ("from helpers import NAME", "NAME"),
    "import submodule": ("import pack.sub.deep", "pack.sub.deep.NAME"),
    "import submodule as": ("import pack.sub.deep as deep", "deep.NAME"),
    "from package import module": ("from pack import sub", "sub.deep_name()"),
    "from package import name": ("from pack import NAME", "NAME"),
    "from submodule": ("from pack.sub.deep import NAME", "NAME"),
    "folder without __init__": ("import folder.leaf", "folder.leaf.NAME"),
    "from folder without __init__": ("from folder import leaf", "leaf.NAME"),
    "__import__": ("helpers = __import__('helpers')", "helpers.NAME"),
    "import_module": ("import importlib\nhelpers = importlib.import_module('helpers')", "helpers.NAME"),
    "from importlib": ("from importlib import import_module\nsub = import_module('pack.sub.deep')", "sub.NAME"),
    "exec": ("names = {}\nexec('from helpers import *', names)", "names['NAME']"),
    "package that imports relatively": ("import pack.relative", "pack.relative.NAME"),
    "circular": ("import ring_a", "ring_a.name()"),
}
FILES = {
    "helpers.py": "NAME = NAME_OF_PROJECT",
    "pack/__init__.py": "NAME = NAME_OF_PROJECT",
    "pack/sub/__init__.py": "def deep_name():\n    from pack.sub.deep import NAME\n    return NAME",
    "pack/sub/deep.py": "NAME = NAME_OF_PROJECT",
    "pack/relative.py": "from . import NAME as A\nfrom .sub.deep import NAME as B\nfrom .sub import deep\n"
    "NAME = A if A == B == deep.NAME else None",
    "folder/leaf.py": "NAME = NAME_OF_PROJECT",
    "ring_a.py": "import ring_b\nfrom ring_b import FIRST\nSECOND = NAME_OF_PROJECT\ndef name(): return ring_b.name()",
    "ring_b.py": "import ring_a\nFIRST = NAME_OF_PROJECT\n"
    "def name(): return FIRST if FIRST == ring_a.SECOND == ring_a.FIRST else None",
}


@pytest.mark.parametrize("late", [False, True], ids=["at the top", "in the function"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_imports_find_the_modules_of_their_own_project(two: tuple[Desk, Desk], statement: str, late: bool) -> None:
    lines, value = STATEMENTS[statement]
    inner = "\n".join(f"    {line}" for line in lines.splitlines()) if late else ""
    module = f"{'' if late else lines}\ndef f():\n{inner}\n    return ['ok', {value}]\n"
    write(two, FILES | {"tools.py": module})
    check(two, "tools:f", "ok")


def test_modules_know_their_own_classes(two: tuple[Desk, Desk]) -> None:
    """Libraries look at `sys.modules[cls.__module__]`."""
    write(
        two,
        {
            "models.py": """
                from __future__ import annotations
                import pickle, typing
                from dataclasses import dataclass, fields
                from typing import TYPE_CHECKING, ClassVar, NamedTuple
                from enum import Enum
                from pydantic import BaseModel
                if TYPE_CHECKING:
                    from nowhere import Something

                class Colour(Enum):
                    RED = NAME_OF_PROJECT

                @dataclass
                class Order:
                    colour: Colour
                    made: ClassVar[int] = 0

                class Bill(BaseModel):
                    colour: Colour
                    next: Bill | None = None

                def check() -> str:
                    order = pickle.loads(pickle.dumps(Order(Colour.RED)))
                    assert type(order) is Order and [each.name for each in fields(Order)] == ["colour"]
                    assert typing.get_type_hints(Order)["colour"] is Colour
                    bill = Bill.model_validate({"colour": NAME_OF_PROJECT, "next": {"colour": NAME_OF_PROJECT}})
                    return pickle.loads(pickle.dumps(bill)).next.colour.value
            """,
            "tools.py": "import models\ndef f():\n    return ['ok', models.check()]\n",
        },
    )
    check(two, "tools:f", "ok")


def test_imports_in_other_threads_and_tasks_find_their_own_project(two: tuple[Desk, Desk]) -> None:
    write(
        two,
        FILES
        | {
            "tools.py": """
                import asyncio
                from concurrent.futures import ThreadPoolExecutor

                def late():
                    import helpers, pack.sub.deep
                    assert helpers.NAME == pack.sub.deep.NAME
                    return helpers.NAME

                async def f():
                    with ThreadPoolExecutor(4) as pool:
                        found = {future.result() for future in [pool.submit(late) for _ in range(20)]}
                    found |= set(await asyncio.gather(*(asyncio.to_thread(late) for _ in range(5))))
                    return ["ok", *found]
            """
        },
    )
    check(two, "tools:f", "ok")


def test_parallel_first_imports_load_each_module_once(two: tuple[Desk, Desk]) -> None:
    write(
        two,
        {
            "slow.py": "import time\ntime.sleep(0.05)\nNAME = NAME_OF_PROJECT\nidentity = object()\n",
            "tools.py": "import slow\nown = object()\ndef f():\n    return [slow.NAME, id(slow.identity), id(own)]\n",
        },
    )
    found: list[tuple[str, list[Any]]] = []

    def call(desk: Desk) -> None:
        found.append((desk.root.name, json.loads(desk.text("tools:f"))))

    threads = [Thread(target=call, args=(Desk(two[number % 2].root),)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert {(name, seen) for name, (seen, _, _) in found} == {("one", "one"), ("two", "two")}
    assert len({identity for _, (_, identity, _) in found}) == len({identity for _, (_, _, identity) in found}) == 2


def begin_circle(desk: Desk, seconds: float) -> tuple[bool, list[str]]:
    """Import two modules that import each other in two threads at once. Whether the second begins, within this time,
    while the first has begun; and what the functions return."""
    desk.write("gate.py", "from threading import Event\nleft, right, go = Event(), Event(), Event()\ndef f(): ...\n")
    for own, other in (("left", "right"), ("right", "left")):
        lines = f"import gate\ngate.{own}.set()\ngate.go.wait(60)\nimport {other}\nNAME = {own!r}\n"
        desk.write(f"{own}.py", f"{lines}def f(): return {other}.NAME\n")
    desk.run("gate:f")
    gate = sys.modules[f"{project_modules.modules_of_project([desk.root]).name}.gate"]
    found: list[str] = []

    def call(name: str) -> None:
        returned = desk.run(f"{name}:f")
        found.append(text_of(returned.parts) if returned.fault is None else returned.fault.message)

    threads = [Thread(target=call, args=(name,)) for name in ("left", "right")]
    threads[0].start()
    assert gate.left.wait(60)
    threads[1].start()
    is_begun = gate.right.wait(seconds)
    gate.go.set()
    for thread in threads:
        thread.join()
    return is_begun, sorted(found)


def test_circle_of_modules_is_imported_by_one_thread_after_the_other(desk: Desk) -> None:
    """Python would give each of the two threads a module that is half-finished, or end one import with an error."""
    assert begin_circle(desk, 0.1) == (False, ["left", "right"])


def test_process_is_left_as_it_was(two: tuple[Desk, Desk]) -> None:
    path, importing, names = list(sys.path), builtins.__import__, set(sys.modules)
    write(two, FILES | {"tools.py": "import pack.sub.deep, helpers\ndef f():\n    return ['ok', helpers.NAME]\n"})
    check(two, "tools:f", "ok")
    assert (sys.path, builtins.__import__) == (path, importing)
    new = {name for name in set(sys.modules) - names if not name.startswith(project_modules.PRIVATE_PREFIX)}
    assert not {name for name in new if name.partition(".")[0] in ("tools", "helpers", "pack", "folder")}
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("helpers")


def test_imports_that_are_not_of_the_project_are_those_of_the_program(two: tuple[Desk, Desk]) -> None:
    """The folder `yaml` has no `__init__.py`, so the installed package wins. `queue` is Python's."""
    write(
        two,
        {
            "yaml/notes.txt": "",
            "queue.py": "raise AssertionError",
            "tools.py": """
                import importlib.util
                import queue, yaml
                from importlib import metadata
                from datetime import datetime
                import sys
                def f():
                    datetime.strptime("2026", "%Y")   # C code that imports
                    assert queue is sys.modules["queue"] and yaml is sys.modules["yaml"]
                    assert importlib.util.find_spec("yaml") and metadata.version("pyyaml")
                    return ["ok", NAME_OF_PROJECT]
            """,
        },
    )
    check(two, "tools:f", "ok")


def test_builtins_are_those_of_the_program(two: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "_", lambda text: f"<{text}>", raising=False)  # as `gettext.install` does
    write(two, {"tools.py": "def f():\n    return [_('ok'), input('x'), NAME_OF_PROJECT]\n"})
    monkeypatch.setattr(builtins, "input", lambda text: f"first {text}")
    check(two, "tools:f", "<ok>", "first x")
    monkeypatch.setattr(builtins, "input", lambda text: f"second {text}")
    monkeypatch.setattr(builtins, "_", lambda text: f"<<{text}>>")
    check(two, "tools:f", "<<ok>>", "second x")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("import pack.nowhere", "ModuleNotFoundError: No module named 'pack.nowhere'"),
        ("from pack.sub.nowhere import x", "ModuleNotFoundError: No module named 'pack.sub.nowhere'"),
        ("import importlib; importlib.import_module('pack.no')", "ModuleNotFoundError: No module named 'pack.no'"),
        ("from . import helpers", "ImportError: attempted relative import with no known parent package"),
        ("import pack.above", "ImportError: attempted relative import beyond top-level package"),
        ("import pack.lost", "ModuleNotFoundError: No module named 'pack.lost.deep'; 'pack.lost' is not a package"),
    ],
)
def test_errors_do_not_show_private_names(two: tuple[Desk, Desk], line: str, error: str) -> None:
    write(
        two,
        FILES
        | {
            "pack/above.py": "from .. import helpers",
            "pack/lost.py": "import pack.lost.deep",
            "tools.py": f"def f():\n    {line}\n",
        },
    )
    for desk in two:
        assert desk.failure("tools:f") == error


def host_module(root: Path, name: str) -> ModuleType:
    """Import a module as the program does."""
    sys.path.insert(0, str(root))
    return importlib.import_module(name)


def test_module_that_the_program_has_imported_is_used(two: tuple[Desk, Desk]) -> None:
    """The other project has a module of the same name, which the program has not imported."""
    write(two, FILES | {"shop/tools.py": "import helpers\nSEEN = []\ndef f():\n    return ['ok', helpers.NAME]\n"})
    module = host_module(two[0].root, "shop.tools")
    two[0].write(
        "shop/more.py", "from shop import tools\ndef f():\n    tools.SEEN.append(1)\n    return len(tools.SEEN)\n"
    )
    assert two[0].text("shop.more:f") == "1"
    assert module.SEEN == [1]


def test_file_that_the_program_has_imported_under_another_name_is_used(two: tuple[Desk, Desk], tmp_path: Path) -> None:
    """The import root of the agent is a folder of a package of the program."""
    write(two, {"tools.py": "calls = []\ndef f():\n    calls.append(1)\n    return len(calls)\n"})
    two[0].write("other_tools.py", "import tools\ndef f():\n    return len(tools.calls)\n")
    module = host_module(tmp_path, "one.tools")
    assert two[0].text("tools:f") == "1"
    assert two[0].text("other_tools:f") == "1"
    assert two[1].text("tools:f") == "1"
    assert module.calls == [1]
    del sys.modules["one"], sys.modules["one.tools"]


def test_package_that_the_program_has_imported_gets_no_second_copy(two: tuple[Desk, Desk]) -> None:
    """The program has imported the package, and the tool is a module of it that the program imports later."""
    write(
        two, {"shop/__init__.py": "orders = []", "shop/tools.py": "import shop\ndef f():\n    shop.orders.append(1)\n"}
    )
    package = host_module(two[0].root, "shop")
    for desk in two:
        desk.write("clash.py", "raise AssertionError")
    sys.path.insert(0, str(two[1].root))
    two[0].run("shop.tools:f")
    assert package.orders == [1]
    assert importlib.import_module("shop.tools").__file__ == str(two[0].root / "shop/tools.py")
    two[1].run("shop.tools:f")
    assert package.orders == [1]


def test_main_script_is_not_loaded_again(two: tuple[Desk, Desk]) -> None:
    desk = two[0]
    desk.write("agent.yaml", AGENT)
    script = desk.write(
        "tools.py",
        """
        import agentrun
        from agentrun.testing import calls, scripted
        seen = []
        def f() -> str:
            "Looks."
            seen.append(__name__)
            return "x"
        if __name__ == "__main__":
            agentrun.run("agent.yaml", "Go", model=scripted(calls("f"), "Done."))
        print(__name__, seen)
        """,
    )
    done = subprocess.run([sys.executable, script], cwd=desk.root, capture_output=True, text=True, check=True)
    assert done.stdout == "__main__ ['__main__']\n"


def test_project_on_the_path_has_ordinary_names(two: tuple[Desk, Desk]) -> None:
    """Its classes can be pickled for other processes, and the program that imports it later gets the same module."""
    write(
        two, FILES | {"tools.py": "import helpers\ndef f():\n    return [__name__, helpers.__name__, helpers.NAME]\n"}
    )
    sys.path[:0] = [str(two[0].root), str(two[1].root)]
    assert two[0].text("tools:f") == '["tools","helpers","one"]'
    assert importlib.import_module("tools").f() == ["tools", "helpers", "one"]
    names = json.loads(two[1].text("tools:f"))
    assert names[2] == "two"
    assert all(name.startswith(project_modules.PRIVATE_PREFIX) for name in names[:2]), "the first project has the name"
    assert two[0].text("tools:f") == '["tools","helpers","one"]'


def test_shared_helper_name_makes_a_project_private_even_if_its_tools_are_not(two: tuple[Desk, Desk]) -> None:
    """Both projects are on the path, and only the modules that the tools import have the same name."""
    write(two, {"helpers.py": "NAME = NAME_OF_PROJECT\n"})
    for desk in two:
        desk.write(f"{desk.root.name}_tools.py", "def f():\n    import helpers\n    return helpers.NAME\n")
        sys.path.append(str(desk.root))
    for desk in (*two, *two):
        assert desk.text(f"{desk.root.name}_tools:f") == desk.root.name


def test_process_of_agentrun_gives_its_first_project_ordinary_names(
    two: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_owner, "is_owned", True)
    write(two, FILES | {"tools.py": "import helpers\ndef f():\n    return [__name__, helpers.NAME]\n"})
    assert two[0].text("tools:f") == '["tools","one"]'
    assert sys.path[0] == str(two[0].root)
    assert json.loads(two[1].text("tools:f"))[1] == "two"
    assert str(two[1].root) not in sys.path


AGENT = """\
agentrun: "1"
name: desk
model: {provider: openai, name: gpt-4.1-mini}
instructions: Look.
tools:
  f: {kind: python, call: "tools:f", effect: read}
policy: {default: allow}
budgets: {turns: 3, tokens: 20k}
"""


def test_run_is_refused_if_the_program_has_imported_another_file(two: tuple[Desk, Desk]) -> None:
    write(two, {"tools.py": 'def f() -> str:\n    "Looks."\n    return NAME_OF_PROJECT\n', "agent.yaml": AGENT})
    host_module(two[0].root, "tools")
    model = scripted(calls("f"), text("Done."))
    with pytest.raises(HostError) as caught:
        agentrun.run(two[1].root / "agent.yaml", "Go", model=model)
    files = [str(desk.root / "tools.py") for desk in two]
    assert caught.value.code == "host.missing"
    assert all(file in caught.value.message for file in files)
    assert "isolation: process" in (caught.value.hint or "")
    assert caught.value.fields["imported"] == files[0]
    assert not model.requests
    isolated = AGENT.replace("effect: read", "effect: read, isolation: process")
    two[1].write("agent.yaml", isolated)
    model = scripted(calls("f"), text("Done."))
    agentrun.run(two[1].root / "agent.yaml", "Go", model=model)
    assert "two" in str(model.requests[-1].messages)


def test_two_projects_run_side_by_side(two: tuple[Desk, Desk]) -> None:
    tools = 'def f() -> str:\n    "Looks."\n    from pack.sub.deep import NAME\n    return f"project {NAME}"\n'
    write(two, FILES | {"tools.py": tools, "agent.yaml": AGENT})

    async def both() -> list[str]:
        return list(await asyncio.gather(*(asyncio.to_thread(one_run, two[number % 2]) for number in range(6))))

    def one_run(desk: Desk) -> str:
        model = scripted(calls("f"), text("Done."))
        agentrun.run(desk.root / "agent.yaml", "Go", model=model)
        return str(model.requests[-1].messages)

    for number, messages in enumerate(asyncio.run(both())):
        names = ("project one", "project two")
        assert (names[number % 2] in messages, names[1 - number % 2] in messages) == (True, False)


LIVE_AGENT = AGENT.replace("name: gpt-4.1-mini", 'name: gpt-4.1-mini, base_url: "${DESK_URL}", api_key: "${DESK_KEY}"')


def test_settings_and_redactors_are_those_of_each_project(
    two: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each project has a key in its own `.env`. A key of the other project is unknown to it, so it is not redacted."""
    keys = {desk.root.name: f"made-up-key-of-{desk.root.name}" for desk in two}
    write(two, {"tools.py": f'def f() -> str:\n    "Looks."\n    return {" ".join(keys.values())!r}\n'})
    write(two, {"agent.yaml": LIVE_AGENT})
    script = 'agentrun: "1"\nturns:\n  - calls: [{tool: f}]\n  - text: Done.\n'
    found: dict[str, str] = {}
    with ScriptedProvider(script) as server:
        monkeypatch.setenv("DESK_URL", server.url)
        for desk in two:
            desk.write(".env", f"DESK_KEY={keys[desk.root.name]}\n")
            journals = MemoryJournals()
            outcome = agentrun.run(desk.root / "agent.yaml", "Go", journals=journals)
            found[desk.root.name] = str(list(journals.records(outcome.run)))
    assert len(server.requests) == 4
    for name, other in (("one", "two"), ("two", "one")):
        sent = [request for request in server.requests if keys[name] in str(request.headers)]
        assert len(sent) == 2
        assert (keys[name] in found[name], keys[other] in found[name]) == (False, True)


def test_changed_private_module_is_drift(two: tuple[Desk, Desk]) -> None:
    write(two, {"tools.py": "def f():\n    return NAME_OF_PROJECT\n"})
    calls_before = [desk.call("tools:f") for desk in two]
    assert [desk.text("tools:f") for desk in two] == ["one", "two"]
    two[0].write("tools.py", "def f():\n    return 'changed'\n")
    fault = two[0].run("tools:f").fault
    assert fault is not None
    assert (fault.code, fault.hint) == ("tool.drift", "start a new process")
    assert two[1].text("tools:f") == "two"
    assert asyncio.run(two[0].tools.run(calls_before[0])).fault is None, "what is loaded keeps its pin"


def test_package_that_spans_two_import_roots_is_refused(two: tuple[Desk, Desk], tmp_path: Path) -> None:
    write(two, {"shop/tools.py": "def f(): ...\n"})
    two[0].write("shop/__init__.py", "")
    (two[0].root / "shop/tools.py").unlink()
    desk = Desk(tmp_path)
    desk.tools = type(desk.tools)([two[0].root, two[1].root])
    fault = asyncio.run(desk.tools.run(two[1].call("shop.tools:f"))).fault
    assert fault is not None
    assert "the package shop is in" in fault.message


# --- planted bugs -----------------------------------------------------------------------------------------------------


def helper_of_the_process(two: tuple[Desk, Desk]) -> None:
    write(two, FILES | {"tools.py": "def f():\n    import helpers\n    return ['ok', helpers.NAME]\n"})
    host_module(two[1].root, "helpers")
    check(two, "tools:f", "ok")


PLANTED: dict[str, tuple[str, Callable[..., Any], Callable[..., None]]] = {
    "modules import as the process does": (
        "_new_module",
        lambda self, spec: ModuleType(spec.name),
        helper_of_the_process,
    ),
    "names of the project are never private": (
        "_is_found_by_python",
        lambda self, name: True,
        test_shared_helper_name_makes_a_project_private_even_if_its_tools_are_not,
    ),
    "names of the project are always private": (
        "_is_found_by_python",
        lambda self, name: False,
        test_project_on_the_path_has_ordinary_names,
    ),
    "every name is of the project": (
        "_has",
        lambda self, name, fromlist=(): True,
        test_imports_that_are_not_of_the_project_are_those_of_the_program,
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_seen(two: tuple[Desk, Desk], bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, instead, test = PLANTED[bug]
    monkeypatch.setattr(project_modules.ProjectModules, method, instead)
    with pytest.raises(AssertionError):
        test(two)


def test_planted_parallel_import_is_seen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_modules, "LOCK_SECONDS", 0.0)
    is_begun, _ = begin_circle(desk, 60)
    assert is_begun


def test_planted_second_copy_is_seen(two: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_modules, "_imported_name", lambda module, file: None)
    with pytest.raises(AssertionError):
        test_package_that_the_program_has_imported_gets_no_second_copy(two)
