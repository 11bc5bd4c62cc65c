"""`agentrun.stream` and `agentrun.astream`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, closing
from typing import Any

import pytest

import agentrun
from agentrun.core.effects import AskModel
from agentrun.core.facts import CancelRequested, RunStopped
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import RequestError
from agentrun.testing import StepClock, calls, reply, scripted, stub, text

from ..core.script import rule, tool
from ..packages import package

ANY = {"type": "object", "properties": {"n": {"type": "integer"}}}
AGENT = package(tools={"pay": tool(args=ANY), "look": tool(args=ANY)}, policy={"default": "allow", "rules": []})
SCRIPT = (calls("pay", n=3), reply("All done.", pieces=("All ", "done.")))


def kinds(events: list[agentrun.StreamEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def check_events(events: list[agentrun.StreamEvent]) -> None:
    assert [event for event in kinds(events) if event != "RulingMade"] == [
        *("SpendUpdated", "CallRequested", "CallFinished", "TextDelta", "TextDelta", "SpendUpdated", "RunEnded"),
    ]
    assert "".join(event.text for event in events if isinstance(event, agentrun.TextDelta)) == "All done."
    requested = next(event for event in events if isinstance(event, agentrun.CallRequested))
    finished = next(event for event in events if isinstance(event, agentrun.CallFinished))
    assert (requested.tool, requested.args, requested.call) == ("pay", {"n": 3}, finished.call)
    assert (finished.tool, finished.status, finished.text) == ("pay", "ok", "paid")
    ended = events[-1]
    assert isinstance(ended, agentrun.RunEnded)
    assert (ended.outcome.text, ended.outcome.ok) == ("All done.", True)
    spent = [event for event in events if isinstance(event, agentrun.SpendUpdated)][-1]
    assert (spent.tokens, spent.turns) == (ended.outcome.tokens, 2)


@pytest.mark.parametrize("clock", [{}, {"clock": StepClock()}], ids=["real", "step"])
def test_events_of_a_run(clock: Any) -> None:
    tools = {"pay": stub("paid"), "look": stub()}
    check_events(list(agentrun.stream(AGENT, "Hi.", model=scripted(*SCRIPT), tools=tools, **clock)))

    async def collect() -> list[agentrun.StreamEvent]:
        return [event async for event in agentrun.astream(AGENT, "Hi.", model=scripted(*SCRIPT), tools=tools, **clock)]

    check_events(asyncio.run(collect()))


def test_replay_is_streamed() -> None:
    events = list(agentrun.stream("specs/support.yaml", mode="replay"))
    assert {"CallRequested", "CallFinished", "TextDelta", "RulingMade"} <= {*kinds(events)}
    assert kinds(events)[-1] == "RunEnded"


class BreaksOnce:
    """A model whose first reply breaks off in the middle."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> agentrun.Reply | agentrun.Fault:
        self.asked += 1
        delta("One ")
        if self.asked == 1:
            return agentrun.Fault("provider.transient", "it broke", {"status": None})
        delta("two.")
        return agentrun.Reply(agentrun.Assistant((agentrun.Text("One two."),)), "stop", None, None, None)


def test_text_of_a_request_that_is_sent_again_is_withdrawn() -> None:
    events = list(agentrun.stream(package(), "Hi.", model=BreaksOnce(), clock=StepClock()))
    assert [getattr(event, "text", type(event).__name__) for event in events] == [
        *("One ", "TextWithdrawn", "One ", "two.", "SpendUpdated", "RunEnded"),
    ]


def test_question_is_an_event_and_the_outcome_is_suspended() -> None:
    asking = package(tools={"pay": tool()}, policy={"default": "deny", "rules": [rule("ask", "pay")]})
    events = list(agentrun.stream(asking, "Hi.", model=scripted(calls("pay")), tools={"pay": stub()}))
    (asked,) = (event for event in events if isinstance(event, agentrun.QuestionAsked))
    ended = events[-1]
    assert isinstance(ended, agentrun.RunEnded)
    assert (asked.target, ended.outcome.status) == ("pay", "suspended")
    assert ended.outcome.questions[0].question == asked.question


def test_errors_come_before_the_first_event() -> None:
    with pytest.raises(TypeError, match="unknown keyword"):
        agentrun.astream(AGENT, "Hi.", tool={})  # type: ignore[call-arg]  # the point
    with pytest.raises(RequestError, match=r"input\.rejected"):
        next(agentrun.stream(AGENT, " ", model=scripted("x"), tools={"pay": stub(), "look": stub()}))


def cancelled_by_host(journals: MemoryJournals) -> bool:
    (run,) = journals.runs
    facts = [record.fact for record in journals.records(run)]
    stopped = facts[-1]
    assert isinstance(stopped, RunStopped)
    assert stopped.fault is not None
    return CancelRequested("host") in facts and stopped.fault.code == "cancelled"


@pytest.mark.parametrize("how", ["aclosing", "break", "task"])
def test_closing_the_iterator_cancels_the_run(how: str) -> None:
    journals = MemoryJournals()

    async def forever(n: int = 0) -> str:
        await asyncio.sleep(3600)
        return ""

    async def main() -> None:
        tools: dict[str, Any] = {"pay": forever, "look": stub()}
        events = agentrun.astream(AGENT, "Hi.", model=scripted(*SCRIPT), tools=tools, journals=journals)
        if how == "break":
            async for event in events:
                if isinstance(event, agentrun.CallRequested):
                    break
            del events
            while not isinstance(journals.records(journals.runs[0])[-1].fact, RunStopped):  # noqa: ASYNC110  # no event
                await asyncio.sleep(0.01)
        elif how == "aclosing":
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, agentrun.CallRequested):
                        break
        else:
            begun = asyncio.Event()

            async def read() -> None:
                async for event in events:
                    if isinstance(event, agentrun.CallRequested):
                        begun.set()

            task = asyncio.create_task(read())
            await begun.wait()
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()

    asyncio.run(main())
    assert cancelled_by_host(journals)


def test_closing_a_plain_iterator_cancels_the_run() -> None:
    journals = MemoryJournals()
    tools: Any = {"pay": stub(), "look": stub()}
    model = scripted(*[calls("pay", n=n) for n in range(10)])
    with closing(agentrun.stream(AGENT, "Hi.", model=model, tools=tools, journals=journals)) as events:
        assert any(isinstance(event, agentrun.CallFinished) for event in events)
    assert cancelled_by_host(journals)


def test_stream_is_refused_inside_an_event_loop() -> None:
    async def main() -> None:
        next(agentrun.stream(AGENT, "Hi.", model=scripted(text("x")), tools={"pay": stub(), "look": stub()}))

    with pytest.raises(RuntimeError, match=r"use agentrun\.astream"):
        asyncio.run(main())
