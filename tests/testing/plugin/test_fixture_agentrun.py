"""The `agentrun` fixture: runs of agents in Python tests."""

from __future__ import annotations

import pytest

from agentrun.distribution import install_hint

from .projects import SNAPSHOT_ASSERTION, Project


def run(project: Project, body: str, *args: str) -> pytest.RunResult:
    """One test with this body."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    head = "import pytest\nfrom agentrun.testing import *\nfrom agentrun import AgentrunError\n"
    project.write("tests/test_own.py", f"{head}\ndef test_own(agentrun):\n{lines}\n")
    return project.run("tests", *args)


def test_case_is_replayed_from_its_cassette(project: Project) -> None:
    project.cases("name: default", "name: other")
    body = """
run = agentrun("specs/desk.yaml", case="other")
assert run.output == "Order 1042 is late."
assert run.outcome == "completed"
assert [(call.tool, call.args, call.status, call.result) for call in run.calls] == [
    ("look", {"order": "1042"}, "ok", "late")
]
assert [(ruling.target, ruling.ruling, ruling.rules) for ruling in run.rulings if ruling.stage == "tool_call"] == [
    ("look", "allow", ("reads",))
]
assert run.approvals == ()
assert (run.spend.tokens, run.spend.turns, run.spend.cost) == (50, 2, 0)
assert run.journal[0].seq == 1
assert "late" in run.canonical
assert repr(run) == "<run of desk, case other: completed>"
assert agentrun("specs/desk.yaml").canonical == run.canonical
"""
    run(project, body).assert_outcomes(passed=1)
    assert project.traces() == []


def test_run_with_a_scripted_model(project: Project) -> None:
    body = """
look = stub("lost")
model = scripted(calls("look", order="7"), text("It is lost."))
run = agentrun("specs/desk.yaml", message="Where is 7?", model=model, tools={"look": look})
assert (run.output, run.outcome, look.count) == ("It is lost.", "completed", 1)
assert run.calls[0].result == "lost"
again = agentrun("specs/desk.yaml", message="Where is 7?",
    model=scripted(calls("look", order="7"), text("It is lost.")), tools={"look": stub("lost")})
assert again.canonical == run.canonical
"""
    run(project, body).assert_outcomes(passed=1)
    assert project.traces() == []


def test_fixture_works_in_a_running_event_loop(project: Project) -> None:
    project.cases("name: default")
    body = """
import asyncio
async def main():
    assert agentrun("specs/desk.yaml").output == "Order 1042 is late."
    model = scripted(calls("look", order="7"), text("It is lost."))
    return agentrun("specs/desk.yaml", message="Where is 7?", model=model, tools={"look": stub("lost")})
assert asyncio.run(main()).output == "It is lost."
"""
    run(project, body).assert_outcomes(passed=1)


def test_failed_run_is_an_outcome(project: Project) -> None:
    body = """
model = scripted(*[calls("look", order=str(n)) for n in range(9)])
assert agentrun("specs/desk.yaml", model=model, tools={"look": stub("x")}).outcome == "budget.turns"
"""
    run(project, body).assert_outcomes(passed=1)


def test_spec_path_is_relative_to_the_test(project: Project) -> None:
    project.cases("name: default")
    project.write("specs/test_beside.py", 'def test_beside(agentrun): assert agentrun("desk.yaml").output\n')
    project.run("specs/test_beside.py").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ('"specs/desk.yaml", case="defualt"', ['no case "defualt"', 'did you mean "default"?']),
        ('"specs/desk.yaml", message="Hi."', ["a run without a case needs a `model`", "model=scripted"]),
        (
            '"specs/desk.yaml", case="default", model=scripted(text("x"))',
            ["`case` and `model` cannot be combined", "leave out"],
        ),
        ('"specs/desk.yaml", case="misfit"', ["cassette.miss", "Where is order 7?"]),
        ('"specs/desk.yaml", case="missing"', ["cassette.miss"]),
        ('"specs/dsk.yaml"', ['there is no file "specs/dsk.yaml"', 'did you mean "specs/desk.yaml"?']),
        ('"specs/absent.yaml"', ['there is no file "specs/absent.yaml"', "rootdir", "to the folder of the test"]),
        ('"bare.yaml"', ["bare.yaml has no cases: there is no file bare.cases.yaml next to it", "model=scripted"]),
        ('"specs/desk.yaml", model=scripted(text("x"))', ["host.missing", "look", "tools={'look': stub(…)}"]),
        ('"specs/desk.yaml", model=scripted(text("x")), modle=1', ["modle"]),
    ],
    ids=["case", "message", "both", "misfit", "missing", "misspelt", "spec", "bare", "tools", "word"],
)
def test_error_is_shown_without_internal_frames(project: Project, call: str, said: list[str]) -> None:
    project.cases("name: default", "name: misfit, input: Where is order 7?", "name: missing, cassette: other")
    project.write("bare.yaml", "")
    result = run(project, f"agentrun({call})")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    for each in said:
        assert each in text
    assert "agentrun/testing" not in text
    assert "runner/agentrun" not in text


def test_error_can_be_expected_with_raises(project: Project) -> None:
    project.cases("name: misfit, input: Where is order 7?")
    body = """
