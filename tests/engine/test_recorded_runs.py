"""Runs of a program with a store, a session or a cassette."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import agentrun
from agentrun.core.messages import User
from agentrun.errors import CassetteError, RequestError
from agentrun.testing import calls, scripted, text
from agentrun.testing.provider import ScriptedProvider

SPEC = """\
agentrun: "1"
name: desk
model: {provider: openai, name: gpt-4.1-mini}
instructions: Help.
input: Go.
tools:
  look: {kind: python, call: "desk_of_records:look", effect: read}
policy: {default: allow}
budgets: {turns: 5, tokens: 20k}
profiles:
  short: {instructions: Be short.}
"""
LOOK = (calls("look", n=7), text("Done."))


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "desk.yaml").write_text(SPEC)
    (tmp_path / "desk_of_records.py").write_text('def look(n: int) -> str:\n    """Looks."""\n    return f"seen {n}"\n')
    return tmp_path / "desk.yaml"


@pytest.fixture
def provider() -> AbstractContextManager[None]:
    script = {"agentrun": "1", "turns": [{"calls": [{"tool": "look", "args": {"n": 7}}]}, {"text": "Done."}]}

    @contextmanager
    def serve() -> Iterator[None]:
        with ScriptedProvider(json.dumps(script)) as server:
            environment = {"OPENAI_API_KEY": "not-a-real-key", "OPENAI_BASE_URL": f"{server.url}/v1"}
            with patch.dict(os.environ, environment):
                yield

    return serve()


def test_stored_run_is_in_the_store_of_the_project(desk: Path) -> None:
    outcome = agentrun.run(desk, "Go.", model=scripted(*LOOK), store=True, run_id="first")
    assert (outcome.run, outcome.text) == ("first", "Done.")
    assert (desk.parent / ".agentrun" / "runs" / "first" / "journal.jsonl").is_file()
    assert [call.result for call in outcome.calls] == ["seen 7"]
    with pytest.raises(RequestError, match=r"run\.duplicate"):
        agentrun.run(desk, "Go.", model=scripted(*LOOK), store=True, run_id="first")
    agentrun.run(desk, "Go.", model=scripted(*LOOK), store=str(desk.parent / "elsewhere"), run_id="first")
    assert (desk.parent / "elsewhere" / "runs" / "first").is_dir()


def test_run_without_a_store_writes_no_file(desk: Path) -> None:
    before = {*desk.parent.rglob("*.json*")}
    assert agentrun.run(desk, "Go.", model=scripted(*LOOK)).ok
    assert {*desk.parent.rglob("*.json*")} == before


def test_session_continues_over_several_calls(desk: Path) -> None:
    async def talk() -> list[str]:
        model = scripted("Hello, Ada.", "Ada.")
        with pytest.raises(RequestError, match=r"session\.not_found"):
            await agentrun.arun(desk, "I am Ada.", model=model, session="ada")
        for message in ("I am Ada.", "Who am I?"):
            await agentrun.arun(desk, message, model=model, session="ada", session_start="create")
        return [each.text for each in model.requests[-1].messages if isinstance(each, User)]

    assert asyncio.run(talk()) == ["I am Ada.", "Who am I?"]
    with pytest.raises(RequestError, match=r"session\.duplicate"):
        agentrun.run(desk, "Hi.", model=scripted("Hi."), session="ada", session_start="new")


def test_profile_is_compiled(desk: Path) -> None:
    model = scripted("Done.")
    agentrun.run(desk, "Go.", model=model, profile="short")
    assert model.requests[0].instructions == "Be short."


def test_attachment_is_sent_with_the_message(desk: Path) -> None:
    (desk.parent / "note.txt").write_text("A note.")
    model = scripted("Done.")
    data = agentrun.Attachment.from_bytes(b"\x89PNG", "dot.png")
    agentrun.run(desk, "Go.", model=model, attachments=[str(desk.parent / "note.txt"), data])
    (message,) = model.requests[0].messages
    assert [part.__struct_config__.tag for part in message.parts] == ["text", "file", "image"]


# --- cassettes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_recorded_cassette_is_replayed_without_model_and_tools(desk: Path, provider: Any, is_async: bool) -> None:
    def go(**arguments: Any) -> agentrun.Outcome:
        if is_async:
            return asyncio.run(agentrun.arun(desk, "Go.", cassette=str(desk.parent / "tape.yaml"), **arguments))
        return agentrun.run(desk, "Go.", cassette=desk.parent / "tape.yaml", **arguments)

    with pytest.raises(CassetteError, match="there is no cassette"):
        go()
    with provider:
        recorded = go(mode="record")
    assert (recorded.replayed, recorded.text) == (False, "Done.")
    replayed = go()
    assert (replayed.replayed, replayed.text, replayed.cost) == (True, "Done.", recorded.cost)
    assert [call.result for call in replayed.calls] == ["seen 7"]
    assert go(mode="auto").replayed


def test_replay_with_another_message_is_a_failed_outcome(desk: Path, provider: Any) -> None:
    tape = desk.parent / "tape.yaml"
    with provider:
        agentrun.run(desk, "Go.", cassette=tape, mode="record")
    outcome = agentrun.run(desk, "Stop.", cassette=tape)
    assert (outcome.ok, outcome.code) == (False, "cassette.miss")


def test_auto_goes_live_without_a_cassette_but_not_in_ci(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(CassetteError):
        agentrun.run(desk, "Go.", mode="auto", model=scripted(*LOOK))
    monkeypatch.delenv("CI")
    assert not agentrun.run(desk, "Go.", mode="auto", model=scripted(*LOOK)).replayed


def test_case_is_recorded_and_replayed(desk: Path, provider: Any) -> None:
    (desk.parent / "desk.cases.yaml").write_text('agentrun: "1"\ncases:\n  - name: default\n')
    with provider:
        agentrun.run(desk, mode="record", case="default")
    assert agentrun.run(desk, mode="replay").text == "Done."
    assert agentrun.replay(desk).text == "Done."
    assert agentrun.replay(str(desk), case="default").replayed
    with pytest.raises(RequestError, match=r"input\.rejected"):
        agentrun.replay(desk, case="other")


def test_replay_works_inside_an_event_loop() -> None:
    root = Path(__file__).parents[2]

    async def main() -> agentrun.Outcome:
        return agentrun.replay(root / "specs" / "support.yaml")

    outcome = asyncio.run(main())
    assert (outcome.ok, outcome.replayed) == (True, True)
