"""A new recording replaces the cassette only if its case passes and a replay can read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.cassette.file import load_cassette
from agentrun.cli.group import run_command
from agentrun.engine.approvals import NoApprover
from agentrun.engine.recording import CassetteRecording
from agentrun.errors import StorageError
from agentrun.spec.project import find_project
from agentrun.spec.v1.cases import Case

from .desk_project import TURNS
from .suite_project import CASES, CASSETTE, Suite

ASSERTS = "  - {name: default, approvals: {refund: approved}, assert: [{type: contains, value: Done}%s]}\n"
SNAPSHOT = ", {type: journal-snapshot}"
OTHER = TURNS.replace("Done, 20.50", "Sorry, 20.50")
RECORD = ("--record", "all", "--yes")
STAGED = ".agentrun/recorded/desk/default.yaml"
ID = f"{CASES}::default"


def test_failing_case_keeps_its_old_cassette(suite: Suite) -> None:
    suite.write(ASSERTS % "")
    before = (suite.root / CASSETTE).read_bytes()
    with suite.provider(OTHER):
        ran = suite.test(*RECORD)
    assert ran.code == 1
    assert (suite.root / CASSETTE).read_bytes() == before
    assert "contains: " in ran.out, "the report says which assertion failed"
    assert f"its cassette did not change; the new one is in {STAGED}" in ran.out
    assert f"agentrun cassette accept {ID}" in ran.out
    assert f"{ID}  the new cassette is in {STAGED} because contains failed; {CASSETTE} did not change" in ran.err
    assert b"Sorry" in load_cassette(suite.root / STAGED).interactions[-1].reply.body
    assert suite.test().code == 0, "the old one is replayed"


def test_accept_replaces_the_cassette_with_the_staged_one(suite: Suite) -> None:
    suite.write(ASSERTS % "")
    with suite.provider(OTHER):
        suite.test(*RECORD)
    new = (suite.root / STAGED).read_bytes()
    assert run_command(["cassette", "accept", ID]) == 0
    assert (suite.root / CASSETTE).read_bytes() == new
    assert not (suite.root / STAGED).exists()
    assert suite.test().code == 1
    assert run_command(["cassette", "accept", ID]) == 2, "there is none any more"


@pytest.mark.parametrize("name", ["nowhere.cases.yaml::default", f"{CASES}::nobody", CASES, "default"])
def test_accept_refuses_unknown_or_incomplete_case_ids(suite: Suite, name: str) -> None:
    assert run_command(["cassette", "accept", name]) == 2


def test_passing_case_gets_its_new_cassette(suite: Suite) -> None:
    suite.write(ASSERTS % "")
    with suite.provider(TURNS.replace("I look it up.", "Let me see.")):
        ran = suite.test(*RECORD)
    assert (ran.code, f"recorded: {CASSETTE}" in ran.err) == (0, True), ran.out
    assert not (suite.root / STAGED).exists()
    assert b"Let me see" in load_cassette(suite.root / CASSETTE).interactions[0].reply.body


def test_changed_journal_of_a_recording_is_shown_and_passes(suite: Suite) -> None:
    suite.write(ASSERTS % SNAPSHOT)
    assert suite.test("--update").code == 0
    accepted = suite.accepted()
    with suite.provider(TURNS.replace("I look it up.", "Let me see.")):
        ran = suite.test(*RECORD)
    assert (ran.code, ran.out.splitlines()[-2:]) == (
        0,
        ["1 passed", f"  → accept the new journals: agentrun test {ID} --update"],
    )
    assert f"CHANGED  {ID}" in ran.out
    assert '  -    text: "I look it up."' in ran.out or "Let me see." in ran.out
    assert f"recorded: {CASSETTE}" in ran.err
    assert suite.accepted() == accepted, "it is accepted with --update"
    assert suite.test().code == 1
    assert suite.test("--update").code == 0
    assert suite.accepted() != accepted


def test_record_with_update_accepts_a_changed_journal(suite: Suite) -> None:
    suite.write(ASSERTS % SNAPSHOT)
    assert suite.test("--update").code == 0
    with suite.provider(TURNS.replace("I look it up.", "Let me see.")):
        assert suite.test(*RECORD, "--update").code == 0
    assert "Let me see." in suite.accepted()
    assert suite.test().code == 0


def test_journal_of_a_failing_case_is_not_accepted(suite: Suite) -> None:
    suite.write(ASSERTS % SNAPSHOT)
    assert suite.test("--update").code == 0
    accepted = suite.accepted()
    with suite.provider(OTHER):
        assert suite.test(*RECORD, "--update").code == 1
    assert suite.accepted() == accepted
    assert suite.test().code == 0


def test_first_recording_of_a_failing_case_is_staged(suite: Suite) -> None:
    suite.write(ASSERTS.replace("default", "fresh") % "")
    with suite.provider(OTHER):
        assert suite.test(*RECORD).code == 1
    assert not (suite.root / "cassettes/desk/fresh.yaml").exists()
    assert run_command(["cassette", "accept", f"{CASES}::fresh"]) == 0
    assert (suite.root / "cassettes/desk/fresh.yaml").is_file()


def test_xfail_case_gets_its_new_cassette(suite: Suite) -> None:
    suite.write(
        "  - {name: default, xfail: known, approvals: {refund: approved}, assert: [{type: contains, value: X}]}\n"
    )
    with suite.provider(OTHER):
        assert suite.test(*RECORD).code == 0
    assert b"Sorry" in load_cassette(suite.root / CASSETTE).interactions[-1].reply.body


# --- size ----------------------------------------------------------------------------------------------------------


def set_cassette_limit(suite: Suite, size: int) -> None:
    suite.edit("pyproject.toml", "[tool.agentrun]\n", f"[tool.agentrun]\ncassette_limit = {size}\n")


@pytest.mark.parametrize("args", [("test", "specs", *RECORD), ("specs/desk.yaml", *RECORD, "--approve", "all")])
def test_recording_over_the_cassette_limit_keeps_the_old_cassette(
    suite: Suite, capsys: pytest.CaptureFixture[str], args: tuple[str, ...]
) -> None:
    suite.write(ASSERTS % "")
    before = (suite.root / CASSETTE).read_bytes()
    set_cassette_limit(suite, len(before) + 2000)
    with suite.provider(TURNS.replace("I look it up.", "I look it up." + "x" * 5000)):
        code = run_command([*args])
    out, err = capsys.readouterr()
    assert code in (3, 7)
    assert "cassette_limit" in out + err
    assert (suite.root / CASSETTE).read_bytes() == before
    assert not (suite.root / STAGED).exists()
    assert suite.test().code == 0, "the old one can be read"


def test_cassette_over_the_limit_is_not_replayed(suite: Suite) -> None:
    size = (suite.root / CASSETTE).stat().st_size
    suite.write(ASSERTS % "")
    set_cassette_limit(suite, size)
    assert suite.test().code == 0
    suite.edit("pyproject.toml", f"cassette_limit = {size}", f"cassette_limit = {size - 1}")
    ran = suite.test()
    assert (ran.code, f"more than {size - 1} bytes" in ran.out, "cassette_limit" in ran.out) == (3, True, True)


@pytest.mark.parametrize("value", ["0", "-1", '"64 MB"', '"2GiB"', "true", "1.5", '""'])
def test_invalid_cassette_limit_is_refused(suite: Suite, value: str) -> None:
    suite.edit("pyproject.toml", "[tool.agentrun]\n", f"[tool.agentrun]\ncassette_limit = {value}\n")
    ran = suite.test()
    assert (ran.code, "cassette_limit" in ran.out) == (2, True), ran.out


@pytest.mark.parametrize(("value", "size"), [("1", 1), ('"64MiB"', 64 << 20), ('"1 GiB"', 1 << 30), ('"3KiB"', 3072)])
def test_cassette_limit_accepts_sizes_with_units(tmp_path: Path, value: str, size: int) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.agentrun]\ncassette_limit = {value}\n")
    assert find_project(tmp_path / "x.yaml").cassette_limit == size


# --- another process -----------------------------------------------------------------------------------------------


def test_late_recorder_does_not_replace_the_cassette_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "cassettes/a/default.yaml"
    spec = tmp_path / "a.yaml"
    recording = CassetteRecording(find_project(spec), path, spec, Case(name="default"), is_new=True)
    with recording.start(NoApprover()):
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("of the winner")
    with pytest.raises(StorageError, match="another process has recorded"), recording.start(NoApprover()):
        pytest.fail("it began to record")


def test_snapshot_changed_by_another_process_is_not_overwritten(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read the same journal as accepted; the first to write wins."""
    from agentrun.testing.suite import snapshots

    suite.write(ASSERTS % SNAPSHOT)
    assert suite.test("--update").code == 0
    (suite.snapshots / "default.journal").write_text("older\n")
    real = snapshots.write_snapshot

    def write(*args: object) -> None:
        (suite.snapshots / "default.journal").write_text("of another process\n")
        real(*args)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(snapshots, "write_snapshot", write)
    ran = suite.test("--update")
    assert (ran.code, "was not written because another process changed it meanwhile" in ran.out) == (1, True)
    assert suite.accepted() == "of another process\n"
