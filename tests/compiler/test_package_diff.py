"""Differences between two packages: section, path, old and new value."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentrun.compiler.compile import compile
from agentrun.compiler.package_diff import PackageDifference, diff_packages
from agentrun.compiler.package_file import seal_package

from ..documents import Document, document_with, write, yaml_text
from ..full_spec import BILLING, RICH, project
from ..packages import ROUTE, package
from .key_changes import apply

RULES = RICH["policy"]["rules"]
BARE = ("ledger", "probe", "search", "wiki")
"""Tools without a timeout of their own."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rich")
    project(folder)
    for name, text in (("billing", "Bills of {{ account }}."), ("other", "All of it.")):
        write(folder, {f"specs/agents/{name}.yaml": yaml_text(document_with(BILLING, "instructions", text))})
    return folder


def between(folder: Path, before: Document, after: Document) -> list[PackageDifference]:
    path = folder / "specs/rich.yaml"
    files = []
    for document in (before, after):
        path.write_text(json.dumps(document), encoding="utf-8")
        files.append(compile(path))
    return diff_packages(*files)


def described_changes(folder: Path, at: str, value: Any) -> list[str]:
    return [found.describe() for found in between(folder, RICH, apply((at, value, set())))]


# One change of each kind.
DESCRIPTIONS: list[tuple[str, Any, list[str]]] = [
    ("name", "poor", ['name: "rich" → "poor"']),
    ("budgets.turns", 13, ["budgets.turns: 12 → 13"]),
    ("budgets.time", "90s", ["budgets.time: 120 s → 90 s"]),
    ("budgets.time", "1500ms", ["budgets.time: 120 s → 1.5 s"]),
    ("budgets.cost", 0.5, ["budgets.cost: $0.25 → $0.5"]),
    ("budgets.grace", 3, ["budgets.grace: 2 → 3"]),
    ("budgets.on_turns", "fail", ['budgets.on_turns: "stop" → "fail"']),
    ("limits.tool_timeout", "26s", [f"tools.{name}.timeout: 25 s → 26 s" for name in BARE]),
    ("admission.dedupe", False, ["admission.dedupe: true → false"]),
    ("guards.cycle", "off", ["guards.cycle: 5 → none", 'guards.cycle_compare: "calls" → "results"']),
    ("model.temperature", 1, ["model.temperature: 0.5 → 1.0"]),
    ("model.stop", ["END"], ['model.stop: ["END", "STOP"] → ["END"]']),
    ("model.price.input", 0.5, ["model.routes.openai/gpt-4.1-mini.price.input: $0.4 → $0.5"]),
    ("model.options.bias", {}, ["model.routes.openai/gpt-4.1-mini.options.bias.5: removed (1)"]),
    ("model.options.logprobs", 1, ["model.routes.openai/gpt-4.1-mini.options.logprobs: true → 1"]),
    ("model.options.timeout", 5, ["model.routes.openai/gpt-4.1-mini.options.timeout: added (5)"]),
    ("tools.run.grace", "4s", ["tools.run.grace: 3 s → 4 s"]),
    ("tools.lookup.body.time", 5, ["tools.lookup.body.time: added (5)"]),
    ("tools.lookup.args.properties.id.maxLength", 5, ["tools.lookup.args.properties.id.maxLength: added (5)"]),
    ("tools.billing.params.tone", "cold", ['tools.billing.params.tone: "warm" → "cold"']),
    (
        "tools.billing.spec",
        "agents/other.yaml",
        ['agents.billing.instructions: "Bills of {{ account }}." → "All of it."'],
    ),
    ("tools.billing.profile", "long", ["agents.billing.model.max_output_tokens: 100 → 900"]),
    ("policy.rules.1.when", "spend.turns >= 1", ['policy.rules.writes.when: "spend.turns >= 0" → "spend.turns >= 1"']),
    ("policy.rules", RULES[:-1], ["policy.rules.ends: removed"]),
    ("policy.rules", [{"id": "also", "allow": "lookup"}, *RULES], ["policy.rules.also: added"]),
    ("policy.default", "ask", ['policy.default: "deny" → "ask"']),
    ("input", "And?", ['input: "Where is order {{ order_id }}?" → "And?"']),
    ("hooks.0.timeout", "5s", ["hooks.check.timeout: 4 s → 5 s"]),
    ("hooks", RICH["hooks"][1:], ["hooks.check: removed"]),
    ("sinks.screen.delivery", "required", ['sinks.screen.delivery: "optional" → "required"']),
    ("session.max_runs", 6, ["session.max_runs: 5 → 6"]),
    ("replay.redact.0.pattern", "x", ['replay.redact.email.pattern: "[a-z]+@[a-z.]+" → "x"']),
]


@pytest.mark.parametrize(
    ("at", "value", "said"), DESCRIPTIONS, ids=[f"{at}-{index}" for index, (at, _, _) in enumerate(DESCRIPTIONS)]
)
def test_change_is_described_with_old_and_new_value(at: str, value: Any, said: list[str], folder: Path) -> None:
    assert described_changes(folder, at, value) == said


