"""A project on disk whose Python functions are run as tools, and a guard that restores the process afterwards."""

import asyncio
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from threading import Event
from typing import Any, cast

from agentrun.compiler.python_functions import find_function
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.messages import text_of
from agentrun.core.package_tools import PythonTool
from agentrun.spec.project import Project
from agentrun.tools import project_modules
from agentrun.tools.python import PythonTools

PROJECT = ("desk", "other", "shop")
"""What modules and packages of a test's project are called."""


class Desk:
    """Modules under an import root, and what their functions print."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.heard: list[tuple[str, str]] = []
        self.tools = PythonTools([root], printed=lambda tool, text: self.heard.append((tool, text)))

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def call(self, reference: str, arguments: dict[str, Any] | None = None, **changes: Any) -> RunTool:
        """A call of `module:function`, pinned as the compiler pins it now."""
        function = find_function(Project(self.root), reference)
        return python_call(function.module, function.name, function.source, arguments or {}, **changes)

    def run(self, reference: str, **arguments: Any) -> ToolReturn:
        return asyncio.run(self.tools.run(self.call(reference, arguments)))

    def text(self, reference: str, **arguments: Any) -> str:
        """What a call gives that does not fail."""
        returned = self.run(reference, **arguments)
        assert returned.fault is None
        return text_of(returned.parts)

    def failure(self, reference: str, **arguments: Any) -> str:
        """What is said about a call that fails in a way that the model can read."""
        returned = self.run(reference, **arguments)
        assert returned.fault is not None
        assert (returned.fault.code, returned.parts) == ("tool.execution", ())
        assert returned.fault.fields["tool"] == reference.partition(":")[2]
        return returned.fault.message


class Gate:
    """Lets a function of a project wait for the test, and the test for the function."""

    def __init__(self) -> None:
        self.entered, self.opened, self.left = Event(), Event(), Event()


def gated(desk: Desk, text: str) -> Gate:
    """Write a module `desk` with a function `f` that uses `f.gate`."""
    desk.write("desk.py", text)
    sys.path.insert(0, str(desk.root))
    module = importlib.import_module("desk")
    module.f.gate = Gate()
    return cast(Gate, module.f.gate)


def python_call(module: str, function: str, source: str, arguments: dict[str, Any], **changes: Any) -> RunTool:
    tool = PythonTool(
        **{
            "description": "Does something.",
            "parallel": True,
            "timeout": 60_000,
            "visible": None,
            "observation": False,
            "terminal": False,
            "aborts_siblings": False,
            "on_denied": "tell",
            "effect": "read",
            "args": {"type": "object"},
            "actions": {},
            "module": module,
            "function": function,
            "source": source,
            "isolation": "thread",
            **changes,
        }
    )
    return RunTool("c1.0", function, tool, arguments, "key", max_lines=2000, max_bytes=50_000)


@contextmanager
def restored_process() -> Iterator[None]:
    """Whatever is imported, found or put in the place of a stream is gone afterwards."""
    streams, path, meta = (sys.stdout, sys.stderr), list(sys.path), list(sys.meta_path)
    names = dict(sys.modules)
    try:
        yield
    finally:
        (sys.stdout, sys.stderr), sys.path[:], sys.meta_path[:] = streams, path, meta
        for name in set(sys.modules) - set(names):
            if name.partition(".")[0] in PROJECT:  # of anything else a second copy would not fit
                del sys.modules[name]
        project_modules.finder.forget_projects()
