"""Semantic checks of policies: legal rulings, rules that can match, and tools that can be allowed."""

import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.compiler.lint_policy import glob_covers, globs_overlap
from agentrun.core.package import matches_pattern

from ..projects import TOOL, codes, find_problems

# SEMANTICS, section 6: which rulings are legal at which stage.
MATRIX = """
                allow  modify  ask  defer  deny  interrupt
run_start         x      .      .     .     x       x
input             x      .      x     x     x       x
model_request     x      x      .     .     x       x
tool_call         x      x      x     x     x       x
tool_result       x      x      .     .     x       x
output            x      x      x     x     x       x
delivery          x      x      x     x     x       x
"""
ROWS = [line.split() for line in MATRIX.split("\n") if line.strip()]
RULINGS = ROWS[0]
PAIRS = [(row[0], ruling, mark == "x") for row in ROWS[1:] for ruling, mark in zip(RULINGS, row[1:], strict=True)]

ARGS = "args: {type: object, properties: {a: {type: integer}, b: {type: string}}}"


def policy(rules: str, default: str = "allow") -> str:
    return (
        f"tools: {{x: {{kind: shell, description: d, argv: [x], {ARGS}}}, yy: {TOOL}}}\n"
        "sinks: {s: {kind: stdout}}\n"
        "params: {p: {type: string}}\n"
        f"instructions: '{{{{ p }}}}'\n"
        f"policy: {{default: {default}, rules: [{rules}]}}\n"
    )


def rules(folder: Path, text: str, default: str = "allow") -> list[tuple[str, str]]:
    """The problems of these rules: code and message."""
    return [(code, message) for _, code, message, _ in find_problems(folder, policy(text, default))]


def test_ruling_matrix_has_every_pair() -> None:
    assert len(PAIRS) == 42
    assert sum(legal for *_, legal in PAIRS) == 34


@pytest.mark.parametrize(("stage", "ruling", "legal"), PAIRS)
def test_ruling_is_legal_at_its_stage_or_reported(tmp_path: Path, stage: str, ruling: str, legal: bool) -> None:
    target = {"tool_call": "x", "tool_result": "x", "delivery": "s"}.get(stage, '"*"')
    rewrite = {"tool_call": ", set: {a: 1}"}.get(stage, ', mask: ["[0-9]+"]') if ruling == "modify" else ""
    when = ', when: "spend.turns > 3"'  # so that no tool is always stopped
    reported = rules(tmp_path, f"{{id: r, {ruling}: {target}, on: {stage}{rewrite}{when}}}")
    assert reported == ([] if legal else [("spec.illegal_ruling", f"`{ruling}` is not possible on {stage}")])


def test_the_default_stage_is_tool_call(tmp_path: Path) -> None:
    assert rules(tmp_path, "{id: r, ask: x}") == []
    assert rules(tmp_path, '{id: r, ask: "*", on: model_request}') == [
        ("spec.illegal_ruling", "`ask` is not possible on model_request")
    ]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("{id: r}", "spec.rulings"),
        ("{id: r, allow: x, deny: yy}", "spec.rulings"),
        ("{id: r, modify: x}", "spec.modify"),
        ("{id: r, modify: x, mask: [a]}", "spec.modify"),
        ("{id: r, modify: x, on: tool_result}", "spec.modify"),
        ("{id: r, modify: x, on: tool_result, set: {a: 1}}", "spec.modify"),
        ("{id: r, allow: x, set: {a: 1}}", "spec.modify"),
        ("{id: r, allow: x, on: tool_result, mask: [a]}", "spec.modify"),
        ("{id: r, modify: x, set: {c: 1}}", "spec.unknown_arg"),
        ("{id: r, ask: x, until: 2h}", "spec.until"),
        ("{id: r, deny: x, until: person}", "spec.until"),
        ('{id: r, defer: x, until: "2026-02-30T08:00:00Z"}', "spec.until"),
        ('{id: r, defer: x, until: "1969-12-31T23:59:59Z"}', "spec.until"),
        ('{id: r, defer: x, until: "0001-01-01T00:00:00+01:00"}', "spec.until"),
        ("{id: r, defer: x, until: tomorrow}", "spec.wrong_text"),
        ("{id: r, defer: x, until: 2}", "spec.wrong_type"),
        ("{id: r, modify: yy, set: {a: 1}}", "spec.unknown_arg"),
        ('{id: r, modify: x, on: tool_result, mask: ["(?<=a)b"]}', "spec.pattern"),
    ],
)
def test_malformed_rule_is_reported(tmp_path: Path, rule: str, code: str) -> None:
    assert {reported for reported, _ in rules(tmp_path, rule)} == {code}


