"""Capturing what user code prints, without affecting the streams outside."""

import asyncio
import io
import logging
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier
from typing import Any, TextIO

import click
import pytest

from agentrun.tools.captured_output import MAX_CAPTURED_BYTES, TRUNCATED_NOTE, CapturedOutput, capture_output

from .python_desk import restored_process

KEY = "sk-ant-" + "a1B2c3D4" * 4  # made up


def with_own_streams(test: Callable[[list[TextIO]], None]) -> Callable[[], None]:
    """A test with standard streams of its own. No fixture: pytest puts back its own ones before the test begins."""

    def tested() -> None:
        with restored_process():
            streams: list[TextIO] = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
            sys.stdout, sys.stderr = streams
            test(streams)

    return tested


def read_back(stream: Any) -> str:
    stream.flush()
    return bytes(stream.buffer.getvalue()).decode()


@with_own_streams
def test_only_output_inside_is_captured(outside: list[TextIO]) -> None:
    sys.stdout.write("before ")
    with capture_output() as printed:
        sys.stdout.write("one ")
        sys.stderr.write("two ")
        sys.stdout.buffer.write(b"three")
        sys.stdout.writelines([" ", "four"])
        sys.stdout.flush()
        assert not sys.stdout.isatty()
    sys.stdout.write("after")
    sys.stderr.write("problem")
    assert printed.end() == "one two three four"
    assert [read_back(stream) for stream in outside] == ["before after", "problem"]


@with_own_streams
def test_streams_are_replaced_once(outside: list[TextIO]) -> None:
    with capture_output():
        first = sys.stdout
    with capture_output():
        assert sys.stdout is first
    sys.stdout = io.StringIO()
    with capture_output() as printed:  # somebody else put a stream there: what is written inside is kept all the same
        sys.stdout.write("inside")
    assert printed.text == "inside"
    assert (first.encoding, first.buffer) == (outside[0].encoding, outside[0].buffer)


@with_own_streams
def test_output_after_the_end_is_dropped(outside: list[TextIO]) -> None:
    with capture_output() as printed:
        sys.stdout.write("in time")
        context = copy_context()
        assert printed.end() == "in time"
    context.run(lambda: sys.stdout.write("late"))
    assert printed.text == "in time"
    assert read_back(outside[0]) == ""


@with_own_streams
def test_parallel_threads_capture_their_own_output(outside: list[TextIO]) -> None:
    barrier = Barrier(8)

    def work(number: int) -> str:
        with capture_output() as printed:
            barrier.wait()
            for _ in range(200):
                sys.stdout.write(str(number))
            return printed.text

    def main() -> None:
        for _ in range(200):
            sys.stdout.write(".")

    with capture_output():
        pass
    with ThreadPoolExecutor(8) as pool:
        texts = [pool.submit(work, number) for number in range(8)]
        main()
    assert [text.result() for text in texts] == [str(number) * 200 for number in range(8)]
    assert read_back(outside[0]) == "." * 200


@with_own_streams
def test_parallel_tasks_capture_their_own_output(outside: list[TextIO]) -> None:
    async def work(number: int) -> str:
        with capture_output() as printed:
            for _ in range(20):
                sys.stdout.write(str(number))
                await asyncio.sleep(0)
            return printed.text

    async def main() -> list[str]:
        return await asyncio.gather(*(work(number) for number in range(5)))

    assert asyncio.run(main()) == [str(number) * 20 for number in range(5)]
    assert read_back(outside[0]) == ""


@with_own_streams
def test_capture_works_without_standard_streams(outside: list[TextIO]) -> None:
    for name in ("stdout", "stderr"):
        setattr(sys, name, None)
    with capture_output() as printed:
        sys.stdout.write("inside")
    sys.stdout.write("outside")
    sys.stdout.flush()
    click.echo("nobody sees it")
    assert printed.text == "inside"


@with_own_streams
def test_click_and_logging_write_outside_after_a_capture(outside: list[TextIO]) -> None:
    log = logging.StreamHandler(sys.stderr)
    with capture_output() as printed:
        click.echo("click inside")
        handler = logging.StreamHandler()  # holds on to the stream for good
    click.echo("click")
    click.echo("wrong", err=True)
    record = logging.LogRecord("a", logging.ERROR, "a.py", 1, "logged", (), None)
    handler.emit(record)
    log.emit(record)
    with capture_output() as later:
        handler.emit(record)
    assert printed.text == "click inside\n"
    assert later.text == "logged\n"
    assert [read_back(stream) for stream in outside] == ["click\n", "wrong\nlogged\nlogged\n"]


@with_own_streams
def test_stream_closed_inside_stays_open_outside(outside: list[TextIO]) -> None:
    with capture_output() as printed:
        with sys.stdout as stream:
            stream.write("x")
        with pytest.raises(ValueError, match="closed"):
            sys.stdout.write("y")
    assert printed.end() == "x"
    sys.stdout.write("still open")
    assert read_back(outside[0]) == "still open"


def test_output_over_the_limit_is_truncated() -> None:
    printed = CapturedOutput()
    printed.stream.write("a\n" * (MAX_CAPTURED_BYTES // 2))
    assert printed.text == "a\n" * (MAX_CAPTURED_BYTES // 2)
    printed.stream.write("a")
    assert printed.text == "a\n" * (MAX_CAPTURED_BYTES // 2) + TRUNCATED_NOTE


@pytest.mark.parametrize("shift", range(0, len(KEY) + 2, 3))
def test_secrets_are_masked_even_at_the_limit(shift: int) -> None:
    """Also one that the limit cuts in two."""
    printed = CapturedOutput()
    printed.stream.write(f"{KEY} ")
    printed.stream.write("a " * ((MAX_CAPTURED_BYTES - 2 * len(KEY)) // 2))
    printed.stream.write("b" * (shift % 2) + " " * shift)
    printed.stream.write(f"{KEY} {KEY} {KEY}")
    assert printed.text.startswith("*** a a")
    assert printed.text.endswith(TRUNCATED_NOTE)
    assert "sk-ant-" not in printed.text


def test_word_longer_than_the_limit_is_dropped() -> None:
    printed = CapturedOutput()
    printed.stream.write("x" * (MAX_CAPTURED_BYTES + 1))
    assert printed.text == TRUNCATED_NOTE


def test_invalid_text_and_bytes_are_escaped() -> None:
    printed = CapturedOutput()
    printed.stream.write("a\ud800b")
    printed.write(b"\xff\n")
    assert printed.text == "a\\ud800b\ufffd\n"
