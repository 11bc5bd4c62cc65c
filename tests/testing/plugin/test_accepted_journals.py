"""Several accepted journals of one case or test: `pytest --snapshot-update --agentrun-add NAME`."""

from __future__ import annotations

import pytest

from .projects import SNAPSHOT_ASSERTION, Project

ADD_B = ("--snapshot-update", "--agentrun-add", "b")


def rename_rule(project: Project, old: str, new: str) -> None:
    """The journal is another one, and the cassette still matches."""
    project.edit("specs/desk.yaml", f"id: {old}", f"id: {new}")


def own_test(project: Project, name: str = "test_own", body: str = "", head: str = "") -> None:
    body = body or 'assert agentrun("specs/desk.yaml") == journal_snapshot'
    project.write("tests/test_own.py", f"{head}def {name}(agentrun, journal_snapshot):\n    {body}\n")


def own_files(project: Project) -> list[str]:
    return sorted(path.name for path in (project.root / "tests/__snapshots__/test_own").iterdir())


def accept_two(project: Project) -> None:
    """Of a case and of a Python test."""
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    own_test(project)
    project.run("--snapshot-update").assert_outcomes(passed=2)
    rename_rule(project, "reads", "lookups")
    result = project.run(*ADD_B)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["2 snapshots generated."])


def test_run_passes_if_it_equals_one_and_the_summary_says_which(project: Project) -> None:
    accept_two(project)
    assert project.kept() == ["default.b.journal", "default.journal"]
    assert own_files(project) == ["test_own.b.journal", "test_own.journal"]
    assert project.verdicts()["default"].status == "passed"
    for rule, case, test in (
        ("lookups", "equals default.b.journal, not default.journal", "equals test_own.b.journal, not test_own.journal"),
        ("reads", "equals default.journal, not default.b.journal", "equals test_own.journal, not test_own.b.journal"),
    ):
        project.edit("specs/desk.yaml", "id: lookups", f"id: {rule}")
        result = project.run()
        assert result.ret == 0
        result.assert_outcomes(passed=2)
        result.stdout.fnmatch_lines(
            [
                "*agentrun runs with several accepted journals*",
                f"specs/desk.cases.yaml::default: {case}",
                f"tests/test_own.py::test_own: {test}",
                "2 snapshots passed.",
            ]
        )


def test_failure_shows_the_difference_from_the_nearest_one(project: Project) -> None:
    accept_two(project)
    for name in ("specs/__snapshots__/desk/default.journal", "tests/__snapshots__/test_own/test_own.journal"):
        project.edit(name, "late", "early")
    rename_rule(project, "lookups", "finds")
    result = project.run()
    result.assert_outcomes(failed=2)
    said = result.stdout.str()
    for name in ("default", "test_own"):
        assert f"the journal differs from all 2 accepted ones; the nearest is {name}.b.journal" in said
    assert "early" not in said
    assert said.count("now by finds; was by lookups") == 2
    assert "agentrun/testing" not in said
    project.run("--snapshot-update").stdout.fnmatch_lines(["2 snapshots updated."])
    assert "finds" in (project.snapshots / "default.b.journal").read_text(encoding="utf-8")
    assert "early" in (project.snapshots / "default.journal").read_text(encoding="utf-8")
    project.run().assert_outcomes(passed=2)


def test_sixth_journal_is_refused(project: Project) -> None:
    accept_two(project)
    for folder, name in ((project.snapshots, "default"), (project.root / "tests/__snapshots__/test_own", "test_own")):
        for other in "cde":
            (folder / f"{name}.{other}.journal").write_text(other, encoding="utf-8")
    rename_rule(project, "lookups", "finds")
    result = project.run("--snapshot-update", "--agentrun-add", "f")
    result.assert_outcomes(failed=2)
    assert result.stdout.str().count("a case can have at most 5 accepted journals, not 6") >= 2
    assert "agentrun/testing" not in result.stdout.str()
    assert len(project.kept()) == len(own_files(project)) == 5
    project.run(*ADD_B).assert_outcomes(passed=2)


