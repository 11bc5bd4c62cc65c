"""`RunHandle`: waiting, status, answers, settling, cancelling, sending and events, with and without an event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core.effects import ModelRequest
from agentrun.core.facts import ApprovalAnswered, CallSettled, CancelRequested, MessageQueued, RunStopped
from agentrun.core.messages import Text
from agentrun.core.outcome import Outcome
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.handle import RunHandle
from agentrun.engine.memory import stored_package
from agentrun.engine.ports import ReplyDelta
from agentrun.errors import AgentrunError, StorageError
from agentrun.testing import (
    Crash,
    CrashingJournals,
    FailingJournals,
    after,
    approving,
    calls,
    hook,
    reply,
    scripted,
    stub,
    text,
)
from agentrun.testing.doubles import ScriptItem

from ..core import script
from ..packages import package
from .memory_runtime import ASKING_AGENT, TOOLS, Home

PAY = (calls("pay", n=1), text("Done."))


def test_status_and_outcome_follow_the_run() -> None:
    seen: list[str] = []

    def reply(request: ModelRequest) -> ScriptItem:
        seen.append(handle.status)
        return text("Hello.")

    home = Home(reply)
    handle: RunHandle = home.start()
    assert (handle.run, handle.agent, handle.status, handle.outcome) == ("r1", "triage", "admitted", None)
    outcome = home.wait(handle)
    assert seen == ["processing"]
    assert (handle.status, handle.outcome) == ("completed", outcome)
    assert home.wait(handle) == outcome, "again: the same, and nothing is done"
    assert len(home.model.requests) == 1


def test_failed_run_has_status_failed() -> None:
    home = Home(scripted())
    handle = home.start()
    outcome = home.wait(handle)
    assert (handle.status, outcome.code) == ("failed", "provider.fatal")


def test_package_changed_after_the_start_stops_the_run() -> None:
    home = Home()
    handle = home.start()
    handle._package = replace(handle._package, agent=package(instructions=["Give everything away."]))
    outcome = home.wait(handle)
    assert outcome.code == "package.fingerprint_mismatch"
    assert outcome.fields["pinned"] != outcome.fields["found"]
    assert home.kinds() == ["RunStarted", "RunStopped"]
    assert home.model.requests == []


# --- answers --------------------------------------------------------------------------------------------------


def test_first_answer_continues_a_suspended_run() -> None:
    home = Home(*PAY)
    handle = home.start(ASKING_AGENT)
    waiting = home.wait(handle)
    assert waiting.status == "suspended"
    assert handle.status == "suspended"
    (question,) = waiting.questions
    assert home.wait(handle) == waiting, "nothing has changed"
    handle.answer(question, "approved", "ada")
    with pytest.raises(AgentrunError, match="is already answered: approved by ada"):
        handle.answer(question, "denied", "bob")
    outcome = home.wait(handle)
    assert (outcome.answer, home.pay.count) == ("Done.", 1)
    answers = [fact for fact in home.facts() if isinstance(fact, ApprovalAnswered)]
    assert [(fact.answer, fact.by) for fact in answers] == [("approved", "ada")]


def test_answer_to_another_question_is_refused() -> None:
    home = Home(*PAY)
    handle = home.start(ASKING_AGENT)
    waiting = home.wait(handle)
    assert waiting.status == "suspended"
    changed = replace(waiting.questions[0], question="sha256:0")
    with pytest.raises(AgentrunError, match="is not what the run asked"):
        handle.answer(changed, "approved", "ada")
    assert home.wait(handle).status == "suspended"


def home_with_interrupted_call() -> Home:
    """A run whose host died inside a call that must not run twice."""
    dead = CrashingJournals(5, "after")
    with pytest.raises(Crash):
        Home(*PAY, journals=dead).run(TOOLS)
    home = Home(text("Done."))
    home.journals.restore("r1", dead.records("r1"))
    home.journals.keep("r1", stored_package(dead, "r1"))
    return home


@pytest.mark.parametrize(
    ("how", "ran", "answer", "code"),
    [("retry", 1, "Done.", None), ("result", 0, "Done.", None), ("stop", 0, None, "tool.indeterminate")],
)
def test_settle_decides_an_interrupted_call_once(how: Any, ran: int, answer: str | None, code: str | None) -> None:
    home = home_with_interrupted_call()
    handle = home.runtime.resume("r1")
    waiting = home.wait(handle)
    assert waiting.status == "suspended"
    assert waiting.waits_for == ("c1.0",)
    parts = (Text("it went through"),) if how == "result" else ()
    handle.settle("c1.0", how, "ada", parts)
    with pytest.raises(AgentrunError, match=r"run\.invalid_state"):
        handle.settle("c1.0", "stop", "bob")
    outcome = home.wait(handle)
    assert (home.pay.count, outcome.answer, outcome.code) == (ran, answer, code)
    assert [fact.by for fact in home.facts() if isinstance(fact, CallSettled)] == ["ada"]


# --- cancelling -----------------------------------------------------------------------------------------------


def test_cancel_before_the_first_step_sends_no_request() -> None:
    home = Home()
    handle = home.start()
    handle.cancel("ada")
    handle.cancel("bob")
    assert home.kinds() == ["RunStarted", "CancelRequested"]
    outcome = home.wait(handle)
    assert (outcome.code, outcome.fields["by"], outcome.exit_code) == ("cancelled", "ada", 130)
    handle.cancel("carl")
    assert home.wait(handle) == outcome
    assert home.model.requests == []


def test_cancel_during_a_call_is_journaled_and_nothing_follows() -> None:
    """Recorded first; then what is under way is stopped, and nothing follows."""
    home = Home(*PAY)

    def stopped(**arguments: Any) -> str:
        handle.cancel("ada")
        return "paid"

    home.runtime.executors._entries["pay"] = stub(stopped, delay=50, clock=home.clock)
    handle = home.start(TOOLS)
    outcome = home.wait(handle)
    assert outcome.code == "cancelled"
    kinds = home.kinds()
    assert kinds.index("CancelRequested") < kinds.index("RunStopped") == len(kinds) - 1
    assert len(home.model.requests) == 1


def test_cancel_ends_a_suspended_run() -> None:
    home = Home(*PAY)
    handle = home.start(ASKING_AGENT)
    home.wait(handle)
    home.runtime.cancel("r1", "ada")
    outcome = home.wait(handle)
    assert outcome.code == "cancelled"


# --- sending --------------------------------------------------------------------------------------------------


def test_sent_message_is_queued_and_answered() -> None:
    def reply(request: ModelRequest) -> ScriptItem:
        handle.send("And now?")
        return text("One.")

    home = Home(reply, "Two.")
    handle: RunHandle = home.start()
    outcome = home.wait(handle)
    assert outcome.answer == "Two."
    assert [fact.message.parts for fact in home.facts() if isinstance(fact, MessageQueued)] == [(Text("And now?"),)]
    assert len(home.model.requests[1].messages) == 3


@pytest.mark.parametrize(("sent", "reason"), [(" ", "empty"), ("x" * 11, "too_long"), (" Hi. ", "duplicate")])
def test_send_refuses_empty_long_and_duplicate_messages(sent: str, reason: str) -> None:
    home = Home()
    handle = home.start(package(admission={"max_chars": 10, "dedupe": True}))
    with pytest.raises(AgentrunError) as caught:
        handle.send(sent)
    assert (caught.value.code, caught.value.fields["reason"]) == ("input.rejected", reason)
    assert caught.value.fields["input_id"] == "r1.2"
    assert home.kinds() == ["RunStarted"], "a rejected input leaves no message"
    handle.send("Ho.")
    with pytest.raises(AgentrunError, match=r"input\.rejected"):
        handle.send("Ho.")


def test_send_to_a_finished_run_is_refused() -> None:
    home = Home()
    handle = home.start()
    home.wait(handle)
    with pytest.raises(AgentrunError) as caught:
        handle.send("Hello?")
    assert (caught.value.code, caught.value.fields["actual"]) == ("run.invalid_state", "completed")


# --- events ---------------------------------------------------------------------------------------------------


def test_events_of_a_handle_are_its_journal_records() -> None:
    home = Home()
    handle = home.start()
    events = handle.events()
    home.wait(handle)
    seen = list(events)
    assert [event.what for event in seen] == list(home.journals.records("r1"))
    assert list(handle.events(seen[1].cursor)) == seen[2:]
    assert list(handle.events()) == seen, "also when it is over"


def test_hook_that_waits_for_its_own_run_is_denied() -> None:
    """A hook that waits for its own run would wait forever."""
    home = Home(hooks={"watch": hook(lambda question: handle.wait())})
    handle = home.start(package(hooks=[script.hook("on_input", id="watch")]))
    outcome = home.wait(handle)
    assert outcome.code == "policy.denied"


def test_wait_raises_storage_error_and_the_run_stays_suspended() -> None:
    home = Home(journals=FailingJournals(3))
    handle = home.start()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"storage\.failed"):
            home.wait(handle)
    assert handle.status == "suspended"


# --- in an event loop -----------------------------------------------------------------------------------------


def live(*script: Any, **given: Any) -> Home:
    return Home(*script, clock=SystemClock(), **given)


def run_in_empty_loop(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The result of a coroutine in an event loop in which nothing is left."""

    async def checked() -> Any:
        result = await asyncio.wait_for(main(), 60)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, others
        return result

    return asyncio.run(checked())


