"""Every error code of the contract is produced by a run here, or is assigned to another part."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from agentrun import core
from agentrun.core import model_reply, model_request, retry, tool_calls
from agentrun.core.audit import find_divergence
from agentrun.core.evolve import evolve
from agentrun.core.facts import CallCancelled, CallRefused, ModelAsked, Record, RunStopped, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, ToolResult
from agentrun.core.package_validation import validate_package
from agentrun.core.state import State
from agentrun.errors import ERROR_CODES, TOOL_RESULT_CODES, PackageError, StorageError, code_of

from ..packages import package
from .error_code_cases import PROVIDER, STOPS, TOOL_RESULT_CASES, Stop, ToolResultCode, aborted
from .error_code_contract import CODES_OF_OTHER_LAYERS, MEANINGS
from .script import RUN_STARTED, Run, text_reply

ALL = {*ERROR_CODES, *TOOL_RESULT_CODES}
RAISED_CODES = ("package.invalid", "recovery.failed")
"""Codes that functions of the core raise: there is no run that could end."""
CASES: tuple[Stop | ToolResultCode, ...] = (*STOPS, *TOOL_RESULT_CASES)
PRODUCED = {case.code for case in CASES} | {*RAISED_CODES}


def names(cases: Iterable[Stop | ToolResultCode]) -> list[str]:
    return [case.code for case in cases]


def misplaced_codes(codes: set[str], produced: set[str], left: set[str]) -> set[str]:
    """Codes that are in neither place, in both, or not codes at all."""
    return (codes ^ (produced | left)) | (produced & left)


def test_every_code_is_produced_here_or_assigned_to_another_part() -> None:
    assert misplaced_codes(ALL, PRODUCED, {*CODES_OF_OTHER_LAYERS}) == set()
    assert all(part for part in CODES_OF_OTHER_LAYERS.values())


def test_misplaced_codes_finds_missing_doubled_and_unknown_codes() -> None:
    assert misplaced_codes({*ALL, "tool.tired"}, PRODUCED, {*CODES_OF_OTHER_LAYERS}) == {"tool.tired"}
    assert misplaced_codes(ALL, PRODUCED - {"cancelled"}, {*CODES_OF_OTHER_LAYERS}) == {"cancelled"}
    assert misplaced_codes(ALL, PRODUCED, {*CODES_OF_OTHER_LAYERS, "cancelled"}) == {"cancelled"}
    assert misplaced_codes(ALL, PRODUCED, {*CODES_OF_OTHER_LAYERS, "no.such"}) == {"no.such"}


def test_exit_code_and_retry_of_every_code_match_the_contract() -> None:
    assert {*MEANINGS} == ALL
    for code, meaning in MEANINGS.items():
        if meaning.exit is None:
            assert code in TOOL_RESULT_CODES
            assert code not in ERROR_CODES, "it never ends anything"
        else:
            assert code_of(code).exit == meaning.exit, code
            assert meaning.retry in (None, code_of(code).retry), code
    assert code_of("spec.unknown_key") == code_of("spec")


@pytest.mark.parametrize("case", STOPS, ids=names(STOPS))
def test_run_stops_with_the_code_and_its_fields(case: Stop) -> None:
    run = case.play()
    outcome = run.finish()
    meaning = MEANINGS[case.code]
    (stopped,) = run.of(RunStopped)
    fault = stopped.fault
    assert fault == outcome.fault
    assert (fault.code, fault.fields, fault.hint) == (case.code, case.fields, case.hint)
    assert {*meaning.fields} <= fault.fields.keys()
    assert (outcome.status, outcome.answer, outcome.label) == ("failed", None, None)
    assert outcome.exit_code == code_of(case.code).exit == meaning.exit
    assert outcome.retry == code_of(case.code).retry
    assert fault.message
    assert msgspec.json.decode(msgspec.json.encode(fault), type=Fault) == fault, "evidence can be written down"


@pytest.mark.parametrize(
    ("code", "module", "rule"),
    [
        ("provider.transient", retry, "retry_delay"),
        ("guard.cycle", model_reply, "find_guard_fault"),
        ("budget.tool_calls", tool_calls, "tool_calls_fault"),
        ("budget.tokens", model_request, "spending_fault"),
    ],
)
def test_planted_rule_that_finds_nothing_changes_the_outcome(
    code: str, module: ModuleType, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that never finds anything is noticed."""
    monkeypatch.setattr(module, rule, lambda *given, **named: None)
    case = next(case for case in STOPS if case.code == code)
    run = case.play()
    run.answers.append(text_reply("Done."))
    fault = run.finish().fault
    assert fault is None or fault.fields != case.fields


