"""`agentrun.arun` in an event loop, and functions as tools, hooks, sinks, approvers and models, for `run` too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentrun
from agentrun.core.effects import Deliver, ModelRequest
from agentrun.core.facts import CancelRequested, RunStopped
from agentrun.core.messages import Assistant, ToolResult, User, text_of
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import RequestError, StorageError
from agentrun.testing import FailingJournals, StepClock, calls, scripted, stub, text

from ..core.script import tool
from ..packages import package

SPEC = """\
agentrun: "1"
name: desk
model: {provider: openai, name: gpt-4.1-mini}
instructions: Help.
tools:
  look: {kind: python, call: "desk_of_arun:look", effect: read}
policy: {default: allow}
budgets: {turns: 5, tokens: 20k}
"""
PAYING = package(
    tools={"pay": tool(args={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})},
    sinks={"out": {"kind": "stdout", "delivery": "required", "timeout": 1000}},
    policy={"default": "allow", "rules": []},
)
PAY = (calls("pay", n=3), text("Done."))


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "desk.yaml").write_text(SPEC)
    (tmp_path / "desk_of_arun.py").write_text('def look(n: int) -> str:\n    """Looks."""\n    return f"seen {n}"\n')
    return tmp_path / "desk.yaml"


def results(outcome: agentrun.Outcome) -> list[tuple[str, str]]:
    return [(call.status, call.result) for call in outcome.calls]


@pytest.mark.parametrize("is_async", [False, True])
def test_run_and_arun_use_the_functions_of_the_spec(desk: Path, is_async: bool) -> None:
    model = scripted(calls("look", n=7), text("Done."))
    if is_async:
        outcome = asyncio.run(agentrun.arun(str(desk), "Go.", model=model, project=str(desk.parent)))
    else:
        outcome = agentrun.run(str(desk), "Go.", model=model, project=str(desk.parent))
    assert (outcome.ok, outcome.text, results(outcome)) == (True, "Done.", [("ok", "seen 7")])
    assert outcome.journal[0].seq == 1
    assert isinstance(outcome.journal[-1].fact, RunStopped)


def test_arun_raises_before_the_run_exists_and_returns_an_outcome_afterwards() -> None:
    async def main() -> None:
        with pytest.raises(RequestError, match=r"input\.rejected"):
            await agentrun.arun(package(), " ", model=scripted("Hi."))
        for at in range(2, 5):
            outcome = await agentrun.arun(package(), "Hi.", model=scripted("Hi."), journals=FailingJournals(at))
            assert (outcome.status, outcome.code) == ("failed", "storage.failed")
            with pytest.raises(StorageError):
                outcome.raise_for_status()

    asyncio.run(main())
    with pytest.raises(StorageError):
        agentrun.run(package(), "Hi.", model=scripted("Hi."), journals=FailingJournals(1))


# --- functions ------------------------------------------------------------------------------------------------------


def plain(n: int) -> dict[str, int]:
    return {"paid": n}


async def coroutine(n: int) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"paid": n}


async def immediate(n: int) -> dict[str, int]:
    return {"paid": n}


@pytest.mark.parametrize(
    ("function", "clock"),
    [(plain, None), (coroutine, None), (immediate, None), (plain, StepClock()), (immediate, StepClock())],
)
def test_functions_replace_a_tool_and_a_sink(function: Callable[..., Any], clock: Any) -> None:
    delivered: list[Deliver] = []
    given = {} if clock is None else {"clock": clock}
    outcome = agentrun.run(
        PAYING, "Hi.", model=scripted(*PAY), tools={"pay": function}, sinks={"out": delivered.append}, **given
    )
    assert (outcome.status, results(outcome)) == ("completed", [("ok", '{"paid":3}')])
    assert [each.text for each in delivered] == ["Done."]


def test_exception_of_a_function_is_a_result_that_the_model_reads() -> None:
    def broken(n: int) -> str:
        raise LookupError(f"no account {n}")

    outcome = agentrun.run(
        PAYING, "Hi.", model=scripted(*PAY), tools={"pay": broken}, sinks={"out": print}, clock=StepClock()
    )
    assert results(outcome) == [("tool.execution", "tool.execution: LookupError: no account 3")]


def test_plain_function_does_not_block_the_event_loop() -> None:
    """It waits for something that only the loop can do."""
    happened = threading.Event()

    def waits(n: int) -> str:
        return str(happened.wait(20))

    async def main() -> agentrun.Outcome:
        run = asyncio.create_task(
            agentrun.arun(PAYING, "Hi.", model=scripted(*PAY), tools={"pay": waits}, sinks={"out": lambda _: None})
        )
        while not happened.is_set():
            await asyncio.sleep(0.01)
            if any(thread.name.startswith("aside") for thread in threading.enumerate()):
                happened.set()
        return await run

    assert results(asyncio.run(main())) == [("ok", "True")]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: "", '`tools["pay"]` must take the argument "n", which the tool declares'),
        (lambda n, more: "", '`tools["pay"]` has the parameter "more", which the tool does not declare'),
        (lambda n, /: "", '`tools["pay"]` must take the argument "n", which the tool declares'),
    ],
)
def test_function_with_other_parameters_than_its_tool_is_refused(function: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        agentrun.run(PAYING, "Hi.", model=scripted(*PAY), tools={"pay": function}, sinks={"out": print})
    assert str(caught.value) == message


def test_function_needs_a_default_for_an_optional_argument() -> None:
    agent = package(
        tools={"pay": tool(args={"type": "object", "properties": {"n": {}}})}, policy={"default": "allow", "rules": []}
    )
    with pytest.raises(TypeError, match='needs a default for the parameter "n"'):
        agentrun.run(agent, "Hi.", model=scripted(*PAY), tools={"pay": plain})
    outcome = agentrun.run(agent, "Hi.", model=scripted(calls("pay"), "Done."), tools={"pay": lambda n=1, **_: n})
    assert results(outcome) == [("ok", "1")]


def by_hand(request: ModelRequest) -> Any:
    last = request.messages.since(len(request.messages) - 1)[0]
    if isinstance(last, ToolResult):
        return f"It said {text_of(last.parts)}."
    call = {"id": "x", "type": "function", "function": {"name": "pay", "arguments": '{"n": 3}'}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


async def by_hand_later(request: ModelRequest) -> Any:
    await asyncio.sleep(0)
    return by_hand(request)


@pytest.mark.parametrize("model", [by_hand, by_hand_later])
def test_function_is_a_model(model: Any) -> None:
    outcome = agentrun.run(PAYING, "Hi.", model=model, tools={"pay": plain}, sinks={"out": lambda _: None})
    assert outcome.text == 'It said {"paid":3}.'


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda request: 1 / 0, "the model function failed: ZeroDivisionError: division by zero"),
        (lambda request: 5, "the model function failed: TypeError: the function must return a text, a message, "),
    ],
)
def test_model_function_that_fails_is_a_failed_outcome(model: Any, message: str) -> None:
    outcome = agentrun.run(package(), "Hi.", model=model, clock=StepClock())
    assert outcome.code == "provider.fatal"
    assert outcome.fault is not None
    assert outcome.fault.message.startswith(message)


# --- many at once ---------------------------------------------------------------------------------------------------


def test_200_runs_at_once_keep_their_records_apart(desk: Path) -> None:
    file, count = agentrun.compile(desk), 200

    def answer(request: ModelRequest) -> Any:
        (first, *rest) = request.messages
        assert isinstance(first, User)
        number = text_of(first.parts)
        return f"{number} saw {text_of(rest[-1].parts)}" if rest else calls("look", n=int(number))  # type: ignore[arg-type]  # a tool result

    async def main() -> list[agentrun.Outcome]:
        runs = (agentrun.arun(file, str(n), model=answer, project=desk.parent) for n in range(count))
        return await asyncio.gather(*runs)

    outcomes = asyncio.run(main())
    assert [outcome.text for outcome in outcomes] == [f"{n} saw seen {n}" for n in range(count)]
    assert len({outcome.run for outcome in outcomes}) == count
    for n, outcome in enumerate(outcomes):
        assert [record.seq for record in outcome.journal] == list(range(1, len(outcome.journal) + 1))
        assert [(call.args, call.result) for call in outcome.calls] == [({"n": n}, f"seen {n}")]


def test_cancelling_the_task_cancels_the_run_and_journals_it() -> None:
    journals, begun = MemoryJournals(), asyncio.Event()

    async def forever(n: int) -> str:
        begun.set()
        await asyncio.sleep(3600)
        return ""

    async def main() -> None:
        run = agentrun.arun(
            PAYING, "Hi.", model=scripted(*PAY), tools={"pay": forever}, sinks={"out": print}, journals=journals
        )
        task = asyncio.create_task(run)
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    (run,) = journals.runs
    facts = [record.fact for record in journals.records(run)]
    assert CancelRequested("host") in facts
    stopped = facts[-1]
    assert isinstance(stopped, RunStopped)
    assert stopped.fault is not None
    assert stopped.fault.code == "cancelled"


# --- history --------------------------------------------------------------------------------------------------------

HISTORY: list[Any] = [
    {"role": "user", "content": "What is in the box?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_9", "type": "function", "function": {"name": "pay", "arguments": '{"n": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "call_9", "content": "a cat"},
    {"role": "assistant", "content": "A cat."},
]


def test_history_in_the_chat_form_comes_before_the_message() -> None:
    model = scripted(*PAY)
    outcome = agentrun.run(
        PAYING, "And now?", history=HISTORY, model=model, tools={"pay": stub()}, sinks={"out": print}
    )
    assert outcome.ok
    sent = list(model.requests[-1].messages)
    assert [message.to_dict()["role"] for message in sent[:5]] == ["user", "assistant", "tool", "assistant", "user"]
    calls_made = [call.id for message in sent if isinstance(message, Assistant) for call in message.calls]
    assert len(calls_made) == len({*calls_made}) == 2, "the ids of the history are not those of the run"
    assert isinstance(sent[2], ToolResult)
    assert sent[2].call == calls_made[0]


def test_history_that_ends_with_the_user_needs_no_message() -> None:
    model = scripted("Hello.")
    agentrun.run(package(), history=[{"role": "user", "content": "Anyone?"}], model=model, clock=StepClock())
    assert [message.to_dict() for message in model.requests[0].messages] == [{"role": "user", "content": "Anyone?"}]
