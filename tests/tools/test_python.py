"""Python functions as tools, run in threads or on the event loop."""

import asyncio
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentrun.core.effects import ToolReturn
from agentrun.core.facts import ToolFinished
from agentrun.core.messages import Text, text_of
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.tool_runner import run_tool
from agentrun.tools.call_results import MAX_FAULT_MESSAGE
from agentrun.tools.function_calls import STOP_SECONDS
from agentrun.tools.python import PythonTools

from ..engine.memory_worlds import Place
from ..hand_loop import HandLoop, run_by_hand
from .python_desk import Desk, Gate, gated

KEY = "'sk-ant-' + 'a1B2c3D4' * 4"  # made up


def test_arguments_are_passed_and_the_result_is_json(desk: Desk) -> None:
    desk.write("desk.py", "def f(a: int, b: str = 'x') -> dict:\n    return {'b': b, 'a': a}\n")
    assert desk.run("desk:f", a=1) == ToolReturn((Text('{"a":1,"b":"x"}'),))
    assert desk.text("desk:f", b="ü", a=2) == '{"a":2,"b":"ü"}'


def test_none_is_an_empty_result(desk: Desk) -> None:
    desk.write("desk.py", "def f() -> None:\n    pass\n")
    assert desk.run("desk:f") == ToolReturn((Text(""),))


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("float('nan')", "not JSON compliant"),
        ("[object()]", "objects of type object cannot be encoded"),
        ("'\\ud800'", "half of a surrogate pair"),
        ("'x' * (16 * 1024 * 1024 + 1)", "the limit is 16,777,216"),
        ("(value := []).append(value) or value", "contains itself"),
    ],
)
@pytest.mark.parametrize("form", ["def", "async def"])
def test_result_that_cannot_be_text_is_a_failure(desk: Desk, result: str, why: str, form: str) -> None:
    desk.write("desk.py", f"{form} f():\n    return {result}\n")
    assert why in desk.failure("desk:f")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("ValueError('bad id')", "ValueError: bad id"),
        ("LookupError", "LookupError"),
        ("SystemExit(3)", "SystemExit: 3"),
        ("StopIteration(1)", "StopIteration: 1"),
        ("TimeoutError('its own')", "TimeoutError: its own"),
        ("type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})", "Odd: the exception has no readable message"),
        (f"ValueError('401 for ' + {KEY})", "ValueError: 401 for ***"),
        ("ValueError('\\ud800')", "ValueError: ?"),
        ("ToolError('tool.timeout', 'x')", "ToolError: tool.timeout: x"),
        ("ToolError('tool.drift', 'x')", "ToolError: tool.drift: x"),
        ("StorageError('storage.failed', 'x')", "StorageError: storage.failed: x"),
    ],
)
@pytest.mark.parametrize("form", ["def", "async def"])
def test_exception_is_a_failure_with_its_line(desk: Desk, raised: str, said: str, form: str) -> None:
    if form == "async def" and raised.startswith("StopIteration"):
        said = "RuntimeError: coroutine raised StopIteration"
    desk.write("desk.py", f"from agentrun.errors import *\n{form} f() -> str:\n    raise {raised}\n")
    returned = desk.run("desk:f")
    assert returned.fault is not None
    assert (returned.fault.code, returned.fault.message) == ("tool.execution", said)
    at = {} if said.endswith("raised StopIteration") else {"at": "desk.py:3"}  # Python raises that one itself
    assert returned.fault.fields == {"tool": "f", "error": said.partition(":")[0], **at}


def test_failure_names_the_last_line_inside_the_project(desk: Desk) -> None:
    """Not of Python or of a venv, although that is in the folder too; and none where nothing of the project ran."""
    desk.write("shop/deep.py", "import json\ndef load(text):\n    return json.loads(text)\n")
    desk.write("site-packages/other.py", "def fail(function):\n    return function() + 1 / 0\n")
    desk.write(
        "desk.py",
        "import shop.deep\n"
        "def f() -> str:\n    return shop.deep.load('{')\n"
        "def g() -> str:\n    import sys\n    sys.path.append(__file__.replace('desk.py', 'site-packages'))\n"
        "    import other\n    return other.fail(int)\n"
        "def h(order: str) -> str:\n    return order\n",
    )
    assert [fields_of(desk.run(f"desk:{name}")).get("at") for name in "fgh"] == ["shop/deep.py:3", "desk.py:8", None]


def fields_of(returned: ToolReturn) -> dict[str, object]:
    assert returned.fault is not None
    return returned.fault.fields


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "GeneratorExit", "CancelledError", "Odd"])
def test_base_exceptions_are_failures(desk: Desk, raised: str) -> None:
    text = "from asyncio import CancelledError\nclass Odd(BaseException): ...\ndef f() -> str:\n    raise "
    desk.write("desk.py", text + raised)
    assert desk.failure("desk:f") == raised


