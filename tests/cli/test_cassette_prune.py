"""`agentrun cassette prune`: what it removes, what it keeps, and that it changes nothing without --yes."""

from __future__ import annotations

from pathlib import Path

from agentrun.cassette.file import load_cassette
from agentrun.spec.project import find_project
from agentrun.store.process_lock import hold_lock
from agentrun.store.staged_cassettes import cassette_lock_path

from .command import CommandResult, agentrun
from .desk_project import (
    CASSETTE,
    NOW,
    add_unused,
    cassette,
    copy_cassette,
    edit,
    make_foreign,
    rewrite,
    unplayed_interaction,
    without_lines,
)

UNCHANGED = "nothing was changed; add --yes to remove them\n"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("cassettes/**/*") if path.is_file()
    }


def replays(folder: Path) -> bool:
    done = agentrun("specs/desk.yaml", "--case", "default", "--mode", "replay", "--quiet", cwd=folder)
    return (done.code, done.out) == (0, "Done, 20.50 is paid back.\n")


def prune(folder: Path, *args: str) -> CommandResult:
    return cassette(folder, "prune", *args, "--yes")


def test_prune_of_a_good_cassette_changes_nothing(desk: Path) -> None:
    before = contents(desk)
    for args in ([], ["--yes"]):
        done = cassette(desk, "prune", *args)
        assert (done.code, done.out) == (0, "")
    assert contents(desk) == before
    assert cassette(desk, "prune").err == "there is nothing to prune\n"


def test_unused_interactions_are_removed_only_with_yes(desk: Path) -> None:
    good = load_cassette(desk / CASSETTE)
    add_unused(desk / CASSETTE)
    assert not replays(desk)
    before = contents(desk)
    done = cassette(desk, "prune")
    told = f"rewrite  {CASSETTE}  remove 2 of 9 interactions that its case does not play: 1 and 5\n"
    assert (done.code, done.out, done.err) == (0, told, UNCHANGED)
    assert contents(desk) == before
    done = prune(desk)
    assert (done.code, done.out, done.err) == (0, told, "1 file changed\n")
    again = load_cassette(desk / CASSETTE)
    assert without_lines(again.interactions) == without_lines(good.interactions)
    assert again.metadata == {**good.metadata, "history": [{"at": NOW, "pruned": 2}]}
    assert replays(desk)
    assert cassette(desk, "audit", "--fail-on", "any").code == 0
    assert cassette(desk, "prune").err == "there is nothing to prune\n"


def test_prune_adds_an_entry_to_the_history(desk: Path) -> None:
    first = {"at": "2026-02-01T00:00:00Z", "kept": 2, "recorded": 5}
    rewrite(desk / CASSETTE, lambda interactions: [*interactions, unplayed_interaction()], history=[first])
    assert prune(desk).code == 0
    assert load_cassette(desk / CASSETTE).metadata["history"] == [first, {"at": NOW, "pruned": 1}]


def test_orphans_are_removed_only_with_yes(desk: Path) -> None:
    path = copy_cassette(desk, "orphan")
    done = cassette(desk, "prune")
    assert (done.code, done.out, done.err) == (0, "remove   cassettes/desk/orphan.yaml  no case uses it\n", UNCHANGED)
    assert path.exists()
    assert prune(desk).err == "1 file changed\n"
    assert list(contents(desk)) == [CASSETTE]
    assert replays(desk)


def test_leftovers_of_an_interrupted_write_are_removed(desk: Path) -> None:
    (desk / CASSETTE).with_name(".default.yaml.0123456789abcdef.new").write_text("version: 1\ninter")
    assert cassette(desk, "prune").out == (
        "remove   cassettes/desk/.default.yaml.0123456789abcdef.new  it was left by an interrupted write\n"
    )
    assert len(cassette(desk, "prune", CASSETTE).out.splitlines()) == 1
    assert prune(desk).code == 0
    assert list(contents(desk)) == [CASSETTE]


def test_json_says_which_actions_were_done(desk: Path) -> None:
    add_unused(desk / CASSETTE)
    copy_cassette(desk, "orphan")
    (unused, orphan) = cassette(desk, "prune", "--json").lines()
    assert (unused["action"], unused["interactions"], unused["done"]) == ("rewrite", [1, 5], False)
    assert (orphan["action"], orphan["done"]) == ("remove", False)
    assert [line["done"] for line in cassette(desk, "prune", "--json", "--yes").lines()] == [True, True]


def test_only_named_files_are_pruned(desk: Path) -> None:
    add_unused(desk / CASSETTE)
    other = copy_cassette(desk, "orphan")
    assert prune(desk, CASSETTE).err == "1 file changed\n"
    assert other.exists()


