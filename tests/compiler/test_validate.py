"""The exact output of `agentrun validate` for the golden projects.

Each folder of tests/golden is a project as somebody might have written it. After a change of wording look at the
difference with a newcomer's eyes, then accept it with `AGENTRUN_GOLDEN=write pytest tests/compiler/test_validate.py`.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from agentrun.compiler.validate import find_documents, validate_document
from agentrun.spec.problems import PROBLEM_CODES, sort_problems

from ..cli.command import agentrun
from ..projects import TOOL, agent, codes, find_problems, write_project

GOLDEN = Path(__file__).parents[1] / "golden"
STORIES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


def reported(folder: Path, *options: str) -> tuple[int, str]:
    done = agentrun("validate", ".", *options, cwd=folder)
    assert done.out if options else not done.out
    return done.code, done.out or done.err


@pytest.mark.parametrize("story", STORIES)
def test_output_matches_the_golden_files(tmp_path: Path, story: str) -> None:
    shutil.copytree(GOLDEN / story, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected.*"))
    (tmp_path / ".git").mkdir()
    code, text = reported(tmp_path)
    _, lines = reported(tmp_path, "--json")
    assert code == 2
    for name, output in (("expected.txt", text), ("expected.jsonl", lines)):
        golden = GOLDEN / story / name
        if os.environ.get("AGENTRUN_GOLDEN") == "write":
            golden.write_text(output, encoding="utf-8")
        assert output == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("story", STORIES)
def test_golden_text_and_json_list_the_same_sorted_problems(story: str) -> None:
    """Planted by hand in the golden files themselves: a lost, doubled or unsorted problem would be seen here."""
    problems = [json.loads(line) for line in (GOLDEN / story / "expected.jsonl").read_text().splitlines()]
    text = (GOLDEN / story / "expected.txt").read_text()
    places = [(each["file"], each["line"], each["column"], each["code"]) for each in problems]
    assert places == sorted(places)
    assert len(places) == len(set(places))
    heads = [line.split("  ")[:2] for line in text.splitlines() if "  spec." in line]
    assert heads == [[f"{file}:{line}:{column}", code] for file, line, column, code in places]
    assert {code for *_, code in places} <= PROBLEM_CODES.keys()
    assert text.count("^") >= len(places)  # an excerpt with a caret for each
    errors = sum(each["severity"] == "error" for each in problems)
    assert f": {errors} errors, {len(problems) - errors} warning" in text


def test_mistakes_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    """Of all files and all stages at once: YAML keys, shared file, prompt, condition, schema, secret."""
    files: dict[str, str | bytes] = {
        "tools.yaml": f'agentrun: "1"\ntools:\n  x: {TOOL}\n  y: {{kind: shel}}\n',
        "prompt.md": "Hello\n{{ name| }}\n",
        "schema.json": '{"type": "objct"}',
    }
    text = """\
zzz: 1
instructions: {file: prompt.md}
tools: {file: tools.yaml}
output: {schema: {file: schema.json}}
policy:
  default: allow
  rules: [{id: r, ask: x, when: "1 +"}, {id: s, ask: q}]
