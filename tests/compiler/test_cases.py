"""Problems of case files, alone and compared with their spec."""

from pathlib import Path

import pytest

from agentrun.compiler.cases import cases_path, read_cases_file, spec_path
from agentrun.compiler.validate import validate_document
from agentrun.spec.problems import DocumentError

from ..projects import agent, place, remove_marks, write_project

SPEC = agent(
    """\
params: {topic: {type: string}}
input: '{{ topic }}'
profiles: {ci: {budgets: {turns: 2}}}
policy: {default: ask}
tools:
  search: {kind: shell, description: d, argv: [x]}
  crm: {kind: mcp, command: [x], tools: [find, 'get_*']}
"""
)


def reported(folder: Path, cases: str) -> list[str]:
    """Codes of what is wrong with these cases; « marks their places."""
    text, places = remove_marks(f'agentrun: "1"\ncases:\n{cases}\n')
    write_project(folder, {"spec.yaml": SPEC, "spec.cases.yaml": text})
    problems = validate_document(folder / "spec.cases.yaml")
    assert [place(problem, folder) for problem in problems] == [f"spec.cases.yaml:{at}" for at in places]
    return [problem.code.removeprefix("spec.") for problem in problems]


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ("- {name: a}\n- {name: b, input: Hi, params: {topic: x}, profile: ci}", []),
        ("- {name: a, approvals: {search: approved, crm.find: denied, crm.get_one: approved, 'crm.*': denied}}", []),
        ("- {name: a}\n- {name: b}\n- {name: «a}", ["duplicate_name"]),
        ("- {name: a, params: {«tpoic: x}}", ["unknown_param"]),
        ("- {name: a, profile: «cii}", ["unknown_profile"]),
        ("- {name: a, approvals: {«serch: approved}}", ["unknown_tool"]),
        ("- {name: a, approvals: {«crm: approved}}", ["unknown_tool"]),
        ("- {name: a, approvals: {«crm.delete: approved}}", ["unknown_tool"]),
        ("- {name: a, approvals: {«'z*': approved}}", ["unknown_tool"]),
        ("- {name: a, approvals: {«search.x: approved}}", ["unknown_tool"]),
        ("- {name: a, approvals: {search: «yes}}", ["wrong_value"]),
        ("- {name: «A b}", ["wrong_text"]),
        ("- {name: a, «inptu: x}", ["unknown_key"]),
        ("- «{input: x}", ["missing_key"]),
        ("- {name: a, input: «sk-ant-abcdefghijklmnop12345678}", ["secret"]),
        ("- {name: a} # «sk-ant-abcdefghijklmnop12345678", ["secret"]),
        ("- {name: a, params: {«q: 1, «r: 2}, profile: «x}", ["unknown_param", "unknown_param", "unknown_profile"]),
    ],
)
def test_wrong_cases_are_reported_at_their_place(tmp_path: Path, cases: str, expected: list[str]) -> None:
    assert reported(tmp_path, cases) == expected


def test_hints_list_the_known_profiles_and_params(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        {"spec.yaml": SPEC, "spec.cases.yaml": 'agentrun: "1"\ncases: [{name: a, profile: zzz, params: {q: 1}}]\n'},
    )
    assert [problem.hint for problem in validate_document(tmp_path / "spec.cases.yaml")] == [
        "known: ci",
        "known: topic",
    ]


def test_problem_quotes_the_value_as_written(tmp_path: Path) -> None:
    fault = "{at: model, inject: {timeout: false}}"
    write_project(
        tmp_path, {"spec.yaml": SPEC, "spec.cases.yaml": f'agentrun: "1"\ncases: [{{name: a, faults: [{fault}]}}]\n'}
    )
    (problem,) = validate_document(tmp_path / "spec.cases.yaml")
    assert problem.message == '"timeout" must be true; it is false'


def test_problems_of_the_spec_are_not_reported_with_the_cases(tmp_path: Path) -> None:
    write_project(
        tmp_path, {"spec.yaml": SPEC + "zzz: 1\n", "spec.cases.yaml": 'agentrun: "1"\ncases: [{name: a, profile: x}]\n'}
    )
    assert validate_document(tmp_path / "spec.cases.yaml") == []
    assert [problem.code for problem in validate_document(tmp_path / "spec.yaml")] == ["spec.unknown_key"]


def test_cases_path_and_spec_path() -> None:
    assert cases_path(Path("a/triage.yaml")) == Path("a/triage.cases.yaml")
    assert spec_path(Path("a/triage.cases.yaml")) == Path("a/triage.yaml")


def test_read_cases_file(tmp_path: Path) -> None:
    write_project(tmp_path, {"spec.yaml": SPEC, "spec.cases.yaml": 'agentrun: "1"\ncases: [{name: a, input: Hi}]\n'})
    _, file = read_cases_file(tmp_path / "spec.cases.yaml")
    assert [(case.name, case.input) for case in file.cases] == [("a", "Hi")]
    (tmp_path / "spec.cases.yaml").write_text("cases: [")
    with pytest.raises(DocumentError):
        read_cases_file(tmp_path / "spec.cases.yaml")


def test_at_most_a_hundred_wrong_cases_are_reported(tmp_path: Path) -> None:
    cases = "".join(f"- {{name: c{n}, profile: x{n}}}\n" for n in range(3000))
    write_project(tmp_path, {"spec.yaml": SPEC, "spec.cases.yaml": f'agentrun: "1"\ncases:\n{cases}'})
    assert len(validate_document(tmp_path / "spec.cases.yaml")) == 100
