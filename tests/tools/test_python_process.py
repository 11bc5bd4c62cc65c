"""`isolation: process` gives the same results as a thread, in a process that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec import UNSET

from agentrun.core.effects import ToolReturn
from agentrun.core.facts import ToolFinished
from agentrun.core.messages import text_of
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.perform import Performer
from agentrun.engine.ports import ToolProgress
from agentrun.engine.world import world_of_run
from agentrun.tools.call_results import MAX_FAULT_MESSAGE, MAX_RESULT_BYTES
from agentrun.tools.function_imports import PROGRAM_VARIABLES
from agentrun.tools.python import PythonTools

from ..engine.memory_worlds import Place
from .python_desk import Desk

MODULE = """
    import asyncio, os, signal, subprocess, sys, threading, time
    from agentrun import ToolError, progress

    KEY = "sk-ant-" + "a1B2c3D4" * 4
    print("imported")

    def plain(n: int, text: str = "ü") -> dict:
        print("out", n)
        print("wrong", KEY, file=sys.stderr)
        sys.stdout.buffer.write(b"bytes ")
        return {"n": n, "text": text}
    async def later() -> str:
        await asyncio.sleep(0)
        print("later")
        return "later"
    def awaitable():
        return later()
    def nothing() -> None: ...
    def surrogate() -> str: return "\\ud800"
    def cycle() -> list:
        found = []
        found.append(found)
        return found
    def nan() -> float: return float("nan")
    def odd() -> object: return object()
    def binary() -> bytes: return bytes(range(256))
    def huge() -> str: return "x" * (16 * 1024 * 1024 + 1)
    def control() -> str: return "\\x01" * 100_000
    def error() -> str: raise LookupError("no order " + KEY)
    def long_error() -> str: raise ValueError("x" * 100_000)
    def surrogate_error() -> str: raise ValueError("\\ud800")
    def silent_error() -> str:
        class Odd(Exception):
            def __str__(self): raise RuntimeError
        raise Odd
    def leaves() -> str: sys.exit(3)
    def interrupt() -> str: raise KeyboardInterrupt
    async def async_error() -> str: raise ValueError("async")
    async def async_leaves() -> str: sys.exit(4)
    def fatal() -> str: raise ToolError.fatal("closed " + KEY, hint="come back", shop=1)
    def aborted() -> str: raise ToolError.aborted("given up")
    def execution() -> str: raise ToolError.execution("no such order")
    def drift() -> str: raise ToolError("tool.drift", "not mine to say")
    def odd_fields() -> str: raise ToolError("tool.fatal", "x", fields={"a": object()})
    def many_fields() -> str: raise ToolError("tool.fatal", "x", fields={"a": "y" * 100_000})
    def secret_fields() -> str: raise ToolError("tool.fatal", "x", fields={"tool": "other", "a": [KEY, {KEY: KEY}]})
    def flood() -> None:
        for _ in range(100):
            print("y" * 4096)
