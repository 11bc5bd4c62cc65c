"""pytest-xdist: the same verdicts, output and snapshots as in one process."""

from __future__ import annotations

from .projects import SNAPSHOT_ASSERTION, Project
from .test_snapshots import journal
from .test_verdicts import BAD, outcomes


def cases(project: Project, *numbers: int) -> None:
    project.cases(
        *(f"name: case-{number}, {SNAPSHOT_ASSERTION}" for number in numbers),
        f"name: bad, {BAD}",
        f"name: known, xfail: later, {BAD}",
        "name: off, skip: closed",
    )


def test_unused_snapshots_are_found_with_two_processes(project: Project) -> None:
    cases(project, 0, 1, 2)
    project.run("--snapshot-update")
    cases(project, 1, 2)
    result = project.process("-n", "2", "specs", "-rA")
    assert outcomes(result) == outcomes(project.run("specs", "-rA"))
    result.stdout.fnmatch_lines(["2 snapshots passed. 1 snapshot unused."])
    result.stdout.fnmatch_lines(["contains: *absent*", "The run:", "specs/desk.cases.yaml:5: failed"])
    result.stdout.fnmatch_lines(["FAILED specs/desk.cases.yaml::bad - contains: *"])
    assert "agentrun/testing" not in result.stdout.str()


def test_snapshot_update_with_two_processes(project: Project) -> None:
    cases(project, 0, 1, 2)
    project.run("--snapshot-update")
    cases(project, 2, 3, 4)
    quiet = ("-W", "ignore:syrupy")  # it warns of files that tests share
    result = project.process("-n", "2", "--snapshot-update", *quiet, "specs")
    result.stdout.fnmatch_lines(["1 snapshot passed. 2 snapshots generated. 2 unused snapshots deleted."])
    assert project.kept() == [f"case-{number}.journal" for number in (2, 3, 4)]
    assert (project.snapshots / "case-4.journal").read_bytes() == journal(project, "case-4")
