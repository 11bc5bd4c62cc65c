"""`agentrun cassette expand`, `pack` and `upgrade`: other files, the same replay."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from agentrun.cassette.conversion import convert_cassette, converted_text
from agentrun.cassette.file import load_cassette
from agentrun.cassette.selection import select_cassettes
from agentrun.errors import InternalError
from agentrun.spec.project import find_project
from agentrun.store.process_lock import hold_lock
from agentrun.store.staged_cassettes import cassette_lock_path

from .command import agentrun
from .desk_project import CASSETTE, cassette, copy_cassette, make_foreign


def journal(folder: Path) -> str:
    done = agentrun("specs/desk.yaml", "--mode", "replay", "--quiet", "--journal", "journal.jsonl", cwd=folder)
    assert done.code == 0, done.err
    return (folder / "journal.jsonl").read_text(encoding="utf-8")


def test_expanded_and_packed_cassettes_replay_the_same(desk: Path) -> None:
    packed, before = (desk / CASSETTE).read_text(encoding="utf-8"), journal(desk)
    assert packed.count('"same_as_interaction"') == packed.count("sha256_of_whole_request") == 3
    done = cassette(desk, "expand", CASSETTE)
    whole = (desk / CASSETTE).read_text(encoding="utf-8")
    sizes = f"{len(packed.encode()):,} → {len(whole.encode()):,} bytes"
    assert (done.code, done.out) == (0, f"{CASSETTE}  {sizes}; 7 interactions, all the same\n")
    assert '"same_as_interaction"' not in whole
    assert "sha256_of_whole_request" not in whole
    assert journal(desk) == before, "also the run id"
    assert cassette(desk, "expand", CASSETTE).out == f"{CASSETTE}  unchanged: it has this form already\n"
    assert cassette(desk, "pack", CASSETTE).code == 0
    assert (desk / CASSETTE).read_text(encoding="utf-8") == packed
    assert journal(desk) == before


def test_upgrade_packs_what_agentrun_recorded(desk: Path) -> None:
    packed = (desk / CASSETTE).read_bytes()
    other = copy_cassette(desk, "other")
    make_foreign(foreign := copy_cassette(desk, "foreign"))
    for path in (desk / CASSETTE, other, foreign):
        path.write_text(converted_text(path.read_text(encoding="utf-8"), packed=False), encoding="utf-8")
    kept = foreign.read_bytes()
    done = cassette(desk, "upgrade")
    assert [line.split()[0] for line in done.out.splitlines()] == [CASSETTE, "cassettes/desk/other.yaml"]
    assert (done.code, done.err) == (0, "2 cassettes upgraded\n")
    assert ((desk / CASSETTE).read_bytes(), foreign.read_bytes()) == (packed, kept)
    again = cassette(desk, "upgrade")
    assert (again.code, again.out, again.err) == (0, "", "0 cassettes upgraded\n")
    assert cassette(desk, "pack", foreign).code == 0
    assert load_cassette(foreign).hash == load_cassette(foreign).hash
    assert b"sha256_of_whole_request" in foreign.read_bytes()


def test_json_has_the_sizes(desk: Path) -> None:
    (line,) = cassette(desk, "pack", CASSETTE, "--json").lines()
    size = (desk / CASSETTE).stat().st_size
    assert line == {"file": CASSETTE, "changed": False, "before": size, "after": size}


@pytest.mark.parametrize("command", ["expand", "pack", "upgrade"])
def test_damaged_cassette_is_not_converted(desk: Path, command: str) -> None:
    text = (desk / CASSETTE).read_text(encoding="utf-8").replace("Please refund", "Do refund")
    (desk / CASSETTE).write_text(text, encoding="utf-8")
    done = cassette(desk, command, CASSETTE)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"cassette.damaged: {CASSETTE}:156: this is not a cassette: the expanded request is not")
    assert (desk / CASSETTE).read_text(encoding="utf-8") == text


def test_damaged_cassette_does_not_stop_an_upgrade(desk: Path) -> None:
    copy_cassette(desk, "a").write_text("version: 2\n", encoding="utf-8")
    path = desk / CASSETTE
    path.write_text(converted_text(path.read_text(encoding="utf-8"), packed=False), encoding="utf-8")
    done = cassette(desk, "upgrade", "--json")
    assert (done.code, [json.loads(line).get("changed") for line in done.out.splitlines()][-1]) == (3, True)
    assert "sha256_of_whole_request" in path.read_text(encoding="utf-8")


def test_link_is_not_replaced(desk: Path) -> None:
    target = (desk / CASSETTE).rename(desk / "real.yaml")
    (desk / CASSETTE).symlink_to(target)
    done = cassette(desk, "expand", CASSETTE)
    assert (done.code, done.out) == (7, "")
    assert "because it is a link" in done.err
    assert (desk / CASSETTE).is_symlink()


def test_cassette_that_is_recorded_now_is_not_converted(desk: Path) -> None:
    before = (desk / CASSETTE).read_bytes()
    project = find_project(desk / CASSETTE)
    with hold_lock(project, cassette_lock_path(project, desk / CASSETTE), "busy"):
        done = cassette(desk, "expand", CASSETTE)
    assert (done.code, (desk / CASSETTE).read_bytes()) == (7, before)
    assert "another process is recording default.yaml" in done.err


def test_expanded_cassette_above_the_limit_is_not_written(desk: Path) -> None:
    before = (desk / CASSETTE).read_bytes()
    done = cassette(desk, "expand", CASSETTE, AGENTRUN_CASSETTE_LIMIT=str(len(before) + 100))
    assert (done.code, (desk / CASSETTE).read_bytes()) == (7, before)
    assert "raise cassette_limit" in done.err


OLD_PROJECT = Path(__file__).parents[1] / "cassette" / "before_defaults"
"""Agents with cassettes that an older version recorded, with whole requests."""


def test_cassettes_of_an_older_version_give_the_same_requests_after_an_upgrade(tmp_path: Path) -> None:
    root = Path(shutil.copytree(OLD_PROJECT, tmp_path / "project"))
    files = sorted(root.glob("cassettes/*/*.yaml"))
    shutil.copy(OLD_PROJECT.parent / "whole_requests.yaml", long := root / "cassettes" / "labels" / "long.yaml")
    before = [load_cassette(file) for file in (*files, long)]
    assert all("sha256_of_whole_request" not in file.read_text(encoding="utf-8") for file in files)
    journals = []
    for _ in ("before", "after"):
        for spec in ("labels.yaml", "letters.yaml"):
            done = agentrun(spec, "--mode", "replay", "--quiet", "--journal", "journal.jsonl", cwd=root)
            assert done.code == 0, done.err
            journals.append((root / "journal.jsonl").read_bytes())
        upgraded = cassette(root, "upgrade")
        assert upgraded.code == 0, upgraded.err
    assert journals[:2] == journals[2:], "also the ids"
    after = [load_cassette(file) for file in (*files, long)]
    assert [[each.call for each in one.interactions] for one in after] == [
        [each.call for each in one.interactions] for one in before
    ]
    assert [each.hash for each in after] == [each.hash for each in before]
    assert long.read_text(encoding="utf-8").count("sha256_of_whole_request") == 3


def test_conversion_that_would_change_a_request_is_refused(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (desk / CASSETTE).read_bytes()
    (file,) = select_cassettes([desk / CASSETTE])
    monkeypatch.setattr("agentrun.cassette.writer._format_body", lambda body: str(body).replace("1042", "1043"))
    with pytest.raises(InternalError, match="was not converted because its content would change"):
        convert_cassette(file, lambda *_: nullcontext(), packed=False)
    assert (desk / CASSETTE).read_bytes() == before
