"""The page about the cassette commands cannot drift: its commands are run, its tables are the code's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from agentrun.cassette.audit import FAILING_KINDS, FINDING_KINDS
from agentrun.cli.cassette import CASSETTE_COMMANDS

from ..cli.agent import agentrun
from ..cli.desk import NOW, copied, record

PAGE = (Path(__file__).parents[2] / "docs" / "cassette-commands.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
STEPS = [block.removeprefix("$ ").split("\n", 1) for _, block in BLOCKS]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    record(folder)
    return folder


@pytest.mark.parametrize(("command", "shown"), STEPS, ids=[command for command, _ in STEPS])
def test_command(command: str, shown: str, desk: Path) -> None:
    orphan = copied(desk, "orphan") if "prune" in command else None
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


def test_every_block_is_looked_at() -> None:
    assert [kind for kind, _ in BLOCKS] == ["console"] * len(CASSETTE_COMMANDS)
    assert [command.split()[2] for command, _ in STEPS] == list(CASSETTE_COMMANDS)


def test_the_table_of_kinds() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (yes|no) \|$", PAGE, re.MULTILINE)
    assert dict(rows) == {kind: "yes" if kind in FAILING_KINDS else "no" for kind in FINDING_KINDS}


def test_the_table_of_states() -> None:
    shown = re.findall(r"^\| `(\w+)` \| [^|]* \|$", PAGE, re.MULTILINE)
    told = re.findall(r"^  (\w+)   ", agentrun("cassette", "ls", "--help").out, re.MULTILINE)
    assert shown == told


def test_lines_are_of_our_length() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120 and not line.startswith("|")] == []