@pytest.mark.parametrize(
    "rule",
    [
        "{id: r, modify: x, set: {a: 1, b: z}}",
        "{id: r, modify: [x, yy], set: {a: 1}}",  # one of them has it
        '{id: r, modify: "*", set: {a: 1}}',
        '{id: r, modify: x, on: tool_result, mask: ["a|b"]}',
        "{id: r, defer: x, until: 90m}",
        "{id: r, defer: x, until: person}",
        "{id: r, defer: x, until: 2026-12-24T08:00Z}",
        '{id: r, defer: "*", on: output, until: "2026-12-24T08:00:00.5+01:00"}',
    ],
)
def test_valid_rule_has_no_problem(tmp_path: Path, rule: str) -> None:
    assert rules(tmp_path, rule) == []


@pytest.mark.parametrize(
    ("rule", "code", "hint"),
    [
        ("ask: z", "unknown_tool", "tools: x, yy"),
        ("ask: xx", "unknown_tool", 'did you mean "x"?'),
        ("ask: [x, y]", "unknown_tool", 'did you mean "yy"?'),
        ('ask: "z*"', "rule_never_matches", "tools: x, yy"),
        ('ask: "*z"', "rule_never_matches", "tools: x, yy"),
        ('ask: "y*y*y"', "rule_never_matches", "tools: x, yy"),
        ("ask: x.y", "unknown_tool", "tools: x, yy"),
        ('ask: x, when: "false"', "rule_never_matches", "to match always"),
        ('ask: x, when: "1 > 2"', "rule_never_matches", "to match always"),
        ("ask: x, when: \"'a' == 'b' || !true\"", "rule_never_matches", "to match always"),
        ("on: output, ask: x", "rule_never_matches", 'write "*"'),
        ("on: input, deny: x", "rule_never_matches", 'write "*"'),
        ("on: run_start, deny: x", "rule_never_matches", 'write "*"'),
        ("on: model_request, deny: x", "rule_never_matches", 'write "*"'),
        ("on: delivery, ask: x", "rule_never_matches", "sinks: s"),
        ('on: delivery, ask: "x*"', "rule_never_matches", "sinks: s"),
        ("on: tool_result, deny: s", "unknown_tool", "tools: x, yy"),
        ("ask: x, when: args.c == 1", "unknown_arg", "known: a, b"),
        ("ask: x, when: params.q == 1", "unknown_param", "known: p"),
        ("ask: x, when: calls.z == 1", "unknown_tool", "known: x, yy"),
        ("ask: x, when: spend.turn == 1", "condition", 'did you mean "turns"?'),
        ('ask: "*", on: output, when: args.a == 1', "condition", "available here: params, spend, "),
        ('ask: x, when: "args.a + 1"', "condition", None),
        ('ask: x, when: "args.a +"', "condition", None),
        ("ask: x, when: spend.turns", "condition", "compare it"),
    ],
)
def test_rule_that_can_never_match_is_reported(tmp_path: Path, rule: str, code: str, hint: str | None) -> None:
    reported = find_problems(tmp_path, policy(f"{{id: r, {rule}}}"))
    assert [each.code for each in reported] == [f"spec.{code}"]
    assert (hint or "") in (reported[0].hint or "")


@pytest.mark.parametrize(
    "rule",
    [
        "ask: [x, yy]",
        'ask: "*"',
        'ask: "y*"',
        'ask: "*y"',
        'ask: "y*y"',
        'ask: "*x*"',
        'ask: x, when: "true"',
        'ask: x, when: "1 < 2"',
        'ask: x, when: args.a == 1 && params.p == "q" && calls.yy > 1 && spend.cost > 5 && session.runs == 0',
        'ask: x, when: "args[\\"a\\"] > 1"',
        "ask: x, when: \"has(args.a) && args.exists(k, k == 'z')\"",
        'on: output, ask: "*"',
        "on: delivery, ask: s",
        'on: delivery, ask: "*"',
        "on: tool_result, deny: x, when: args.a == 1",
        "ask: x, when: \"args.b == 'see params.zzz or args[0]'\"",
        "ask: x, when: params.p == 'a' // args.zzz",
    ],
)
def test_rule_that_can_match_has_no_problem(tmp_path: Path, rule: str) -> None:
    assert rules(tmp_path, f"{{id: r, {rule}}}") == []


