"""The thread pool of Python tools reuses its threads, and thousands of calls leak nothing."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.effects import ToolReturn
from agentrun.core.messages import text_of
from agentrun.tools import threads
from agentrun.tools.threads import MAX_IDLE_THREADS, run_in_thread

from .python_desk import Desk


@pytest.fixture(autouse=True)
def _no_idle_threads() -> None:
    """No threads of earlier tests."""
    with threads._lock:
        threads._idle.clear()


def test_a_thread_is_used_again() -> None:
    async def main() -> set[int]:
        return {await run_in_thread(threading.get_ident, f"call {n}") for n in range(50)}

    assert len(asyncio.run(main())) == 1


def test_each_call_has_its_own_context_and_name() -> None:
    here: ContextVar[str] = ContextVar("here", default="nothing")

    def work() -> tuple[str, str]:
        before = here.get()
        here.set("left over")
        return before, threading.current_thread().name

    async def main() -> list[tuple[str, str]]:
        found = [await run_in_thread(work, "first")]
        here.set("given")
        return [*found, await run_in_thread(work, "second")]

    assert asyncio.run(main()) == [("nothing", "first"), ("given", "second")]


def test_coroutine_returned_after_a_cancellation_is_closed() -> None:
    async def never() -> None: ...

    async def main() -> str:
        given = never()

        def work() -> Any:
            time.sleep(0.05)  # longer than the loop waits for it
            return given

        task = asyncio.create_task(run_in_thread(work, "call"))
        await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251  # the thread is done before the loop goes on
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        return inspect.getcoroutinestate(given)

    assert asyncio.run(main()) == inspect.CORO_CLOSED


def test_slow_function_does_not_hold_the_loop() -> None:
    """It returns only after the loop has gone on."""
    go_on = threading.Event()

    async def main() -> bool:
        task = asyncio.create_task(run_in_thread(lambda: go_on.wait(30), "call"))
        await asyncio.sleep(0)
        go_on.set()
        return await task

    assert asyncio.run(main())


def test_abandoned_thread_is_not_reused() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def stuck() -> int:
        entered.set()
        go_on.wait(30)
        return threading.get_ident()

    async def main() -> tuple[int, int]:
        task = asyncio.create_task(run_in_thread(stuck, "stuck"))
        await asyncio.to_thread(entered.wait, 30)
        task.cancel()
        await asyncio.wait([task])
        (lost,) = (each.ident for each in threading.enumerate() if each.name == "stuck")
        assert lost is not None
        other = await run_in_thread(threading.get_ident, "other")
        go_on.set()
        while any(each.ident == lost and each.name == "stuck" for each in threading.enumerate()):  # noqa: ASYNC110  # a thread's doing
            await asyncio.sleep(0.01)
        return lost, other

    lost, other = asyncio.run(main())
    assert lost != other
    assert [each.thread.ident for each in threads._idle] == [other]


def test_number_of_idle_threads_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.1)
    barrier = threading.Barrier(MAX_IDLE_THREADS + 5)

    async def main() -> None:
        await asyncio.gather(*(run_in_thread(barrier.wait, "many") for _ in range(MAX_IDLE_THREADS + 5)))
        while len(threads._idle) < MAX_IDLE_THREADS:  # noqa: ASYNC110  # a thread's doing
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(threads._idle) <= MAX_IDLE_THREADS
    for worker in [*threads._idle]:
        worker.thread.join(30)
    assert threads._idle == [], "without work they end"


def test_end_of_the_loop_does_not_wait_for_a_thread() -> None:
    """Nor does the end of a loop: see `test_python.py` for a whole process."""

    async def main() -> None:
        task = asyncio.create_task(run_in_thread(threading.Event().wait, "for ever"))
        await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(main())


# --- many calls -----------------------------------------------------------------------------------------------


AT_ONCE = 5


class HeldResources:
    """What this process holds."""

    def __init__(self) -> None:
        gc.collect()
        self.files = len(os.listdir("/proc/self/fd"))
        self.threads = threading.active_count()
        self.children = sum(
            len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children") if path.exists()
        )
        self.memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def refuse_growth(self, before: HeldResources, memory: int) -> None:
        assert (self.files, self.children) == (before.files, before.children)
        assert self.threads <= before.threads + AT_ONCE, "who is just done may not be back yet"
        assert self.memory - before.memory < memory


async def run_many_calls(desk: Desk, isolation: str, count: int, memory: int) -> None:
    call = desk.call("desk:f", {"n": 7}, isolation=isolation)

    async def some(count: int) -> None:
        for _ in range(0, count, AT_ONCE):
            returned: list[ToolReturn] = await asyncio.gather(*(desk.tools.run(call) for _ in range(AT_ONCE)))
            assert [text_of(each.parts) for each in returned] == ["7" * 1000] * AT_ONCE
        desk.heard.clear()

    await some(max(count // 5, 10))
    before = HeldResources()
    await some(count)
    HeldResources().refuse_growth(before, memory)


CODE = "def f(n: int) -> str:\n    print('x' * 1000)\n    return str(n) * 1000\n"


@pytest.mark.parametrize(
    ("isolation", "count"),
    [
        ("thread", 400),
        ("process", 10),
        pytest.param("thread", 10_000, marks=pytest.mark.long),
        pytest.param("process", 300, marks=pytest.mark.long),
    ],
)
def test_many_calls_leave_nothing(desk: Desk, isolation: str, count: int) -> None:
    desk.write("desk.py", CODE)
    asyncio.run(run_many_calls(desk, isolation, count, 8 * 1024 * 1024))


def test_leaked_descriptor_is_detected(desk: Desk) -> None:
    desk.write("desk.py", "import os\ndef leaks() -> int:\n    return os.open(__file__, os.O_RDONLY)\n")
    before = HeldResources()
    file = int(desk.text("desk:leaks"))
    with pytest.raises(AssertionError):
        HeldResources().refuse_growth(before, 1 << 30)
    os.close(file)
