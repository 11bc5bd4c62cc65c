"""File references of a document and its overlays: shared parts, prompts and schemas."""

from pathlib import Path
from typing import Any

import pytest

from agentrun.compiler.compile import compile_spec
from agentrun.compiler.file_references import MAX_REFERENCED_TEXT
from agentrun.compiler.spec_reader import read_spec
from agentrun.spec.tree import plain_data

from ..projects import TOOL, agent, codes, find_problems, write_project

PART = 'agentrun: "1"\n'


def resolved_document(folder: Path, text: str, files: dict[str, str | bytes], profile: str | None = None) -> Any:
    """The document with nothing left to read."""
    read = read_spec(write_project(folder, {"spec.yaml": agent(text), **files}), profile)
    assert read.spec is not None, read.problems
    return plain_data(read.spec.root)


def test_every_kind_of_reference_is_resolved(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "p/one.md": "One {{ p }}\n",
        "two.md": "Two",
        "tools.yaml": PART
        + f"tools: {{x: {{kind: shell, description: d, argv: [x], args: {{file: p/args.json}}}}, y: {TOOL}}}\n",
        "p/args.json": '{"type": "object", "properties": {"a": {"type": "string"}}}',
        "policy.yaml": PART + "policy: {default: deny, rules: [{id: a, allow: x}]}\n",
        "budgets.yaml": PART + "budgets: {tokens: 7k}\n",
        "schema.yaml": "type: object\n",
        "p.json": '{"type": "string"}',
    }
    text = f"""\
instructions: [{{file: p/one.md}}, inline, {{file: two.md}}]
input: {{file: two.md}}
context: {{compaction: {{prompt: {{file: two.md}}}}}}
params: {{p: {{file: p.json}}}}
tools: [{{file: tools.yaml}}, {{z: {TOOL}}}]
policy: [{{file: policy.yaml}}, {{rules: [{{id: b, allow: [y, z]}}]}}]
budgets: [{{turns: 3}}, {{file: budgets.yaml}}]
output: {{schema: {{file: schema.yaml}}}}
"""
    document = resolved_document(tmp_path, text, files)
    assert document["instructions"] == ["One {{ p }}\n", "inline", "Two"]
    assert (document["input"], document["context"]["compaction"]["prompt"]) == ("Two", "Two")
    assert document["params"] == {"p": {"type": "string"}}
    assert list(document["tools"]) == ["x", "y", "z"]
    assert document["tools"]["x"]["args"]["properties"] == {"a": {"type": "string"}}
    assert [rule["id"] for rule in document["policy"]["rules"]] == ["a", "b"]
    assert (document["policy"]["default"], document["budgets"]) == ("deny", {"turns": 3, "tokens": "7k"})
    assert document["output"]["schema"] == {"type": "object"}


def test_references_are_relative_to_their_document(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "shared/tools.yaml": PART + "tools: {x: {kind: shell, description: d, argv: [x], args: {file: deep/a.json}}}\n",
        "shared/deep/a.json": '{"type": "object"}',
    }
    document = resolved_document(tmp_path, "tools: {file: shared/tools.yaml}\npolicy: {default: allow}\n", files)
    assert document["tools"]["x"]["args"] == {"type": "object"}


def test_problems_point_into_the_referenced_files(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "prompt.md": "one\ntwo {{ q }}",
        "tools.yaml": PART
        + "# a comment\ntools:\n  x: {kind: shell, description: d, argv: [x], args: {file: a.json}}\n"
        + "  y: {kind: shel}\n",
        "a.json": '{\n "type": "objct"}',
        "policy.yaml": PART + 'policy:\n  default: deny\n  rules: [{id: r, allow: x, when: "args. =="}]\n',
        "budgets.yaml": PART + "budgets: {tokns: 5}\n",
    }
    names = {"instructions": "prompt.md", "tools": "tools.yaml", "policy": "policy.yaml", "budgets": "budgets.yaml"}
    text = "".join(f"{key}: {{file: {name}}}\n" for key, name in names.items())
    assert [(at, code) for at, code, _, _ in find_problems(tmp_path, text, files)] == [
        ("a.json:2:10", "spec.json_schema"),
        ("budgets.yaml:2:11", "spec.unknown_key"),
        ("policy.yaml:4:42", "spec.condition"),
        ("prompt.md:2:8", "spec.template_unknown_name"),
        ("tools.yaml:5:13", "spec.wrong_value"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"tools: [{{x: {TOOL}}}, {{x: {TOOL}}}]\npolicy: {{default: allow}}\n", ["spec.given_twice"]),
        (f"tools: [{{x: {TOOL}}}, {{file: t.yaml}}]\npolicy: {{default: allow}}\n", ["spec.given_twice"]),
        ("policy: [{default: deny}, {default: allow}]\n", ["spec.given_twice"]),
        ("budgets: [{tokens: 1}, {tokens: 1}]\n", ["spec.given_twice"]),
        ("budgets: [{tokens: 1}, {turns: 1}]\n", []),
        ("policy: [{rules: []}, {rules: []}]\n", []),
        ("budgets: [{file: b.yaml}, {file: b.yaml}]\n", ["spec.given_twice"]),
    ],
)
def test_value_given_by_two_parts_is_reported(tmp_path: Path, text: str, expected: list[str]) -> None:
    files: dict[str, str | bytes] = {
        "t.yaml": PART + f"tools: {{x: {TOOL}}}\n",
        "b.yaml": PART + "budgets: {tokens: 1}\n",
    }
    assert codes(tmp_path, text, files) == expected


