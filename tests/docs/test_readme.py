"""Every command in the README is run, every YAML block is validated, and the generated pages are up to date."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from agentrun.compiler.validate import validate_document
from agentrun.testing.provider import ScriptedProvider

from ..cli.command import agentrun
from .terminal import ROOT, Terminal, blocks, steps

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(README)
CONSOLE = [block for kind, block in BLOCKS if kind == "console"]
(CASE, SPEC, BROKEN_SPEC) = [block for kind, block in BLOCKS if kind == "yaml"]
MODULE = next(block for kind, block in BLOCKS if kind == "python")
LOCKS = "!! .agentrun/"
KINDS = ("python", "http", "shell", "mcp", "agent")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("specs", "cassettes", "schemas"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    (tmp_path / "broken.yaml").write_text(BROKEN_SPEC)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "--quiet", "--message=as it was")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def changed_files(project: Path) -> list[str]:
    """New and changed files, including ignored ones, but without the bytecode of Python."""
    lines = git(project, "status", "--porcelain", "--ignored").splitlines()
    return [line for line in lines if not line.endswith("__pycache__/")]


def test_the_shown_case_passes(project: Path) -> None:
    """Alone in its file, except for the case whose cassette it uses."""
    path = project / "specs" / "support.cases.yaml"
    path.write_text(f'agentrun: "1"\ncases:\n- name: default\n{CASE}', encoding="utf-8")
    shutil.rmtree(project / "specs" / "__snapshots__")
    assert validate_document(path) == []
    assert "2 passed" in agentrun("test", str(path), "--update", cwd=project).out


def test_commands_print_what_the_page_shows(project: Path) -> None:
    """All commands in order. The recording changes the cassette; the undo block restores it."""
    with Terminal(project) as terminal:
        for block in CONSOLE:
            undoes = block.startswith("$ git restore")
            if undoes:
                assert " M cassettes/support/default.yaml" in changed_files(project)
                (entry,) = (project / "shop-ledger.jsonl").read_text().splitlines()
                assert json.loads(entry)["amount"] == 39.9, "the recording paid once, no replay did"
            terminal.follow(block)
            if undoes:
                assert changed_files(project) == [LOCKS]
                assert not any(path.stat().st_size for path in project.glob(".agentrun/**/*.lock"))
    assert changed_files(project) == ["?? my-agent/", LOCKS], "the cassettes are as before"


def test_the_shown_spec_runs_with_its_function(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "orders.yaml").write_text(SPEC)
    (tmp_path / MODULE.partition("\n")[0].removeprefix("# ")).write_text(MODULE)
    with Terminal(tmp_path) as terminal:
        terminal.follow("$ agentrun validate --strict specs/orders.yaml\n")
    call = "{tool: lookup_order, args: {id: '1042'}}"
    turns = f'agentrun: "1"\nturns: [{{calls: [{call}]}}, {{expect: {{results: [shipped]}}, text: Shipped.}}]\n'
    with ScriptedProvider(turns) as server:
        keys = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "not-a-key"}
        done = agentrun("specs/orders.yaml", cwd=tmp_path, stdin=b"", **keys)
    assert (done.code, done.out) == (0, "Shipped.\n"), done.err


def test_every_kind_of_block_is_checked() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "python", "yaml"}
    assert [steps(block)[0][0].split()[0] for block in CONSOLE] == [
        "make",
        "agentrun",
        "export",
        "sed",
        "git",
        *["agentrun"] * 5,
    ]


def test_every_command_is_in_the_table() -> None:
    from agentrun.cli.group import COMMANDS

    for name in COMMANDS:
        assert f"`agentrun {'SPEC' if name == 'run' else name}" in README


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", README))
def test_linked_file_exists(link: str) -> None:
    assert (ROOT / link).exists()


@pytest.mark.parametrize("page", ["reference.md", "errors.md"])
def test_generated_page_is_in_step(page: str) -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "build.py"))["PAGES"]
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == pages[page](), "run `make docs`"


def test_schema_errors_come_before_semantic_ones(tmp_path: Path) -> None:
    """As the README says: a file with schema errors reports only those until they are fixed."""
    (tmp_path / "broken.yaml").write_text(f"{BROKEN_SPEC}nmae: x\n")
    (tmp_path / "other.yaml").write_text(BROKEN_SPEC)
    problems = agentrun("validate", ".", "--json", cwd=tmp_path).lines()
    assert [(line["file"], line["code"]) for line in problems] == [
        ("broken.yaml", "spec.unknown_key"),
        ("other.yaml", "spec.template_unknown_name"),
    ]


@pytest.mark.parametrize("spec", sorted(path.stem for path in ROOT.glob("specs/*.yaml") if "." not in path.stem))
def test_every_example_is_in_the_list(spec: str) -> None:
    assert f"- [`specs/{spec}.yaml`](specs/{spec}.yaml): " in README
