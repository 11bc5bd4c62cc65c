"""Progress messages of calls, who receives them, their limits and their redaction."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

import agentrun
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import ToolFinished
from agentrun.core.messages import Text
from agentrun.engine.event_bus import EventBus
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.events import ALL_EVENTS
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.perform import Performer
from agentrun.engine.ports import ToolProgress
from agentrun.engine.tool_runner import MAX_PROGRESS_LINES, MAX_PROGRESS_TEXT, PROGRESS_GAP_MS, CallProgress
from agentrun.engine.world import world_of_run
from agentrun.redactor import Redactor
from agentrun.secret import Secret
from agentrun.tools.progress import MAX_PROGRESS_LENGTH, current_listener, listen_to_progress, progress

from ..engine.memory_worlds import Place
from ..engine.memory_worlds import run as run_tool
from ..hand_loop import HandLoop, run_by_hand
from .agent_runs import Runs
from .python_desk import Desk, gated

KEY = "sk-ant-" + "a1B2c3D4" * 4  # made up


def progress_texts(place: Place) -> list[str]:
    return [news.text for _, news in place.heard if isinstance(news, ToolProgress)]


def test_progress_outside_of_a_call_is_ignored() -> None:
    agentrun.progress("to nobody")
    assert current_listener() is None


def test_progress_reaches_only_the_listener_of_its_context() -> None:
    heard: list[str] = []

    def inside() -> None:
        progress(3)
        copy_context().run(progress, "context")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(progress, "another thread: nobody").result()
            pool.submit(copy_context().run, progress, "its context").result()

    with listen_to_progress(heard.append):
        inside()
        with listen_to_progress(lambda text: heard.append(f"inner {text}")):
            progress("x")
        progress("y" * (MAX_PROGRESS_LENGTH + 1))
    progress("over")
    assert heard == ["3", "context", "its context", "inner x", "y" * MAX_PROGRESS_LENGTH]


class BrokenText:
    def __str__(self) -> str:
        raise RuntimeError


def test_progress_never_raises() -> None:
    def hear(text: str) -> None:
        raise BrokenPipeError

    with listen_to_progress(hear):
        progress("x")
        progress(BrokenText())


class Tool:
    """Says something in its calls, at moments of a clock that is moved by hand."""

    def __init__(self, place: Place, *said: tuple[int, str]) -> None:
        self.place = place
        self.said = said

    async def run(self, call: RunTool) -> ToolReturn:
        for at, text in self.said:
            await self.place.clock.sleep_until(1_000_000 + at)
            progress(f"{call.id} {text}" if call.id != "c1.0" else text)
        return ToolReturn((Text("done"),))


def perform(*said: tuple[int, str], **parts: Any) -> Place:
    place = Place(**parts)
    world = Place(clock=place.clock, executors={"python": Tool(place, *said)}, listen=place.world.listen, **parts).world
    place.clock.run(Performer(world_of_run(world, "run-1")).perform(run_tool()))
    return place


def test_progress_event_names_run_call_and_tool() -> None:
    place = perform((0, "1 of 2"), (PROGRESS_GAP_MS, "2 of 2"))
    assert place.heard == [("run-1", ToolProgress("run-1", "c1.0", "refund", f"{n} of 2")) for n in (1, 2)]


def test_progress_is_limited_to_one_event_per_gap() -> None:
    assert progress_texts(
        perform(
            (0, "a"),
            (1, "b"),
            (PROGRESS_GAP_MS - 1, "c"),
            (PROGRESS_GAP_MS, "d"),
            (PROGRESS_GAP_MS + 1, "e"),
            (2 * PROGRESS_GAP_MS, "f"),
        )
    ) == [
        "a",
        "d",
        "f",
    ]


def test_progress_is_limited_to_a_number_of_events() -> None:
    place = Place()
    heard = CallProgress(world_of_run(place.world, "run-1"), run_tool())
    for n in range(MAX_PROGRESS_LINES + 10):
        place.clock.move_to(1_000_000 + n * PROGRESS_GAP_MS)
        heard(str(n))
    assert len(progress_texts(place)) == MAX_PROGRESS_LINES
    heard.close()
    place.clock.move_to(9_000_000)
    heard("over")
    assert len(progress_texts(place)) == MAX_PROGRESS_LINES


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("x" * 1000, "x" * MAX_PROGRESS_TEXT),
        (f"key {KEY}", "key ***"),
        ("x" * (MAX_PROGRESS_TEXT - 10) + f" {KEY}", "x" * (MAX_PROGRESS_TEXT - 10) + " ***"),
        ("value hunter2hunter2 here", "value {{PASSWORD}} here"),
        ("\x1b]52;c;x\x07 two\nlines\r\u202e", r"\x1b]52;c;x\x07 two\x0alines\x0d\u202e"),
        ("half \ud800", "half ?"),
    ],
)
def test_progress_text_is_short_redacted_and_printable(said: str, shown: str) -> None:
    (text,) = progress_texts(perform((0, said), redactor=Redactor([("PASSWORD", Secret("hunter2hunter2"))])))
    assert "hunter2" not in text
    assert text.isprintable()
    assert KEY[:12] not in text
    if "PASSWORD" not in shown and "\x1b" not in said:
        assert text == shown


def test_parallel_calls_have_their_own_progress() -> None:
    """Under a clock that is moved by hand too, where no task has a context by itself."""
    place = Place()
    tool = Tool(place, (0, "begins"), (PROGRESS_GAP_MS, "ends"))
    world = Place(clock=place.clock, executors={"python": tool}, listen=place.world.listen).world
    performer = Performer(world_of_run(world, "run-1"))
    crew = place.world.crews.make("run-1", performer.perform, None)
    first = run_tool()
    crew.start(first)
    crew.start(RunTool("c1.1", "refund", first.tool, {}, "key", max_lines=10, max_bytes=100))

    async def both() -> None:
        await crew.next_fact(None)
        await crew.next_fact(None)

    place.clock.run(both())
    seen = [(news.effect, news.text) for _, news in place.heard]
    assert sorted(seen) == [("c1.0", "begins"), ("c1.0", "ends"), ("c1.1", "c1.1 begins"), ("c1.1", "c1.1 ends")]


@pytest.mark.parametrize("form", ["def", "async def"])
def test_python_function_reports_progress(desk: Desk, form: str) -> None:
    """In a thread, in threads that it starts with its context, and on the event loop; in order with the result."""
    text = f"""
        from agentrun import progress
        {form} f() -> str:
            progress("half")
            return "done"
    """
    desk.write("desk.py", text)
    place = Place(clock=SystemClock(), executors={"python": desk.tools})

    async def main() -> None:
        await Performer(world_of_run(place.world, "run-1")).perform(desk.call("desk:f"))
        await asyncio.sleep(0)

    asyncio.run(main())
    assert progress_texts(place) == ["half"]


def test_progress_after_a_timeout_is_ignored(desk: Desk) -> None:
    text = """
        from agentrun import progress
        def f() -> str:
            f.gate.entered.set()
            f.gate.opened.wait(30)
            progress("late")
            f.gate.left.set()
            return "done"
    """
    gate = gated(desk, text)
    place = Place(clock=SystemClock(), executors={"python": desk.tools})

    async def main(loop: HandLoop) -> None:
        performer = Performer(world_of_run(place.world, "run-1"))
        task = asyncio.create_task(performer.perform(desk.call("desk:f", timeout=50)))
        assert await asyncio.to_thread(gate.entered.wait, 30)
        loop.advance(0.05)
        assert isinstance(await task, ToolFinished)
        gate.opened.set()
        assert await asyncio.to_thread(gate.left.wait, 30)

    run_by_hand(main)
    assert progress_texts(place) == []


def test_full_event_queue_drops_progress() -> None:
    bus = EventBus(queue=2)
    subscription = bus.subscribe(ALL_EVENTS, MemoryJournals())
    for n in range(5):
        bus.publish("r", ToolProgress("r", "c1.0", "look", str(n)))
    assert [event.what.text for event in subscription if isinstance(event.what, ToolProgress)] == ["0", "1"]


def test_progress_of_a_run_is_an_event_and_not_recorded(desk: Desk) -> None:
    code = "\nfrom agentrun import progress\ndef count(order: str) -> str:\n    'Counts.'\n    progress('1 of 1')\n"
    here = Runs(desk.root, "", code)
    here.spec.write_text(here.spec.read_text().replace("desk:look", "desk:count"))
    done = here.recorded_and_replayed()
    heard = [news for news in here.news if isinstance(news, ToolProgress)]
    assert [(news.tool, news.text) for news in heard] == [("look", "1 of 1")]
    assert "1 of 1" not in done.canonical()
    assert "1 of 1" not in here.cassette.read_text()