# --- what is kept -------------------------------------------------------------------------------------------------


def assert_kept(desk: Path, words: str, *args: str) -> None:
    before = contents(desk)
    done = prune(desk, *args)
    assert (done.code, done.err) == (0, "0 files changed\n")
    assert done.out.startswith("keep     ")
    assert words in done.out
    assert contents(desk) == before


def test_a_miss_is_not_pruned(desk: Path) -> None:
    """All that follows a miss is unused, and is needed again when the prompt is changed back."""
    add_unused(desk / CASSETTE)
    edit(desk / "specs/desk.yaml", "before you answer", "before you say anything")
    assert_kept(desk, "its replay fails with cassette.miss")


def test_a_run_that_ends_early_is_not_pruned(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "turns: 8", "turns: 1")
    assert_kept(desk, "its replay fails with budget.turns")


def test_cassette_of_a_spec_that_does_not_compile_is_kept(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "allow: lookup_order", "allow: lookup_ordr")
    assert_kept(desk, "its replay fails with not_started")


def test_damaged_files_are_never_touched(desk: Path) -> None:
    (desk / CASSETTE).with_name("orphan.yaml").write_text("version: 1\ninteractions: [")
    assert_kept(desk, "it is damaged")


def test_orphan_of_another_recorder_is_kept(desk: Path) -> None:
    make_foreign(copy_cassette(desk, "orphan"))
    assert_kept(desk, "no case uses it, but another program recorded it")


def test_orphan_with_an_unreadable_cases_file_is_kept(desk: Path) -> None:
    edit(desk / "specs/desk.cases.yaml", "cases:", "caes:")
    assert_kept(desk, "specs/desk.cases.yaml cannot be read and may have one")


def test_files_outside_the_cassette_folder_are_kept(desk: Path) -> None:
    (desk / "elsewhere").mkdir()
    (desk / "elsewhere/a.yaml").write_bytes((desk / CASSETTE).read_bytes())
    (desk / "elsewhere/.a.yaml.0123456789abcdef.new").write_text("mine")
    assert_kept(desk, "it is not in cassettes/", "elsewhere")
    assert (desk / "elsewhere/.a.yaml.0123456789abcdef.new").exists()


def test_linked_cassette_is_kept(desk: Path) -> None:
    add_unused(desk / CASSETTE)
    (desk / CASSETTE).rename(desk / "real.yaml")
    (desk / CASSETTE).symlink_to(desk / "real.yaml")
    assert_kept(desk, "but the file is a link")


def test_cassette_of_two_specs_with_one_name_is_kept(desk: Path) -> None:
    add_unused(desk / CASSETTE)
    for ending in (".yaml", ".cases.yaml"):
        (desk / f"specs/again{ending}").write_bytes((desk / f"specs/desk{ending}").read_bytes())
    assert_kept(
        desk, "but specs/again.yaml and specs/desk.yaml have the same name, and each of them may play the cassette"
    )


def test_cassette_with_headers_of_another_recorder_is_kept(desk: Path) -> None:
    """We write few headers; another recorder's would be gone."""
    add_unused(desk / CASSETTE)
    edit(desk / CASSETTE, "      accept:\n", "      x-request-id:\n      - '7'\n      accept:\n")
    assert_kept(desk, "but the replay would not be the same without them")


def test_locked_cassette_is_kept_and_others_are_pruned(desk: Path) -> None:
    add_unused(desk / CASSETTE)
    orphan = copy_cassette(desk, "orphan")
    before = (desk / CASSETTE).read_bytes()
    project = find_project(desk / "specs/desk.yaml")
    with hold_lock(project, cassette_lock_path(project, (desk / CASSETTE).resolve()), "busy"):
        done = prune(desk)
    assert (done.code, "another process is recording default.yaml" in done.err) == (7, True)
    assert (desk / CASSETTE).read_bytes() == before
    assert not orphan.exists()  # one that is busy does not stop the others


def test_recording_uses_the_same_lock_as_prune(desk: Path) -> None:
    """Two that do not know of each other's lock would write at once."""
    env = {"OPENAI_API_KEY": "sk-desk-1234567890abcdef", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    project = find_project(desk / "specs/desk.yaml")
    with hold_lock(project, cassette_lock_path(project, (desk / CASSETTE).resolve()), "busy"):
        done = agentrun("specs/desk.yaml", "--record", "all", "--yes", cwd=desk, stdin=b"", **env)
    assert (done.code, "another process is recording default.yaml" in done.err) == (7, True)
