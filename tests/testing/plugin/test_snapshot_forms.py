"""`usage` and `ignore` of journal snapshots in pytest."""

from __future__ import annotations

from .projects import Project

MODEL = "model_replied.reply.model"


def own_tests(project: Project, **options: str) -> None:
    """Tests with these names, each with its options."""
    project.cases("name: default")
    lines = [
        f"def test_{name}(agentrun, journal_snapshot):\n"
        f'    assert agentrun("specs/desk.yaml") == journal_snapshot({written})\n'
        for name, written in options.items()
    ]
    project.write("tests/test_own.py", "\n\n".join(lines))


def accepted(project: Project, name: str) -> str:
    return (project.root / f"tests/__snapshots__/test_own/test_{name}.journal").read_text(encoding="utf-8")


def test_usage_is_an_argument_of_the_fixture(project: Project) -> None:
    own_tests(project, plain="", exact='usage="exact"', none='usage="none"')
    project.run("tests", "--snapshot-update").assert_outcomes(passed=3)
    texts = {name: accepted(project, name) for name in ("plain", "exact", "none")}
    assert [name for name, text in texts.items() if "usage:" in text] == ["exact"]
    assert [name for name, text in texts.items() if text.endswith("\n\n- spent: 50 tokens\n")] == ["plain"]
    project.run("tests").assert_outcomes(passed=3)


def test_ignored_value_may_change(project: Project) -> None:
    own_tests(project, plain="", ignoring=f'ignore=["{MODEL}"]')
    project.run("tests", "--snapshot-update").assert_outcomes(passed=2)
    assert 'model: "[ignored]"' in accepted(project, "ignoring")
    project.edit("cassettes/desk/default.yaml", "gpt-4.1-mini-2025-04-14", "gpt-4.1-mini-2026-01-01")
    project.run("tests").assert_outcomes(passed=1, failed=1)


def test_options_are_for_one_comparison(project: Project) -> None:
    project.cases("name: default")
    project.write(
        "tests/test_own.py",
        "def test_own(agentrun, journal_snapshot):\n"
        '    run = agentrun("specs/desk.yaml")\n'
        '    assert run == journal_snapshot(usage="none", name="bare")\n'
        "    assert run == journal_snapshot\n",
    )
    project.run("tests", "--snapshot-update").assert_outcomes(passed=1)
    folder = project.root / "tests/__snapshots__/test_own"
    texts = {path.name: "spent:" in path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert texts == {"test_own[bare].journal": False, "test_own.1.journal": True}


def test_wrong_option_is_a_type_error(project: Project) -> None:
    own_tests(project, usage='usage="some"', text=f'ignore="{MODEL}"', path='ignore=["a b"]')
    result = project.run("tests")
    result.assert_outcomes(failed=3)
    said = result.stdout.str()
    assert "TypeError: journal_snapshot: Invalid enum value 'some' - at `$.usage`" in said
    assert "Expected `array`, got `str` - at `$.ignore`" in said
    assert "at `$.ignore[0]`" in said


def test_paths_that_match_nothing_are_listed(project: Project) -> None:
    ignore = f"ignore: [{MODEL}, tool_finished.fault]"
    own_tests(project, own=f'ignore=["{MODEL}", "ruled.reason"]')
    project.cases(
        f"name: default, assert: [{{type: journal-snapshot, {ignore}}}]",
        "name: other, assert: [{type: journal-snapshot, ignore: [approval_asked.reason]}]",
    )
    result = project.run("--snapshot-update")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*agentrun paths of `ignore` that match nothing*",
            "specs/desk.cases.yaml: approval_asked.reason",
            "specs/desk.cases.yaml: tool_finished.fault",
            "tests/test_own.py::test_own: ruled.reason",
        ]
    )
    assert f": {MODEL}" not in result.stdout.str()
    assert "match nothing" not in project.run("-k", "other").stdout.str(), "another case may have it"
