"""Which cassette a run replays, and where a new recording goes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ..cassette.not_files import NOT_FILES, put_non_file
from .shop_project import Project

CASES = 'agentrun: "1"\ncases:\n'


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    shop = Project(tmp_path)
    shop.recorded()
    return shop


def write_cases(shop: Project, *lines: str) -> None:
    (shop.root / "shop.cases.yaml").write_text(CASES + "".join(f"  - {line}\n" for line in lines), encoding="utf-8")


def test_recorded_one_of_several_equal_cases_is_replayed(shop: Project) -> None:
    write_cases(shop, "{name: first}", '{name: second, input: "Where is order 1042?"}', "{name: third}")
    shop.cassette.rename(shop.cassette.with_name("second.yaml"))
    done = shop.run()
    assert (done.code, "(case second;" in done.err) == (0, True), done.err
    shop.cassette.with_name("second.yaml").unlink()
    assert "case first has no cassette" in shop.run().err


@pytest.mark.parametrize(
    ("options", "stand_ins"),
    [
        ("--mode replay", None),
        ("--mode live", None),
        ("--mode record --yes", None),
        ("--record all --yes", None),
        ("--record new --yes", "cassette"),
        ("--record from:2 --yes", "cassette"),
        ("--live-tools", "cassette"),
        ("--live-model", "cassette"),
        ("--mode live --case stubbed", "case"),
        ("--mode record --case stubbed --yes", "case"),
        ("--mode live --case faulted", "case"),
        ("--mode live --case approved", None),
    ],
)
def test_first_record_says_what_replaces_a_part_of_the_real_world(
    shop: Project, options: str, stand_ins: str | None
) -> None:
    """Only a wholly live run can be resumed."""
    fault = 'faults: [{at: "approval:refund", inject: {answer: %s}}]'
    write_cases(
        shop,
        "{name: default}",
        "{name: stubbed, stubs: {look: {result: late}}}",
        f"{{name: faulted, {fault % 'denied'}}}",
        f"{{name: approved, {fault % 'approved'}}}",
    )
    with shop.provider() as (_, environment):
        shop.run(*options.split(), "--approve", "all", "--journal", "run.jsonl", **environment)
    first = (shop.root / "run.jsonl").read_bytes().split(b"\n")[0]
    assert json.loads(first)["fact"].get("stand_ins") == stand_ins


@pytest.mark.parametrize("params", ["{order: 5}", "{nobody: knows}", "{order: [1]}"])
def test_case_with_invalid_params_does_not_block_other_cases(shop: Project, params: str) -> None:
    write_cases(shop, f"{{name: broken, params: {params}}}", "{name: default}")
    done = shop.run()
    assert (done.code, "(case default;" in done.err) == (0, True), done.err
    assert shop.run("--case", "broken", "--mode", "live", OPENAI_API_KEY="key").code == 2


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "Big", "", "a" * 65, "a.b", "ü"])
def test_invalid_name_for_a_new_case_is_refused(shop: Project, name: str) -> None:
    before = sorted(shop.root.rglob("*.yaml"))
    with shop.provider() as (server, environment):
        done = shop.run("--mode", "record", "--yes", "--case", name, **environment)
        assert (done.code, "is not a valid name" in done.err, server.requests) == (2, True, [])
    assert sorted(shop.root.rglob("*.yaml")) == before


@pytest.mark.parametrize("mode", ["auto", "live", "record", "replay"])
def test_message_that_is_not_utf8_is_refused(shop: Project, mode: str) -> None:
    with shop.provider() as (server, environment):
        done = shop.run(os.fsdecode(b"Where\xff"), "--mode", mode, "--case", "other", **environment)
        assert (done.code, "the message is not UTF-8 text" in done.err, server.requests) == (2, True, [])


def test_attachment_with_a_name_that_is_not_utf8_can_be_replayed(shop: Project) -> None:
    name = os.fsdecode(b"note\xff.txt")
    (shop.root / name).write_text("the lamp is broken", encoding="utf-8")
    shop.record("--attach", name)
    assert "note?.txt" in shop.cassette.read_text(encoding="utf-8")
    assert shop.run("--attach", name).code == 0


@pytest.mark.parametrize(("kind", "why", "_"), NOT_FILES)
def test_cassette_path_that_is_no_file_is_an_error_and_not_live(shop: Project, kind: str, why: str, _: int) -> None:
    shop.cassette.unlink()
    put_non_file(shop.cassette, kind)
    shop.trace.unlink()
    with shop.provider() as (server, environment):
        for mode in ("auto", "replay", "record"):
            done = shop.run("--mode", mode, "--approve", "all", **environment)
            assert done.code == 7, (mode, done.err)
            assert f"storage.failed: the cassette cassettes/shop/default.yaml cannot be read: {why}" in done.err
        assert (server.requests, shop.traces()) == ([], [])


def test_mode_live_does_not_read_the_cassette(shop: Project) -> None:
    shop.cassette.unlink()
    shop.cassette.mkdir()
    with shop.provider() as (server, environment):
        done = shop.run("--mode", "live", "--approve", "all", **environment)
        assert (done.code, bool(server.requests)) == (0, True), done.err


def test_unreadable_cassette_of_another_case_is_ignored(shop: Project) -> None:
    write_cases(shop, "{name: default}", '{name: other, input: "Hello"}')
    shop.cassette.with_name("other.yaml").mkdir()
    assert shop.run().code == 0
