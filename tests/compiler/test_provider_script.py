"""Provider scripts: valid scripts, and problems at their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.compiler.validate import find_documents, read_script, validate_document
from agentrun.spec.problems import DocumentError

from ..documents import yaml_text
from ..full_provider_script import SCRIPT


def script(folder: Path, text: str) -> Path:
    path = folder / "a.provider.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_script_with_every_key_is_read(tmp_path: Path) -> None:
    path = script(tmp_path, yaml_text(SCRIPT))
    read = read_script(path)
    assert len(read.turns) == 2
    assert read.turns[0].faults[0].headers == {"retry-after": "1"}
    assert list(find_documents(tmp_path)) == [path]
    assert validate_document(path) == []


@pytest.mark.parametrize(
    ("turn", "code", "place", "hint"),
    [
        ("{usage: {input: 1}}", "spec.missing_key", (4, 5), 'text: ""'),
        ("{text: a, usage: {input: 3, cached: 4}}", "spec.out_of_range", (4, 41), None),
        ("{text: a, usage: {output: 3, reasoning: 4}}", "spec.out_of_range", (4, 45), None),
        ("{calls: [{tool: a, args: {x: 1}, raw: b}]}", "spec.given_twice", (4, 38), "remove one"),
        ("{txt: a}", "spec.unknown_key", (4, 6), 'did you mean "text"?'),
        ("{text: a, faults: [{status: 99}]}", "spec.out_of_range", (4, 33), None),
        ("{text: a, faults: [{delay: 2}]}", "spec.wrong_type", (4, 32), "for example 2s"),
    ],
)
def test_problem_of_a_turn_is_reported_at_its_place(
    tmp_path: Path, turn: str, code: str, place: tuple[int, int], hint: str | None
) -> None:
    path = script(tmp_path, f'agentrun: "1"\nturns:\n  - text: fine\n  - {turn}\n')
    (problem,) = validate_document(path)
    assert (problem.code, (problem.line, problem.column)) == (code, place)
    assert hint is None or hint in (problem.hint or "")
    with pytest.raises(DocumentError) as caught:
        read_script(path)
    assert caught.value.problems == [problem]


@pytest.mark.parametrize(
    "turn", ["{text: ''}", "{text: a, usage: {input: 4, cached: 4}}", "{reasoning: a}", "{calls: []}"]
)
def test_valid_turn_has_no_problem(tmp_path: Path, turn: str) -> None:
    assert validate_document(script(tmp_path, f'agentrun: "1"\nturns:\n  - {turn}\n')) == []


def test_secret_in_a_script_is_reported(tmp_path: Path) -> None:
    key = "sk-ant-" + "api03-" + "Zx9" * 12
    (problem,) = validate_document(script(tmp_path, f'agentrun: "1"\nturns:\n  - text: "{key}"\n'))
    assert problem.code == "spec.secret"


def test_script_must_be_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        read_script(script(tmp_path, "- a\n"))
    assert "a provider script must be a mapping" in caught.value.problems[0].message
