"""`agentrun diff` for journals and snapshots: how files are recognised, and its text, JSON and Markdown output."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from ..journal.journals import JOURNAL, WITH_TOOLS, journal
from .command import ROOT, SCRIPT, agentrun
from .diff_inputs import accepted_snapshots, diff, edited_copy, made_snapshots  # noqa: F401  # fixtures

KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"


def test_equal_snapshots_have_no_differences(accepted_snapshots: Path) -> None:  # noqa: F811  # the fixture
    told = diff(accepted_snapshots / "support" / "default.journal", accepted_snapshots / "support" / "default.journal")
    assert (told.code, told.out, told.err) == (0, "", "no differences\n")


@pytest.mark.parametrize("form", ["--json", "--markdown", None])
def test_diff_output_as_text_json_and_markdown(
    accepted_snapshots: Path,  # noqa: F811  # the fixture
    form: str | None,
    snapshot: SnapshotAssertion,
) -> None:
    one, two = accepted_snapshots / "support" / "default.journal", accepted_snapshots / "support" / "approval.journal"
    told = diff(one, two, *([form] if form else []))
    assert told.code == 1
    assert told.out == snapshot


def test_texts_of_several_lines_are_shown_by_line(accepted_snapshots: Path) -> None:  # noqa: F811  # the fixture
    one = accepted_snapshots / "researcher" / "default.journal"
    told = diff(one, edited_copy(one, "Spring tides reach 4.6", "Spring tides reach 4.7"))
    assert told.code == 1
    first, *more = told.out.splitlines()
    assert first.startswith("~ turn 2, reader c2.0, turn 1: the result of library.read changed: line 3: “…")
    assert [line[:5] for line in more] == ["    @", "     ", "     ", "    -", "    +", "     ", "     "]
    assert "4.6 metres" in more[3]
    assert "4.7 metres" in more[4]


def test_journal_equals_its_snapshot_including_sub_agents(accepted_snapshots: Path, tmp_path: Path) -> None:  # noqa: F811  # the fixture
    """They are one in their canonical form, sub-agents included."""
    done = agentrun("specs/researcher.yaml", "--journal", tmp_path / "r.jsonl", CI="true")
    assert done.code == 0
    snapshot = accepted_snapshots / "researcher" / "default.journal"
    assert diff(tmp_path / "r.jsonl", snapshot).code == 0
    (tmp_path / "r.c2.0.jsonl").unlink()
    told = diff(tmp_path / "r.jsonl", snapshot)
    assert told.code == 1
    assert "reader c2.0" in told.out


def test_journals_that_are_damaged_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(JOURNAL.text())
    (tmp_path / "b.jsonl").write_bytes(JOURNAL.text().replace(b"search", b"sEarch"))
    (tmp_path / "c.jsonl").write_bytes(JOURNAL.text()[:-10])
    (tmp_path / "d.journal").write_text("- run_started:\n    agent: a\n<<<<<<< ours\n", encoding="utf-8")
    assert diff(tmp_path / "a.jsonl", tmp_path / "a.jsonl").code == 0
    for name, said in (("b.jsonl", "journal.damaged"), ("c.jsonl", "journal.truncated"), ("d.journal", "line 3")):
        told = diff(tmp_path / "a.jsonl", tmp_path / name)
        assert (told.code, told.out) == (2, "")
        assert said in told.err
        assert name in told.err
        assert said in json.dumps(diff(tmp_path / "a.jsonl", tmp_path / name, "--json").data)


def test_only_files_of_the_same_kind_can_be_compared(accepted_snapshots: Path, tmp_path: Path) -> None:  # noqa: F811  # the fixture
    (tmp_path / "a.jsonl").write_bytes(JOURNAL.text())
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    sides = {
        "a journal": tmp_path / "a.jsonl",
        "a spec or a package": ROOT / "specs" / "support.yaml",
        "a cassette": ROOT / "cassettes" / "support" / "default.yaml",
        "a folder": accepted_snapshots,
    }
    for name, path in sides.items():
        for other, another in sides.items():
            if name != other:
                told = diff(path, another)
                assert told.code == 2
                assert (
                    f"{path} is {name} and {another} is {other}; only files of the same kind can be compared"
                    in told.err
                )
    told = diff(tmp_path / "notes.txt", tmp_path / "a.jsonl")
    assert (told.code, told.err) == (
        2,
        f"{tmp_path / 'notes.txt'} is not a journal, snapshot, cassette, spec or package",
    )
    assert diff(sides["a journal"], sides["a journal"], "--profile", "ci").code == 2
    assert diff(sides["a journal"], sides["a journal"], "--json", "--markdown").code == 2


def test_files_are_recognised_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(JOURNAL.text())
    other = journal(*WITH_TOOLS[:-2], WITH_TOOLS[-1])
    (tmp_path / "b.txt").write_bytes(other.text())
    told = diff(tmp_path / "a.yaml", tmp_path / "b.txt", "--json")
    assert told.data["kind"] == "journal"
    assert [change["kind"] for change in told.data["changes"]] == ["reply", "spend"]


def test_credentials_and_control_characters_are_not_shown(accepted_snapshots: Path, tmp_path: Path) -> None:  # noqa: F811  # the fixture
    """Neither what looks like a key nor a credential of the environment, in any form of any output."""
    one = accepted_snapshots / "support" / "default.journal"
    cut = "x" * 70  # a value that is shown up to its middle is found by nobody
    two = edited_copy(one, "sorting centre north", f"{KEY} and correct-horse-battery \\u001b[2J")
    two = edited_copy(two, "I look at the order first.", f"{cut}correct-horse-battery", "c")
    for form in ((), ("--json",), ("--markdown",)):
        done = agentrun("diff", one, two, *form, cwd=tmp_path, ANTHROPIC_API_KEY="correct-horse-battery")
        assert done.code == 1
        assert KEY not in done.out
        assert "correct-horse" not in done.out
        assert "\x1b" not in done.out
        assert "sorting centre north" in done.out.replace("&#32;", " ")


def test_folders_are_compared_by_file_name(accepted_snapshots: Path, snapshot: SnapshotAssertion) -> None:  # noqa: F811  # the fixture
    shutil.copytree(accepted_snapshots, "b")
    (Path("b") / "support" / "denial.journal").rename(Path("b") / "support" / "refusal.journal")
    path = Path("b") / "support" / "default.journal"
    path.write_text(path.read_text(encoding="utf-8").replace('"amount":39.9', '"amount":30'), encoding="utf-8")
    told = diff(accepted_snapshots, "b")
    assert told.code == 1
    assert told.out == snapshot(name="text")
    assert told.err == "3 differences in 3 of 5 files\n"
    assert diff(accepted_snapshots, "b", "--markdown").out == snapshot(name="markdown")
    data = diff(accepted_snapshots, "b", "--json").data
    assert (data["kind"], data["same"], len(data["files"])) == ("folder", False, 5)
    assert [each["file"] for each in data["files"] if not each["same"]] == [
        "support/default.journal",
        "support/denial.journal",
        "support/refusal.journal",
    ]
    same = diff(accepted_snapshots, accepted_snapshots)
    assert (same.code, same.err) == (0, "no differences\n")


def test_terminal_output_is_coloured_unless_no_color(accepted_snapshots: Path) -> None:  # noqa: F811  # the fixture
    one = accepted_snapshots / "support" / "default.journal"
    two = edited_copy(one, '"amount":39.9', '"amount":30')
    for more, colored in (({}, True), ({"NO_COLOR": "1"}, False)):
        master, slave = os.openpty()
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm", **more}
        done = subprocess.run(
            [SCRIPT, "diff", one, two], stdout=slave, stderr=subprocess.DEVNULL, env=environment, check=False
        )
        os.close(slave)
        shown = os.read(master, 10_000).decode()
        os.close(master)
        line = "~ turn 3: the call of refund: amount 39.9 → 30"
        assert done.returncode == 1
        assert shown == (f"\x1b[33m{line}\x1b[0m\r\n" if colored else f"{line}\r\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
@pytest.mark.parametrize("name", ["support", "support/default.journal"])
def test_unreadable_file_is_an_error_and_not_reported_as_removed(accepted_snapshots: Path, name: str) -> None:  # noqa: F811  # the fixture
    shutil.copytree(accepted_snapshots, "b")
    Path("b", name).chmod(0)
    told = diff(accepted_snapshots, "b")
    Path("b", name).chmod(0o700)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(f"storage.failed: b/{name} cannot be read: Permission denied\n")


def test_cases_files_cannot_be_compared() -> None:
    cases = ROOT / "specs" / "support.cases.yaml"
    told = diff(cases, cases)
    assert (told.code, told.err) == (2, f"{cases} is not a journal, snapshot, cassette, spec or package")


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)])
def test_environment_credential_in_a_spec_is_not_shown(tmp_path: Path, form: tuple[str, ...]) -> None:
    spec = 'agentrun: "1"\nname: a\nmodel: {provider: openai, name: m}\ninstructions: |\n  Say little.\n  Be {}.\n'
    for name, word in (("a", "kind"), ("b", "correct-horse-battery")):
        (tmp_path / f"{name}.yaml").write_text(spec.replace("{}", word), encoding="utf-8")
    key = "correct-horse-battery"
    done = agentrun("diff", tmp_path / "a.yaml", tmp_path / "b.yaml", *form, cwd=tmp_path, ANTHROPIC_API_KEY=key)
    assert done.code == 1
    assert "Be kind." in done.out
    assert "redacted" in done.out
    assert key not in done.out


def test_empty_folders_are_refused(tmp_path: Path) -> None:
    told = diff(tmp_path, tmp_path)
    assert told.code == 2
    assert "contain no specs, snapshots, journals or cassettes" in told.err
