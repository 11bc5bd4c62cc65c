"""The README cannot drift: every command in it is run, every YAML block in it is compiled, every page is in step."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
CONSOLE = [block for kind, block in BLOCKS if kind == "console"]
YAML = [block for kind, block in BLOCKS if kind == "yaml"]
BROKEN = """\
agentrun: "1"
name: broken
params: {order_id: {type: string, default: "1042"}}
model: {provider: openai, name: gpt-4.1-mini}
input: "Where is order {{ ordr_id }}?"
instructions: "You help with order {{ order_id }}."
budgets: {turns: 3, tokens: 2k}
"""


def steps(block: str) -> list[tuple[str, str]]:
    """Each command of a console block with the output shown under it."""
    found = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(step.partition("\n")[0], step.partition("\n")[2]) for step in found]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
    argv = shlex.split(command)
    if argv[0] == "make":  # the same as the Makefile does once the environment is there
        recipe = subprocess.run(
            ["make", "--no-print-directory", "-n", *argv[1:]],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        argv = shlex.split(recipe.strip().splitlines()[-1])
    argv[0] = str(BIN / Path(argv[0]).name)
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("specs", "cassettes", "schemas"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "broken.yaml").write_text(BROKEN)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "shown"),
    [step for block in CONSOLE for step in steps(block)],
    ids=lambda text: text.split("\n")[0][:40],
)
def test_command(command: str, shown: str, project: Path) -> None:
    done = run(command, project)
    assert "Traceback" not in done.stderr
    differs = "diff " in command
    assert done.returncode == (2 if "broken" in command else int(differs)), done.stderr
    printed = f"{done.stdout}\n{done.stderr}"
    for line in shown.splitlines():
        assert line in printed, printed


@pytest.mark.parametrize("block", YAML)
def test_yaml(block: str, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "shown.yaml").write_text(block)
    done = run("agentrun validate --strict specs/shown.yaml", tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_kind_of_block_is_looked_at() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "python", "yaml"}
    assert len(CONSOLE) >= 3


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