"""
SAME = [
    *("later", "awaitable", "nothing", "surrogate", "cycle", "nan", "odd", "binary", "huge", "control", "error"),
    *("long_error", "surrogate_error", "silent_error", "leaves", "interrupt", "async_error", "async_leaves", "fatal"),
    *("aborted", "execution", "drift", "odd_fields", "many_fields", "secret_fields", "flood"),
]


def run(desk: Desk, name: str, isolation: str, **arguments: Any) -> tuple[ToolReturn, list[tuple[str, str]]]:
    desk.heard.clear()
    returned = asyncio.run(desk.tools.run(desk.call(f"desk:{name}", arguments, isolation=isolation)))
    return returned, list(desk.heard)


def test_process_gives_the_same_results_as_a_thread(desk: Desk) -> None:
    """Results, faults, and what is printed; the process imports the module every time."""
    desk.write("desk.py", MODULE)
    run(desk, "nothing", "thread")
    for name in SAME:
        here, printed = run(desk, name, "thread")
        there, printed_there = run(desk, name, "process")
        if name == "flood":
            assert printed_there[0][1].startswith("imported\nyyy")
            assert printed_there[0][1][-60:] == printed[0][1][-60:]
        else:
            assert there == here, name
            assert printed_there == [(name, "imported\n" + "".join(text for _, text in printed))], name
        assert "sk-ant" not in repr((there, printed_there))


def test_arguments_and_prints_pass_between_the_processes(desk: Desk) -> None:
    desk.write("desk.py", MODULE)
    returned, printed = run(desk, "plain", "process", n=7, text="日本\x00\U0001f600")
    assert json.loads(text_of(returned.parts)) == {"n": 7, "text": "日本\x00\U0001f600"}
    ((tool, text),) = printed
    pieces = ("imported\n", "out 7\n", "wrong ***\n", "bytes ")  # two pipes: which is heard first is not for us to say
    assert tool == "plain"
    assert all(piece in text for piece in pieces)
    assert len(text) == len("".join(pieces))


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("shift", range(0, 24, 4))
def test_shortened_fault_shows_no_part_of_a_secret(desk: Desk, isolation: str, shift: int) -> None:
    """What is known is taken out of the whole text, and only then is it cut: message, hint and fields."""
    secret = "hunter2-hunter2-hunter2"  # made up
    text = "x" * (MAX_FAULT_MESSAGE - 24 + shift) + secret
    desk.write(
        "desk.py", "from agentrun import ToolError\ndef f(t: str):\n    raise ToolError.fatal(t, hint=t, a=[t])\n"
    )
    tools = PythonTools([desk.root], clean=lambda text: text.replace(secret, "[hidden]"))
    returned = asyncio.run(tools.run(desk.call("desk:f", {"t": text}, isolation=isolation)))
    assert returned.fault is not None
    assert "hunter" not in repr(returned)
    assert len(returned.fault.message) <= MAX_FAULT_MESSAGE


def test_changed_source_is_drift(desk: Desk) -> None:
    path = desk.write("desk.py", "def f() -> str:\n    return 'one'\n")
    call = desk.call("desk:f", isolation="process")
    path.write_text("raise SystemExit('imported')\n")
    fault = asyncio.run(desk.tools.run(call)).fault
    assert fault is not None
    assert (fault.code, fault.fields["tool"]) == ("tool.drift", "f")


def test_process_imports_neighbours_and_reports_import_errors(desk: Desk) -> None:
    desk.write("other.py", "NAME = 'other'\n")
    desk.write("shop/a.py", "import other\ndef f() -> str:\n    return other.NAME + __name__\n")
    desk.write("desk.py", "import nowhere_to_be_found\ndef f() -> str: ...\n")
    calls = [desk.call(reference, isolation="process") for reference in ("shop.a:f", "desk:f")]
    first, second = (asyncio.run(desk.tools.run(call)) for call in calls)
    assert text_of(first.parts) == "othershop.a"
    assert second.fault is not None
    assert second.fault.message == (
        "desk cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    )


@pytest.mark.parametrize(
    ("body", "said", "field"),
    [
        ("os._exit(3)", "ended with exit code 3 and without a result", {"exit": 3}),
        ("os._exit(0)", "ended with exit code 0 and without a result", {"exit": 0}),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV", {"signal": "SIGSEGV"}),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL", {"signal": "SIGKILL"}),
        ("os.abort()", "was killed by SIGABRT", {"signal": "SIGABRT"}),
        ("os.closerange(3, 10)", "and without a result", {}),
        ("os.write(3, b'{}\\n')", "wrote something that is not a result", {}),
        ("os.write(3, b'not json\\n')", "wrote something that is not a result", {}),
        ("""os.write(3, b'{"returned":{"fault":{"code":"internal","message":"x"}}}\\n')""", "not a result", {}),
        (
            "exec('while True: os.write(3, b\"x\" * 65536)')",
            f"returned more than {6 * MAX_RESULT_BYTES + 2**20:,} bytes",
            {},
        ),
    ],
)
def test_crashed_process_is_a_tool_execution_fault(desk: Desk, body: str, said: str, field: dict[str, Any]) -> None:
    desk.write("desk.py", f"import os, signal\ndef f() -> str:\n    print('begun', flush=True)\n    {body}\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    returned, printed = run(desk, "f", "process")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024, "kibibytes: no more is read"
    assert returned.fault is not None
    assert returned.fault.code == "tool.execution"
    assert returned.fault.message.startswith("the process of the tool ")
    assert said in returned.fault.message
    assert returned.fault.fields.items() >= ({"tool": "f"} | field).items()
    assert printed == [("f", "begun\n")]


T = TypeVar("T")

LEFTOVER_TOOL = """
    import os, signal, subprocess, sys, threading, time
    from pathlib import Path
    HERE = Path(__file__).parent
    CHILD = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    )
    def start() -> None:
        # a child in a session of its own that ignores SIGTERM, whose parent is gone
        if os.fork() == 0:
            os.setsid()
            subprocess.Popen([sys.executable, "-c", CHILD, str(HERE / "pid")])
            os._exit(0)
        os.wait()
        while not (HERE / "pid").exists() or not (HERE / "pid").read_text():
            time.sleep(0.01)
    def hangs() -> str:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        start()
        time.sleep(600)
    def leaves() -> str:
        start()
        threading.Thread(target=time.sleep, args=(600,)).start()
        return "done"
    def twice() -> str:
        return f"{os.getpid()} {os.fork()}"
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def pid_of_left_child(desk: Desk) -> Iterator[Path]:
    desk.write("desk.py", LEFTOVER_TOOL)
    path = desk.root / "pid"
    yield path
    assert path.exists()
    assert not is_alive(int(path.read_text()))


