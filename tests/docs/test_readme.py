"""The README cannot drift: every command in it is run, every YAML block in it is compiled, every page is in step."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path

import pytest

from agentrun.engine.unbuilt import BUILT, unbuilt_problems
from agentrun.spec.document import parse
from agentrun.spec.problems import Source
from agentrun.spec.tree import Mapping
from agentrun.spec.v1.agent import Agent

from .terminal import ROOT, Terminal, blocks, steps

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(README)
CONSOLE = [block for kind, block in BLOCKS if kind == "console"]
YAML = [block for kind, block in BLOCKS if kind == "yaml"]
KINDS = ("python", "http", "shell", "mcp", "agent")
BROKEN = """\
agentrun: "1"
name: broken
params: {order_id: {type: string, default: "1042"}}
model: {provider: openai, name: gpt-4.1-mini}
input: "Where is order {{ ordr_id }}?"
instructions: "You help with order {{ order_id }}."
budgets: {turns: 3, tokens: 2k}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("specs", "cassettes", "schemas"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "broken.yaml").write_text(BROKEN)
    return tmp_path


def test_commands(project: Path) -> None:
    """All of them, from the first to the last. After the recording there is another one, and nothing else."""
    before = {path: path.read_bytes() for path in project.glob("cassettes/*/*.yaml")}
    with Terminal(project) as terminal:
        for block in CONSOLE:
            terminal.follow(block)
    after = {path: path.read_bytes() for path in project.glob("cassettes/*/*.yaml")}
    assert before.keys() == after.keys()
    assert [path.name for path in before if before[path] != after[path]] == ["default.yaml"]
    (entry,) = (project / "shop-ledger.jsonl").read_text().splitlines()
    assert json.loads(entry)["amount"] == 39.9, "the recording paid once, no replay did"


@pytest.mark.parametrize("block", YAML)
def test_yaml(block: str, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "shown.yaml").write_text(block)
    with Terminal(tmp_path) as terminal:
        terminal.follow("$ agentrun validate --strict specs/shown.yaml\n")


def test_every_kind_of_block_is_looked_at() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "python", "yaml"}
    assert [steps(block)[0][0].split()[0] for block in CONSOLE] == [
        "make",
        "agentrun",
        "export",
        "sed",
        *["agentrun"] * 2,
    ]


def test_every_command_is_in_the_table() -> None:
    from agentrun.cli.group import COMMANDS

    for name in COMMANDS:
        assert f"`agentrun {'SPEC' if name == 'run' else name}" in README


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", README))
def test_link(link: str) -> None:
    assert (ROOT / link).exists()


@pytest.mark.parametrize("page", ["reference.md", "errors.md"])
def test_generated_page_is_in_step(page: str) -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "build.py"))["PAGES"]
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == pages[page](), "run `make docs`"


def test_what_does_not_run_yet() -> None:
    """The kinds of tools and the keys that the page says are refused are those that are."""
    said = " ".join(README.partition("Not yet:")[2].partition("(each is refused")[0].split())
    assert said == "tools of kind http, shell, mcp and agent, hooks and sinks"
    assert set(Agent.__struct_fields__) - BUILT.keys() == {"hooks", "sinks"}
    text = "tools: {" + ", ".join(f"{kind}: {{kind: {kind}}}" for kind in KINDS) + "}\n"
    root = parse(Source(Path("a.yaml"), "a.yaml", text))
    assert isinstance(root, Mapping)
    refused = [problem.message.split()[4] for problem in unbuilt_problems(root)]
    assert refused == ["http", "shell", "mcp", "agent"]