def test_long_exception_message_is_shortened(desk: Desk) -> None:
    desk.write("desk.py", "def f() -> str:\n    raise ValueError('x' * 100_000)\n")
    assert len(desk.failure("desk:f")) == MAX_FAULT_MESSAGE


@pytest.mark.parametrize("code", ["tool.fatal", "tool.aborted", "tool.execution"])
def test_tool_error_keeps_its_code_hint_and_fields(desk: Desk, code: str) -> None:
    text = f"raise ToolError({code!r}, 'closed: ' + {KEY}, hint='come back', fields={{'shop': 1}})"
    desk.write("desk.py", f"from agentrun.errors import ToolError\ndef f() -> str:\n    {text}\n")
    fault = desk.run("desk:f").fault
    assert fault is not None
    assert (fault.code, fault.message, fault.hint) == (code, "closed: ***", "come back")
    assert fault.fields == {"tool": "f", "reason": "closed: ***", "shop": 1}


def test_plain_functions_run_in_threads_and_async_ones_on_the_loop(desk: Desk) -> None:
    """Functions and imports off the event loop, async functions on it."""
    text = """
        import asyncio, threading
        imported = threading.current_thread()
        def plain() -> list:
            here = threading.current_thread()
            return [here.daemon, here is threading.main_thread(), imported is threading.main_thread()]
        async def on_loop() -> list:
            await asyncio.sleep(0)
            return [threading.current_thread() is threading.main_thread(), bool(asyncio.get_running_loop())]
        def gives_awaitable():
            return on_loop()
    """
    desk.write("desk.py", text)
    assert desk.text("desk:plain") == "[true,false,false]"
    assert desk.text("desk:on_loop") == "[true,true]"
    assert desk.text("desk:gives_awaitable") == "[true,true]"


