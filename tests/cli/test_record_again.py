"""Partial re-recordings keep interactions and update the metadata of the cassette."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.journal.canonical import canonical
from agentrun.journal.storage import read_journal_file

from .shop_project import STORY, Project

MODEL_URL = "https://api.openai.com/v1/chat/completions"


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    shop = Project(tmp_path)
    shop.recorded()
    return shop


def set_metadata(shop: Project, metadata: Any) -> None:
    data = yaml.safe_load(shop.cassette.read_text(encoding="utf-8"))
    data["metadata"] = metadata
    if metadata is None:
        del data["metadata"]
    shop.cassette.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {"made": "by hand"}, {"history": 5, "where": 5}, {"history": "text", "where": "text"}, {"history": {}}],
)
def test_partial_recording_writes_history_for_any_old_metadata(shop: Project, metadata: Any) -> None:
    """Others make cassettes too, with nothing or with anything in the metadata."""
    set_metadata(shop, metadata)
    done = shop.record("--record", "from:4", story=STORY.replace("Done.", "Done again."))
    assert (done.code, done.out) == (0, "Done again.\n")
    about = yaml.safe_load(shop.cassette.read_text(encoding="utf-8"))["metadata"]
    (line,) = about["history"]
    assert line["kept"] == 3
    assert len(about["where"]) == 1
    assert shop.run().out == "Done again.\n"


def test_partial_recording_keeps_the_address_of_the_first_provider(shop: Project) -> None:
    set_metadata(shop, {"where": [MODEL_URL]})
    shop.record("--record", "from:4")
    about = yaml.safe_load(shop.cassette.read_text(encoding="utf-8"))["metadata"]
    assert about["where"][0] == MODEL_URL
    assert "a scripted provider" in about["where"][1]


def test_kept_tool_timeout_stays_a_timeout(shop: Project) -> None:
    """It takes as long again: that is what it did."""
    shop.edit("shop.yaml", '"desk:look", effect: read}', '"desk:look", effect: read, timeout: 200ms}')
    shop.edit("desk.py", '    return {"order"', '    __import__("time").sleep(600)\n    return {"order"')
    story = STORY.replace('    faults: [{status: 429, headers: {retry-after: "0"}}]\n', "")
    shop.record("--record", "all", "--journal", "first.jsonl", story=story)
    ran = len(shop.traces())
    done = shop.record("--record", "from:4", "--journal", "second.jsonl", story=story)
    assert done.code == 0, done.err
    assert [line.partition(" ")[0] for line in shop.traces()[ran:]] == ["refund"]
    told = [canonical(read_journal_file(shop.root / f"{name}.jsonl")) for name in ("first", "second")]
    assert "tool.timeout" in told[0]
    assert told[0] == told[1]


def test_recording_without_approver_does_not_replace_a_cassette(shop: Project) -> None:
    """A new recording is written and says so; one that is there stays, and the command fails."""
    shop.cassette.unlink()
    with shop.provider() as (_, environment):
        first = shop.run("--mode", "record", "--yes", **environment)
    assert first.code == 0, first.err
    why = "refund needs approval, but there is no terminal and no --approve; answer at a terminal"
    assert why in first.err
    with shop.provider() as (_, environment):
        lived = shop.run("--mode", "live", AGENTRUN_STORE="none", **environment)
        assert lived.err.count(why) == 1, "a run that goes on says it too, once"
    assert "--approve" not in shop.run().err, "what is on a cassette is not asked"
    shop.record()
    good = shop.cassette.read_bytes()
    with shop.provider() as (_, environment):
        again = shop.run("--record", "all", "--yes", "-q", **environment)
    assert (again.code, again.out, shop.cassette.read_bytes() == good) == (4, "Done.\n", True)
    assert again.err.count("refund needs approval, but there is no terminal") == 1
    assert "--approve all, none or FILE" in again.err


def test_recorded_unavailable_approval_is_kept_by_record_new(shop: Project) -> None:
    shop.cassette.unlink()
    with shop.provider() as (_, environment):
        shop.run("--mode", "record", "--yes", **environment)
    with shop.provider(STORY.replace("Done.", "All done.")) as (_, environment):
        again = shop.run("--record", "new", "--yes", **environment)
    assert again.code == 0, again.err
    assert "needs approval, but" not in again.err