@pytest.mark.parametrize(
    ("default", "text", "never"),
    [
        ("deny", "", "x yy"),
        ("deny", "{id: r, allow: x}", "yy"),
        ("deny", "{id: r, ask: x}", "yy"),
        ("deny", "{id: r, allow: x, when: args.a == 1}", "yy"),
        ("deny", '{id: r, allow: "*"}', ""),
        ("deny", '{id: r, allow: "*", on: tool_result}', "x yy"),
        ("deny", "{id: r, modify: [x, yy], set: {a: 1}}", "x yy"),  # ruled again after that, and denied
        ("deny", "{id: r, allow: [x, yy]}, {id: d, deny: x}", "x"),
        ("deny", "{id: r, allow: [x, yy]}, {id: d, deny: x, when: args.a == 1}", ""),
        ("deny", '{id: r, allow: [x, yy]}, {id: d, deny: x, when: "true"}', "x"),
        ("deny", "{id: r, allow: [x, yy]}, {id: d, deny: x, on: tool_result}", ""),
        ("deny", '{id: r, ask: "*"}, {id: d, interrupt: "y*"}', "yy"),
        ("ask", "", ""),
        ("ask", "{id: d, defer: x}", "x"),
        ("ask", "{id: d, defer: x, until: 2h}", ""),
        ("deny", "{id: r, allow: yy}, {id: d, defer: x, until: 2h}", "x"),
        ("deny", "{id: r, allow: yy}, {id: d, defer: x, until: person}", ""),
        ("deny", "{id: r, allow: [x, yy]}, {id: d, defer: x, until: 2h}", ""),
        ("ask", "{id: d, defer: x, until: 2h}, {id: e, defer: x}", "x"),
        ("allow", "{id: d, deny: x}", "x"),
        ("allow", '{id: d, deny: "*"}', "x yy"),
        ("allow", '{id: d, deny: "*", when: spend.turns > 2}', ""),
    ],
)
def test_tool_that_can_never_be_allowed_is_reported(tmp_path: Path, default: str, text: str, never: str) -> None:
    reported = find_problems(tmp_path, policy(text, default))
    assert {each.code for each in reported} <= {"spec.tool_never_allowed"}
    assert [re.findall('tool "(.*?)" can never', each.message) for each in reported] == [
        [name] for name in never.split()
    ]
    assert all(each.at.startswith("spec.yaml:1:") for each in reported)


def test_suggested_rules_fix_the_policy(tmp_path: Path) -> None:
    reported = find_problems(tmp_path, policy("", "deny"))
    lines = [re.sub("^.*- ", "", each.hint or "") for each in reported]
    assert rules(tmp_path, ", ".join(lines), "deny") == []


SERVER = "tools: {crm: {kind: mcp, command: [x]%s}, note: %s}\npolicy: {default: %s, rules: [%s]}\n"


def server(folder: Path, text: str, seen: str = "", default: str = "deny") -> list[tuple[str, str]]:
    tools = f", tools: {seen}" if seen else ""
    reported = find_problems(folder, SERVER % (tools, TOOL, default, "{id: n, allow: note}, " + text))
    return [(code.removeprefix("spec."), message) for _, code, message, _ in reported]


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        ('{id: r, allow: "crm.*"}', ""),
        ("{id: r, allow: crm.search}", ""),
        ('{id: r, allow: "c*"}', ""),
        ('{id: r, allow: "*.get_*"}', ""),
        ('{id: r, allow: "*"}', "[a, b]"),
        ("{id: r, allow: crm.search}", "[search]"),
        ("{id: r, ask: crm.get_it}", '["get_*"]'),
        ('{id: r, allow: "crm.*_it"}', '["get_*"]'),
        ('{id: r, allow: "crm.*"}, {id: d, deny: crm.delete}', ""),
        ('{id: r, allow: "crm.*"}, {id: d, deny: "crm.del*"}', ""),
        ('{id: r, allow: "crm.*"}, {id: d, deny: "*", when: spend.turns > 1}', ""),
    ],
)
def test_mcp_server_that_can_be_allowed_has_no_problem(tmp_path: Path, rule: str, seen: str) -> None:
    assert server(tmp_path, rule, seen) == []