description: sk-ant-abcdefghijklmnop12345678
"""
    assert [(place, code) for place, code, _, _ in find_problems(tmp_path, text, files)] == [
        ("prompt.md:2:10", "spec.template_syntax"),
        ("schema.json:1:10", "spec.json_schema"),
        ("spec.yaml:1:1", "spec.unknown_key"),
        ("spec.yaml:7:37", "spec.condition"),
        ("spec.yaml:8:14", "spec.secret"),
        ("tools.yaml:4:13", "spec.wrong_value"),
    ]  # and not that q is unknown: it may be in what could not be read


@pytest.mark.parametrize(
    "text",
    [
        "tools: {file: nothing.yaml}\npolicy: {default: deny, rules: [{id: r, allow: x, when: args.a == 1}]}",
        "tools: {x: {kind: shel}}\npolicy: {default: deny, rules: [{id: r, allow: x}]}",
        "tools: {x: {kind: shel}}\nmodel: {provider: openai, name: m, tool_choice: x}",
        "params: {P: {type: string}}\ninstructions: '{{ p }}'",
        "params: {p: {file: nothing.json}}\ninstructions: '{{ p }}'",
        "polcy: {default: deny}\ntools: {x: {kind: shell, description: d, argv: [x]}}",
        "parms: {p: {type: string}}\ninstructions: '{{ p }}'",
        "budgets: {tokns: 5k}",
        "sinks: {s: {kind: fil}}\npolicy: {rules: [{id: r, on: delivery, deny: s}]}",
        "output: {schema: {file: nothing.json}, repairs: 1}",
        "tools: {file: broken.yaml}\npolicy: {default: deny, rules: [{id: r, allow: x}]}",
    ],
)  # fmt: skip
def test_follow_up_problems_are_not_reported(tmp_path: Path, text: str) -> None:
    assert len(codes(tmp_path, text, {"broken.yaml": "tools: ["})) == 1


def test_unquoted_version_does_not_hide_other_problems(tmp_path: Path) -> None:
    assert codes(tmp_path, "agentrun: 1\nzzz: 1") == ["spec.version", "spec.unknown_key"]
    assert codes(tmp_path, 'agentrun: "7"\nzzz: 1') == ["spec.version"]  # nobody knows what zzz is in version 7


def test_misspelt_key_is_not_reported_as_missing(tmp_path: Path) -> None:
    text = 'agentrun: "1"\nname: a\nmodel: {provider: openai, nme: m}\ninstructoins: x\nbudgets: {tokens: 1}\n'
    write_project(tmp_path, {"spec.yaml": text})
    assert [problem.code for problem in validate_document(tmp_path / "spec.yaml")] == [
        "spec.unknown_key",
        "spec.unknown_key",
    ]


def test_profiles_are_checked_too(tmp_path: Path) -> None:
    text = "profiles:\n  fast: {budgets: {turns: 0}}\n  slow: {budgets: null}\n  bad: {tools: 5}\n"
    assert [(place, code) for place, code, _, _ in find_problems(tmp_path, text)] == [
        ("spec.yaml:1:1", "spec.no_budget"),
        ("spec.yaml:2:27", "spec.out_of_range"),
        ("spec.yaml:4:16", "spec.wrong_type"),
    ]


@pytest.mark.parametrize("key", ["tools", "policy", "budgets"])
def test_null_in_a_profile_removes_a_shared_part(tmp_path: Path, key: str) -> None:
    text = f"tools: {{x: {TOOL}}}\npolicy: {{default: allow}}\nprofiles: {{p: {{{key}: null}}}}\n"
    expected = {"tools": [], "policy": ["spec.no_default"], "budgets": ["spec.no_budget"]}
    assert codes(tmp_path, text) == expected[key]


def test_no_budget_is_a_warning_and_an_error_with_strict(tmp_path: Path) -> None:
    write_project(tmp_path, {"spec.yaml": agent("budgets: {turns: 3}")})
    lenient, strict = (
        agentrun("validate", "spec.yaml", cwd=tmp_path),
        agentrun("validate", "--strict", ".", cwd=tmp_path),
    )
    assert (lenient.code, strict.code) == (0, 2)
    assert "1 file checked: 0 errors, 1 warning" in lenient.err
    assert "spec.no_budget  warning: the only limit on what a run may spend is 3 turns" in strict.err


def test_directory_search_finds_only_agentrun_documents(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        {
            "a/one.yaml": agent(),
            "b/two.yml": agent(),
            "b/three.cases.yaml": 'agentrun: "1"\ncases: []\n',
            "compose.yaml": "services: {}\n",
            "broken.yaml": b"\xff",
            ".hidden/x.yaml": agent(),
            "node_modules/x.yaml": agent(),
            "cassettes/x.yaml": agent(),
            "notes.md": 'agentrun: "1"\n',
        },
    )
    names = [path.relative_to(tmp_path).as_posix() for path in find_documents(tmp_path)]
    assert names == ["broken.yaml", "a/one.yaml", "b/three.cases.yaml", "b/two.yml"]


@pytest.mark.parametrize("key", ["tools", "policy", "budgets"])
def test_shared_part_is_validated_alone(tmp_path: Path, key: str) -> None:
    write_project(
        tmp_path,
        {"part.yaml": f'# a part\nagentrun: "1"\n"{key}": {{zzz: 1}} # token: sk-ant-abcdefghijklmnop12345678\n'},
    )
    problems = validate_document(tmp_path / "part.yaml")
    assert problems == sort_problems(problems)
    assert [problem.line for problem in problems] == [3, 3]
    assert problems[1].code == "spec.secret"
    assert problems[0].code == ("spec.wrong_type" if key == "tools" else "spec.unknown_key")