def test_added_tool_is_described(folder: Path) -> None:
    more = document_with(RICH, "tools.second", RICH["tools"]["probe"])
    more["policy"]["rules"][0]["allow"].append("second")
    before, after = '["docs.*", "lookup", "search", "wiki.*"]', '["docs.*", "lookup", "search", "second", "wiki.*"]'
    assert [found.describe() for found in between(folder, RICH, more)] == [
        "tools.second: added",
        f"policy.rules.reads.targets: {before} → {after}",
    ]
    assert [found.change for found in between(folder, more, RICH)] == ["removed", "changed"]


def test_changed_order_of_routes_is_described(folder: Path) -> None:
    (said,) = described_changes(folder, "model.fallback", RICH["model"]["fallback"][::-1])
    first, mini, other = "openai/gpt-4.1-mini", "own/claude-haiku-4-5", "openai/gpt-4.1"
    assert said == f'model.order of routes: ["{first}", "{mini}", "{other}"] → ["{first}", "{other}", "{mini}"]'


def test_changed_text_is_described_as_a_line_diff(folder: Path) -> None:
    before = document_with(RICH, "instructions", ["One.\nTwo.\nThree.", "Four."])
    after = document_with(RICH, "instructions", ["One.\nTwo and a half.\nThree.", "Four."])
    (found,) = between(folder, before, after)
    assert found.describe().split("\n") == [
        "instructions: changed",
        "    @@ -1,3 +1,3 @@",
        "     One.",
        "    -Two.",
        "    +Two and a half.",
        "     Three.",
    ]


def test_changed_split_of_instructions_is_described(folder: Path) -> None:
    """Parted in another way it is rendered in another way; nothing but the parting is shown."""
    before = document_with(RICH, "instructions", ["One.", "Two.\n\nThree."])
    after = document_with(RICH, "instructions", ["One.\n\nTwo.", "Three."])
    (found,) = between(folder, before, after)
    assert found.describe() == r'instructions: ["One.", "Two.\n\nThree."] → ["One.\n\nTwo.", "Three."]'


def test_text_lines_that_look_like_diff_headers_are_shown(folder: Path) -> None:
    """A line of dashes is a line of the prompt, and not a header."""
    before, after = (document_with(RICH, "input", f"a\n{line}\nb") for line in ("-- x", "++ x"))
    (found,) = between(folder, before, after)
    assert found.describe().split("\n")[2:] == ["     a", "    --- x", "    +++ x", "     b"]


@pytest.mark.parametrize("at", ["description", "profiles", "agentrun"])
def test_neutral_changes_give_no_difference(at: str, folder: Path) -> None:
    value = {"description": "Other.", "profiles": {}, "agentrun": "1"}[at]
    other = dict(reversed(document_with(RICH, at, value).items()))
    assert between(folder, RICH, other) == []


def test_two_routes_of_one_model_are_numbered() -> None:
    """Routes of one name are reported apart: a change of the second is no change of the first."""

    def of(base_url: str) -> Any:
        return seal_package(package(model={"routes": [ROUTE, {**ROUTE, "base_url": base_url}]}))

    (found,) = diff_packages(of("https://a.example"), of("https://b.example"))
    assert (
        found.describe() == 'model.routes.openai/gpt-4.1-mini (2).base_url: "https://a.example" → "https://b.example"'
    )


def test_change_inside_a_sub_agent_is_described() -> None:
    """Told as exactly as in the agent itself, with its units."""

    def of(path: str, time: int) -> Any:
        redact = [{"name": "mail", "path": path, "pattern": None}]
        child = package(replay={"redact": redact}, budgets={"time": time})
        return seal_package(
            package(agents={"child": msgspec.to_builtins(package(agents={"b": msgspec.to_builtins(child)}))})
        )

    assert [found.describe() for found in diff_packages(of("x", 1000), of("y", 2000))] == [
        "agents.child.agents.b.budgets.time: 1 s → 2 s",
        'agents.child.agents.b.replay.redact.mail.path: "x" → "y"',
    ]


def test_true_and_1_are_different() -> None:
    """`true` and 1 are equal to Python and different to a model's service, also inside lists."""
    for one, other in ((True, 1), (False, 0), ([True], [1]), ([{"a": 0}], [{"a": False}])):
        before, after = (seal_package(package(params={"a": {"const": value}})) for value in (one, other))
        (found,) = diff_packages(before, after)
        assert found.path == "a.const"


def test_duplicate_rule_ids_are_reported_as_a_changed_section() -> None:
    """The compiler refuses two rules of one id; a file may hold them, and then differ in the hidden one."""
    rule: dict[str, Any] = {
        "id": "r",
        "ruling": "allow",
        "targets": ["a"],
        "on": "tool_call",
        "when": None,
        "set": {},
        "mask": [],
    }

    def of(reason: str) -> Any:
        return seal_package(package(policy={"rules": [{**rule, "reason": reason}, {**rule, "reason": "same"}]}))

    (found,) = diff_packages(of("a"), of("b"))
    assert (found.section, found.path, found.change) == ("policy", "", "changed")
