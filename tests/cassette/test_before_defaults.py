"""A cassette of a release that did not fill in the defaults of arguments."""

import json
import shutil
from pathlib import Path

from ..cli.command import agentrun

OLD_PROJECT = Path(__file__).parent / "before_defaults"
"""An agent with a Python tool under approval and a hook, an HTTP tool with a rule that sets an argument, and a command.
The model left out an argument of each. The cassette has all requests without these arguments."""


def test_older_cassette_still_matches_and_the_journal_has_the_defaults(tmp_path: Path) -> None:
    project = shutil.copytree(OLD_PROJECT, tmp_path / "project")
    done = agentrun("labels.yaml", "--mode", "replay", "--journal", "run.jsonl", cwd=project)
    assert (done.code, done.out) == (0, "Printed.\n"), done.err
    facts = [json.loads(line)["fact"] for line in (project / "run.jsonl").read_text(encoding="utf-8").splitlines()]
    completed = [(fact["call"], fact["arguments"]) for fact in facts if fact["type"] == "arguments_completed"]
    assert completed == [
        ("c1.0", {"order": "7", "copies": 1}),
        ("c1.1", {"state": "all", "limit": 20}),
        ("c1.2", {"text": "one two", "flag": "-w"}),
        ("c1.0", {"order": "07", "copies": 1}),
        ("c1.1", {"state": "open", "limit": 20}),
    ]
