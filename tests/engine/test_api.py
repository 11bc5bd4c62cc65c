"""`agentrun.run`, `resume` and `audit`."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import agentrun
from agentrun.compiler.package_file import package_bytes, seal_package
from agentrun.core.outcome import Outcome
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import AgentrunError, AuditError, RequestError
from agentrun.journal.canonical import canonical
from agentrun.testing import Crash, CrashingJournals, StepClock, approving, calls, scripted, stub, text

from ..architecture.sources import ROOT
from ..packages import ROUTE, TRIAGE, package
from .memory_runtime import ASKING_AGENT, TOOLS

PAY = (calls("pay", n=1), text("Done."))


def run_to_outcome(what: Any, *script: Any, **given: Any) -> Outcome:
    outcome = agentrun.run(what, given.pop("message", "Hi."), model=scripted(*(script or ("Hello.",))), **given)
    assert outcome.is_finished
    return outcome


def test_run_accepts_a_package_a_file_a_path_and_a_spec(tmp_path: Path) -> None:
    file = seal_package(package())
    path = tmp_path / "triage.package.json"
    path.write_bytes(package_bytes(file))
    for what in (package(), file, path, str(path)):
        assert run_to_outcome(what, clock=StepClock()).answer == "Hello."
    spec = ROOT / "specs" / "triage.yaml"
    answer = '{"queue": "hardware", "urgent": true, "summary": "x"}'
    assert run_to_outcome(spec, *[answer] * 3, clock=StepClock()).agent == "triage"


def test_run_without_a_clock_uses_real_time() -> None:
    assert run_to_outcome(package()).answer == "Hello."


def test_run_in_real_time_is_refused_inside_an_event_loop() -> None:
    async def main() -> None:
        run_to_outcome(package())

    with pytest.raises(RuntimeError, match=r"use agentrun\.arun"):
        asyncio.run(main())


def test_run_with_a_step_clock_works_inside_an_event_loop() -> None:
    async def main() -> str | None:
        return run_to_outcome(package(), clock=StepClock()).answer

    assert asyncio.run(main()) == "Hello."


def test_same_run_writes_the_same_journal_bytes() -> None:
    texts = set()
    for _ in range(3):
        journals = MemoryJournals()
        tools = {"search": stub("found"), "pay": stub("paid")}
        run_to_outcome(TOOLS, *PAY, tools=tools, journals=journals, clock=StepClock(1000))
        texts.add(journals.text("run-1"))
    assert len(texts) == 1


def test_real_and_step_clock_give_the_same_canonical_journal() -> None:
    stories = set()
    for clock in ({"clock": StepClock()}, {}):
        journals = MemoryJournals()
        run_to_outcome(TOOLS, *PAY, tools={"search": stub(), "pay": stub()}, journals=journals, **clock)
        (run,) = journals.runs
        stories.add(canonical(journals.records(run)))
    assert len(stories) == 1


def test_output_schema_of_the_call_parses_the_answer() -> None:
    outcome = run_to_outcome(package(), '{"queue": "billing", "urgent": false}', output=TRIAGE, clock=StepClock())
    assert outcome.output == {"queue": "billing", "urgent": False}


def test_models_are_given_by_provider_and_a_missing_one_is_an_error() -> None:
    agent = package(model={"routes": [ROUTE, ROUTE | {"provider": "other"}]})
    models = {"openai": scripted(), "other": scripted("From the other.")}
    outcome = agentrun.run(agent, "Hi.", model=models, clock=StepClock())
    assert outcome.answer == "From the other."
    with pytest.raises(AgentrunError, match=r"provider\.not_found"):
        agentrun.run(agent, "Hi.", model={"openai": scripted()}, clock=StepClock())
    with pytest.raises(AgentrunError, match=r"provider\.not_found"):
        agentrun.run(agent, "Hi.", clock=StepClock())


def test_params_fill_the_instructions_and_blank_messages_are_rejected() -> None:
    model = scripted("Hello.")
    agentrun.run(package(), params={"team": "sales"}, model=model, clock=StepClock())
    assert "sales" in model.requests[0].instructions
    with pytest.raises(RequestError, match=r"input\.rejected"):
        agentrun.run(package(), " ", model=model, clock=StepClock())


# --- resume ---------------------------------------------------------------------------------------------------


def test_resume_finishes_a_run_that_crashed() -> None:
    dead = CrashingJournals(4, "before")
    with pytest.raises(Crash):
        run_to_outcome(package(), journals=dead, clock=StepClock())
    journals = MemoryJournals()
    journals.restore("run-1", dead.records("run-1"))
    journals.keep("run-1", seal_package(package()))
    outcome = agentrun.resume("run-1", journals=journals, model=scripted(), clock=StepClock())
    assert outcome.answer == "Hello."


def test_resume_finishes_a_suspended_run_once_it_is_approved() -> None:
    journals, pay = MemoryJournals(), stub()
    world: dict[str, Any] = {"tools": {"pay": pay}, "journals": journals, "clock": StepClock()}
    waiting = agentrun.run(ASKING_AGENT, "Hi.", model=scripted(*PAY), **world)
    assert waiting.status == "suspended"
    again = agentrun.resume(waiting.run, model=scripted(text("Done.")), **world)
    assert (again.status, again.questions) == ("suspended", waiting.questions), "nobody answered"
    outcome = agentrun.resume(waiting.run, model=scripted(text("Done.")), approver=approving(), **world)
    assert (outcome.answer, pay.count) == ("Done.", 1)


def test_resume_accepts_a_changed_package() -> None:
    journals, model = MemoryJournals(), scripted("Done.")
    world: dict[str, Any] = {"tools": {"pay": stub()}, "journals": journals, "clock": StepClock()}
    agentrun.run(ASKING_AGENT, "Hi.", model=scripted(*PAY), **world)
    other = replace(ASKING_AGENT, policy=replace(ASKING_AGENT.policy, approval_timeout=5))
    outcome = agentrun.resume("run-1", package=other, model=model, approver=approving("denied"), **world)
    assert outcome.answer == "Done."


def test_resume_of_an_unknown_run_raises_run_not_found() -> None:
    with pytest.raises(RequestError, match=r"run\.not_found"):
        agentrun.resume("run-1", journals=MemoryJournals())


# --- audit ----------------------------------------------------------------------------------------------------


def test_audit_accepts_records_and_journal_paths(tmp_path: Path) -> None:
    journals = MemoryJournals()
    run_to_outcome(TOOLS, *PAY, tools={"search": stub(), "pay": stub()}, journals=journals, clock=StepClock())
    path = tmp_path / "run.jsonl"
    path.write_bytes(journals.text("run-1"))
    for journal in (journals.records("run-1"), path, str(path)):
        agentrun.audit(journal, TOOLS)


def test_audit_finds_a_changed_policy() -> None:
    journals = MemoryJournals()
    run_to_outcome(TOOLS, *PAY, tools={"search": stub(), "pay": stub()}, journals=journals, clock=StepClock())
    stricter = replace(TOOLS, policy=replace(TOOLS.policy, default="deny"))
    with pytest.raises(AuditError) as caught:
        agentrun.audit(journals.records("run-1"), stricter)
    error = caught.value
    assert (error.code, error.exit_code, error.retry) == ("audit.diverged", 1, "repair")
    assert error.fields["seq"] == 4
    assert (error.fields["was"]["ruling"], error.fields["is"]["ruling"]) == ("allow", "deny")


def test_audit_reports_a_record_that_would_not_be_written() -> None:
    journals = MemoryJournals()
    run_to_outcome(package(), journals=journals, clock=StepClock())
    records = journals.records("run-1")
    with pytest.raises(AuditError, match="this release would write nothing") as caught:
        agentrun.audit([*records[:2], replace(records[-1], seq=3)], package())
    assert caught.value.fields["is"] is None


def test_run_with_a_step_clock_does_not_import_asyncio() -> None:
    """A run under a clock that is moved by hand does not even import one."""
    code = (
        "import sys, agentrun\n"
        "from agentrun.testing import StepClock, scripted\n"
        f"agentrun.run({str(ROOT / 'specs' / 'triage.yaml')!r}, 'Hi.', model=scripted('x'), clock=StepClock())\n"
        "sys.exit(sum(name in sys.modules for name in ('asyncio', 'pytest', 'httpx', 'vcr', 'pydantic')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
