"""docs/guide.md: its files form a valid project, its commands are run, and its tables match the code."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import get_type_hints

import pytest

from agentrun.canonical_json import text_hash
from agentrun.compiler.compile import compile_or_raise, compile_spec
from agentrun.compiler.lint_texts import ENV_PATHS, PROMPT_PATHS
from agentrun.compiler.python_functions import find_function
from agentrun.compiler.template_meter import Bounds
from agentrun.compiler.validate import validate_document
from agentrun.core.condition import CONDITION_VARIABLES
from agentrun.core.package import LEGAL_RULINGS, RULINGS
from agentrun.core.package_tools import McpTool
from agentrun.providers.codec import CODECS
from agentrun.spec.project import Project, find_project
from agentrun.spec.v1.agent import FallbackModelSpec, ModelSpec
from agentrun.spec.v1.field_types import SecretRef
from agentrun.spec.v1.policy import PolicySpec
from agentrun.spec.v1.tools import TOOL_TEMPLATE_KEYS, AuthSpec
from agentrun.testing.provider import ScriptedProvider

from ..cli.command import agentrun
from .guide import BLOCKS, FILES, GUIDE, SPEC_PARTS, STEPS, code, code_between, table, with_required_keys
from .terminal import BIN, ROOT, Terminal


def run(command: str, folder: Path) -> None:
    _, *args = shlex.split(command)
    done = agentrun(*args, cwd=folder, PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def guide_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of the guide: what `init` makes, and the files that are shown."""
    folder = tmp_path_factory.mktemp("guide")
    run(STEPS[0][0], folder)
    for name, text in FILES.items():
        path = folder / "my-agent" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for spec in ("letters", "desk"):
        run(f"agentrun lock specs/{spec}.yaml", folder / "my-agent")
    run("agentrun compile specs/desk.yaml -o desk.package.json", folder / "my-agent")
    return folder / "my-agent"


@pytest.fixture
def project(guide_project: Path, tmp_path: Path) -> Path:
    shutil.copytree(guide_project, tmp_path / "my-agent")
    return tmp_path / "my-agent"


# --- what is shown


def test_every_kind_of_block_is_tested() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "jinja", "python", "toml", "yaml"}
    assert all(block in FILES.values() for kind, block in BLOCKS if kind not in ("console", "yaml"))
    assert len(SPEC_PARTS) == 4
    assert re.findall(r"^## (\d+)\. ", GUIDE, re.MULTILINE) == [str(number) for number in range(1, 12)]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_yaml_file_is_valid(name: str, guide_project: Path) -> None:
    assert validate_document(guide_project / name) == []


@pytest.mark.parametrize("name", ["specs/letters.yaml", "specs/desk.yaml", "specs/clerk.yaml", "specs/hello.yaml"])
@pytest.mark.parametrize("profile", [None, "ci"])
def test_agent_compiles(name: str, profile: str | None, guide_project: Path) -> None:
    if profile and "desk" not in name:
        profile = None
    assert compile_spec(guide_project / name, profile).problems == ()


@pytest.mark.parametrize("part", SPEC_PARTS, ids=lambda part: part.partition(":")[0])
def test_yaml_part_is_valid(part: str, project: Path) -> None:
    (project / "specs" / "shown.yaml").write_text(with_required_keys(part))
    assert validate_document(project / "specs" / "shown.yaml") == []


@pytest.mark.parametrize(("command", "shown"), STEPS[1:], ids=lambda text: text.split("\n")[0][:50])
def test_command_prints_what_the_page_shows(command: str, shown: str, project: Path) -> None:
    with Terminal(project) as terminal:
        terminal.follow(f"$ {command}\n{shown}")


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!https:)[^)#]+)\)", GUIDE))
def test_linked_file_exists(link: str) -> None:
    assert (ROOT / "docs" / link).exists()


