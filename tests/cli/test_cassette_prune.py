"""`agentrun cassette prune`: what goes, what stays, and that nothing goes unasked."""

from __future__ import annotations

from pathlib import Path

from agentrun.cassette.file import load_cassette
from agentrun.spec.project import find_project
from agentrun.store.cassettes import cassette_lock_path
from agentrun.store.lock import hold_lock

from .agent import Done, agentrun
from .desk import NOW, TAPE, add_unused, bare, cassette, copied, edit, make_foreign, rewrite, stranger

UNCHANGED = "nothing was changed; add --yes to remove them\n"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("cassettes/**/*") if path.is_file()
    }


def replays(folder: Path) -> bool:
    done = agentrun("specs/desk.yaml", "--case", "default", "--mode", "replay", "--quiet", cwd=folder)
    return (done.code, done.out) == (0, "Done, 20.50 is paid back.\n")


def pruned(folder: Path, *args: str) -> Done:
    return cassette(folder, "prune", *args, "--yes")


def test_nothing_to_do(desk: Path) -> None:
    before = contents(desk)
    for args in ([], ["--yes"]):
        done = cassette(desk, "prune", *args)
        assert (done.code, done.out) == (0, "")
    assert contents(desk) == before
    assert cassette(desk, "prune").err == "there is nothing to prune\n"


def test_unused_interactions(desk: Path) -> None:
    good = load_cassette(desk / TAPE)
    add_unused(desk / TAPE)
    assert not replays(desk)
    before = contents(desk)
    done = cassette(desk, "prune")
    told = f"rewrite  {TAPE}  remove 2 of 9 interactions that its case does not play: 1 and 5\n"
    assert (done.code, done.out, done.err) == (0, told, UNCHANGED)
    assert contents(desk) == before
    done = pruned(desk)
    assert (done.code, done.out, done.err) == (0, told, "1 file changed\n")
    again = load_cassette(desk / TAPE)
    assert bare(again.interactions) == bare(good.interactions)
    assert again.metadata == {**good.metadata, "history": [{"at": NOW, "pruned": 2}]}
    assert replays(desk)
    assert cassette(desk, "audit", "--fail-on", "any").code == 0
    assert cassette(desk, "prune").err == "there is nothing to prune\n"


def test_history_grows(desk: Path) -> None:
    first = {"at": "2026-02-01T00:00:00Z", "kept": 2, "recorded": 5}
    rewrite(desk / TAPE, lambda tape: [*tape, stranger()], history=[first])
    assert pruned(desk).code == 0
    assert load_cassette(desk / TAPE).metadata["history"] == [first, {"at": NOW, "pruned": 1}]


def test_orphans(desk: Path) -> None:
    path = copied(desk, "orphan")
    done = cassette(desk, "prune")
    assert (done.code, done.out, done.err) == (0, "remove   cassettes/desk/orphan.yaml  no case uses it\n", UNCHANGED)
    assert path.exists()
    assert pruned(desk).err == "1 file changed\n"
    assert list(contents(desk)) == [TAPE]
    assert replays(desk)


def test_what_a_crash_left(desk: Path) -> None:
    (desk / TAPE).with_name(".default.yaml.0123456789abcdef.new").write_text("version: 1\ninter")
    assert cassette(desk, "prune").out == (
        "remove   cassettes/desk/.default.yaml.0123456789abcdef.new  it was left by an interrupted write\n"
    )
    assert len(cassette(desk, "prune", TAPE).out.splitlines()) == 1
    assert pruned(desk).code == 0
    assert list(contents(desk)) == [TAPE]


def test_json(desk: Path) -> None:
    add_unused(desk / TAPE)
    copied(desk, "orphan")
    (unused, orphan) = cassette(desk, "prune", "--json").lines()
    assert (unused["action"], unused["interactions"], unused["done"]) == ("rewrite", [1, 5], False)
    assert (orphan["action"], orphan["done"]) == ("remove", False)
    assert [line["done"] for line in cassette(desk, "prune", "--json", "--yes").lines()] == [True, True]


def test_only_what_is_named(desk: Path) -> None:
    add_unused(desk / TAPE)
    other = copied(desk, "orphan")
    assert pruned(desk, TAPE).err == "1 file changed\n"
    assert other.exists()


