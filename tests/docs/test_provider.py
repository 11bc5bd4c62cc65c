"""docs/provider.md: its scripts are played, its program is run, and its tables match the code."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentrun.cassette.file import load_cassette
from agentrun.compiler.validate import validate_document
from agentrun.providers.codec import CODECS, PROVIDER_HOMES
from agentrun.testing.provider import ScriptedProvider
from agentrun.testing.provider.server import FORMATS

from ..cli.command import agentrun
from ..testing.provider_requests import model_request, send
from .terminal import Terminal, blocks

PAGE = (Path(__file__).parents[2] / "docs" / "provider.md").read_text(encoding="utf-8")
BLOCKS = blocks(PAGE)
NAMES = ["orders.provider.yaml", "orders.yaml", "shop.py", "family.provider.yaml", "faults.provider.yaml"]
FILES = {block.split("\n")[0].removeprefix("# "): block for _, block in BLOCKS if block.startswith("# ")}
SCRIPTS = [name for name in FILES if name.endswith(".provider.yaml")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_yaml_file_is_valid(name: str) -> None:
    assert validate_document(Path(name)) == []


def test_fault_script_gives_its_faults() -> None:
    with ScriptedProvider(Path("faults.provider.yaml")) as server:
        seen = [send(server, model_request("openai")) for _ in range(4)]
    assert [got.status for got in seen] == [429, 429, 429, 200]
    assert (seen[0].headers["retry-after"], seen[3].body) == ("2", b"<html>")


def test_script_is_read_once_and_ends() -> None:
    script = Path("orders.provider.yaml")
    with ScriptedProvider(script) as server:
        script.write_text(script.read_text().replace("I look it up.", "I do not."))
        assert b"I look it up." in send(server, model_request("openai")).body
    with ScriptedProvider('agentrun: "1"\norder: arrival\nturns: [{text: Hello.}]\n') as server:
        assert [send(server, model_request("openai")).status for _ in range(2)] == [200, 400]


@pytest.mark.parametrize("order", ["arrival", "conversation"])
def test_arrival_order_serves_parent_and_sub_agent(order: str, folder: Path) -> None:
    """In the usual order both begin at the first turn, so that the last is never reached."""
    rest = "agentrun: '1'\nmodel: {provider: openai, name: gpt-4.1-mini}\nbudgets: {turns: 2, tokens: 9k}\n"
    tool = "tools: {reader: {kind: agent, spec: reader.yaml}}\npolicy: {default: allow}\n"
    (folder / "lead.yaml").write_text(f"{rest}{tool}name: lead\ninstructions: You lead.\ninput: Is all well?\n")
    (folder / "reader.yaml").write_text(f"{rest}name: reader\ndescription: Reads.\ninstructions: You read.\n")
    script = FILES["family.provider.yaml"].replace("order: arrival", f"order: {order}")
    with ScriptedProvider(script) as server:
        keys = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "any"}
        out = agentrun("lead.yaml", cwd=folder, stdin=b"", **keys).out
    assert (out == "The report says: all is fine.\n") is (order == "arrival")
    assert [seen.turn for seen in server.requests[:2]] == ([1, 2] if order == "arrival" else [1, 1])


def test_python_program_runs() -> None:
    (program,) = [block for kind, block in BLOCKS if kind == "python" and block not in FILES.values()]
    exec(compile(program, "docs/provider.md", "exec"), {})  # noqa: S102  # our own page


def test_every_block_is_tested() -> None:
    assert [kind for kind, _ in BLOCKS] == ["yaml", "console", "yaml", "python", "console", "yaml", "yaml", "python"]
    assert (SCRIPTS, list(FILES)) == ([name for name in NAMES if name.endswith(".provider.yaml")], NAMES)


def test_commands_print_what_the_page_shows(folder: Path) -> None:
    with Terminal(folder) as terminal:
        for kind, block in BLOCKS:
            if kind == "console":
                terminal.follow(block)


VARIABLES: list[tuple[str, str, str]] = [
    (provider, variable, value)
    for providers, variable, value in re.findall(r"^\| (`.*) \| `([A-Z_]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE)
    for provider in re.findall(r"`([\w-]+)`", providers)
]


@pytest.mark.parametrize(("provider", "variable", "value"), VARIABLES, ids=[each[0] for each in VARIABLES])
def test_base_url_variable_redirects_each_provider(provider: str, variable: str, value: str, folder: Path) -> None:
    spec = folder / "orders.yaml"
    spec.write_text(spec.read_text().replace("provider: openai", f"provider: {provider}"))
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "any")
    with ScriptedProvider(Path("orders.provider.yaml")) as server:
        address = value.replace("http://127.0.0.1:8099", server.url)
        done = agentrun(
            "orders.yaml", "--mode", "record", "--yes", cwd=folder, stdin=b"", **keys, **{variable: address}
        )
        assert {seen.provider for seen in server.requests} == {provider}
    assert (done.code, done.out) == (0, "Order 1042 is shipped.\n"), done.err
    (where,) = load_cassette(folder / "cassettes/orders/default.yaml").metadata["where"]
    assert where.endswith(f"sent to 127.0.0.1 by {variable} (a scripted provider: no model was asked)")


def test_table_of_variables_has_every_provider() -> None:
    """With as much of a path as the address has that it stands for."""
    assert {(provider, variable, urlsplit(value).path) for provider, variable, value in VARIABLES} == {
        (provider, home.variable, urlsplit(home.address).path) for provider, home in PROVIDER_HOMES.items()
    }


def test_documented_server_header_is_sent() -> None:
    with ScriptedProvider(Path("orders.provider.yaml")) as server:
        assert f"server: {send(server, model_request('openai')).headers['server']}" in PAGE


def test_table_of_formats_has_every_provider() -> None:
    rows = re.findall(r"^\| `([\w-]+)`.*\| `([^`]+)` \| `POST …([^`]+)`", PAGE, re.MULTILINE)
    assert {provider for provider, _, _ in rows} == set(CODECS) == {format.name for _, format in FORMATS}
    for provider, base, ending in rows:
        sent = base.removeprefix("http://127.0.0.1:8099") + ("/v1" if provider == "anthropic" else "") + ending
        (format,) = [format for pattern, format in FORMATS if re.search(pattern, sent)]
        assert format.name == provider


def test_links_exist_and_lines_have_at_most_120_characters() -> None:
    for link in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / link).exists()
    text = re.sub(r"```console.*?```", "", PAGE, flags=re.DOTALL)  # what is printed is as long as it is
    assert [line for line in text.splitlines() if len(line) > 120] == []