class RingsWhenItHangs(SystemClock):
    """A clock whose alarm rings when the function has started its child, however long that takes."""

    def __init__(self, pid: Path) -> None:
        super().__init__()
        self._pid = pid

    async def within(self, milliseconds: int, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        while not (self._pid.exists() and self._pid.read_text()):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.01)

        async def rest() -> T:
            return await task

        return await super().within(1, rest())


def test_process_and_its_children_are_killed_at_the_timeout(desk: Desk, pid_of_left_child: Path) -> None:
    place = Place(clock=RingsWhenItHangs(pid_of_left_child), executors={"python": desk.tools})
    call = desk.call("desk:hangs", isolation="process", timeout=1500)
    finished = asyncio.run(Performer(world_of_run(place.world, "run-1")).perform(call))
    assert isinstance(finished, ToolFinished)
    assert finished.fault is not None
    assert (finished.fault.code, finished.fault.fields) == ("tool.timeout", {"tool": "hangs", "limit": 1500})


def test_children_are_killed_when_the_call_is_done(desk: Desk, pid_of_left_child: Path) -> None:
    returned, _ = run(desk, "leaves", "process")
    assert text_of(returned.parts) == "done"


def test_process_killed_from_outside_is_a_fault_with_the_signal(desk: Desk) -> None:
    """Fault 9: the call has failed, and says how."""
    desk.write("desk.py", "import os, time\ndef f() -> str:\n    print(os.getpid(), flush=True)\n    time.sleep(600)\n")
    call = desk.call("desk:f", isolation="process")

    async def main() -> ToolReturn:
        running = asyncio.create_task(desk.tools.run(call))
        while not (pids := [pid for pid in children(os.getpid()) if "agentrun.tools.process_worker" in command(pid)]):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        os.kill(pids[0], signal.SIGKILL)
        return await running

    fault = asyncio.run(main()).fault
    assert fault is not None
    assert (fault.code, fault.fields) == ("tool.execution", {"tool": "f", "signal": "SIGKILL"})


def children(pid: int) -> list[int]:
    """All descendants."""
    found = [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]
    return [each for child in found for each in (child, *children(child))]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return ""


def test_fork_inside_the_process_gives_no_second_result(desk: Desk) -> None:
    desk.write("desk.py", LEFTOVER_TOOL)
    returned, _ = run(desk, "twice", "process")
    own, copy = map(int, text_of(returned.parts).split())
    assert own != copy != 0, "what the copy gave is not the result"


def test_fork_of_the_main_process_exits_70(desk: Desk) -> None:
    """The same in a thread and on the event loop: a second owner of the run would go on with it."""
    code = """
        import os
        def twice() -> int:
            return os.fork()
        async def later() -> int:
            return os.fork()
        def fails() -> int:
            pid = os.fork()
            if pid == 0:
                raise ValueError("the copy")
            return pid
    """
    desk.write("desk.py", code)
    for name in ("twice", "later", "fails"):
        returned, _ = run(desk, name, "thread")
        pid = int(text_of(returned.parts))
        assert pid > 0
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 70


def test_progress_of_a_process_is_reported(desk: Desk) -> None:
    code = """
        import time
        from agentrun import progress
        def f() -> str:
            for n in range(3):
                progress(f"{n} of 3")
                time.sleep(0.2)
            return ""
    """
    desk.write("desk.py", code)
    place = Place(clock=SystemClock(), executors={"python": desk.tools})
    call = desk.call("desk:f", isolation="process", timeout=20_000)
    asyncio.run(Performer(world_of_run(place.world, "run-1")).perform(call))
    heard = [news for _, news in place.heard if isinstance(news, ToolProgress)]
    assert [(news.effect, news.tool, news.text) for news in heard] == [("c1.0", "f", f"{n} of 3") for n in range(3)]


# --- the environment of the process --------------------------------------------------------------------------------

ENVIRONMENT_MODULE = """
    import os
    AT_IMPORT = os.environ.get("SHOP_TOKEN")
    def variables() -> list: return [sorted(os.environ), os.environ.get("SHOP_TOKEN"), AT_IMPORT]
"""


@pytest.mark.parametrize("env", [{}, {"SHOP_TOKEN": "${SHOP_LOGIN}", "FIXED": "text"}], ids=["none", "named"])
def test_process_gets_only_the_variables_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    for name in ("SHOP_TOKEN", "SHOP_LOGIN", "OPENAI_API_KEY", "PYTHONSTARTUP", "AGENTRUN_MODE"):
        monkeypatch.setenv(name, f"value of {name}")
    desk = Desk(tmp_path)
    desk.write("desk.py", ENVIRONMENT_MODULE)
    call = desk.call("desk:variables", isolation="process", env=env or UNSET)
    returned = asyncio.run(desk.tools.run(call))
    assert returned.fault is None
    names, *values = json.loads(text_of(returned.parts))
    assert {*names} - {"LC_CTYPE"} <= {*PROGRAM_VARIABLES, *env}
    assert values == (["value of SHOP_LOGIN"] * 2 if env else [None] * 2)
    assert "PATH" in names
