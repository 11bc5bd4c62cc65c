"""docs/cassettes.md: its commands and programs are run, and its excerpt is from a real cassette."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.cassette.interactions import REQUEST_HEADERS, RESPONSE_HEADERS
from agentrun.cli.run import command
from agentrun.compiler.validate import validate_document
from agentrun.core.effects import ModelRequest
from agentrun.core.messages import Transcript
from agentrun.credentials import PROVIDER_KEYS
from agentrun.engine.settings import Settings, setting_names
from agentrun.errors import ERROR_CODES
from agentrun.providers.codec import CODECS, PROVIDER_HOMES, codec_for

from ..cli.command import agentrun
from ..packages import package
from .terminal import BIN, ROOT, Terminal, blocks

PAGE = (ROOT / "docs" / "cassettes.md").read_text(encoding="utf-8")
BLOCKS = blocks(PAGE)
EXCERPTS = [block for kind, block in BLOCKS if kind == "yaml" and block.startswith("# ")]
SPEC_PARTS = [block for kind, block in BLOCKS if kind == "yaml" and block not in EXCERPTS]
REST = """\
agentrun: "1"
name: shown
model: {provider: openai, name: gpt-4.1-mini}
instructions: Be brief.
budgets: {tokens: 5k}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("specs", "cassettes", "schemas"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def rows(first: str) -> list[list[str]]:
    """The rows of the table whose first column has this title."""
    found = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found, first
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found[1].splitlines()]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


# --- blocks


def test_every_kind_of_block_is_tested() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "python", "yaml"}
    assert (len(EXCERPTS), len(SPEC_PARTS)) == (2, 2)


def test_commands_print_what_the_page_shows(project: Path) -> None:
    with Terminal(project) as terminal:
        for kind, block in BLOCKS:
            if kind == "console":
                terminal.follow(block)


def test_python_blocks_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {}
    for block in [block for kind, block in BLOCKS if kind == "python"]:
        line = PAGE[: PAGE.index(block)].count("\n")
        exec(compile("\n" * line + block, "docs/cassettes.md", "exec"), names)  # noqa: S102  # our own page


@pytest.mark.parametrize("block", EXCERPTS)
def test_excerpt_is_in_the_cassette(block: str) -> None:
    """It stands in the file, but for times: these are others in each recording."""
    first, _, shown = block.partition("\n")
    cassette = (ROOT / first.removeprefix("# ")).read_text(encoding="utf-8")
    assert without_times(shown) in without_times(cassette)
    other = without_times(shown).replace("approved", "denied").replace("keep", "drop")
    assert other not in without_times(cassette)


def without_times(text: str) -> str:
    return re.sub(r"(start|end): \d+", r"\1: 0", text)


@pytest.mark.parametrize("part", SPEC_PARTS)
def test_yaml_part_is_valid(part: str, tmp_path: Path) -> None:
    (tmp_path / "shown.yaml").write_text(part + REST)
    assert validate_document(tmp_path / "shown.yaml") == []


# --- tables and sentences


def test_table_of_modes_matches_the_command() -> None:
    (mode,) = [option for option in command.params if option.name == "mode"]
    assert [code(row[0])[0] for row in rows("`--mode`")] == ["replay", "record", "live", "auto"]
    assert sorted(mode.type.choices) == ["auto", "live", "record", "replay"]  # type: ignore[attr-defined]  # click's
    assert mode.envvar == "AGENTRUN_MODE"


def test_table_of_exit_codes_matches_the_code() -> None:
    table = {int(row[0]): code(row[1]) for row in rows("exit")}
    assert list(table) == sorted(table)
    for number, codes in table.items():
        assert [ERROR_CODES[each].exit for each in codes] == [number] * len(codes)


def test_json_lines_match_the_table(project: Path) -> None:
    """What comes is what the table says, in its order, and nothing else."""
    table = {code(row[0])[0]: code(row[2]) for row in rows("key")}
    lines = agentrun("specs/support.yaml", "--json", cwd=project).lines()
    kinds = [(line.keys() & table.keys()).pop() for line in lines]
    assert list(dict.fromkeys(kinds)) == ["start", "record", "outcome"]
    assert set(table["start"]) == lines[0]["start"].keys()
    assert all("run" in line for line in lines[1:])
    assert {line["call"] for line in lines if "call" in line} == {"c1.0", "c2.0", "c3.0"}
    assert set(table["outcome"]) < lines[-1]["outcome"].keys()
    assert f'`"cost":{lines[-1]["outcome"]["cost"]}` is $0.001089' in PAGE
    (line,) = agentrun("specs/support.yaml", "--case", "nobody", "--json", cwd=project).lines()
    assert set(table["error"]) <= line["error"].keys()


def test_json_of_a_problem_has_the_documented_keys(tmp_path: Path) -> None:
    (tmp_path / "shown.yaml").write_text(f"{REST}nmae: x\n")
    (line,) = agentrun("shown.yaml", "--json", cwd=tmp_path).lines()
    said = " ".join(PAGE.split()).partition("each is an object with")[2].partition(", as from")[0]
    assert code(said) == list(line)


def test_settings_have_the_key_and_the_address_of_every_provider() -> None:
    named = {name: Settings.model_fields[field] for field in Settings.model_fields for name in setting_names(field)}
    for home in PROVIDER_HOMES.values():
        assert code(named[home.variable].description or "") == [home.address]
    agent = package()
    (route,) = agent.model.routes
    for provider in CODECS:
        request = ModelRequest(replace(route, provider=provider), agent.model, "", Transcript(), None)
        auth = codec_for(provider).call(request, []).auth
        assert auth is not None
        assert auth.name in named
        assert auth.name in PROVIDER_KEYS


def test_documented_headers_are_the_written_ones() -> None:
    said = PAGE.partition("Of the headers only")[2].partition("are written")[0]
    assert set(code(said)) == REQUEST_HEADERS | RESPONSE_HEADERS


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!https:)[^)#]+)\)", PAGE))
def test_linked_file_exists(link: str) -> None:
    assert (ROOT / "docs" / link).exists()


def test_lines_have_at_most_120_characters() -> None:
    text = re.sub(r"```console.*?```", "", PAGE, flags=re.DOTALL)
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []
