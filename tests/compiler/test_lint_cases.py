"""Semantic checks of cases: assertions, faults, stubs and defaults, each reported at its place."""

from pathlib import Path

import pytest

from agentrun.compiler.validate import validate_document
from agentrun.spec.problems import Problem

from ..projects import agent, place, remove_marks, write_project

HELPER = agent(
    """\
policy: {default: deny, rules: [{id: inner, allow: [find, 'kb.*']}]}
tools:
  find: {kind: http, description: d, url: 'https://a.example/'}
  kb: {kind: mcp, command: [x], tools: ['get_*']}
hooks: [{id: deep, at: on_input, call: 'checks:one'}]
"""
)
SPEC = agent(
    """\
params: {topic: {type: string}}
input: '{{ topic }}'
policy: {default: ask, rules: [{id: big, ask: pay}]}
tools:
  pay: {kind: python, description: d, call: 'checks:pay'}
  shop: {kind: http, description: d, url: 'https://a.example/'}
  crm: {kind: mcp, command: [x], tools: [find, 'get_*']}
  help: {kind: agent, description: d, spec: helper.yaml}
sinks: {log: {kind: stdout}}
hooks: [{id: guard, at: on_input, call: 'checks:one'}]
profiles: {more: {tools: {extra: {kind: shell, description: d, argv: [x]}}}}
"""
)
CHECKS = "def one(run): pass\ndef pay(amount: int): pass\nasync def later(run): pass\ndef two(a, b): pass\n"
FILES: dict[str, str | bytes] = {
    "spec.yaml": SPEC,
    "helper.yaml": HELPER,
    "helper.lock": "",
    "checks.py": CHECKS,
    "shape.json": '{"type": "object"}',
    "wrong.json": '{"type": "objekt"}',
    "cassettes/a/kept.yaml": "",
}
CODES_WITH_A_HINT = [
    f"spec.{code}" for code in ("assertion", "fault", "stub", "case", "unknown_tool", "no_cassette", "wrong_value")
]
TYPES = (
    "equals, contains, contains-all, contains-any, icontains, icontains-all, icontains-any, regex, starts-with, "
    "is-json, json-schema, jmespath, cel, python, tools-exact, tools-in-order, tools-any-order, tool-called, "
    "tool-calls, step-status, ruling, approval, tokens, cost, turns, time, outcome, journal-snapshot"
)


def problems(folder: Path, text: str) -> list[Problem]:
    """What is wrong with these cases; « marks where."""
    text, places = remove_marks(f'agentrun: "1"\n{text}\n')
    files = {name: content for name, content in FILES.items() if name != "helper.lock"}
    write_project(folder, {**files, "spec.cases.yaml": text})
    found = validate_document(folder / "spec.cases.yaml")
    assert [place(problem, folder) for problem in found] == [f"spec.cases.yaml:{at}" for at in places]
    return found


def reported(folder: Path, case: str) -> list[str]:
    found = problems(folder, f"cases:\n- {{name: a, {case}}}")
    assert all(problem.hint for problem in found if problem.code in CODES_WITH_A_HINT), "each says what to do"
    return [problem.code.removeprefix("spec.") for problem in found]