with pytest.raises(AgentrunError, match="cassette.miss"):
    agentrun("specs/desk.yaml", case="misfit")
"""
    run(project, body).assert_outcomes(passed=1)


def test_journal_snapshot_is_one_file_per_test(project: Project) -> None:
    """One file for each test, beside the module; unused ones are found."""
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update", "specs")
    body = """
    run = agentrun("specs/desk.yaml")
    assert run == journal_snapshot
    assert journal_snapshot(name="again") == run.canonical
"""
    own = project.write("tests/test_own.py", f"def test_own(agentrun, journal_snapshot):{body}")
    missing = project.run("tests")
    missing.assert_outcomes(failed=1)
    assert "Snapshot 'test_own' does not exist!" in missing.stdout.str()
    assert "to accept the journal: pytest --snapshot-update" in missing.stdout.str()
    assert "tokens →" not in missing.stdout.str()
    project.run("tests", "--snapshot-update").assert_outcomes(passed=1)
    folder = project.root / "tests" / "__snapshots__" / "test_own"
    assert sorted(path.name for path in folder.iterdir()) == ["test_own.journal", "test_own[again].journal"]
    assert (folder / "test_own.journal").read_bytes() == (project.snapshots / "default.journal").read_bytes()
    project.run().assert_outcomes(passed=2)
    own.write_text(f"def test_other(agentrun, journal_snapshot):{body}", encoding="utf-8")
    unused = project.run("tests", "--snapshot-update")
    unused.stdout.fnmatch_lines(["2 snapshots generated. 2 unused snapshots deleted."])


def test_changed_journal_fails_the_snapshot(project: Project) -> None:
    project.cases("name: default")
    project.write(
        "tests/test_own.py",
        'def test_own(agentrun, journal_snapshot): assert agentrun("specs/desk.yaml") == journal_snapshot\n',
    )
    project.run("tests", "--snapshot-update").assert_outcomes(passed=1)
    project.edit("tests/__snapshots__/test_own/test_own.journal", "late", "here")
    result = project.run("tests")
    result.assert_outcomes(failed=1)
    said = result.stdout.str()
    assert "here" in said
    assert "--- accepted" in said
    assert "agentrun/testing" not in said


def test_journal_snapshot_without_syrupy_gives_an_install_hint(project: Project) -> None:
    project.write("tests/test_own.py", "def test_own(journal_snapshot): pass\n")
    result = project.run("tests", "-p", "no:syrupy")
    result.assert_outcomes(errors=1)
    assert install_hint("test") in result.stdout.str()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("agentrun(3)", "TypeError: spec must be a string, not int"),
        ('agentrun("specs/desk.yaml", case=3)', "TypeError: case must be a string, not int"),
        ('agentrun("specs/desk.yaml", params=[1])', "TypeError: params must be a mapping, not list"),
        (
            'agentrun("specs/desk.yaml", model=3)',
            "TypeError: `model` must be a function or an object with a method `ask`, not int",
        ),
        (
            'agentrun("specs/desk.yaml", model=scripted(), tools=[1])',
            "TypeError: `tools` must be a mapping from names to functions or objects, not list",
        ),
        ("assert 3 == journal_snapshot", "TypeError: compare journal_snapshot with a run *, not with int"),
    ],
)
def test_argument_of_the_wrong_type_is_refused(project: Project, call: str, said: str) -> None:
    project.cases("name: default")
    project.write(
        "tests/test_own.py",
        f"from agentrun.testing import scripted\ndef test_own(agentrun, journal_snapshot): {call}\n",
    )
    result = project.run("tests")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E * {said}"])
    assert "agentrun/testing" not in result.stdout.str()