def test_lines_have_at_most_120_characters() -> None:
    text = re.sub(r"```console.*?```", "", GUIDE, flags=re.DOTALL)  # what is printed is as long as it is
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []


# --- tables and lists


def test_listed_providers_are_the_codecs() -> None:
    assert code_between("with the providers", ".\n") == sorted(CODECS)


def test_project_settings_of_the_guide(guide_project: Path) -> None:
    project = find_project(guide_project / "specs" / "desk.yaml")
    assert project.import_roots == ("python",)
    default = Project(project.root)
    assert (project.cassettes, project.store, default.import_roots) == (default.cassettes, default.store, (".",))


def test_template_limits_match_the_code() -> None:
    bounds = Bounds()
    assert f"{bounds.steps:,} steps, {bounds.output >> 20} MiB of output, {bounds.range:,} numbers" in GUIDE


def test_table_of_rulings_matches_the_code() -> None:
    rows = {code(row[0])[0]: row[1:] for row in table("stage")}
    assert "| stage | " + " | ".join(RULINGS) + " |" in GUIDE
    assert list(rows) == list(LEGAL_RULINGS)
    for (stage, legal), cells in zip(LEGAL_RULINGS.items(), rows.values(), strict=True):
        shown = tuple(r for r, cell in zip(RULINGS, cells, strict=True) if cell in ("yes", "`set`", "`mask`"))
        assert shown == legal, stage


@pytest.mark.parametrize("stage", LEGAL_RULINGS)
def test_modify_column_matches_what_each_stage_allows(stage: str, tmp_path: Path) -> None:
    """The column `modify` says which of the two belongs to the stage."""
    shown = next(row[2] for row in table("stage") if row[0] == f"`{stage}`")
    for key, value in (("set", "{x: 1}"), ("mask", '["[0-9]{16}"]')):
        spec = tmp_path / "spec.yaml"
        args = "{type: object, properties: {x: {type: integer}}}"
        tool = f"{{kind: shell, description: d, argv: [df], args: {args}}}"
        rule = f'{{id: r, on: {stage}, modify: "*", {key}: {value}}}'
        rest = f"sinks: {{s: {{kind: stdout}}}}\ntools: {{t: {tool}}}\npolicy: {{default: allow, rules: [{rule}]}}\n"
        spec.write_text(with_required_keys(rest))
        assert (compile_spec(spec).errors == ()) is (shown == f"`{key}`"), compile_spec(spec).errors


def test_order_of_rulings_matches_the_code() -> None:
    order = "interrupt, deny, defer, ask, modify, allow"
    assert f"whatever their order: {order}." in GUIDE
    assert order in str(PolicySpec.__doc__)
    assert order.split(", ") == list(reversed(RULINGS))


def test_table_of_condition_variables_matches_the_code() -> None:
    shown = {code(row[0])[0]: tuple(code(row[2])) or None for row in table("variable")}
    assert shown == CONDITION_VARIABLES


@pytest.mark.parametrize("stage", LEGAL_RULINGS)
def test_stages_with_args_match_the_compiler(stage: str, tmp_path: Path) -> None:
    known = code(next(row[1] for row in table("variable") if row[0] == "`args`"))
    tool = "{kind: shell, description: d, argv: [df], args: {type: object, properties: {x: {type: integer}}}}"
    rule = f'{{id: r, on: {stage}, deny: "*", when: "args.x == 1"}}'
    rest = f"sinks: {{s: {{kind: stdout}}}}\ntools: {{t: {tool}}}\npolicy: {{default: allow, rules: [{rule}]}}\n"
    (tmp_path / "spec.yaml").write_text(with_required_keys(rest))
    assert (compile_spec(tmp_path / "spec.yaml").errors == ()) is (stage in known)