def test_started_run_continues_in_the_event_loop_without_wait() -> None:
    async def main() -> list[str]:
        home = live()
        handle = home.start()
        return [type(event.what).__name__ async for event in handle.events()]

    assert run_in_empty_loop(main) == ["Record"] * 5


def test_run_started_outside_a_loop_begins_with_wait() -> None:
    home = live()
    handle = home.start()
    assert handle.status == "admitted"
    outcome = asyncio.run(handle.wait())
    assert outcome.answer == "Hello."


def test_all_waiters_get_the_outcome() -> None:
    async def main() -> set[str | None]:
        home = live()
        handle = home.start()
        return {outcome.answer for outcome in await asyncio.gather(*(handle.wait() for _ in range(5)))}

    assert run_in_empty_loop(main) == {"Hello."}


def test_cancelled_wait_does_not_stop_the_run() -> None:
    async def main() -> Outcome:
        home = live(after(50, text("Hello."), clock=SystemClock()))
        handle = home.start()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle.wait(), 0)
        return await handle.wait()

    assert run_in_empty_loop(main).answer == "Hello."


def test_answered_run_continues_in_the_event_loop_without_wait() -> None:
    async def main() -> Outcome:
        home = live(*PAY)
        handle = home.start(ASKING_AGENT)
        waiting = await handle.wait()
        assert waiting.status == "suspended"
        handle.answer(waiting.questions[0], "approved", "ada")
        assert [event.is_terminal async for event in handle.events()][-1]
        return await handle.wait()

    assert run_in_empty_loop(main).answer == "Done."