ASSERTIONS: list[tuple[str, list[str]]] = [
    ("type: regex, value: «'a(b'", ["pattern"]),
    ("type: regex, value: «'(?=a)'", ["pattern"]),
    ("type: regex, value: '^a.*'", []),
    ("type: json-schema, value: {type: «objekt}", ["json_schema"]),
    ("type: json-schema, value: {properties: {a: {$ref: «'https://a.example/'}}}", ["schema_ref"]),
    ("type: json-schema, value: {file: shape.json}", []),
    ("type: is-json, value: {«tpye: object}", ["json_schema"]),
    ("type: is-json", []),
    ("type: jmespath, value: 'a.«|'", ["jmespath"]),
    ("type: jmespath, value: '«nofun(a)'", ["jmespath"]),
    ("type: jmespath, value: 'length(a)', expected: 2", []),
    ("type: cel, value: 'spend.«token > 5'", ["condition"]),
    ("type: cel, value: 'params.«tpoic == \"x\"'", ["unknown_param"]),
    ('type: cel, value: \'params.topic == "x" && «outptu == "x"\'', ["condition"]),
    ("type: cel, value: «'size(calls)'", ["condition"]),
    ("type: cel, value: 'output «+ 1 == 2'", ["condition"]),
    ("type: cel, value: 'calls.exists(args, args.tool == \"x\")'", []),
    ("type: cel, value: 'calls.size() > 1 && calls[0].args.amount < 5 && spend.tokens < 10'", []),
    ("type: not-cel, value: 'calls«.tool == \"x\"'", ["condition"]),
    ("type: python, value: «'checks:missing'", ["python"]),
    ("type: python, value: «'nowhere:f'", ["python"]),
    ("type: python, value: «'os:system'", ["python"]),
    ("type: python, value: «'checks:two'", ["python"]),
    ("type: python, value: «'checks:later'", ["python"]),
    ("type: python, value: 'checks:one'", []),
    ("type: tool-called, value: «pya", ["unknown_tool"]),
    ("type: not-tool-called, value: «delete", ["unknown_tool"]),
    ("type: tool-called, value: delete, status: tool.unknown", []),
    ("type: tool-called, value: delete, status: tool.*", []),
    ("type: tool-called, value: pay, status: «okay", ["wrong_value"]),
    ("type: tool-called, value: pay, status: «'tol.*'", ["wrong_value"]),
    ("type: tool-called, value: 'p*', status: open", []),
    ("type: tool-called, value: crm.get_one", []),
    ("type: tool-called, value: «crm.delete", ["unknown_tool"]),
    ("type: tool-called, value: help/find", []),
    ("type: tool-called, value: help/kb.get_x", []),
    ("type: tool-called, value: '*/find'", []),
    ("type: tool-called, value: «help/fnid", ["unknown_tool"]),
    ("type: tool-called, value: «pay/find", ["unknown_tool"]),
    (
        "type: tools-exact, value: [pay, «pya, {tool: «shp}, {tool: shop, status: «nope}]",
        ["unknown_tool"] * 2 + ["wrong_value"],
    ),
    ("type: tools-any-order, value: [{tool: crm.find, args: {a: {gt: «[1]}}}]", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {lte: «true}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {regex: «'('}}", ["pattern"]),
    ("type: tool-called, value: crm.find, args: {a: {regex: «5}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {in: «5}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {in: «[]}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {icontains: «5}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {starts-with: «[a]}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {present: «'yes'}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {type: «int}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {type: «[integer]}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: «{present: false, gt: 1}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: {«gt: 5, ltee: 6}}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {a: [{b: {in: «1}}]}", ["assertion"]),
    ("type: tool-called, value: crm.find, args: {in: 5, a: {b: {gt: 5, lte: 6}}, c: {equals: {gt: x, y: 1}}}", []),
    ("type: tool-called, value: pay, args: {amount: 5, «amuont: {gt: 5}}", ["assertion"]),
    ("type: not-tool-called, value: pay, args: {«sum: 5}", ["assertion"]),
    ("type: tools-exact, value: [{tool: pay, args: {«cents: 5}, status: ok}]", ["assertion"]),
    ("type: tool-called, value: help/find, args: {«id: 5}", ["assertion"]),
    ("type: tool-called, value: pay, args: {sum: 5}, status: tool.invalid_arguments", []),
    ("type: tool-called, value: pay, args: {sum: 5}, status: 'tool.*'", []),
    ("type: not-tool-called, value: pay, args: {sum: {present: true}}", []),
    ("type: tool-called, value: 'pa*', args: {sum: 5}", []),
    ("type: tool-called, value: help, args: {message: hi}", []),
    ("type: tool-calls, tool: «pya, max: 1", ["unknown_tool"]),
    ("«type: tool-calls, tool: pay", ["assertion"]),
    ("type: tool-calls, value: 1, «min: 1", ["assertion"]),
    ("type: tool-calls, min: «3, max: 2", ["out_of_range"]),
    ("type: tool-calls, min: 2, max: 2", []),
    ("«type: tokens", ["assertion"]),
    ("type: tokens, min: «'2k', max: 1999", ["out_of_range"]),
    ("type: tokens, min: '2k', max: 2000", []),
    ("«type: cost", ["assertion"]),
    ("type: cost, min: «0.2, max: 0.1", ["out_of_range"]),
    ("type: time, min: «2s, max: 1999ms", ["out_of_range"]),
    ("type: time, min: 2s, max: 2000ms", []),
    ("«type: turns", ["assertion"]),
    ("type: turns, value: 1, «max: 2", ["assertion"]),
    ("type: step-status, tool: «pya, value: ok", ["unknown_tool"]),
    ("type: step-status, tool: pay, value: «fine", ["wrong_value"]),
    ("type: step-status, tool: other, value: tool.unknown", []),
    ("type: ruling, value: ask, target: «pya", ["unknown_tool"]),
    ("type: ruling, value: ask, target: pay, rule: «bgi", ["assertion"]),
    ("type: ruling, value: ask, rule: big", []),
    ("type: ruling, value: allow, target: 'help/*', rule: inner", []),
    ("type: ruling, value: allow, target: output", []),
    ("type: ruling, value: allow, target: log", []),
    ("type: ruling, value: allow, target: crm.find", []),
    ("type: approval, value: denied, target: «pya", ["unknown_tool"]),
    ("type: approval, value: denied, target: input", []),
    ("type: outcome, value: «complete", ["wrong_value"]),
    ("type: outcome, value: «'bugdet.*'", ["wrong_value"]),
    ("type: outcome, value: «spec", ["wrong_value"]),
    ("type: outcome, value: suspended", []),
    ("type: outcome, value: 'budget.*'", []),
    ("type: «contians, value: x", ["wrong_value"]),
]


