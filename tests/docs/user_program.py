"""A program that uses agentrun as its users do: only public names, and the types that an editor shows.

mypy checks it with all other tests, pyright in `test_public_types.py`. Nothing runs it.
"""

from typing import Literal, assert_type

from pydantic import BaseModel

import agentrun
from agentrun.testing import approving, calls, scripted, stub, text


class Ticket(BaseModel):
    title: str
    urgent: bool


def look(order: str) -> str:
    """A tool."""
    agentrun.progress("reading the order")
    if not order:
        raise agentrun.ToolError.fatal("there is no order")
    return order


def careful(question: agentrun.HookQuestion) -> agentrun.Deny | None:
    """A hook."""
    return agentrun.Deny("too much") if question.target == "refund" else None


def runs() -> None:
    package = agentrun.compile("specs/support.yaml")
    assert_type(package, agentrun.PackageFile)
    model = scripted(calls("look", order="1"), text("Done."))

    outcome = agentrun.run(package, "Where is it?", model=model, tools={"look": stub("late")}, approver=approving({}))
    assert_type(outcome.ok, bool)
    assert_type(outcome.text, str)
    assert_type(outcome.cost, int)
    outcome.raise_for_status()

    typed = agentrun.run("specs/triage.yaml", "The printer is on fire.", params={"desk": "it"}, output=Ticket)
    assert_type(typed, agentrun.Outcome[Ticket])
    assert_type(typed.output, Ticket | None)
    if typed.output is not None:
        assert_type(typed.output.urgent, bool)


async def in_an_event_loop() -> None:
    typed = await agentrun.arun("specs/triage.yaml", "The printer is on fire.", output=Ticket, session="ada")
    assert_type(typed.output, Ticket | None)

    history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]
    async for event in agentrun.astream("specs/support.yaml", "Where is it?", history=history, tools={"look": look}):
        match event:
            case agentrun.TextDelta(text=part):
                assert_type(part, str)
            case agentrun.CallRequested(tool=tool):
                assert_type(tool, str)
            case agentrun.RunEnded(outcome=outcome):
                assert_type(outcome.status, Literal["completed", "failed", "suspended", "parked"])
            case _:
                pass

    async with agentrun.open("shop", model=scripted("Hello.")) as runtime:
        handle = await runtime.start("specs/support.yaml", "Hello?")
        assert_type(await handle.wait(), agentrun.Outcome)
        for waiting in runtime.approvals():
            runtime.answer(waiting.run, waiting.question, "approved", by="Ada")
        for run in runtime.runs(due=True):
            await runtime.resume(run.run)


def in_a_script() -> str:
    for event in agentrun.stream("specs/support.yaml", "Where is it?", hooks={"careful": careful}):
        if isinstance(event, agentrun.RunEnded):
            return event.outcome.text
    recorded = agentrun.replay("specs/support.yaml", case="default")
    messages = [agentrun.message_from_dict({"role": "user", "content": recorded.text})]
    return str(messages[0].to_dict())


def refusals() -> str:
    try:
        agentrun.run("specs/triage.yaml", "Hello?")
    except agentrun.SpecError as error:
        return str(error.problems)
    except agentrun.AgentrunError as error:
        return f"{error.code}: {error.message} {error.hint}"
    return ""