def test_prints_are_captured_per_call(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    text = f"""
        import sys
        print("import")
        def f(n: int) -> int:
            print("out", n)
            print("wrong", {KEY}, file=sys.stderr)
            sys.stdout.buffer.write(b"bytes")
            return n
        async def g() -> None:
            print("async")
            raise ValueError
        def silent() -> None:
            pass
    """
    desk.write("desk.py", text)
    for reference, arguments in (("desk:f", {"n": 1}), ("desk:f", {"n": 2}), ("desk:g", {}), ("desk:silent", {})):
        desk.run(reference, **arguments)
    assert desk.heard == [
        ("f", "import\nout 1\nwrong ***\nbytes"),
        ("f", "out 2\nwrong ***\nbytes"),
        ("g", "async\n"),
    ]
    sys.stdout.write("the answer")
    assert capfd.readouterr() == ("the answer", "")


def test_failing_print_listener_does_not_fail_the_call(desk: Desk) -> None:
    desk.write("desk.py", "def f() -> str:\n    print('x')\n    return 'done'\n")

    def listen(tool: str, text: str) -> None:
        raise BrokenPipeError

    tools = PythonTools([desk.root], printed=listen)
    assert text_of(asyncio.run(tools.run(desk.call("desk:f"))).parts) == "done"


@pytest.mark.parametrize("form", ["def", "async def"])
def test_eighty_parallel_calls_of_unimported_modules(desk: Desk, form: str) -> None:
    """Eighty calls of eight modules that nobody has imported yet, and that import each other."""
    pause = "time.sleep(0.001)" if form == "def" else "await asyncio.sleep(0.001)"
    for number in range(8):
        text = f"""
            import asyncio, time
            time.sleep(0.01)
            from desk import m{(number + 1) % 8 if number < 7 else 7}
            loaded = []
            loaded.append(1)
            {form} f(n: int) -> list:
                for _ in range(3):
                    print({number}, n)
                    {pause}
                return [{number}, n, len(loaded)]
        """
        desk.write(f"desk/m{number}.py", text)
    calls = [desk.call(f"desk.m{n % 8}:f", {"n": n}) for n in range(80)]

    async def main() -> list[ToolReturn]:
        return await asyncio.gather(*map(desk.tools.run, calls))

    assert [text_of(returned.parts) for returned in asyncio.run(main())] == [f"[{n % 8},{n},1]" for n in range(80)]
    assert sorted(text for _, text in desk.heard) == sorted(f"{n % 8} {n}\n" * 3 for n in range(80))


GATED_TOOL = """
    import sys
    def f() -> str:
        print("before")
        f.gate.entered.set()
        f.gate.opened.wait(30)
        print("after")
        f.gate.left.set()
        return "late"
    def coroutine():
        f()
        return never()
    async def never():
        raise AssertionError
"""


async def cancelled(desk: Desk, reference: str, gate: Gate) -> None:
    """Start a call, and stop it when the function has been entered."""
    task = asyncio.create_task(desk.tools.run(desk.call(reference)))
    assert await asyncio.to_thread(gate.entered.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("reference", ["desk:f", "desk:coroutine"])
@pytest.mark.parametrize("loop_goes_on", [True, False])
def test_late_result_is_dropped(
    desk: Desk, capfd: pytest.CaptureFixture[str], reference: str, loop_goes_on: bool
) -> None:
    """Nothing is heard of it: no result, no print, no failure of Python about a coroutine or a closed loop."""
    gate = gated(desk, GATED_TOOL)

    async def main() -> None:
        await cancelled(desk, reference, gate)
        if loop_goes_on:
            gate.opened.set()
            assert await asyncio.to_thread(gate.left.wait, 30)
            await asyncio.sleep(0.01)

    asyncio.run(main())
    gate.opened.set()
    assert gate.left.wait(30)
    assert desk.heard == [(reference.partition(":")[2], "before\n")]
    assert capfd.readouterr() == ("", "")


def test_call_over_its_timeout_is_abandoned(desk: Desk) -> None:
    gate = gated(desk, GATED_TOOL)

    async def main(loop: HandLoop) -> Any:
        task = asyncio.create_task(run_tool(world(desk), desk.call("desk:f", timeout=1000)))
        assert await asyncio.to_thread(gate.entered.wait, 30)
        loop.advance(1)
        return await task

    finished = run_by_hand(main)
    gate.opened.set()
    assert isinstance(finished, ToolFinished)
    assert finished.fault is not None
    assert finished.fault.code == "tool.timeout"
    assert finished.fault.fields == {"tool": "f", "limit": 1000, "abandoned": True}
    assert desk.heard == [("f", "before\n")]


STUBBORN_TOOL = """
    import asyncio
    async def f() -> str:
        f.gate.entered.set()
        while not f.gate.opened.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
        return "late"
"""


def test_async_function_that_ignores_its_timeout_is_abandoned(desk: Desk) -> None:
    gate = gated(desk, STUBBORN_TOOL)

    async def main(loop: HandLoop) -> Any:
        task = asyncio.create_task(run_tool(world(desk), desk.call("desk:f", timeout=1000)))
        assert await asyncio.to_thread(gate.entered.wait, 30)
        loop.advance(1)
        for _ in range(50):
            await asyncio.sleep(0)
        try:
            assert not task.done(), "it may clean up"
            loop.advance(STOP_SECONDS)
            for _ in range(50):
                await asyncio.sleep(0)
            assert task.done()
        finally:
            gate.opened.set()  # it ends when it is cancelled once more
        return task.result()

    finished = run_by_hand(main)
    assert finished.fault.code == "tool.timeout"
    assert finished.fault.fields == {"tool": "f", "limit": 1000, "abandoned": True}


def world(desk: Desk) -> Any:
    return Place(clock=SystemClock(), executors={"python": desk.tools}).world


@pytest.mark.parametrize(
    ("text", "code", "read"),
    [
        ("return {'a': [1]}", None, '{"a":[1]}'),
        ("raise LookupError('no order')", "tool.execution", "tool.execution: LookupError: no order"),
        ("raise ToolError('tool.fatal', 'closed')", "tool.fatal", "tool.fatal: closed"),
        (
            "raise ToolError('tool.fatal', 'x', fields={'a': object()})",
            "tool.execution",
            "tool.execution: the tool returned",
        ),
        ("return float('inf')", "tool.execution", "tool.execution: the result cannot be written as JSON"),
    ],
)
def test_model_reads_the_result_or_the_fault(desk: Desk, text: str, code: str | None, read: str) -> None:
    desk.write("desk.py", f"from agentrun.errors import ToolError\ndef f():\n    {text}\n")
    finished = asyncio.run(run_tool(world(desk), desk.call("desk:f")))
    assert isinstance(finished, ToolFinished)
    assert (finished.fault and finished.fault.code) == code
    assert text_of(finished.parts).startswith(read)


HANGS = """
    import asyncio, sys
    from pathlib import Path
    from agentrun.tools.python import PythonTools
    from tests.tools.python_desk import Desk

    async def main():
        desk = Desk(Path(sys.argv[1]))
        calls = [desk.call(reference) for reference in ("desk:f", "other:f")]
        done, pending = await asyncio.wait([asyncio.create_task(desk.tools.run(call)) for call in calls], timeout=0.5)
        assert not done
        for task in pending:
            task.cancel()

    asyncio.run(main())
    print("the answer")
"""


def test_hanging_function_or_import_does_not_block_the_exit(desk: Desk) -> None:
    """Neither a function nor an import."""
    desk.write("desk.py", "import time\ndef f() -> None:\n    print('x')\n    time.sleep(600)\n")
    desk.write("other.py", "import time\ntime.sleep(600)\ndef f() -> None: ...\n")
    done = python(HANGS, desk.root)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the answer\n", "")


def python(text: str, *arguments: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", dedent(text), *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