@pytest.mark.parametrize("number", range(len(ASSERTIONS)))
def test_assertion_problems(tmp_path: Path, number: int) -> None:
    assertion, expected = ASSERTIONS[number]
    inner = f"«{{{assertion.removeprefix('«')}}}" if assertion.startswith("«type") else f"{{{assertion}}}"
    assert reported(tmp_path, f"assert: [{inner}]") == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("input: x, «turns: [y]", ["case"]),
        ("turns: [{input: x, assert: [{type: tool-called, value: «pya}]}]", ["unknown_tool"]),
        ("turns: [{input: x, assert: [«{type: journal-snapshot}]}]", ["assertion"]),
        ("turns: [x, {input: y, assert: [{type: turns, max: 2}]}], assert: [{type: journal-snapshot}]", []),
        ("assert: [{type: journal-snapshot}, «{type: not-journal-snapshot}]", ["assertion"]),
        (
            "assert: [{type: journal-snapshot, ignore: ['*.call', 'tool_*.parts', «tool_finishd.parts]}]",
            ["wrong_value"],
        ),
        ("assert: [{type: journal-snapshot, ignore: [«spent]}]", ["wrong_value"]),
        ("tags: [x, y, «x]", ["case"]),
        ("tags: [x, y]", []),
        ("clock: {start: «'2026-02-30T00:00:00Z'}", ["case"]),
        ("clock: {start: «'2026-01-01T24:30:00Z'}", ["case"]),
        ("clock: {start: '2024-02-29T23:59:59.999Z', step: 1s}", []),
        ("clock: {start: «'tomorrow'}", ["wrong_text"]),
        ("clock: {step: 30s}", []),
        ("clock: {step: «31s}", ["case"]),
        ("cassette: kept", []),
        ("cassette: a", []),
        ("cassette: «b", ["no_cassette"]),
        ("stubs: {pay: «{}}", ["stub"]),
        ("stubs: {pay: «{result: 1, error: x}}", ["stub"]),
        ("stubs: {pay: [{result: 1}, «{}]}", ["stub"]),
        (
            "stubs: {pay: {result: null}, crm.find: {error: x}, help/find: {result: x}, 'get*': {result: 1}}",
            ["unknown_tool"],
        ),
        ("stubs: {«help: {result: 1}}", ["stub"]),
        ("stubs: {'*': {result: 1}}", []),
        ("stubs: {«pya: {result: 1}}", ["unknown_tool"]),
        ("stubs: {«help/pay: {result: 1}}", ["unknown_tool"]),
        ("approvals: {pay: approved, log: denied, output: approved, kb.get_x: denied}", []),
        ("approvals: {«help/find: approved}", ["unknown_tool"]),
        ("approvals: {«tool_call: approved}", ["unknown_tool"]),
    ],
)
def test_case_problems(tmp_path: Path, case: str, expected: list[str]) -> None:
    case = case.replace("'get*'", "«'get*'") if expected == ["unknown_tool"] and "'get*'" in case else case
    assert reported(tmp_path, case) == expected


