"""Runs of the Python API in a store on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import agentrun
from agentrun.compiler.package_file import seal_package
from agentrun.core.effects import ModelRequest
from agentrun.core.facts import ModelReplied, RunStarted, RunStopped
from agentrun.core.messages import User, text_of
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.errors import AgentrunError
from agentrun.journal import storage
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.testing import replies, text
from agentrun.testing.doubles import ScriptedReply

from ..engine.memory_runtime import Home
from ..packages import package


def test_run_whose_journal_is_full_ends_with_a_terminal_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is refused, the journal is intact, so the run can say why it ended."""
    with FileStore(Project(tmp_path), sync="process") as store:
        home = Home("x" * 10_000, journals=store)
        monkeypatch.setattr(storage, "MAX_JOURNAL_BYTES", 5_000)
        outcome = home.run()
        assert (outcome.status, outcome.code) == ("failed", "storage.failed")
        last = store.records("r1")[-1].fact
    assert isinstance(last, RunStopped)
    assert "larger than" in last.fault.message if last.fault else False


def test_many_runs_at_once_mix_no_records(tmp_path: Path) -> None:
    count = 200
    file = seal_package(package())

    async def run_all(runtime: Runtime) -> list[agentrun.Outcome]:
        requests = (Request(agent=file.agent.name, package=file, message=f"I am {n}.") for n in range(count))
        return [await handle.wait() for handle in list(map(runtime.start, requests))]

    def greet(asked: ModelRequest) -> ScriptedReply:
        (message,) = asked.messages
        assert isinstance(message, User)
        return text(f"Hello, {text_of(message.parts)}")

    model = replies(greet)
    with FileStore(Project(tmp_path), sync="process") as store:
        runtime = Runtime.in_memory(journals=store, providers={"openai": model})
        endings = asyncio.run(run_all(runtime))
        assert all(ending.status == "completed" for ending in endings)
        runs = {run: store.records(run) for run in store.runs()}
        assert len(runs) == count
        said = set()
        for run, records in runs.items():
            started, *_ = (record.fact for record in records)
            assert isinstance(started, RunStarted)
            assert (started.run, len(records), store.package(run, started.package)) == (run, 5, file)
            assert started.input is not None
            (reply,) = (record.fact.reply.message.text for record in records if isinstance(record.fact, ModelReplied))
            assert reply == f"Hello, {text_of(started.input.parts)}"
            said.add(reply)
        assert len(said) == count
        assert not any(store.is_locked(run) for run in runs)


# --- sessions --------------------------------------------------------------------------------------------------


def home(store: FileStore, *script: str) -> Home:
    return Home(*script, journals=store)


def test_session_of_the_store_is_continued_by_another_process(tmp_path: Path) -> None:
    with FileStore(Project(tmp_path)) as store:
        first = home(store, "One.")
        first.runtime.sessions.create("ada")
        first.run(message="One?", session="ada", run="r1")
    with FileStore(Project(tmp_path)) as store, FileStore(Project(tmp_path)) as other:
        second, third = home(store, "Two.", "Four."), home(other, "Three.")
        second.run(message="Two?", session="ada", run="r2")
        third.run(message="Three?", session="ada", run="r3")
        second.run(message="Four?", session="ada", run="r4")
        assert len(second.model.requests[-1].messages) == 7, "also what the other one added"
        named = [store.records(f"r{number}")[0].fact.predecessor for number in (2, 3, 4)]  # type: ignore[union-attr]  # run_started
        assert named == ["r1", "r2", "r3"]
        with pytest.raises(AgentrunError, match=r"session\.duplicate"):
            second.runtime.sessions.create("ada")
        with pytest.raises(AgentrunError, match=r"session\.not_found") as caught:
            second.start(message="Hi.", session="adda", run="r5")
        assert caught.value.hint == 'did you mean "ada"?'


def test_session_of_the_store_is_busy_while_another_process_works_on_it(tmp_path: Path) -> None:
    with FileStore(Project(tmp_path)) as store, FileStore(Project(tmp_path)) as other:
        first, second = home(store, "One.", "Two."), home(other, "Three.")
        first.runtime.sessions.create("ada")
        first.run(message="One?", session="ada", run="r1")
        handle = first.start(message="Two?", session="ada", run="r2")
        for each in (first, second):
            with pytest.raises(AgentrunError, match=r"session\.busy"):
                each.start(message="Three?", session="ada", run="r3")
        first.wait(handle)
        assert second.run(message="Three?", session="ada", run="r3").is_finished


def test_refused_run_leaves_the_session_to_other_processes(tmp_path: Path) -> None:
    with FileStore(Project(tmp_path)) as store, FileStore(Project(tmp_path)) as other:
        first, second = home(store, "One.", "Three."), home(other, "Two.")
        first.runtime.sessions.create("ada")
        first.run(message="One?", session="ada", run="r1")
        with pytest.raises(AgentrunError, match=r"input\.rejected"):
            first.start(message=" ", session="ada", run="r2")
        assert second.run(message="Two?", session="ada", run="r2").is_finished
        assert first.run(message="Three?", session="ada", run="r3").is_finished