# --- what is kept -------------------------------------------------------------------------------------------------


def kept(desk: Path, words: str, *args: str) -> None:
    before = contents(desk)
    done = pruned(desk, *args)
    assert (done.code, done.err) == (0, "0 files changed\n")
    assert done.out.startswith("keep     ")
    assert words in done.out
    assert contents(desk) == before


def test_a_miss_is_not_pruned(desk: Path) -> None:
    """All that follows a miss is unused, and is needed again when the prompt is changed back."""
    add_unused(desk / TAPE)
    edit(desk / "specs/desk.yaml", "before you answer", "before you say anything")
    kept(desk, "its replay fails with cassette.miss")


def test_a_run_that_ends_early_is_not_pruned(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "turns: 8", "turns: 1")
    kept(desk, "its replay fails with budget.turns")


def test_a_spec_that_does_not_compile(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "allow: lookup_order", "allow: lookup_ordr")
    kept(desk, "its replay fails with not_started")


def test_damaged_files_are_never_touched(desk: Path) -> None:
    (desk / TAPE).with_name("orphan.yaml").write_text("version: 1\ninteractions: [")
    kept(desk, "it is damaged")


def test_recordings_of_others_are_never_removed(desk: Path) -> None:
    make_foreign(copied(desk, "orphan"))
    kept(desk, "no case uses it, but another program recorded it")


def test_orphans_in_doubt_are_kept(desk: Path) -> None:
    edit(desk / "specs/desk.cases.yaml", "cases:", "caes:")
    kept(desk, "specs/desk.cases.yaml cannot be read and may have one")


def test_what_is_in_no_place_of_a_recording(desk: Path) -> None:
    (desk / "tapes").mkdir()
    (desk / "tapes/a.yaml").write_bytes((desk / TAPE).read_bytes())
    (desk / "tapes/.a.yaml.0123456789abcdef.new").write_text("mine")
    kept(desk, "it is not in cassettes/", "tapes")
    assert (desk / "tapes/.a.yaml.0123456789abcdef.new").exists()


def test_a_link(desk: Path) -> None:
    add_unused(desk / TAPE)
    (desk / TAPE).rename(desk / "real.yaml")
    (desk / TAPE).symlink_to(desk / "real.yaml")
    kept(desk, "but the file is a link")


def test_two_specs_of_one_name(desk: Path) -> None:
    add_unused(desk / TAPE)
    for ending in (".yaml", ".cases.yaml"):
        (desk / f"specs/again{ending}").write_bytes((desk / f"specs/desk{ending}").read_bytes())
    kept(desk, "but specs/again.yaml and specs/desk.yaml have the same name, and each of them may play the cassette")


def test_what_a_rewrite_would_lose(desk: Path) -> None:
    """We write few headers; another recorder's would be gone."""
    add_unused(desk / TAPE)
    edit(desk / TAPE, "      accept:\n", "      x-request-id:\n      - '7'\n      accept:\n")
    kept(desk, "but the replay would not be the same without them")


def test_while_somebody_records(desk: Path) -> None:
    add_unused(desk / TAPE)
    orphan = copied(desk, "orphan")
    before = (desk / TAPE).read_bytes()
    project = find_project(desk / "specs/desk.yaml")
    with hold_lock(project, cassette_lock_path(project, (desk / TAPE).resolve()), "busy"):
        done = pruned(desk)
    assert (done.code, "another process is recording default.yaml" in done.err) == (7, True)
    assert (desk / TAPE).read_bytes() == before
    assert not orphan.exists()  # one that is busy does not stop the others


def test_the_lock_is_the_one_of_a_recording(desk: Path) -> None:
    """Two that do not know of each other's lock would write at once."""
    env = {"OPENAI_API_KEY": "sk-desk-1234567890abcdef", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    project = find_project(desk / "specs/desk.yaml")
    with hold_lock(project, cassette_lock_path(project, (desk / TAPE).resolve()), "busy"):
        done = agentrun("specs/desk.yaml", "--record", "all", "--yes", cwd=desk, stdin=b"", **env)
    assert (done.code, "another process is recording default.yaml" in done.err) == (7, True)