def test_table_of_templates_matches_the_code() -> None:
    params, tools, env, secrets = (row[1] for row in table("what"))
    assert code(params) == [".".join(path) for path in PROMPT_PATHS]
    assert {kind: code(keys) for kind, keys in re.findall(r"(\w+) tools: ([^;]+)", tools.lower())} == {
        kind: list(keys) for kind, keys in TOOL_TEMPLATE_KEYS.items()
    }
    assert code(env) == [".".join(path) for path in ENV_PATHS]
    for struct, field in ((ModelSpec, "api_key"), (FallbackModelSpec, "api_key"), (AuthSpec, "secret")):
        hints = get_type_hints(struct, include_extras=True)
        assert [name for name, hint in hints.items() if SecretRef in (hint, *getattr(hint, "__args__", ()))] == [field]
    assert {path.rpartition(".")[2] for path in code(secrets)} == {"api_key", "secret"}


def test_example_units_are_accepted(tmp_path: Path) -> None:
    keys = {"times": "limits: {tool_timeout: %s}", "counts": "budgets: {tokens: %s}"}
    keys |= {"sizes": "limits: {output_bytes: %s}", "money": "budgets: {tokens: 1, cost: %s}"}
    text = GUIDE[GUIDE.index("\nUnits: ") :].partition("US\ndollars")[0]
    shown = {name: code(values) for name, values in re.findall(r"(\w+) ((?:`[^`]+`\s?)+)", text)}
    assert shown.keys() == keys.keys()
    price = "model: {provider: openai, name: m, price: {input: 1, output: 1}}"
    for line in [keys[name] % value for name, values in shown.items() for value in values]:
        (tmp_path / "spec.yaml").write_text(with_required_keys(f"{line}\n{price}\n"))
        assert compile_spec(tmp_path / "spec.yaml").problems == (), line


def test_listed_annotations_are_understood(tmp_path: Path) -> None:
    shown = code_between("annotations are understood:", "and a `TypedDict`")
    assert len(shown) == 14
    body = "".join(f"def f{index}(x: {annotation}): ...\n" for index, annotation in enumerate(shown))
    (tmp_path / "tools.py").write_text(body + "def g(x: object): ...\ndef h(x): ...\ndef i(*args, **kwargs): ...\n")
    project = Project(tmp_path)
    for index, annotation in enumerate(shown):
        assert find_function(project, f"tools:f{index}").schema is not None, annotation
    assert [find_function(project, f"tools:{name}").schema for name in "ghi"] == [None] * 3


# --- sentences


def test_tool_description_is_the_first_docstring_paragraph(guide_project: Path) -> None:
    tool = compile_or_raise(guide_project / "specs" / "desk.yaml")[1].agent.tools["refund"]
    assert tool.description == "Pays an amount of an order back."


def test_mcp_tool_names_and_sub_agent_arguments(guide_project: Path) -> None:
    tools = compile_or_raise(guide_project / "specs" / "desk.yaml")[1].agent.tools
    server, letter = tools["parcels"], tools["write_letter"]
    assert isinstance(server, McpTool)
    assert {f"parcels.{name}" for name in server.pinned} == {"parcels.cancel", "parcels.track_parcel"}
    assert not isinstance(letter, McpTool)
    assert letter.args["required"] == ["message"]


@pytest.mark.parametrize(
    ("order", "amount", "result", "said", "code"),
    [
        ("1042", 5, "5 of 1042 refunded: late", "refund printed: the till is open", 0),
        ("1042", -5, "ValueError: an amount is more than 0", "ValueError: an amount is more than 0", 0),
        ("0", 5, None, "tool.fatal: the till is closed", 6),
    ],
    ids=["returns", "raises", "ends"],
)
def test_python_tool_of_the_guide_runs(
    order: str, amount: int, result: str | None, said: str, code: int, project: Path
) -> None:
    """What the function of the guide prints, raises and returns goes where its comments say."""
    tool = "tools: {refund: {kind: python, call: 'desk.refunds:refund'}}\npolicy: {default: allow}\ninput: Hello.\n"
    (project / "specs" / "till.yaml").write_text(with_required_keys(tool))
    call = f"{{tool: refund, args: {{order_id: '{order}', amount: {amount}}}}}"
    turns = f'agentrun: "1"\nturns: [{{calls: [{call}]}}, {{expect: {{results: ["{result}"]}}, text: Done.}}]\n'
    with ScriptedProvider(turns) as server:
        environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "not-a-key"}
        done = agentrun("specs/till.yaml", cwd=project, stdin=b"", **environment)
    assert (done.code, done.out) == (code, "" if result is None else "Done.\n"), done.err
    assert said in done.err


