"""A `Runtime` over the store of a project, and commands of other processes: messages, answers and events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun import Outcome, Request, Runtime
from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import ApprovalAsked, ChildStarted, Record, RunStopped
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.events import Cursor, run_scope
from agentrun.engine.handle import RunHandle
from agentrun.engine.ports import ReplyDelta
from agentrun.errors import AgentrunError
from agentrun.spec.project import Project, find_project
from agentrun.store.files import FileStore
from agentrun.testing import calls, scripted, stub, text

from ..cli.command import CommandResult, agentrun
from ..cli.cut_runs import Bank, wait_until
from ..cli.test_later_approvals import ASKS, PAYS_AND_LOOKS
from ..core.script import agent_tool, rule, writing
from ..packages import package
from .memory_runtime import ASKING_AGENT


class StoredHome:
    """A runtime over the store of a project, in an event loop."""

    def __init__(self, root: Path, *script: Any) -> None:
        self.root = root
        self.store = FileStore(Project(root))
        self.pay = stub("paid")
        self.runtime = Runtime.in_memory(
            journals=self.store,
            providers={"openai": scripted(*script)},
            executors={"pay": self.pay},
            clock=SystemClock(),
        )

    def start(self, run: str = "r1", **request: Any) -> RunHandle:
        file = seal_package(ASKING_AGENT)
        return self.runtime.start(Request(agent=file.agent.name, package=file, message="Hi.", run=run, **request))

    async def command(self, *args: str) -> CommandResult:
        """Another process, while the event loop goes on."""
        return await asyncio.to_thread(agentrun, *args, cwd=self.root, XDG_STATE_HOME=str(self.root / "state"))


@pytest.fixture
def in_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    (tmp_path / "pyproject.toml").write_text("[tool.agentrun]\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(work: Callable[[StoredHome], Awaitable[Any]], *script: Any) -> Any:
        async def whole() -> Any:
            home = StoredHome(tmp_path, *(script or (calls("pay", n=1), text("Done."))))
            async with asyncio.timeout(60), home.runtime:
                return await work(home)

        return asyncio.run(whole())

    return run


async def until_stopped(handle: RunHandle) -> Outcome:
    async for event in handle.events():
        if event.is_terminal:
            assert handle.outcome is not None
            return handle.outcome
    raise AssertionError("the events end with the run")


def test_suspended_run_goes_on_with_the_answer_of_another_process(in_loop: Any) -> None:
    async def work(home: StoredHome) -> None:
        handle = home.start()
        assert (await handle.wait()).status == "suspended"
        done = await home.command("approve", "r1", "c1.0", "--by", "Ada")
        assert (done.code, done.err.splitlines()[-1]) == (0, "another process works on r1 and continues it")
        outcome = await until_stopped(handle)
        assert (outcome.answer, len(home.pay.calls)) == ("Done.", 1)
        late = await home.command("deny", "r1", "c1.0")
        assert (late.code, "already answered: approved by Ada" in late.err) == (2, True)

    in_loop(work)


def test_own_answer_to_a_suspended_run_counts_once(in_loop: Any) -> None:
    async def work(home: StoredHome) -> None:
        handle = home.start()
        waiting = await handle.wait()
        assert waiting.status == "suspended"
        home.runtime.answer("r1", waiting.questions[0], "approved", "host")
        assert (await until_stopped(handle)).answer == "Done."
        assert len(home.pay.calls) == 1

    in_loop(work)


def test_other_process_sends_and_cancels(in_loop: Any) -> None:
    async def work(home: StoredHome) -> None:
        handle = home.start()
        await handle.wait()
        assert (await home.command("send", "r1", "More.")).code == 0
        assert (await home.command("cancel", "r1", "--by", "Ada")).err == "r1 is cancelled by Ada\n"
        assert (await until_stopped(handle)).code == "cancelled"
        kinds = [type(record.fact).__name__ for record in home.store.records("r1")]
        assert kinds.count("MessageQueued") == kinds.count("CancelRequested") == 1

    in_loop(work)


def test_runtime_that_is_closed_leaves_its_suspended_runs_to_others(in_loop: Any) -> None:
    async def work(home: StoredHome) -> StoredHome:
        home.runtime.sessions.create("s")
        await home.start(session="s").wait()
        assert home.store.is_locked("r1")
        return home

    home = in_loop(work)
    assert not home.store.is_locked("r1")
    home.store.lock_session("s")
    assert home.store.try_lock("r1")


# --- a run of another process --------------------------------------------------------------------------------------


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    bank = Bank(tmp_path, ASKS)
    bank.environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return bank


def test_runtime_answers_and_cancels_a_run_of_another_process(bank: Bank) -> None:
    bank.hold("look")
    with bank.provider(PAYS_AND_LOOKS), bank.started() as owner:
        wait_until(lambda: bank.recorded("approval_asked")() and bank.traces() == ["look two"])
        (run,) = bank.run_ids()
        runtime = Runtime.in_memory(journals=FileStore(find_project(bank.root / "bank.yaml")))
        (question,) = runtime.questions(run)
        runtime.answer(run, question, "denied", "Ada")
        with pytest.raises(AgentrunError, match="already answered: denied by Ada"):
            runtime.answer(run, question, "approved", "Bob")
        runtime.cancel(run, "Ada")
        bank.release("look")
        owner.communicate(timeout=60)
    assert owner.returncode == 130
    assert bank.traces() == ["look two"]


def test_runtime_leaves_a_run_that_nobody_works_on_after_its_answer(bank: Bank) -> None:
    with bank.provider():
        assert bank.command("bank.yaml").code == 8
        (run,) = bank.run_ids()
        runtime = Runtime.in_memory(journals=FileStore(find_project(bank.root / "bank.yaml")))
        runtime.answer(run, runtime.questions(run)[0], "approved", "Ada")
        done = bank.command("resume", run)
    assert (done.code, done.out, bank.traces()) == (0, "Paid.\n", ["pay one"])


# --- events of a run that does not continue ------------------------------------------------------------------------


def kinds_of(events: list[Any]) -> list[str]:
    return [type(each.what.fact if isinstance(each.what, Record) else each.what).__name__ for each in events]


def test_subscriber_is_told_once_that_the_run_is_suspended(in_loop: Any) -> None:
    async def work(home: StoredHome) -> None:
        handle = home.start()
        events: list[Any] = []
        async for event in handle.events():
            events.append(event)
            if isinstance(event.what, Outcome):
                assert isinstance(events[-2].what.fact, ApprovalAsked)
                handle.answer(event.what.questions[0], "approved", "ada")
        assert kinds_of(events).count("Outcome") == 1
        assert isinstance(events[-1].what.fact, RunStopped)
        assert events[-1].cursor != events[-2].cursor

    in_loop(work)


def test_late_subscriber_and_one_of_another_process_are_told(bank: Bank) -> None:
    with bank.provider(PAYS_AND_LOOKS):
        assert bank.command("bank.yaml").code == 8
    (run,) = bank.run_ids()

    async def first_pause(runtime: Runtime) -> Any:
        async with asyncio.timeout(60):
            async for event in runtime.subscribe(run_scope(run)):
                return event

    def runtime() -> Runtime:
        return Runtime.in_memory(journals=FileStore(find_project(bank.root / "bank.yaml")))

    event = asyncio.run(first_pause(runtime()))
    assert (event.run, event.agent, event.what.questions[0].subject) == (run, "bank", "c1.0")
    with bank.provider():
        assert bank.command("approve", run, "c1.0", "--no-resume").code == 0
    assert asyncio.run(first_pause(runtime())).what.status == "parked"


def test_subscriber_of_a_sub_agent_gets_no_pause_while_its_parent_works() -> None:
    child = package(name="child", tools={"pay": writing()}, policy={"default": "deny", "rules": [rule("ask", "pay")]})
    parent = package(tools={"ask": agent_tool()}, policy={"default": "allow"}, agents={"ask": child})

    async def work() -> list[str]:
        model = scripted(calls("ask", message="Pay."), calls("pay", n=1), text("Paid."), text("Done."))
        runtime = Runtime.in_memory(providers={"openai": model}, executors={"pay": stub("paid")}, clock=SystemClock())
        file, seen = seal_package(parent), []
        handle = runtime.start(Request(agent=file.agent.name, package=file, message="Hi.", run="r1"))
        async with asyncio.timeout(60):
            async for event in handle.events():
                if isinstance(event.what, Record) and isinstance(event.what.fact, ChildStarted):
                    break
            async for event in runtime.subscribe(run_scope("r1.c1.0"), Cursor("run:r1.c1.0")):
                seen.append(event)
                if not isinstance(event.what, Record | ReplyDelta):
                    break
        assert handle.status == "suspended"
        return kinds_of(seen)

    kinds = asyncio.run(work())
    assert kinds[0] == "RunStarted"
    assert kinds[-2:] == ["ApprovalAsked", "Outcome"]
