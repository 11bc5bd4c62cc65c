"""`agentrun.run` in real time with the tools, hooks and sinks of the spec, and with typed output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest
from pydantic import BaseModel, Field, field_validator

import agentrun
from agentrun.compiler.package_file import package_bytes
from agentrun.core.facts import DeliveryFinished, OutputRefused, ToolFinished
from agentrun.core.messages import text_of
from agentrun.core.outcome import Outcome
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import HostError, OutputError, PackageError, ToolError
from agentrun.testing import Script, StepClock, calls, scripted, stub, text
from agentrun.testing.provider import ScriptedProvider

from ..packages import package
from ..tools.agent_runs import Runs
from ..tools.python_desk import restored_process

SPEC = """
hooks: [{id: watch, at: before_tool, call: "desk:watch"}]
sinks: {page: {kind: file, path: page.txt}, out: {kind: stdout}}
"""
CODE = """
def watch(question):
    trace(f"hook {question.target}")
    print("printed by a hook")
def pay(order: str) -> str:
    "Pays."
    print("printed by a tool")
    return __import__("os").environ.get("SHOP_TOKEN", "nothing")
"""
LOOK = calls("look", order="7")
SECRET = "Zq8-hunter2-Zq8-hunter2"  # made up


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with restored_process():
        yield Runs(tmp_path, SPEC, CODE)


def run(what: Any, *said: Any, **given: Any) -> Outcome:
    outcome = agentrun.run(what, "Go.", model=scripted(*(said or (LOOK, text("Done.")))), **given)
    assert outcome.is_finished
    return outcome


def test_run_uses_tools_hooks_and_sinks_of_the_spec(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    journals = MemoryJournals()
    outcome = run(runs.spec, journals=journals)
    assert outcome.answer == "Done."
    assert runs.traces == ["hook look", "look 7"]
    assert (runs.root / "page.txt").read_text() == "Done.\n"
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["text"] == "Done."
    delivered = [each.fact for each in journals.records(outcome.run) if isinstance(each.fact, DeliveryFinished)]
    assert [fact.fault for fact in delivered] == [None, None]


def test_function_that_cannot_be_imported_refuses_the_run(runs: Runs) -> None:
    """Before anything is journaled. A tool or hook of the caller is not imported."""
    desk = runs.root / "desk.py"
    desk.write_text("import nowhere\n" + desk.read_text(encoding="utf-8"), encoding="utf-8")
    journals = MemoryJournals()
    with pytest.raises(HostError) as caught:
        run(runs.spec, journals=journals)
    assert (caught.value.code, caught.value.fields["module"], caught.value.fields["file"]) == (
        "host.missing",
        "desk",
        "desk.py",
    )
    assert (list(journals.runs), runs.traces) == ([], [])
    outcome = run(runs.spec, tools={"look": stub("from a stub")}, hooks={"watch": lambda question: None})
    assert outcome.answer == "Done."


def test_given_tools_hooks_and_sinks_replace_those_of_the_spec(runs: Runs) -> None:
    look, asked = stub("from a stub"), []

    class Box:
        async def deliver(self, delivery: Any) -> None:
            asked.append(delivery.text)

    box = Box()
    given: dict[str, Any] = {"hooks": {"watch": lambda question: agentrun.Continue()}}
    run(runs.spec, tools={"look": look}, sinks={"page": box, "stdout": box}, **given)
    assert (look.count, asked, runs.traces) == (1, ["Done.", "Done."], [])
    assert not (runs.root / "page.txt").exists()


@pytest.mark.parametrize("key", ["look", "python"])
def test_module_of_a_replaced_tool_may_be_missing(runs: Runs, key: str) -> None:
    """A variable that is not set, a function that is gone: not ours to find."""
    runs.spec.write_text(runs.spec.read_text().partition("hooks:")[0])
    file = agentrun.compile(runs.spec)
    (runs.root / "desk.py").unlink()
    assert run(file, tools={key: stub("given")}).answer == "Done."


def test_missing_variable_of_a_tool_stops_the_run_before_it_starts(runs: Runs) -> None:
    tools = 'tools: {shop: {kind: http, description: d, url: "${SHOP_URL}/x"}, look: '
    runs.spec.write_text(runs.spec.read_text().replace("tools: {look: ", tools))
    with pytest.raises(HostError, match="SHOP_URL"):
        run(runs.spec)
    assert runs.traces == []
    assert run(runs.spec, tools={"shop": stub("")}).answer == "Done."


@pytest.mark.parametrize("form", ["file", "object"])
def test_package_finds_modules_in_the_project_or_working_directory(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    file = agentrun.compile(runs.spec)
    path = tmp_path / "elsewhere" / "desk.json"
    path.parent.mkdir()
    path.write_bytes(package_bytes(file))
    what = path if form == "file" else file
    assert run(what, project=runs.root).answer == "Done."
    monkeypatch.chdir(runs.root)
    assert run(what).answer == "Done."
    other = tmp_path / "other"
    other.mkdir()
    (other / "pyproject.toml").write_text("[tool.agentrun]\n")
    monkeypatch.chdir(other)
    with pytest.raises(ToolError, match="hook watch"):
        run(what)


def test_environment_secret_is_redacted_in_journal_and_requests(runs: Runs) -> None:
    runs.spec.write_text(runs.spec.read_text().replace("look: {", 'pay: {kind: python, call: "desk:pay"}, look: {'))
    journals, model = MemoryJournals(), scripted(calls("pay", order="7"), text("Done."))
    with patch.dict(os.environ, SHOP_TOKEN=SECRET):
        outcome = agentrun.run(runs.spec, "Go.", model=model, journals=journals)
    (paid,) = [each.fact for each in journals.records(outcome.run) if isinstance(each.fact, ToolFinished)]
    assert text_of(paid.parts) == "[redacted:SHOP_TOKEN]"
    assert SECRET not in repr(journals.records(outcome.run))
    assert SECRET not in repr(model.requests)


def test_secret_of_the_env_file_is_not_in_the_journal(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "shop.env").write_text(f"SHOP_TOKEN={SECRET}\n")
    code = f"def tell(order: str) -> str:\n    'Tells.'\n    return {SECRET!r}\n"
    (runs.root / "desk.py").write_text((runs.root / "desk.py").read_text() + code)
    runs.spec.write_text(runs.spec.read_text().replace("desk:look", "desk:tell"))
    journals = MemoryJournals()
    outcome = run(runs.spec, journals=journals, env_file=tmp_path / "shop.env")
    assert SECRET not in repr(journals.records(outcome.run))


def test_run_with_a_step_clock_does_not_load_hooks_of_the_spec(runs: Runs) -> None:
    with pytest.raises(HostError, match="'watch'"):
        run(runs.spec, clock=StepClock())


def test_resume_runs_the_tools_of_the_spec(runs: Runs) -> None:
    rules = "policy: {default: allow, rules: [{id: ask, ask: look}]}"
    runs.spec.write_text(runs.spec.read_text().replace("policy: {default: allow}", rules))
    journals = MemoryJournals()
    waiting = agentrun.run(runs.spec, "Go.", model=scripted(LOOK, text("Done.")), journals=journals)
    assert waiting.status == "suspended"
    assert "look 7" not in runs.traces
    world: dict[str, Any] = {"model": scripted("Done."), "approver": lambda question: True}
    outcome = agentrun.resume(waiting.run, journals=journals, project=runs.root, **world)
    assert (outcome.answer, runs.traces[-1]) == ("Done.", "look 7")


def test_run_with_a_scripted_model_imports_no_heavy_packages() -> None:
    code = (
        "import sys, agentrun\n"
        "from agentrun.testing import scripted\n"
        "agentrun.run('specs/triage.yaml', 'Hi.', model=scripted('x'))\n"
        "sys.exit(sum(name in sys.modules for name in ('httpx', 'vcr', 'pydantic', 'mcp')))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- answers as values of a type ------------------------------------------------------------------------------


class Line(BaseModel):
    name: str
    count: int = Field(ge=1)


class Ticket(BaseModel):
    """A ticket."""

    queue: Literal["billing", "hardware"]
    urgent: bool = False
    lines: list[Line] = []

    @field_validator("queue")
    @classmethod
    def _no_billing(cls, value: str) -> str:
        if value == "billing":
            raise ValueError("billing is closed")
        return value


GOOD = '{"queue": "hardware", "lines": [{"name": "printer", "count": 2}]}'


def run_with_output_type(*said: str, kind: Any = Ticket, **given: Any) -> tuple[Any, Script]:
    model = scripted(*said)
    return agentrun.run(package(), "Hi.", model=model, output=kind, clock=StepClock(), **given), model


def test_pydantic_output_type_gives_an_instance() -> None:
    outcome = agentrun.run(package(), "Hi.", model=scripted(GOOD), output=Ticket, clock=StepClock())
    ticket = outcome.output
    assert isinstance(ticket, Ticket)
    assert (ticket.queue, ticket.urgent, ticket.lines) == ("hardware", False, [Line(name="printer", count=2)])
    assert outcome.answer == GOOD


def test_request_has_the_output_schema_without_references() -> None:
    _, model = run_with_output_type(GOOD)
    schema = model.requests[0].output
    assert schema is not None
    assert "$ref" not in json.dumps(schema)
    assert schema["properties"]["lines"]["items"]["properties"]["count"] == {
        "minimum": 1,
        "title": "Count",
        "type": "integer",
    }


def test_native_structured_output_over_the_wire(tmp_path: Path) -> None:
    """The request of a real provider holds the model's schema."""
    spec = tmp_path / "a.yaml"
    spec.write_text('agentrun: "1"\nname: a\nmodel: {provider: openai, name: gpt-4.1-mini}\ninstructions: Sort.\n')
    with ScriptedProvider(json.dumps({"agentrun": "1", "turns": [{"text": GOOD}]})) as server:
        environment = {"OPENAI_API_KEY": "not-a-real-key", "OPENAI_BASE_URL": f"{server.url}/v1"}
        with patch.dict(os.environ, environment):
            outcome = agentrun.run(spec, "It burns.", output=Ticket)
    assert isinstance(outcome.output, Ticket)
    (seen,) = server.requests
    wanted = json.loads(seen.body)["response_format"]
    assert wanted["type"] == "json_schema"
    assert set(wanted["json_schema"]["schema"]["properties"]) == {"queue", "urgent", "lines"}