@pytest.mark.parametrize(
    ("at", "inject", "expected"),
    [
        ("model#2", "{status: 429, times: 2, retry_after: 1}", []),
        ("model", "{cut_after_chunk: 7}", []),
        ("model", "{empty: true}", []),
        ("model", "{refused: true}", []),
        ("model", "{timeout: true}", []),
        ("model", "«{}", ["fault"]),
        ("model", "«{times: 2}", ["fault"]),
        ("model", "«{status: 500, empty: true}", ["fault"]),
        ("model", "{«error: x}", ["fault"]),
        ("model", "{«fatal: x}", ["fault"]),
        ("model", "{«answer: denied}", ["fault"]),
        ("model", "{empty: true, «retry_after: 1}", ["fault"]),
        ("tool:pay", "{timeout: true}", []),
        ("tool:pay#2", "{error: x}", []),
        ("tool:pay", "{timeout: true, times: 1}", []),
        ("tool:pay", "{timeout: true, «times: 2}", ["fault"]),
        ("tool:pay", "{fatal: x}", []),
        ("tool:shop", "{status: 503}", []),
        ("tool:shop", "{refused: true}", []),
        ("tool:*", "{status: 503}", []),
        ("tool:help/find", "{status: 503}", []),
        ("tool:pay", "{«status: 503}", ["fault"]),
        ("tool:crm.find", "{«refused: true}", ["fault"]),
        ("tool:shop", "{«cut_after_chunk: 1}", ["fault"]),
        ("tool:shop", "{«empty: true}", ["fault"]),
        ("«tool:pya", "{error: x}", ["unknown_tool"]),
        ("«tool:help", "{error: x}", ["fault"]),
        ("«tool:help/fnid", "{error: x}", ["unknown_tool"]),
        ("approval:pay", "{answer: timed_out}", []),
        ("approval:output", "{answer: denied}", []),
        ("approval:log", "{timeout: true}", []),
        ("approval:pay", "{«error: x}", ["fault"]),
        ("«approval:pya", "{answer: denied}", ["unknown_tool"]),
        ("hook:guard", "{error: x}", []),
        ("hook:guard", "{timeout: true}", []),
        ("hook:help/deep", "{error: x}", []),
        ("hook:guard", "{«status: 500}", ["fault"]),
        ("«hook:gaurd", "{error: x}", ["fault"]),
        ("sink:log", "{error: x}", []),
        ("«sink:lgo", "{error: x}", ["fault"]),
        ("c1.0/model#1", "{status: 500}", []),
        ("c1.0/tool:find", "{status: 500}", []),
        ("c1.0.c2.1/model", "{status: 500}", []),
        ("«c1.0/tool:fnid", "{error: x}", ["unknown_tool"]),
        ("«help/model#1", "{status: 500}", ["fault"]),
        ("«nowhere", "{status: 500}", ["wrong_text"]),
    ],
)
def test_fault_problems(tmp_path: Path, at: str, inject: str, expected: list[str]) -> None:
    at = f"«'{at.removeprefix('«')}'" if at.startswith("«") else f"'{at}'"
    assert reported(tmp_path, f"faults: [{{at: {at}, inject: {inject}}}]") == expected


def test_tool_names_are_checked_with_the_profile_of_the_case(tmp_path: Path) -> None:
    assertion = "assert: [{type: tool-called, value: extra}]"
    assert problems(tmp_path, f"cases:\n- {{name: a, profile: more, {assertion}}}") == []
    assert len(problems(tmp_path, f"cases:\n- {{name: a, {assertion.replace('extra', '«extra')}}}")) == 1


