"""The page about the scripted provider cannot drift: its scripts are played, its program is run, its table is true."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from agentrun.compiler.validate import validate
from agentrun.providers.registry import CODECS
from agentrun.testing.provider import ScriptedProvider
from agentrun.testing.provider.formats import FORMATS

from ..cli.agent import SCRIPT
from ..testing.providers import asked, send

PAGE = (Path(__file__).parents[2] / "docs" / "provider.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
SCRIPTS = {block.split("\n")[0].removeprefix("# "): block for kind, block in BLOCKS if kind == "yaml"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(name: str) -> None:
    assert validate(Path(name)) == []


def test_faults() -> None:
    with ScriptedProvider(Path("faults.provider.yaml")) as server:
        seen = [send(server, asked("openai")) for _ in range(4)]
    assert [got.status for got in seen] == [429, 429, 429, 200]
    assert (seen[0].headers["retry-after"], seen[3].body) == ("2", b"<html>")


def test_program() -> None:
    (program,) = [block for kind, block in BLOCKS if kind == "python"]
    exec(compile(program, "docs/provider.md", "exec"), {})  # noqa: S102  # our own page


def test_command() -> None:
    (console,) = [block for kind, block in BLOCKS if kind == "console"]
    command, address = console.removeprefix("$ ").splitlines()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    argv = [SCRIPT, *command.replace("8099", port).split()[1:]]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == address.replace("8099", port)
        process.terminate()
        assert process.wait(20) == 0


def test_the_table_has_every_provider() -> None:
    rows = re.findall(r"^\| `([\w-]+)`.*\| `([^`]+)` \| `POST …([^`]+)`", PAGE, re.MULTILINE)
    assert {provider for provider, _, _ in rows} == set(CODECS) == {format.name for _, format in FORMATS}
    for provider, base, ending in rows:
        sent = base.removeprefix("http://127.0.0.1:8099") + ("/v1" if provider == "anthropic" else "") + ending
        (format,) = [format for pattern, format in FORMATS if re.search(pattern, sent)]
        assert format.name == provider


def test_links_and_lines() -> None:
    for link in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / link).exists()
    assert [line for line in PAGE.splitlines() if len(line) > 120] == []
