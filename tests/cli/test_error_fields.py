"""The fields of an error are for programs: `--json` prints them, and the text for people does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .command import SMALL, agentrun

JOURNAL = '{"format":"agentrun-journal","hash":"x"}\n'


def shown_fields(text: str, fields: dict[str, Any]) -> list[str]:
    """The fields that a text shows as `key: value` or `key=value`, such as `reason: case`."""
    return [name for name in fields if re.search(rf"(?:^|[\s(,;]){re.escape(name)}(?:: |=)\S", text)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "small.cases.yaml").write_text('agentrun: "1"\ncases:\n  - name: default\n')
    (tmp_path / "broken.yaml").write_text("interactions: [")
    (tmp_path / "run.jsonl").write_text(JOURNAL)
    return tmp_path


@pytest.mark.parametrize(
    ("args", "code", "field"),
    [
        (["small.yaml", "--case", "other"], "input.rejected", "reason"),
        (["small.yaml", "--mode", "live"], "host.missing", "name"),
        (["small.yaml", "--mode", "replay"], "cassette.miss", "recorded"),
        (["small.yaml", "--mode", "live", "--journal", "nowhere/run.jsonl"], "storage.failed", "path"),
        (["cassette", "show", "broken.yaml"], "cassette.damaged", "line"),
        (["verify", "run.jsonl"], "journal.damaged", "seq"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_fields_are_printed_with_json_only(project: Path, args: list[str], code: str, field: str) -> None:
    key = "any" if "--journal" in args else ""
    error = agentrun(*args, "--json", cwd=project, OPENAI_API_KEY=key).lines()[-1]["error"]
    assert error["code"] == code
    assert field in error["fields"]
    text = agentrun(*args, cwd=project, OPENAI_API_KEY=key)
    assert code in text.err
    assert shown_fields(text.out + text.err, error["fields"]) == []


def test_shown_field_is_found() -> None:
    text = "input.rejected: there is no case\n  reason: case\n  → use another (what=variable)"
    assert shown_fields(text, {"reason": "case", "what": "variable", "case": "x"}) == ["reason", "what"]
