"""docs/cassette-commands.md: its commands are run and its tables match the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from agentrun.cassette.audit import FAILING_KINDS, FINDING_KINDS
from agentrun.cli.cassette import command as cassette_command

from ..cli.command import agentrun
from ..cli.desk_project import NOW, copy_cassette, record

PAGE = (Path(__file__).parents[2] / "docs" / "cassette-commands.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
STEPS = [block.removeprefix("$ ").split("\n", 1) for _, block in BLOCKS]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    record(folder)
    return folder


@pytest.mark.parametrize(("command", "shown"), STEPS, ids=[command for command, _ in STEPS])
def test_command_prints_what_the_page_shows(command: str, shown: str, desk: Path) -> None:
    orphan = copy_cassette(desk, "orphan") if "prune" in command else None
    if "accept" in command:
        staged = desk / ".agentrun/recorded/desk/default.yaml"
        staged.parent.mkdir(parents=True)
        staged.write_bytes((desk / "cassettes/desk/default.yaml").read_bytes())
    done = agentrun(*shlex.split(command)[1:], cwd=desk, AGENTRUN_NOW=NOW)
    if orphan is not None:
        orphan.unlink()
    assert done.code == 0
    printed = [*done.out.splitlines(), *done.err.splitlines()]
    if "show" in command:  # the page leaves some lines out
        printed = [line for line in printed if line in shown.splitlines()]
    assert printed == shown.splitlines()


def test_every_block_is_a_tested_command() -> None:
    assert [kind for kind, _ in BLOCKS] == ["console"] * len(cassette_command.commands)
    assert [command.split()[2] for command, _ in STEPS] == list(cassette_command.commands)


def test_table_of_finding_kinds_matches_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (yes|no) \|$", PAGE, re.MULTILINE)
    assert dict(rows) == {kind: "yes" if kind in FAILING_KINDS else "no" for kind in FINDING_KINDS}


def test_table_of_states_matches_the_help() -> None:
    shown = re.findall(r"^\| `(\w+)` \| [^|]* \|$", PAGE, re.MULTILINE)
    told = re.findall(r"^  (\w+)   ", agentrun("cassette", "ls", "--help").out, re.MULTILINE)
    assert shown == told


def test_lines_have_at_most_120_characters() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120 and not line.startswith("|")] == []
