"""Misses on cassettes of an older version whose model texts had a different wording."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.cassette.former_texts import FORMER_TEXTS, PRINTED_AS_JSON, TAGS_WITHOUT_LINES, update_texts
from agentrun.cassette.miss_explanation import explain_miss
from agentrun.core import model_texts as texts

from ..cli.command import agentrun
from .recorded_agents import agent, call_of, unplayed_interactions

OLD_PROJECT = Path(__file__).parent / "former"
"""An agent with a cassette that was recorded before the texts changed."""
CASES = """\
agentrun: "1"
cases:
  - {name: other, params: {document: tides}, input: "How high is the wall?"}
"""
CAUSE = "this text of agentrun changed in version 0.1.0, and nothing else differs"
GOLDEN = Path(__file__).parents[1] / "golden" / "model_texts.txt"
NOW = texts.with_code
FORMER: list[tuple[str, str]] = [
    ("1 turns are left. Wrap up: use what you have and give your answer.", texts.wrap_up(1)),
    ("12 turns are left. Wrap up: use what you have and give your answer.", texts.wrap_up(12)),
    ("Your reply was cut off. Go on exactly where it stopped, without repeating anything.", texts.CONTINUE),
    (
        (
            "Your answer does not keep its contract:\n- /a: wrong\n- answer: wrong\n- the answer is not JSON: x\n"
            "- the answer has 9 bytes; 8 are allowed\n- an object has two keys of the same name\n"
            "Answer again with the corrected JSON and nothing else."
        ),
        texts.repair(
            [
                texts.schema_error("/a", "wrong"),
                texts.schema_error("", "wrong"),
                texts.JSON_INVALID.format("x"),
                texts.JSON_TOO_LARGE.format(9, 8),
                texts.DUPLICATE_KEY,
            ]
        ),
    ),
    (
        "the arguments of 'a' are not a JSON object: the text is nested deeper than 64 levels",
        texts.ARGUMENTS_NOT_AN_OBJECT.format("a", texts.JSON_TOO_DEEP.format(64)),
    ),
    ("there is no tool 'x'; tools: a, b", texts.unknown_tool("x", ["a", "b"])),
    ("'t' has no such action; actions: a, b", texts.unknown_action("t", ["a", "b"])),
    ("the arguments of t.open are not valid: id: wrong", texts.invalid_arguments("t.open", "id", "wrong")),
    ("tool.missing_field: t.open needs 'id'", NOW("tool.missing_field", texts.MISSING_ARGUMENT.format("t.open", "id"))),
    ("'a' would be nested deeper than 3 agents", texts.NESTED_TOO_DEEP.format("a", 3)),
    ("'a' would be one more than the 5 agents that may be started", texts.TOO_MANY_RUNS.format("a", 5)),
    ("a reply may ask for 1 calls at most, this one asks for 2", texts.too_many_calls(2, 1)),
    ("the hook h denies a: the hook h failed", texts.DENIED_BY_HOOK.format("h", "a", texts.HOOK_FAILED)),
    ("the hook h denies a: not today", texts.DENIED_BY_HOOK.format("h", "a", "not today")),
    ("the policy (r) denies a: no", texts.denied_by_policy(["r"], "a", "no", stops=False)),
    ("the policy (r, s) denies a", texts.denied_by_policy(["r", "s"], "a", None, stops=False)),
    ("the policy (r) stops the run over a: no", texts.denied_by_policy(["r"], "a", "no", stops=True)),
    ("the policy's default denies a.b", texts.denied_by_policy([], "a.b", None, stops=False)),
    ("tool.denied: a person denied a", NOW("tool.denied", texts.not_approved("denied", "a"))),
    ("tool.denied: nobody answered in time about a", NOW("tool.denied", texts.not_approved("timed_out", "a"))),
    ("tool.denied: the question was taken back about a", NOW("tool.denied", texts.not_approved("cancelled", "a"))),
    ("tool.denied: nobody can be asked about a", NOW("tool.denied", texts.not_approved("unavailable", "a"))),
    (
        "the condition of r cannot be evaluated: it is neither true nor false",
        texts.CONDITION_FAILED.format("r", texts.CONDITION_NOT_BOOLEAN),
    ),
    (
        "the policy (r, s) denies a: two rules set b",
        f"the policy rules r, s denied a: {texts.ARGUMENT_SET_TWICE.format('b')}",
    ),
    ("tool.aborted: the run ended before this call did", NOW("tool.aborted", texts.RUN_ENDED)),
    (
        "tool.execution: agent failed: budget.turns: the run has used its 1 turns",
        NOW("tool.execution", texts.child_failed_text("budget.turns", texts.budget_used_up("turn", 1, 0, 1))),
    ),
    (
        "tool.execution: agent failed: provider.fatal: status 401\nsee there",
        NOW("tool.execution", texts.child_failed_text("provider.fatal", "")),
    ),
    ("the agent took longer than 500 ms and was stopped", texts.CHILD_TIMED_OUT.format(500)),
    ("the message has 20 characters; 10 are allowed", texts.message_too_long(20, 10)),
    ("the next call may take 90 tokens, and 0 of 80 are left", texts.budget_used_up("token", 90, 0, 80)),
    ("the next call may take 90 tokens, and 7 of 80 are left", texts.budget_used_up("token", 90, 7, 80)),
    ("the next call may cost 90 micro-dollars, and 7 of 80 are left", texts.budget_used_up("micro-dollar", 90, 7, 80)),
    ("1 calls want to run, and 0 of 1 are left", texts.budget_used_up("tool call", 1, 0, 1)),
    ("3 calls want to run, and 2 of 5 are left", texts.budget_used_up("tool call", 3, 2, 5)),
    ("the run has taken all of its 500 ms", texts.budget_used_up("ms", 0, 0, 500)),
    ("the reply asks for 5 calls at once; 3 are allowed", texts.parallel_calls(5, 3)),
    ("search is called 1 times in a row with the same arguments", texts.repeated_call("search", 1)),
    ("a → b is gone through 3 times in a row", texts.repeated_cycle(["a", "b"], 3)),
    ("the same calls are asked for the 3. time; 2 are allowed", texts.repeated_batch(3, 2)),
    ("the assistant says the same text the 6. time; 5 are allowed", texts.repeated_text(6, 5)),
    ("the model stopped 1 times without calling a tool", texts.stopped_without_call(1)),
    ("the request has an estimated 9 tokens, and the model reads 8", texts.context_too_large(9, 8)),
    ("there is nothing in the history that could be summed up", texts.NOTHING_TO_SUMMARIZE),
    ("3 summaries in a row gave nothing usable", texts.summaries_failed(3)),
    ("the answer breaks its contract after 1 repairs: /a: wrong", texts.answer_invalid(1, "/a: wrong")),
    ("[12,345 bytes that are no text: of an odd type]", texts.binary_body(12_345, None)),
    ("[12,345 bytes that are no text: image/png]", texts.binary_body(12_345, "image/png")),
    ("the call took longer than 500 ms", texts.TIMED_OUT.format(500)),
    ("the call took longer than 500 ms and was stopped", texts.TIMED_OUT.format(500)),
    ("the reply is not one that the expression fits: Wrong", texts.result_expression_failed("Wrong")),
    ("a value for the address's path holds a slash", texts.URL_SLASH),
    ("a value for the address's path holds a control character", texts.URL_CONTROL),
    ("a part of the address's path would be empty, or a dot", texts.URL_EMPTY_SEGMENT),
    ("the endpoint redirects to something that is no whole http or https address", texts.REDIRECT_UNUSABLE),
    ("[1 bytes that are not text; content type: unknown]", texts.binary_body(1, None)),
    (
        (
            "Be brief.\n\nYour final answer is one JSON value and nothing else, no text or code fence around it."
            ' It keeps this schema:\n{"type":"object"}'
        ),
        f'Be brief.\n\n{texts.SCHEMA_GUIDANCE}{{"type":"object"}}',
    ),
    ("What the agent is to do.", texts.CHILD_MESSAGE),
    ("It is shown below.", texts.ATTACHED_BELOW),
]


@pytest.mark.parametrize(("former", "now"), FORMER, ids=[former[:40] for former, _ in FORMER])
def test_former_text_is_updated_to_the_current_text(former: str, now: str) -> None:
    assert update_texts(former) == now


def test_current_texts_are_not_changed() -> None:
    today = GOLDEN.read_text(encoding="utf-8")
    assert update_texts(today) == today


def test_every_former_text_has_an_example() -> None:
    patterns = [line for line in FORMER_TEXTS.splitlines()[1:] if line[:1] not in ("#", " ", "")]
    unused = [line for line in patterns if not any(re.search(line, text) for text in _steps())]
    assert unused == []


def _steps() -> Iterator[str]:
    """The examples, and what becomes of them on the way: some patterns only match after others were applied."""
    lines = [line for line in FORMER_TEXTS.splitlines() if line and not line.startswith("#")]
    for text, _ in FORMER:
        yield text
        for pattern, new in zip(lines[::2], lines[1::2], strict=True):
            text = re.sub(pattern, new.strip(), text)
            yield text


def test_miss_on_an_old_cassette_names_the_cause_and_the_command(tmp_path: Path) -> None:
    project = shutil.copytree(OLD_PROJECT, tmp_path / "project")
    (project / "reader.cases.yaml").write_text(CASES, encoding="utf-8")
    done = agentrun("reader.yaml", "--case", "other", "--mode", "replay", cwd=project)
    assert done.code == 3
    assert f"likely cause: {CAUSE}\n" in done.err
    assert "to accept it: agentrun reader.yaml --case other --record new\n" in done.err


@pytest.mark.parametrize(
    ("was", "now", "cause"),
    [
        ("two rules set amount", "two rules set the argument amount", False),  # only after a colon
        ("a: two rules set amount", "a: two rules set the argument amount", True),
        ("a: two rules set amount", "a: two rules set the argument order", False),
        ("the same", "the same", False),
    ],
)
def test_changed_text_is_the_cause_only_if_nothing_else_differs(was: str, now: str, cause: bool) -> None:
    run = agent()
    recorded, call = (call_of("approval://refund", {"reason": text, "rules": [{"n": 1}]}) for text in (was, now))
    found = explain_miss(call, unplayed_interactions(recorded), run.metadata(), run.here())
    assert (found.cause == CAUSE) is cause


@pytest.mark.parametrize(
    ("was", "now", "cause"),
    [
        ("Formal: true, nothing: null.", "Formal: True, nothing: None.", PRINTED_AS_JSON),
        ("Formal: true.", "Formal: False.", None),
        ("Formal: true.", "Formal: True!", None),
        ("trueness", "Trueness", None),
        ("- a\n- b\nend true", "\n- a\n  \n- b\n\nend True", TAGS_WITHOUT_LINES),
        ("- a\n- b", "\n- a\n\n- c", None),
    ],
)
def test_a_miss_that_is_only_how_templates_print_says_so(was: str, now: str, cause: str | None) -> None:
    run = agent()
    recorded, call = (call_of("approval://refund", {"reason": text}) for text in (was, now))
    found = explain_miss(call, unplayed_interactions(recorded), run.metadata(), run.here())
    assert (found.cause if found.cause in (PRINTED_AS_JSON, TAGS_WITHOUT_LINES) else None) == cause
