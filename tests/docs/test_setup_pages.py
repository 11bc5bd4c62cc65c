"""docs/existing-agent.md, docs/models.md and docs/ci.md: their specs are valid, and their commands work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.compiler.validate import validate_document
from agentrun.errors import ERROR_CODES
from agentrun.providers.codec import PROVIDER_HOMES
from agentrun.testing.provider import ScriptedProvider

from ..cli.command import agentrun
from .terminal import ROOT, blocks

PAGES = {
    name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("existing-agent", "models", "ci")
}
SCRIPT = """\
agentrun: "1"
turns:
  - calls: [{tool: find, args: {order: "1042"}}]
  - text: Order 1042 is on its way.
"""


def page_files(page: str) -> dict[str, str]:
    """The blocks that begin with the name of a file."""
    found = (re.match(r"# (\S+)\n", text) for _, text in blocks(PAGES[page]))
    return {match[1]: match.string for match in found if match}


@pytest.mark.parametrize("page", PAGES)
def test_links_exist_and_lines_have_at_most_120_characters(page: str) -> None:
    for link in re.findall(r"\]\(((?!https:)[^)#]+)", PAGES[page]):
        assert (ROOT / "docs" / link).exists(), link
    assert [line for line in PAGES[page].splitlines() if len(line) > 120 and not line.startswith("|")] == []
    assert f"docs/{page}.md" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["local.yaml", "gateway.yaml"])
def test_specs_of_the_models_page_are_valid(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(page_files("models")[name], encoding="utf-8")
    assert [problem.message for problem in validate_document(path)] == []


def test_models_page_names_every_variable_for_an_address() -> None:
    assert {home.variable for home in PROVIDER_HOMES.values()} <= set(re.findall(r"`([A-Z_]+)`", PAGES["models"]))


def test_local_model_needs_no_key(tmp_path: Path) -> None:
    with ScriptedProvider('agentrun: "1"\nturns: [{text: Paris.}]\n') as server:
        spec = page_files("models")["local.yaml"].replace("http://127.0.0.1:11434/v1", f"{server.url}/v1")
        (tmp_path / "local.yaml").write_text(spec, encoding="utf-8")
        done = agentrun("local.yaml", "--mode", "live", cwd=tmp_path)
    assert (done.code, done.out) == (0, "Paris.\n"), done.err


def test_existing_agent_can_be_ported_in_the_steps_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.agentrun]\nimport_roots = ["specs"]\n')
    for name, text in page_files("existing-agent").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert agentrun("validate", "--strict", "specs/", cwd=tmp_path).code == 0
    (command,) = re.findall(r"`(agentrun specs/NAME\.yaml [^`]+)`", PAGES["existing-agent"].replace("\n   ", " "))
    words = shlex.split(command.replace("NAME", "orders"))[1:]
    with ScriptedProvider(SCRIPT) as server:
        environment: Any = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": f"{server.url}/v1"}
        recorded = agentrun(*words, "--yes", cwd=tmp_path, **environment)
    assert (recorded.code, recorded.out) == (0, "Order 1042 is on its way.\n"), recorded.err
    tested = agentrun("test", "specs/", cwd=tmp_path)
    assert (tested.code, "1 passed" in tested.err + tested.out) == (0, True), tested.err


def test_exit_codes_of_the_ci_page_are_those_of_the_code() -> None:
    assert ERROR_CODES["cassette.miss"].exit == 3
    assert re.findall(r"^\| (\d) \|", PAGES["ci"], re.MULTILINE) == ["0", "1", "3", "2"]


def test_options_of_the_ci_page_exist(tmp_path: Path) -> None:
    shown = [line for kind, text in blocks(PAGES["ci"]) if kind == "sh" for line in text.splitlines()]
    shown += yaml.safe_load(page_files("ci")[".gitlab-ci.yml"])["agents"]["script"]
    commands = [
        line.partition("#")[0].removeprefix("env -u CI ") for line in shown if "agentrun " in line.partition("#")[0]
    ]
    assert len(commands) == 6
    for command in commands:
        _, *words = shlex.split(command)
        name = words[0] if words[0] != "cassette" else f"{words[0]} {words[1]}"
        help_text = agentrun(*name.split(), "--help").out
        assert [word for word in words if word.startswith("-") and word not in help_text] == []