def test_defaults_are_wrong_only_if_wrong_for_every_case(tmp_path: Path) -> None:
    common = "defaults: {assert: [{type: not-tool-called, value: extra}], stubs: {extra: {result: 1}}}"
    assert problems(tmp_path, f"{common}\ncases:\n- {{name: a}}\n- {{name: b, profile: more}}") == []
    wrong = common.replace(": extra", ": «extra").replace("{extra", "{«extra")
    assert len(problems(tmp_path, f"{wrong}\ncases:\n- {{name: a}}\n- {{name: b}}")) == 2


def test_mistake_in_the_defaults_is_reported_once(tmp_path: Path) -> None:
    common = "defaults: {assert: [{type: turns}], faults: [{at: model, inject: {fatal: x}}], tags: [x, «x]}"
    common = common.replace("{type", "«{type").replace("{fatal", "{«fatal")
    assert len(problems(tmp_path, f"{common}\ncases:\n- {{name: a}}\n- {{name: b, tags: [x]}}")) == 3


def test_second_journal_snapshot_of_a_case_is_reported(tmp_path: Path) -> None:
    common = "defaults: {assert: [{type: journal-snapshot}]}"
    assert problems(tmp_path, f"{common}\ncases:\n- {{name: a}}") == []
    own = "- {name: a, assert: [«{type: journal-snapshot}]}"
    assert len(problems(tmp_path, f"{common}\ncases:\n{own}")) == 1


def test_schema_file_of_an_assertion_is_checked(tmp_path: Path) -> None:
    write_project(tmp_path, {**FILES, "spec.cases.yaml": _with_schema("wrong.json")})
    (problem,) = validate_document(tmp_path / "spec.cases.yaml")
    assert (place(problem, tmp_path), problem.code) == ("wrong.json:1:10", "spec.json_schema")
    write_project(tmp_path, {"spec.cases.yaml": _with_schema("missing.json")})
    (problem,) = validate_document(tmp_path / "spec.cases.yaml")
    assert (place(problem, tmp_path), problem.code) == ("spec.cases.yaml:2:62", "spec.file_missing")


def _with_schema(name: str) -> str:
    return f'agentrun: "1"\ncases: [{{name: a, assert: [{{type: json-schema, value: {{file: {name}}}}}]}}]\n'


@pytest.mark.parametrize(
    ("case", "message", "hint"),
    [
        (
            "assert: [{type: «contians, value: x}]",
            f'"type" must be one of {TYPES}, each optionally with not-; it is "contians"',
            'did you mean "contains"?',
        ),
        (
            "assert: [{type: «not-contians, value: x}]",
            "each optionally with not-",
            'did you mean "not-contains"?',
        ),
        (
            "faults: [{at: «'tool', inject: {error: x}}]",
            '"at" must be a place such as model#2, tool:refund, approval:refund, hook:ID, sink:NAME, or c1.0/model',
            None,
        ),
        (
            "assert: [{type: outcome, value: «budget.turn}]",
            '"budget.turn" is not a run outcome',
            'did you mean "budget.turns"?',
        ),
        (
            "stubs: {«help: {result: x}}",
            '"help" is a sub-agent, and only tools can be stubbed',
            'stub the tools of the sub-agent: "help/TOOL"',
        ),
    ],
)
def test_problem_has_message_and_hint(tmp_path: Path, case: str, message: str, hint: str | None) -> None:
    (problem,) = problems(tmp_path, f"cases:\n- {{name: a, {case}}}")
    assert message in problem.message
    assert problem.hint == hint


def test_case_mistakes_are_reported_when_the_spec_is_invalid(tmp_path: Path) -> None:
    text = 'agentrun: "1"\ncases: [{name: a, assert: [{type: turns}, {type: tool-called, value: zzz}]}]\n'
    write_project(tmp_path, {"spec.yaml": SPEC + "zzz: 1\n", "spec.cases.yaml": text})
    assert [problem.code for problem in validate_document(tmp_path / "spec.cases.yaml")] == ["spec.assertion"]