def test_tool_named_file_is_a_tool(tmp_path: Path) -> None:
    assert list(resolved_document(tmp_path, f"tools: {{file: {TOOL}}}\npolicy: {{default: allow}}\n", {})["tools"]) == [
        "file"
    ]


def test_references_in_profiles_and_settings_are_resolved(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "b.yaml": PART + "budgets: {tokens: 9}\n",
        "p.md": "Other",
        "a.json": '{"type": "object"}',
    }
    text = f"""\
tools: {{x: {TOOL}}}
policy: {{default: allow}}
profiles:
  p:
    budgets: {{file: b.yaml}}
    instructions: {{file: p.md}}
    tools: {{x: {{args: {{file: a.json}}}}}}
"""
    document = resolved_document(tmp_path, text, files, "p")
    assert document["budgets"] == {"tokens": 9}
    assert document["instructions"] == "Other"
    assert document["tools"]["x"]["args"] == {"type": "object"}
    result = compile_spec(tmp_path / "spec.yaml", None, ["input={file: p.md}"])
    assert result.package is not None
    assert result.package.input == "Other"


@pytest.mark.parametrize(
    ("profile", "code"),
    [
        ("{tools: {file: nothing.yaml}}", "spec.file_missing"),
        ("{tools: [5]}", "spec.wrong_type"),
        ("{tools: 5}", "spec.wrong_type"),
        ("{budgets: {file: b.yaml, tokens: 5}}", "spec.unknown_key"),
        ("{instructions: {file: p.md, x: 1}}", "spec.unknown_key"),
        ("{instructions: {file: 5}}", "spec.wrong_type"),
        ("{params: {q: {file: p.md}}}", "spec.json_schema"),
        ("{policy: {file: b.yaml}}", "spec.missing_key"),
    ],
)
def test_mistakes_in_overlays_are_reported_too(tmp_path: Path, profile: str, code: str) -> None:
    files: dict[str, str | bytes] = {"b.yaml": PART + "budgets: {tokens: 9}\n", "p.md": "Other"}
    assert code in codes(tmp_path, f"profiles: {{p: {profile}}}\n", files)


# --- hidden files -------------------------------------------------------------------------------------------

HIDDEN_PATHS = (".env", "sub/.x.md", ".git/config", ".agentrun/x", "sub/../.env", "./.env", ".ssh/key")


@pytest.mark.parametrize("name", HIDDEN_PATHS)
def test_hidden_file_is_refused(tmp_path: Path, name: str) -> None:
    """The text of a package is sent to a provider, and a problem may show a line of its file."""
    files: dict[str, str | bytes] = {each: "KEY=hunter2" for each in HIDDEN_PATHS if ".." not in each}
    for reference in (
        f"instructions: {{file: {name}}}\n",
        f"budgets: {{file: {name}}}\n",
        f"output: {{schema: {{file: {name}}}}}\n",
        f"tools: {{x: {{kind: agent, spec: {name}}}}}\npolicy: {{default: allow}}\n",
        f"instructions: \"{{% include '{name}' %}}\"\n",
        f"instructions: \"{{% import '{name}' as x %}}\"\n",
    ):
        (problem,) = find_problems(tmp_path, reference, files)
        assert problem.code == "spec.file_hidden"
        assert "begins with a dot" in problem.message
        assert "hunter2" not in str(problem)


def test_spec_in_a_hidden_folder_can_use_the_files_next_to_it(tmp_path: Path) -> None:
    write_project(
        tmp_path, {".agents/prompts/a.md": "Be kind.", ".agents/spec.yaml": agent("instructions: {file: prompts/a.md}")}
    )
    assert read_spec(tmp_path / ".agents" / "spec.yaml").problems == ()


# --- bounds -------------------------------------------------------------------------------------------------


def test_total_size_of_referenced_files_is_limited(tmp_path: Path) -> None:
    """A small spec may name a large file many times: each time counts."""
    files: dict[str, str | bytes] = {
        "p.md": "x" * 250_000,
        "q.md": "x" * (MAX_REFERENCED_TEXT - 8 * 250_000),
        "r.md": "x",
    }
    fits = "instructions: [" + "{file: p.md}, " * 8 + "{file: q.md}]\n"
    assert codes(tmp_path, fits, files) == []
    (problem,) = find_problems(tmp_path, fits.replace("]", ", {file: r.md}]"), files)
    assert (problem.code, problem.message) == (
        "spec.too_large",
        "with this file the document is larger than 2 MiB or 50,000 values",
    )


def test_total_number_of_values_is_limited(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"s.json": '{"enum": [' + "1," * 24_000 + "1]}"}
    assert codes(tmp_path, "params: {a: {file: s.json}, b: {file: s.json}}\ninput: '{{ a }}{{ b }}'\n", files) == []
    three = "params: {a: {file: s.json}, b: {file: s.json}, c: {file: s.json}}\n"
    assert codes(tmp_path, three, files) == ["spec.too_large"]


def test_at_most_a_hundred_missing_files_are_reported(tmp_path: Path) -> None:
    params = ", ".join(f"p{n}: {{file: nothing{n}.json}}" for n in range(200))
    assert codes(tmp_path, f"params: {{{params}}}\n") == ["spec.file_missing"] * 100