def test_unused_journals_are_found_by_syrupy(project: Project) -> None:
    """Also if a case or a test does not compare journals any more. Of a test that is skipped, deselected or fails
    before, all are kept, also by tests that use the snapshots of syrupy."""
    accept_two(project)
    project.write("specs/test_spec.py", "def test_spec(snapshot): assert 1 == snapshot\n")
    project.write("tests/test_other.py", "def test_other(snapshot): assert 1 == snapshot\n")
    project.run("--snapshot-update").assert_outcomes(passed=4)
    kept, own = project.kept(), own_files(project)
    project.cases(f"name: default, skip: later, {SNAPSHOT_ASSERTION}")
    own_test(project, head="import pytest\n\n@pytest.mark.skip\n")
    for args in ([], ["-k", "other"], ["tests/test_other.py", "specs/test_spec.py"]):
        result = project.run(*args, "--snapshot-update")
        assert "snapshots unused" not in result.stdout.str()
        assert "unused snapshot" not in result.stdout.str()
        assert (project.kept(), own_files(project)) == (kept, own)

    project.cases("name: default")
    own_test(project, name="test_renamed")
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*4 snapshots unused."])
    project.run("--snapshot-update")
    assert (project.kept(), own_files(project)) == ([], ["test_renamed.journal"])


def test_names_of_tests_with_dots_are_not_names_of_journals(project: Project) -> None:
    """Those of classes, of later comparisons, of parameters and of named comparisons."""
    project.cases("name: default")
    project.write(
        "tests/test_own.py",
        "import pytest\n\n\n"
        "class TestShop:\n"
        "    def test_own(self, agentrun, journal_snapshot):\n"
        '        run = agentrun("specs/desk.yaml")\n'
        "        assert run == journal_snapshot\n"
        "        assert run == journal_snapshot\n"
        '        assert run == journal_snapshot(name="x.y")\n\n\n'
        '@pytest.mark.parametrize("size", ["1.5", "a.b"])\n'
        "def test_size(agentrun, journal_snapshot, size):\n"
        '    assert agentrun("specs/desk.yaml") == journal_snapshot\n',
    )
    project.run("--snapshot-update").assert_outcomes(passed=4)
    names = [
        "TestShop.test_own.1",
        "TestShop.test_own",
        "TestShop.test_own[x.y]",
        "test_size[1.5]",
        "test_size[a.b]",
    ]
    assert own_files(project) == sorted(f"{name}.journal" for name in names)
    rename_rule(project, "reads", "lookups")
    project.run(*ADD_B).assert_outcomes(passed=4)
    assert own_files(project) == sorted(f"{name}{more}.journal" for name in names for more in ("", ".b"))
    result = project.run()
    result.assert_outcomes(passed=4)
    assert "snapshots unused" not in result.stdout.str()
    assert result.stdout.str().count(".b.journal, not ") == 5


def test_processes_of_xdist_agree_on_what_is_unused(project: Project) -> None:
    accept_two(project)
    project.write("tests/__snapshots__/test_own/test_gone.b.journal", "x")
    project.write("specs/__snapshots__/desk/gone.b.journal", "x")
    result = project.process("-n", "2", "-p", "no:randomly")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*equals default.b.journal, not default.journal", "*2 snapshots unused."])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--agentrun-add", "b"], "--agentrun-add needs --snapshot-update"),
        (["--snapshot-update", "--agentrun-add", "a.b"], "--agentrun-add a.b: it must be a name of at most 64"),
        (["-p", "no:syrupy", "--agentrun-add", "b"], "--agentrun-add needs --snapshot-update"),
    ],
)
def test_wrong_name_is_refused(project: Project, args: list[str], said: str) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    result = project.run(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{said}*"])


def test_accepted_journal_is_kept_if_another_cannot_be_read(project: Project) -> None:
    """syrupy would remove it, because nothing was compared with it."""
    project.cases("name: default")
    own_test(project)
    project.run("--snapshot-update").assert_outcomes(passed=2)
    (project.root / "tests/__snapshots__/test_own/test_own.b.journal").mkdir()
    for args in (["--snapshot-update"], ADD_B):
        result = project.run(*args)
        result.assert_outcomes(passed=1, failed=1)
        said = result.stdout.str()
        assert "storage.failed: the snapshot test_own.b.journal cannot be read: it is not a regular file" in said
        assert "agentrun/testing" not in said
        assert own_files(project) == ["test_own.b.journal", "test_own.journal"]
