"""Python functions of a project as assertions."""

import sys
from pathlib import Path
from typing import Any

import pytest

from agentrun.canonical_json import text_hash

from .evidence import failed_assertion, make_evidence

CHECKS = """
import sys

def nothing(run): pass
def yes(run): return True
def no(run): return False
def text(run): return f"{len(run.calls)} calls"
def assertions(run):
    assert run.outcome == "other", "another outcome"
def bare(run):
    assert run.outcome == "other"
def breaks(run): return run.params["missing"]
def leaves(run): sys.exit(3)
def odd(run): return [1]
def prints(run):
    print("looked at", run.outcome)
    return "no good"
def spoils(run):
    run.params["order"] = "spoiled"
    run.calls[0].args["id"] = "spoiled"
    run.json.append(2)
def reads(run):
    assert run.json == [1]
    assert run.params == {"order": "1042"}
    assert run.calls[0].args == {"id": "1042"}
    assert (run.tokens, run.cost, run.turns, run.time) == (2000, 1089, 4, 1500)
    assert run.rulings[1].rules == ("big", "always")
    assert run.approvals[0].answer == "denied"
async def later(run): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose module has a name of its own: a process has each once."""
    name = f"checks_{text_hash(str(tmp_path))[7:19]}"
    (tmp_path / f"{name}.py").write_text(CHECKS)
    (tmp_path / "name").write_text(name)
    return tmp_path


def failure_of_error(project: Path, function: str, kind: str = "python") -> Any:
    name = (project / "name").read_text()
    return failed_assertion({"type": kind, "value": f"{name}:{function}"}, make_evidence("[1]"), project)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", None),
        ("yes", None),
        ("reads", None),
        ("no", "it returned no reason"),
        ("text", "5 calls"),
        ("assertions", "another outcome (NAME.py:9)"),
        ("bare", 'assert run.outcome == "other" (NAME.py:11)'),
        ("prints", "no good"),
    ],
)
def test_result_of_a_function_passes_or_fails(project: Path, function: str, message: str | None) -> None:
    name = (project / "name").read_text()
    plain, other = failure_of_error(project, function), failure_of_error(project, function, "not-python")
    if message is None:
        assert plain is None
        assert (other.assertion, other.message) == ("not-python", f"{name}:{function} passes")
    else:
        assert (plain.assertion, plain.message) == ("python", f"{name}:{function}: {message.replace('NAME', name)}")
        assert other is None


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("breaks", "fails: KeyError: 'missing' (NAME.py:12)"),
        ("leaves", "fails: SystemExit: 3 (NAME.py:13)"),
        ("odd", "returns list"),
        ("later", "is async"),
    ],
)
def test_broken_function_fails_both_ways(project: Path, function: str, message: str) -> None:
    name = (project / "name").read_text()
    for kind in ("python", "not-python"):
        wrong = failure_of_error(project, function, kind)
        assert (wrong.assertion, wrong.message) == (kind, f"{name}:{function} {message}".replace("NAME", name))


def test_output_of_a_function_is_captured_and_shown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert failure_of_error(project, "prints").detail.splitlines() == ["it printed:", "  looked at completed"]
    assert capsys.readouterr() == ("", "")


def test_function_cannot_change_the_evidence(project: Path) -> None:
    name, evidence = (project / "name").read_text(), make_evidence("[1]")
    for function in ("spoils", "reads"):
        assert failed_assertion({"type": "python", "value": f"{name}:{function}"}, evidence, project) is None


def test_module_that_cannot_be_imported_fails_both_ways(project: Path) -> None:
    name = f"{(project / 'name').read_text()}_bad"
    (project / f"{name}.py").write_text("raise RuntimeError('not today')\ndef f(run): pass\n")
    for kind in ("python", "not-python"):
        wrong = failed_assertion({"type": kind, "value": f"{name}:f"}, make_evidence(), project)
        assert wrong is not None
        assert wrong.message == f"{name} cannot be imported: RuntimeError: not today ({name}.py:1)"


def test_missing_function_fails_without_an_import(project: Path) -> None:
    wrong = failed_assertion({"type": "not-python", "value": "nowhere_at_all:f"}, make_evidence(), project)
    assert wrong is not None
    assert "nowhere_at_all" in wrong.message
    assert "nowhere_at_all" not in sys.modules


def test_keyboard_interrupt_is_not_caught(project: Path) -> None:
    name = f"{(project / 'name').read_text()}_stop"
    (project / f"{name}.py").write_text("def f(run): raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        failed_assertion({"type": "python", "value": f"{name}:f"}, make_evidence(), project)
