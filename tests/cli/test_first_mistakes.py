"""Mistakes that new users make, and the hints that they get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentrun.testing.provider import ScriptedProvider

from .command import agentrun
from .shop_project import Project

SPEC = """\
agentrun: "1"
name: first
model: {provider: openai, name: gpt-4.1-mini}
instructions: Be brief.
input: Hello
budgets: {tokens: 5k}
"""
TOOL = """\
policy: {{default: allow}}
tools:
  t: {tool}
"""


def problems(folder: Path, text: str) -> list[dict[str, object]]:
    (folder / "first.yaml").write_text(SPEC + text)
    lines = agentrun("validate", "first.yaml", "--json", cwd=folder).lines()
    return [line for line in lines if "code" in line]


@pytest.mark.parametrize(
    ("url", "blocked"),
    [
        ("http://127.0.0.1:8080/x", True),
        ("http://localhost/x", True),
        ("http://api.localhost:9/x", True),
        ("https://10.0.0.7/x", True),
        ("https://[::1]/x", True),
        ("https://192.168.1.1/{{ args.a }}", True),
        ("https://169.254.169.254/x", True),
        ("https://8.8.8.8/x", False),
        ("https://shop.example/x", False),
        ("${SHOP}/x", False),
    ],
)
@pytest.mark.parametrize("kind", ["http", "mcp", "sink"])
def test_private_address_without_private_network_is_found(tmp_path: Path, url: str, blocked: bool, kind: str) -> None:
    args = "args: {type: object, properties: {a: {type: string}}}, " if "args" in url else ""
    if args and kind != "http":
        pytest.skip("only tools have templates")
    for allowed in (False, True):
        network = ", private_network: true" if allowed else ""
        text = {
            "http": TOOL.format(tool=f'{{kind: http, description: d, method: GET, {args}url: "{url}"{network}}}'),
            "mcp": TOOL.format(tool=f'{{kind: mcp, url: "{url}"{network}}}'),
            "sink": f'sinks: {{s: {{kind: http, url: "{url}"{network}}}}}\n',
        }[kind]
        found = [each for each in problems(tmp_path, text) if "private address" in str(each["message"])]
        assert bool(found) is (blocked and not allowed)
        assert [(each["code"], each["severity"], each["hint"]) for each in found] in (
            [],
            [("spec.url", "warning", "add `private_network: true` to allow it")],
        )


def test_class_as_an_argument_gets_a_hint_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from pydantic import BaseModel\n\nclass Order(BaseModel):\n    id: str\n\n"
        'def find(order: Order) -> str:\n    """Finds it."""\n    return order.id\n'
    )
    (found,) = problems(tmp_path, TOOL.format(tool='{kind: python, call: "shop:find"}'))
    assert (found["code"], "Order.model_validate(order)" in str(found["hint"])) == ("spec.python", True)
    assert "dict[str, Any]" in str(found["hint"])


def test_render_and_diff_work_without_a_lock(tmp_path: Path) -> None:
    text = SPEC.replace("{tokens: 5k}", "{cost: 0.5}") + TOOL.format(tool="{kind: mcp, command: [mcp-server-time]}")
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text.replace("Hello", "Goodbye"))
    assert (
        "spec.unpinned"
        in agentrun("validate", "a.yaml", cwd=tmp_path).err + agentrun("compile", "a.yaml", cwd=tmp_path).err
    )
    rendered = agentrun("render", "a.yaml", cwd=tmp_path)
    assert (rendered.code, rendered.out) == (0, "Be brief.\nHello\n")
    compared = agentrun("diff", "a.yaml", "b.yaml", cwd=tmp_path)
    assert (compared.code, '"Hello" → "Goodbye"' in compared.out) == (1, True)
    assert agentrun("a.yaml", "--mode", "live", cwd=tmp_path, OPENAI_API_KEY="any").code == 2, "it cannot be run"


def test_live_tool_with_a_new_id_gets_a_hint_at_volatile_fields(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.edit("desk.py", '"state": "late"', '"state": "late", "id": __import__("uuid").uuid4().hex')
    shop.recorded()
    done = shop.run("--live-tools", "--approve", "all")
    assert (done.code, "list its place in `replay.volatile`" in done.err) == (3, True), done.err
    shop.edit("prompt.md", "Be brief.", "Be kind.")
    assert "replay.volatile" not in shop.run("--live-tools", "--approve", "all").err, "here the prompt is the cause"


@pytest.mark.parametrize("command", ["run", "test"])
@pytest.mark.parametrize(("option", "by_case"), [("all", "denied"), ("none", "approved")])
def test_approve_option_comes_before_the_case(tmp_path: Path, command: str, option: str, by_case: str) -> None:
    shop = Project(tmp_path)
    text = f'agentrun: "1"\ncases:\n  - {{name: default, approvals: {{refund: {by_case}}}}}\n'
    (tmp_path / "shop.cases.yaml").write_text(text)
    with shop.provider() as (_, environment):
        if command == "run":
            done = shop.run("--mode", "record", "--yes", "--approve", option, **environment)
        else:
            words = ["test", "shop.cases.yaml", "--record", "all", "--yes", "--approve", option]
            done = agentrun(*words, cwd=tmp_path, **environment)  # type: ignore[arg-type]  # only texts
    assert f"approvals answered by: --approve {option}, then case default" in done.err, done.err
    assert ("refund 1042 20" in shop.traces()) is (option == "all")


def test_order_of_approvals_is_the_same_sentence_in_every_help() -> None:
    texts = [" ".join(agentrun(command, "--help").out.split()) for command in ("run", "test")]
    sentence = "Approvals are answered by this option, then by the case"
    assert all(sentence in text for text in texts)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ('["x"]', "prompts/first.md:2:8: a value has the wrong type"),
        ("[]", "prompts/first.md:2:8: there is no such item"),
    ],
)
def test_bad_template_value_names_file_and_column(tmp_path: Path, value: str, place: str) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "first.md").write_text("Hello.\nYou {{ items[0] + 1 }}\n")
    text = SPEC.replace("Be brief.", "{file: prompts/first.md}") + "params: {items: {type: array, default: [1]}}\n"
    (tmp_path / "first.yaml").write_text(text)
    rendered = agentrun("render", "first.yaml", "--param", f"items={value}", cwd=tmp_path)
    assert (rendered.code, place in rendered.err) == (2, True), rendered.err
    with ScriptedProvider('agentrun: "1"\nturns: [{text: Hi.}]\n') as server:
        environment = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": f"{server.url}/v1"}
        options = ("--param", f"items={value}", "--mode", "live", "--json")
        done = agentrun("first.yaml", *options, cwd=tmp_path, **environment)  # type: ignore[arg-type]  # only texts
        assert server.requests == []
    error = json.loads(done.out.splitlines()[-1])["error"]
    assert (error["code"], place in error["message"]) == ("input.rejected", True)
