"""Recursion limit, working directory and signal handlers are restored after user code, also when calls overlap."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import pytest

from agentrun.tools.captured_output import capture_output, preserve_process_state

from .python_desk import Desk


@pytest.fixture(autouse=True)
def _restore_limit_and_directory() -> Iterator[None]:
    limit, place = sys.getrecursionlimit(), os.getcwd()
    yield
    sys.setrecursionlimit(limit)
    os.chdir(place)


def test_the_recursion_limit_is_raised_while_a_call_needs_it() -> None:
    before = sys.getrecursionlimit()
    first, second = preserve_process_state(), preserve_process_state()
    one, two = copy_context(), copy_context()
    one.run(first.__enter__)
    two.run(second.__enter__)
    one.run(sys.setrecursionlimit, before + 1000)
    two.run(sys.setrecursionlimit, before + 500)
    assert sys.getrecursionlimit() == before + 1000, "the other call needs no more, and has it"
    one.run(first.__exit__, None, None, None)
    assert sys.getrecursionlimit() == before + 500, "the second call still needs that"
    two.run(second.__exit__, None, None, None)
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("lower", [1, 5, 100])
def test_the_recursion_limit_is_never_lowered(lower: int) -> None:
    before = sys.getrecursionlimit()
    with preserve_process_state():
        sys.setrecursionlimit(lower)
        assert sys.getrecursionlimit() == before
        thread = threading.Thread(target=sys.setrecursionlimit, args=[lower])
        thread.start()
        thread.join()
        assert sys.getrecursionlimit() == before, "a thread knows nothing of the call that started it"
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), ("x", TypeError), (2.0, TypeError), (2**40, OverflowError)]
)
def test_invalid_recursion_limit_raises_as_in_python(limit: object, error: type[Exception]) -> None:
    before = sys.getrecursionlimit()
    with preserve_process_state(), pytest.raises(error):
        sys.setrecursionlimit(limit)  # type: ignore[arg-type]  # that is what is tried
    assert sys.getrecursionlimit() == before


def test_program_may_set_the_recursion_limit_outside_of_calls() -> None:
    """Outside of all calls it means what it always did."""
    before = sys.getrecursionlimit()
    with preserve_process_state():
        pass
    sys.setrecursionlimit(before - 100)
    assert sys.getrecursionlimit() == before - 100
    with preserve_process_state():
        sys.setrecursionlimit(before)
    assert sys.getrecursionlimit() == before - 100


def test_abandoned_call_does_not_change_the_recursion_limit() -> None:
    before = sys.getrecursionlimit()
    with preserve_process_state():
        late = copy_context()
    late.run(sys.setrecursionlimit, 50)
    late.run(sys.setrecursionlimit, before + 1000)
    assert sys.getrecursionlimit() == before


def test_working_directory_is_restored_after_overlapping_calls(tmp_path: Path) -> None:
    """A call keeps its own directory until it ends; then it is that of before the first call, not of another one."""
    before = os.getcwd()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with capture_output():
        os.chdir(tmp_path / "a")
        with capture_output():
            os.chdir(tmp_path / "b")
        assert os.getcwd() == str(tmp_path / "b"), "somebody may be working there"
    assert os.getcwd() == before


def test_deleted_working_directory_does_not_fail_the_call(tmp_path: Path) -> None:
    """There is nothing to go back to, and no call fails for it."""
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    with preserve_process_state():
        (tmp_path / "gone").rmdir()
        os.chdir(tmp_path)
    assert os.getcwd() == str(tmp_path)
    os.chdir(tmp_path)
    with preserve_process_state():
        (tmp_path / "gone").mkdir()
        os.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
    assert os.getcwd() == str(tmp_path)


def test_signal_handlers_are_restored() -> None:
    def own(*_: object) -> None: ...

    before = signal.signal(signal.SIGUSR1, own)
    try:
        with preserve_process_state():
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGUSR1) is own
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_working_directory_is_restored_in_a_thread(tmp_path: Path) -> None:
    """Where no handlers can be set, everything else is put back all the same."""
    before = os.getcwd()

    def work() -> None:
        with preserve_process_state():
            os.chdir(tmp_path)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert os.getcwd() == before


def test_state_is_restored_after_a_timed_out_call(tmp_path: Path) -> None:
    """Nobody waits for it any more, so the process is as before, whatever it goes on to do."""
    desk = Desk(tmp_path)
    desk.write(
        "desk.py",
        """
        import os, sys, threading
        go, gone = threading.Event(), threading.Event()

        def hang() -> None:
            "Hangs."
            os.chdir("/")
            sys.setrecursionlimit(5000)
            go.wait(20)
            sys.setrecursionlimit(100)
            gone.set()
        """,
    )
    before = sys.getrecursionlimit(), os.getcwd()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await desk.tools.run(desk.call("desk:hang"))

    asyncio.run(main())
    assert (sys.getrecursionlimit(), os.getcwd()) == before
    module = next(module for name, module in sys.modules.items() if name.endswith(".desk"))
    module.go.set()
    assert module.gone.wait(20)
    assert (sys.getrecursionlimit(), os.getcwd()) == before