def test_invalid_answers_are_repaired_or_fail_the_run() -> None:
    journals = MemoryJournals()
    outcome, model = run_with_output_type('{"queue": "garden"}', "no JSON", GOOD, journals=journals)
    assert isinstance(outcome.output, Ticket)
    assert len(model.requests) == 3
    refused = [each.fact for each in journals.records(outcome.run) if isinstance(each.fact, OutputRefused)]
    assert len(refused) == 2
    failed, _ = run_with_output_type(*["no JSON"] * 3)
    assert (failed.code, failed.output) == ("output.invalid", None)


def test_failing_validator_of_the_output_type_fails_the_outcome() -> None:
    outcome, _ = run_with_output_type('{"queue": "billing"}')
    assert (outcome.status, outcome.code, outcome.output, outcome.answer) == ("failed", "output.invalid", None, None)
    assert outcome.fields["errors"] == ["/queue: Value error, billing is closed"]
    with pytest.raises(OutputError, match="billing is closed"):
        outcome.raise_for_status()


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (list[Line], '[{"name": "a", "count": 1}]', [Line(name="a", count=1)]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (int, "7", 7),
        (bool | None, "null", None),
    ],
)
def test_output_may_be_a_list_a_dict_or_a_scalar_type(kind: Any, said: str, value: Any) -> None:
    outcome, _ = run_with_output_type(said, kind=kind)
    assert outcome.output == value


class Tree(BaseModel):
    children: list[Tree] = []


@pytest.mark.parametrize("kind", [Tree, object()])
def test_recursive_or_unknown_output_type_is_refused(kind: Any) -> None:
    with pytest.raises(PackageError, match="cannot be used as output"):
        run_with_output_type(kind=kind)


def test_run_with_an_output_type_can_be_suspended(runs: Runs) -> None:
    rules = "policy: {default: allow, rules: [{id: ask, ask: look}]}"
    runs.spec.write_text(runs.spec.read_text().replace("policy: {default: allow}", rules))
    outcome = agentrun.run(runs.spec, "Go.", model=scripted(LOOK), output=Ticket)
    assert (outcome.status, outcome.output) == ("suspended", None)