def test_profile_and_settings_override_the_shared_parts(guide_project: Path) -> None:
    agent = compile_or_raise(guide_project / "specs" / "desk.yaml", "ci", ["budgets.tokens=10k", "model.seed=null"])[
        1
    ].agent
    assert agent.tools.keys() == {"refund", "lookup_order", "disk_space", "write_letter"}
    assert [rule.id for rule in agent.policy.rules] == ["everything"]
    assert (agent.model.temperature, agent.model.seed) == (None, None)
    assert (agent.budgets.turns, agent.budgets.tokens, agent.budgets.tool_calls) == (3, 10_000, 20)
    both = compile_or_raise(guide_project / "specs" / "desk.yaml")[1].agent.policy.rules
    assert {"us-only", "reads"} < {rule.id for rule in both}


def test_fingerprint_changes_with_code_but_not_with_descriptions(project: Path) -> None:
    spec, module = project / "specs" / "desk.yaml", project / "python" / "desk" / "refunds.py"
    first = compile_or_raise(spec)[1].fingerprint
    spec.write_text(spec.read_text().replace("name: desk", "description: Of no account.  # nor this\nname: desk"))
    spec.write_text(spec.read_text().replace("    budgets: {turns: 3}\n", ""))
    (project / "specs" / "policies" / "desk.yaml").write_text(_turned(FILES["specs/policies/desk.yaml"]))
    assert compile_or_raise(spec)[1].fingerprint == first
    module.write_text(f"{module.read_text()}# a comment\n")
    found = compile_or_raise(spec)[1]
    assert found.fingerprint != first
    assert text_hash(module.read_text()) in str(found.agent.tools["refund"])


def test_description_of_a_sub_agent_changes_the_fingerprint(project: Path) -> None:
    spec, child = project / "specs" / "desk.yaml", project / "specs" / "letters.yaml"
    own, first = compile_or_raise(child)[1].fingerprint, compile_or_raise(spec)[1].fingerprint
    child.write_text(child.read_text().replace("a short letter", "a long letter"))
    assert compile_or_raise(child)[1].fingerprint == own
    assert compile_or_raise(spec)[1].fingerprint != first


def _turned(policy: str) -> str:
    """The same rules in the opposite order."""
    head, *rules = policy.split("    - ")
    return head + "".join(f"    - {rule}" for rule in reversed(rules))


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("input: {file: ../../outside.md}", "spec.file_outside"),
        ("budgets: [{tokens: 1k}, {tokens: 2k}]", "spec.given_twice"),
        ("budgets: {tokens: }", "spec.wrong_type"),
        (
            "tools: {t: {kind: http, description: d, url: 'https://a.example', headers: {X: '${A}{{1}}'}}}",
            "spec.mixed",
        ),
        ("output: {schema: {type: object, propertys: {}}}", "spec.json_schema"),
        ("output: {schema: {$ref: '#'}}", "spec.schema_ref"),
        ("input: 'Mine is ghp_" + "a1B2c3D4" * 4 + "a1B2'", "spec.secret"),
    ],
)
def test_wrong_examples_are_refused(written: str, problem: str, project: Path) -> None:
    (project / "specs" / "shown.yaml").write_text(with_required_keys(f"{written}\n"))
    assert problem in {found.code for found in compile_spec(project / "specs" / "shown.yaml").errors}
