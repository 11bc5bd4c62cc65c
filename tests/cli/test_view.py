"""`agentrun view`: a run, a case or a cassette as one HTML page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .command import ROOT, agentrun


def views(path: Path) -> list[dict[str, Any]]:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    views: list[dict[str, Any]] = json.loads(found[1])["views"]
    return views


def test_case_by_its_id_by_its_spec_and_by_its_cassette(tmp_path: Path) -> None:
    pages = []
    for number, target in enumerate(
        (
            ["specs/support.cases.yaml::default"],
            ["specs/support.yaml", "--case", "default"],
            ["cassettes/support/default.yaml"],
        )
    ):
        file = tmp_path / f"{number}.html"
        done = agentrun("view", *target, "-o", file, cwd=ROOT)
        assert (done.code, done.out) == (0, "")
        assert f"page written to {file}" in done.err
        pages.append(file.read_bytes())
    assert pages[0] == pages[1] == pages[2]
    (view,) = views(tmp_path / "0.html")
    assert (view["title"], view["status"]) == ("support · default", "completed")


def test_conversation_has_a_view_for_each_message(tmp_path: Path) -> None:
    agentrun("view", "specs/support.cases.yaml::conversation", "-o", tmp_path / "run.html", cwd=ROOT)
    assert [view["title"] for view in views(tmp_path / "run.html")] == [
        "support · conversation, message 1",
        "support · conversation, message 2",
    ]


def test_journal_with_and_without_its_package(tmp_path: Path) -> None:
    journal, file = tmp_path / "run.jsonl", tmp_path / "run.html"
    agentrun("specs/support.yaml", "--journal", journal, cwd=ROOT)
    assert agentrun("view", journal, "-o", file, cwd=ROOT).code == 0
    (bare,) = views(file)
    assert not any("rules" in entry for entry in bare["entries"])
    agentrun("view", journal, "--package", "specs/support.yaml", "-o", file, cwd=ROOT)
    (known,) = views(file)
    assert all(entry["rules"] for entry in known["entries"] if entry["kind"] == "ruled")


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = agentrun("view", "specs/support.cases.yaml::default", "-o", tmp_path / "notes.txt", cwd=ROOT)
    assert done.code == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_unknown_targets_are_errors_with_a_hint(tmp_path: Path) -> None:
    done = agentrun("view", "specs/support.cases.yaml::defualt", "-o", tmp_path / "run.html", cwd=ROOT)
    assert done.code == 2
    assert "default" in done.err
    assert not (tmp_path / "run.html").exists()
