"""`agentrun.open`: the stored runs of a project in one program, and beside the commands."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import agentrun
from agentrun.core.facts import RunStopped
from agentrun.errors import RequestError
from agentrun.testing import calls, scripted, text

SPEC = """\
agentrun: "1"
name: bank
model: {provider: openai, name: gpt-4.1-mini}
instructions: Help.
tools:
  pay: {kind: python, call: "bank_of_runtime:pay"}
  look: {kind: python, call: "bank_of_runtime:look", effect: read}
policy: {default: allow, rules: [{id: big, ask: pay}]}
budgets: {turns: 5, tokens: 20k}
"""
PAY = (calls("pay", n=3), text("Paid."))
LOOK = (calls("look", n=3), text("Seen."))


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    (tmp_path / "bank.yaml").write_text(SPEC)
    (tmp_path / "bank_of_runtime.py").write_text(
        'def pay(n: int) -> str:\n    """Pays."""\n    return f"paid {n}"\n\n\n'
        'def look(n: int) -> str:\n    """Looks."""\n    return f"seen {n}"\n'
    )
    return tmp_path / "bank.yaml"


def in_loop(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(limited())


def test_runs_are_started_listed_and_answered(bank: Path) -> None:
    async def work() -> None:
        async with agentrun.open(str(bank.parent), model=scripted(*LOOK, *PAY)) as runtime:
            outcome = await runtime.run(bank, "Look.", run_id="looked")
            assert (outcome.text, [call.result for call in outcome.calls]) == ("Seen.", ["seen 3"])
            handle = await runtime.start(bank, "Pay.", run_id="paid")
            waiting = await handle.wait()
            assert (waiting.status, waiting.questions[0].target) == ("suspended", "pay")
            (asked,) = runtime.approvals()
            assert (asked.run, asked.agent, asked.question.value) == ("paid", "bank", {"n": 3})
            assert [(each.run, each.status) for each in runtime.runs()] == [
                ("paid", "running"),
                ("looked", "completed"),
            ]
            runtime.answer("paid", asked.question, "approved", by="Ada")
            assert (await handle.wait()).text == "Paid."
            assert runtime.approvals() == []
            assert [each.run for each in runtime.runs(status="completed", limit=1)] == ["paid"]
            with pytest.raises(RequestError, match=r"run\.duplicate"):
                await runtime.run(bank, "Look.", run_id="looked")

    in_loop(work())


def test_run_that_waits_is_answered_and_resumed_by_another_runtime(bank: Path) -> None:
    async def work() -> None:
        async with agentrun.open(bank.parent, model=scripted(*PAY)) as first:
            assert (await first.run(bank, "Pay.", run_id="r1")).status == "suspended"
        async with agentrun.open(bank.parent, model=scripted(text("Paid."))) as second:
            assert second.runs(due=True) == []
            (asked,) = second.approvals()
            second.answer("r1", asked.question, "approved", by="Ada")
            assert [each.run for each in second.runs(due=True)] == ["r1"]
            handle = await second.resume("r1")
            assert (await handle.wait()).text == "Paid."
            with pytest.raises(RequestError, match=r"run\.invalid_state"):
                await second.resume("r1")

    in_loop(work())


def test_session_has_one_run_at_a_time_and_continues(bank: Path) -> None:
    async def work() -> None:
        async with agentrun.open(bank.parent, model=scripted(*PAY, "Hello.", "Again.")) as runtime:
            with pytest.raises(RequestError, match=r"session\.not_found"):
                await runtime.run(bank, "Hi.", session="ada")
            handle = await runtime.start(bank, "Pay.", session="ada", session_start="create")
            with pytest.raises(RequestError, match=r"session\.busy"):
                await runtime.start(bank, "And now?", session="ada")
            (question,) = (await handle.wait()).questions
            with pytest.raises(RequestError, match=r"session\.unfinished"):
                await runtime.start(bank, "And now?", session="ada")
            runtime.answer(handle.run, question, "denied", by="Ada")
            assert (await handle.wait()).ok
            assert (await runtime.run(bank, "And now?", session="ada")).ok
            assert runtime.sessions() == ["ada"]

    in_loop(work())


def test_active_run_is_parked_when_the_runtime_closes(bank: Path) -> None:
    begun = asyncio.Event()

    async def slow(n: int) -> str:
        begun.set()
        await asyncio.sleep(0.05)
        return "seen"

    async def work() -> None:
        async with agentrun.open(bank.parent, model=scripted(*LOOK), tools={"look": slow}) as first:
            handle = await first.start(bank, "Look.", run_id="r1")
            await begun.wait()
        assert (await handle.wait()).status == "parked"
        async with agentrun.open(bank.parent, model=scripted(text("Seen."))) as second:
            assert [(each.run, each.status) for each in second.runs(due=True)] == [("r1", "interrupted")]
            assert (await (await second.resume("r1")).wait()).text == "Seen."

    in_loop(work())


def test_events_of_a_run_end_with_the_run(bank: Path) -> None:
    async def work() -> None:
        async with agentrun.open(bank.parent, model=scripted(*LOOK)) as runtime:
            handle = await runtime.start(bank, "Look.")
            events = [event async for event in runtime.events(handle.run)]
            assert events[-1].is_terminal
            assert next(event.what.seq for event in events if isinstance(event.what, agentrun.Record)) == 1

    in_loop(work())


@pytest.mark.parametrize("is_open", [True, False])
def test_cancelled_run_is_ended(bank: Path, is_open: bool) -> None:
    async def work() -> None:
        async with agentrun.open(bank.parent, model=scripted(*PAY)) as first:
            await first.run(bank, "Pay.", run_id="r1")
            if is_open:
                await first.cancel("r1", by="Ada")
        async with agentrun.open(bank.parent, model=scripted()) as second:
            await second.cancel("r1", by="Ada")
            snapshot = second.snapshot("r1")
            assert snapshot.outcome is not None
            assert snapshot.outcome.code == "cancelled"

    in_loop(work())


def test_cancelled_task_cancels_its_run(bank: Path) -> None:
    begun = asyncio.Event()

    async def forever(n: int) -> str:
        begun.set()
        await asyncio.sleep(3600)
        return ""

    async def work() -> None:
        async with agentrun.open(bank.parent, model=scripted(*LOOK), tools={"look": forever}) as runtime:
            task = asyncio.create_task(runtime.run(bank, "Look.", run_id="r1"))
            await begun.wait()
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()
            outcome = runtime.snapshot("r1").outcome
            assert outcome is not None
            assert outcome.code == "cancelled"

    in_loop(work())


def test_50_stored_runs_at_once_keep_their_records_apart(bank: Path) -> None:
    file, count = agentrun.compile(bank), 50

    def answer(request: agentrun.ModelRequest) -> Any:
        first, *rest = request.messages
        assert isinstance(first, agentrun.User)
        return f"{first.text} {rest[-1].text}" if rest else calls("look", n=int(first.text))

    async def work() -> None:
        async with agentrun.open(bank.parent, model=answer) as runtime:
            outcomes = await asyncio.gather(*(runtime.run(file, str(n)) for n in range(count)))
            assert [outcome.text for outcome in outcomes] == [f"{n} seen {n}" for n in range(count)]
            assert len(runtime.runs(status="completed")) == count
            for n, outcome in enumerate(outcomes):
                assert isinstance(outcome.journal[-1].fact, RunStopped)
                assert [call.args for call in outcome.calls] == [{"n": n}]

    in_loop(work())


@pytest.mark.parametrize("name", ["store", "mode", "cassette", "clock"])
def test_arguments_for_other_places_are_refused(bank: Path, name: str) -> None:
    async def work() -> None:
        async with agentrun.open(bank.parent, model=scripted(*LOOK)) as runtime:
            with pytest.raises(ValueError, match=f"`{name}` is not an argument here"):
                await runtime.start(bank, "Look.", **{name: "live"})  # type: ignore[arg-type]  # the point

    in_loop(work())
    with pytest.raises(TypeError, match="`project` must be a path, not int"):
        agentrun.open(5)  # type: ignore[arg-type]  # the point
    with pytest.raises(TypeError, match="unknown keyword argument 'tool'"):
        agentrun.open(bank.parent, tool={})  # type: ignore[call-arg]  # the point
