"""How runs end in an event loop, when cancelled, in parallel and after port failures."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agentrun.core.effects import ModelRequest, RunTool, ToolReturn
from agentrun.core.facts import CancelRequested, RunStarted, RunStopped, fact_kind
from agentrun.core.messages import Text, ToolResult, text_of
from agentrun.engine.event_loop import SystemClock
from agentrun.testing import after, call, replies, reply, text
from agentrun.testing.doubles import ScriptItem

from ..core.script import tool
from ..packages import package
from .failure_trials import Trial, points
from .memory_runtime import Home
from .run_shapes import SHAPES

TOOLS = package(tools={"search": tool()}, policy={"default": "allow"})
CALLS = tuple(call("search", q=str(number)) for number in range(6))


class BusyTool:
    """A tool that takes a while, and sees what the journal says when it is stopped."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.home: Home | None = None
        self.running = self.most = 0
        self.begun = asyncio.Event()
        self.stopped: list[list[str]] = []
        """What had been written when a call was stopped."""

    async def run(self, call: RunTool) -> ToolReturn:
        assert self.home is not None
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.stopped.append([fact_kind(fact) for fact in self.home.facts()])
            raise
        finally:
            self.running -= 1
        return ToolReturn((Text("found " + call.arguments["q"]),))


def call_then_answer(request: ModelRequest) -> ScriptItem:
    done = any(isinstance(message, ToolResult) for message in request.messages)
    return text("Done.") if done else reply("", *CALLS)


def home_of(busy: BusyTool, model: Callable[[ModelRequest], ScriptItem] = call_then_answer, **given: Any) -> Home:
    home = Home(replies(model), clock=SystemClock(), executors={"search": busy}, **given)
    busy.home = home
    return home


def run_in_empty_loop(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The result of a coroutine after which the event loop is empty."""

    async def checked() -> Any:
        result = await asyncio.wait_for(main(), 60)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return result

    return asyncio.run(checked())


def test_cancel_is_journaled_before_running_tools_are_stopped() -> None:
    """It is recorded before anything stops, and then nothing is left."""

    async def main() -> tuple[BusyTool, Home, Any]:
        busy = BusyTool(60)
        home = home_of(busy)
        handle = home.start(TOOLS)
        await busy.begun.wait()
        handle.cancel("ada")
        handle.cancel("ada again")
        outcome = await handle.wait()
        handle.cancel("too late")
        return busy, home, outcome

    busy, home, outcome = run_in_empty_loop(main)
    assert (outcome.code, outcome.fields) == ("cancelled", {"by": "ada"})
    assert (busy.running, len(busy.stopped)) == (0, 6)
    assert all("cancel_requested" in written for written in busy.stopped)
    assert [fact for fact in home.facts() if isinstance(fact, CancelRequested)] == [CancelRequested("ada")]
    assert home.kinds().count("RunStopped") == 1


def test_cancelling_one_waiter_does_not_cancel_the_run() -> None:
    """The run goes on for whoever else waits; it ends when it is told to."""

    async def main() -> tuple[BusyTool, Any]:
        busy = BusyTool(60)
        handle = home_of(busy).start(TOOLS)
        waiting = [asyncio.ensure_future(handle.wait()) for _ in range(3)]
        await busy.begun.wait()
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert (waiting[0].cancelled() or waiting[0].cancelling(), busy.stopped) == (True, [])
        assert handle.status == "processing"
        handle.cancel()
        return busy, await asyncio.gather(*waiting, return_exceptions=True)

    busy, (first, *others) = run_in_empty_loop(main)
    assert isinstance(first, asyncio.CancelledError)
    assert [outcome.code for outcome in others] == ["cancelled"] * 2
    assert busy.running == 0


@pytest.mark.parametrize("width", [1, 2, 5, 6, 9])
def test_width_limits_the_tool_calls_at_once(width: int) -> None:
    """Never more at once than the width, and no fewer when there is work."""

    async def main() -> BusyTool:
        busy = BusyTool(0.01)
        outcome = await home_of(busy, width=width).start(TOOLS).wait()
        assert (outcome.answer, outcome.tool_calls) == ("Done.", 6)
        return busy

    assert run_in_empty_loop(main).most == min(width, 6)


def test_fifty_parallel_runs_keep_separate_journals() -> None:
    """On one runtime, with one model and one tool: each journal has its own run's facts and no other's."""

    def echo(request: ModelRequest) -> ScriptItem:
        name = text_of(request.messages.since(0)[0].parts)  # type: ignore[arg-type]  # the first is the user's
        done = any(isinstance(message, ToolResult) for message in request.messages)
        calls = [call("search", q=f"{name}-{number}") for number in range(3)]
        return after(2, text(f"{name} is done.") if done else reply("", *calls), SystemClock())

    async def main() -> tuple[Home, list[Any]]:
        busy = BusyTool(0.005)
        home = home_of(busy, echo)
        handles = [home.start(TOOLS, run=f"run-{number:02}", message=f"name-{number:02}") for number in range(50)]
        return home, await asyncio.gather(*(handle.wait() for handle in handles))

    home, outcomes = run_in_empty_loop(main)
    assert len(home.journals.runs) == home.runtime.run_count == 50
    for number, outcome in enumerate(outcomes):
        run, name = f"run-{number:02}", f"name-{number:02}"
        assert (outcome.run, outcome.answer, outcome.tool_calls) == (run, f"{name} is done.", 3)
        records = home.journals.records(run)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert [fact.run for fact in home.facts(run) if isinstance(fact, RunStarted)] == [run]
        assert sum(isinstance(fact, RunStopped) for fact in home.facts(run)) == 1
        others = Counter(word[:7] for word in home.journals.text(run).decode().split("name-")[1:])
        assert {key[:2] for key in others} == {f"{number:02}"}


PORTS = ("journal.append", "provider.ask", "executor.run", "blobs.put", "listener")


@pytest.mark.parametrize("name", ["child", "approval"])
def test_invariants_after_a_failure_at_every_port_call_in_real_time(name: str) -> None:
    """A failure at each call of a port, in real time."""
    tried = 0
    for point in points(Trial(SHAPES[name], None).live()):
        if point.port not in PORTS or (point.port == "listener" and point.how != "halt"):
            continue
        trial = Trial(SHAPES[name], point, SystemClock()).live_in_a_loop()
        tried += 1
        assert trial.ports.wrong == [], point
        assert +trial.ports.active == {}, point
        assert not trial.left, point
        ends = trial.ends()
        if trial.handle is not None and not point.fails_journal:
            assert set(map(tuple, ends.values())) == {(0,)}, point
    assert tried > 50