@pytest.mark.parametrize(
    ("rule", "seen", "code", "message"),
    [
        ("{id: r, allow: crm}", "", "rule_never_matches", '"crm" is a server, not a tool'),
        ("{id: r, allow: crn.search}", "", "unknown_tool", 'tool "crn.search" is not declared'),
        ('{id: r, allow: "crn.*"}', "", "rule_never_matches", '"crn.*" matches no tool'),
        ("{id: r, allow: note.x}", "", "unknown_tool", 'tool "note.x" is not declared'),
        ("{id: r, allow: crm.delete}", "[search]", "rule_never_matches", 'the agent cannot use "crm.delete"'),
        ('{id: r, allow: "crm.del*"}', '["get_*"]', "rule_never_matches", 'the agent cannot use "crm.del*"'),
        ("{id: r, ask: note}", "", "tool_never_allowed", 'tool "crm.*" can never run, because no rule'),
        ("{id: r, allow: crm.a}", "[a, b]", "tool_never_allowed", 'tool "crm.b" can never run, because no rule'),
        ("{id: r, allow: crm.a}", '[a, "get_*"]', "tool_never_allowed", 'tool "crm.get_*" can never run'),
        ('{id: r, allow: "crm.*"}, {id: d, deny: "c*"}', "", "tool_never_allowed", 'rule "d" always stops it'),
        ('{id: r, allow: "crm.*"}, {id: d, deny: crm.a}', "[a, b]", "tool_never_allowed", 'tool "crm.a" can never'),
        ('{id: r, allow: "crm.*"}, {id: d, deny: "*.*"}', '["get_*"]', "tool_never_allowed", 'tool "crm.get_*"'),
    ],
)
def test_mcp_server_that_can_never_be_allowed_is_reported(
    tmp_path: Path, rule: str, seen: str, code: str, message: str
) -> None:
    ((told_code, reported),) = server(tmp_path, rule, seen)
    assert told_code == code
    assert message in reported


def test_mcp_tool_that_is_never_allowed_is_reported_at_its_entry(tmp_path: Path) -> None:
    text = SERVER % (", tools: [a, b]", TOOL, "deny", '{id: r, allow: "crm.a"}, {id: n, allow: note}')
    assert [each.at for each in find_problems(tmp_path, text)] == ["spec.yaml:1:51"]


def test_conditions_on_unknown_mcp_tools_are_not_checked(tmp_path: Path) -> None:
    rule = "{id: r, allow: \"crm.*\", when: \"'crm.x' in calls && calls['crm.x'] > 1 && args.anything == 1\"}"
    assert server(tmp_path, rule) == []


def test_an_agent_without_tools_needs_no_policy(tmp_path: Path) -> None:
    assert codes(tmp_path, "policy: {rules: [{id: r, on: output, ask: '*'}]}") == []
    assert codes(tmp_path, "policy: {rules: [{id: r, ask: '*'}]}") == ["spec.rule_never_matches"]


# --- globs --------------------------------------------------------------------------------------------------

NAMES = ["".join(letters) for size in range(5) for letters in product("ab", repeat=size)]
GLOBS = st.text(alphabet="ab*", max_size=5)


def as_pattern(glob: str) -> re.Pattern[str]:
    return re.compile(glob.replace("*", ".*"))


@given(GLOBS)
def test_glob_agrees_with_a_regular_expression(glob: str) -> None:
    assert [matches_pattern(glob, name) for name in NAMES] == [bool(as_pattern(glob).fullmatch(name)) for name in NAMES]


@given(GLOBS, GLOBS)
def test_globs_overlap_and_glob_covers_are_correct(one: str, other: str) -> None:
    names = ["".join(letters) for size in range(11) for letters in product("ab", repeat=size)]
    mine = {name for name in names if as_pattern(one).fullmatch(name)}
    theirs = {name for name in names if as_pattern(other).fullmatch(name)}
    assert globs_overlap(one, other) == bool(mine & theirs)
    if glob_covers(one, other):
        assert theirs <= mine
    elif "*" not in other:
        assert not theirs <= mine


def test_glob_with_many_stars_is_matched_quickly() -> None:
    """A backtracking matcher needs longer than the universe for this one."""
    assert not matches_pattern("*a" * 40 + "*b", "a" * 64)
    assert matches_pattern("*a" * 40 + "*", "a" * 64)
