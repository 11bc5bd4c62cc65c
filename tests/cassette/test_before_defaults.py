"""A cassette of a release that did not fill in the defaults of arguments."""

import json
import shutil
from pathlib import Path
from typing import Any

from ..cli.command import agentrun

OLD_PROJECT = Path(__file__).parent / "before_defaults"
"""An agent with a Python tool under approval and a hook, an HTTP tool with a rule that sets an argument, and a command.
The model left out an argument of each. The cassette has all requests without these arguments."""


def completed_arguments(folder: Path, spec: str, answer: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls whose arguments were completed in a replay of the older cassette."""
    project = shutil.copytree(OLD_PROJECT, folder / "project")
    done = agentrun(spec, "--mode", "replay", "--journal", "run.jsonl", cwd=project)
    assert (done.code, done.out) == (0, answer), done.err
    facts = [json.loads(line)["fact"] for line in (project / "run.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(fact["call"], fact["arguments"]) for fact in facts if fact["type"] == "arguments_completed"]


def test_older_cassette_still_matches_and_the_journal_has_the_defaults(tmp_path: Path) -> None:
    assert completed_arguments(tmp_path, "labels.yaml", "Printed.\n") == [
        ("c1.0", {"order": "7", "copies": 1}),
        ("c1.1", {"state": "all", "limit": 20}),
        ("c1.2", {"text": "one two", "flag": "-w"}),
        ("c1.0", {"order": "07", "copies": 1}),
        ("c1.1", {"state": "open", "limit": 20}),
    ]


def test_defaults_that_only_the_signature_has_do_not_change_what_matches(tmp_path: Path) -> None:
    completed = completed_arguments(tmp_path, "letters.yaml", "Written.\n")
    assert completed == [("c1.0", {"to": "Ada", "cc": "", "tags": [], "copies": 1})]
    audited = agentrun("cassette", "audit", "cassettes/letters", cwd=tmp_path / "project")
    assert (audited.code, audited.out) == (0, ""), audited.out