@pytest.mark.parametrize("case", PROVIDER, ids=names(PROVIDER))
def test_only_retryable_provider_faults_are_retried(case: Stop) -> None:
    run = case.play()
    run.finish()
    again = case.code.startswith("provider.") and code_of(case.code).retry == "retryable"
    assert len(run.of(ModelAsked)) == (4 if again else 1)
    assert not run.answers, "no request more, no request less"


@pytest.mark.parametrize("case", TOOL_RESULT_CASES, ids=names(TOOL_RESULT_CASES))
def test_model_reads_the_tool_fault_and_the_run_continues(case: ToolResultCode) -> None:
    """The model reads what went wrong, and the run goes on."""
    run = case.play()
    outcome = run.finish()
    assert (outcome.status, outcome.answer, outcome.turns, outcome.exit_code) == ("completed", "Done.", 2, 0)
    code, fields = list(results(run))[-1]
    assert (code, fields) == (case.code, case.fields)
    assert {*MEANINGS[case.code].fields} - {"action", "field"} <= fields.keys()
    assert results_in_last_request(run)[-1].startswith(f"{case.code}: ")
    ran = case.code in ("tool.execution", "tool.timeout")
    assert (len(run.ran), outcome.tool_calls) == ((1, 1) if ran else (0, 0)), "nothing ran that was refused"


def results(run: Run) -> Iterator[tuple[str, dict[str, object]]]:
    """Code and evidence of every call that gave no result."""
    for fact in run.facts:
        if isinstance(fact, CallRefused):
            yield fact.code, fact.fields
        elif isinstance(fact, ToolFinished) and fact.fault is not None:
            yield fact.fault.code, fact.fault.fields


def results_in_last_request(run: Run) -> list[str]:
    """What the model read of its calls in the last request."""
    messages = run.requests[-1].request.messages
    given = [message.parts[0] for message in messages if isinstance(message, ToolResult)]
    return [part.text for part in given if isinstance(part, Text)]


def test_aborted_sibling_has_the_code_tool_aborted() -> None:
    run = aborted()
    assert run.finish().status == "completed"
    (cancelled,) = run.of(CallCancelled)
    assert cancelled.call == "c1.1"
    assert results_in_last_request(run) == ["done", cancelled.told]
    assert cancelled.told.startswith("tool.aborted: loud ")


def test_impossible_first_fact_raises_recovery_failed() -> None:
    record = Record(1, 0, 1, "", RunStopped("completed"))
    with pytest.raises(StorageError) as caught:
        evolve(State(), record)
    assert (caught.value.code, caught.value.fields) == ("recovery.failed", {"seq": 1})
    assert (caught.value.retry, caught.value.exit_code) == ("repair", 7)


def test_invalid_output_schema_raises_package_invalid() -> None:
    with pytest.raises(PackageError) as caught:
        validate_package(package(output={"schema": {"type": "nothing"}}))
    assert (caught.value.code, caught.value.fields["pointer"]) == ("package.invalid", "/output/schema")
    assert (caught.value.retry, caught.value.exit_code) == ("host", 2)


def test_divergence_has_the_seq_and_both_decisions() -> None:
    """What the command line needs for `audit.diverged`: place, then and now."""
    run = Run(package(), text_reply("Done."))
    run.finish()
    found = find_divergence(package(budgets={"tokens": 1}), run.records)
    assert found is not None
    assert (found.seq, found.was) == (2, run.facts[1])
    assert isinstance(found.instead[0], RunStopped)


def faults_of(run: Run) -> set[str]:
    """Every code in the journal of a run."""
    told = {code for code, _ in results(run)}
    return told | {fact.fault.code for fact in run.facts if getattr(fact, "fault", None) is not None}  # type: ignore[union-attr]  # it is there in this test


def test_runs_of_the_core_produce_no_code_of_another_part() -> None:
    seen = set()
    for case in CASES:
        run = case.play()
        run.finish()
        seen |= faults_of(run)
    assert not seen & {*CODES_OF_OTHER_LAYERS}
    assert seen == PRODUCED - {*RAISED_CODES}


def written_in_core() -> set[str]:
    """Every text in the sources of the core that is a code."""
    files = Path(core.__path__[0]).glob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)} & ALL


def test_core_sources_contain_no_code_of_another_part() -> None:
    assert "guard.cycle" in written_in_core()
    assert not written_in_core() & {*CODES_OF_OTHER_LAYERS}


def test_run_without_a_fault_completes() -> None:
    """The runs above fail over their code alone: without it the agent answers."""
    outcome = Run(package(), text_reply("Done."), started=RUN_STARTED).finish()
    assert (outcome.status, outcome.exit_code, outcome.retry) == ("completed", 0, None)