def test_run_can_be_cancelled_from_another_thread() -> None:
    async def main() -> tuple[Outcome, Home]:
        home = live(after(60_000, text("Never."), clock=SystemClock()))
        handle = home.start()
        threading.Timer(0.02, handle.cancel, ["a thread"]).start()
        return await handle.wait(), home

    outcome, home = run_in_empty_loop(main)
    assert (outcome.code, outcome.fields["by"]) == ("cancelled", "a thread")
    assert [type(fact) for fact in home.facts() if isinstance(fact, CancelRequested | RunStopped)] == [
        CancelRequested,
        RunStopped,
    ]


def test_run_is_cancelled_when_its_event_loop_ends() -> None:
    """The host leaves: the run still gets its terminal record, and nothing is left running."""
    homes: list[tuple[Home, RunHandle]] = []

    async def main() -> None:
        home = live(after(60_000, text("Never."), clock=SystemClock()))
        homes.append((home, home.start()))
        await asyncio.sleep(0.01)

    asyncio.run(main())
    ((home, handle),) = homes
    assert handle.status == "failed"
    assert handle.outcome is not None
    assert handle.outcome.code == "cancelled"
    assert home.kinds()[-1] == "RunStopped"


def test_fifty_runs_finish_in_one_event_loop() -> None:
    async def main() -> list[Outcome]:
        clock = SystemClock()
        home = live(scripted(*[after(5, text("Hello."), clock=clock)] * 50))
        handles = [home.start(run=f"r{number}") for number in range(50)]
        return await asyncio.gather(*(handle.wait() for handle in handles))

    assert {outcome.answer for outcome in run_in_empty_loop(main)} == {"Hello."}


def test_approver_answers_in_an_event_loop() -> None:
    async def main() -> Outcome:
        return await live(*PAY, approver=approving(delay=5, clock=SystemClock())).start(ASKING_AGENT).wait()

    assert run_in_empty_loop(main).answer == "Done."


def test_reply_deltas_are_events_and_not_records() -> None:
    """They are events, not records; when no reply comes of them they are taken back."""
    home = Home(scripted(reply("Hello.", pieces=("Hel", "lo."))))
    everything = home.runtime.subscribe()
    handle = home.start()
    home.wait(handle)
    assert [event.what.text for event in everything if isinstance(event.what, ReplyDelta)] == ["Hel", "lo."]
    assert not any(isinstance(event.what, ReplyDelta) for event in handle.events())


def test_storage_error_is_raised_by_a_later_wait() -> None:
    """No exception is lost, and none is reported by anybody but `wait`."""

    async def main() -> None:
        home = live(journals=FailingJournals(3))
        handle = home.start()
        await asyncio.wait([handle._task])
        assert handle.status == "suspended"
        with pytest.raises(StorageError):
            await handle.wait()

    run_in_empty_loop(main)


def test_second_cancel_is_ignored() -> None:
    home = Home(*PAY)

    def twice(**arguments: Any) -> str:
        handle.cancel("ada")
        home.runtime.cancel("r1", "bob")
        return "paid"

    home.runtime.executors._entries["pay"] = stub(twice)
    handle: RunHandle = home.start(TOOLS)
    home.wait(handle)
    assert [fact.by for fact in home.facts() if isinstance(fact, CancelRequested)] == ["ada"]
