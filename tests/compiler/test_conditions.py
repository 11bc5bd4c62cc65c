"""Checks of CEL conditions: place and text of a problem, and the cost of a condition."""

from pathlib import Path

import pytest

from agentrun.compiler.conditions import (
    MAX_LOOP_CONDITION,
    cheap_constant_value,
    check_condition,
    field_references,
    patterns_in_condition,
)
from agentrun.spec.problems import Problem, Source, SourcePlace
from agentrun.spec.tree import MappingNode, ScalarNode
from agentrun.spec.yaml_parser import parse_yaml_document

from ..steps import at_most

FIELDS = {"args": ["x", "name"], "params": ["a"], "spend": ("turns",), "calls": None, "session": ("runs",)}


def check(written: str) -> list[Problem]:
    """Problems of `when: …`, written as it would be in a file."""
    root = parse_yaml_document(Source(Path("/p/spec.yaml"), "spec.yaml", f"# a comment\nwhen: {written}\n"))
    assert isinstance(root, MappingNode)
    node = root.get("when")
    assert isinstance(node, ScalarNode)
    return check_condition(node, FIELDS)


def reported(written: str) -> list[tuple[str, str, str | None]]:
    return [(f"{p.line}:{p.column}+{p.place.width}", p.message, p.hint) for p in check(written)]


# The same expression in every style of YAML; `agrs` is at another place in each.
STYLES = {
    "plain": ("has(args.x) && agrs.y", "2:22+4"),
    "plain, folded": ("has(args.x)\n  && agrs.y", "3:6+4"),
    "single": ("'has(args.x) && agrs.y'", "2:23+4"),
    "single, quotes doubled": ("'args.name == ''its'' && agrs.y'", "2:32+4"),
    "double": ('"has(args.x) && agrs.y"', "2:23+4"),
    "double, escapes": ('"args.name == \\"\\u00e9\\" && agrs.y"', "2:35+4"),
    "double, folded": ('"has(args.x)\n   && agrs.y"', "3:7+4"),
    "literal": ("|\n  has(args.x) &&\n  agrs.y", "4:3+4"),
    "literal, indented inside": ("|\n    has(args.x) &&\n      agrs.y", "4:7+4"),
    "literal, kept end": ("|+2\n  has(args.x) &&\n\n  agrs.y\n\n", "5:3+4"),
    "folded": (">\n  has(args.x) &&\n  agrs.y", "4:3+4"),
    "folded, stripped": (">-\n  has(args.x)\n\n  && agrs.y", "5:6+4"),
    "not ascii before": ("\"args.name == 'é€😀' && agrs.y\"", "2:30+4"),
}


@pytest.mark.parametrize("style", STYLES)
def test_problem_points_at_the_token_in_every_yaml_style(style: str) -> None:
    written, at = STYLES[style]
    ((place, message, hint),) = reported(written)
    assert (place, message, hint) == (at, 'unknown variable "agrs"', 'did you mean "args"?')


@pytest.mark.parametrize(
    ("written", "at", "message", "hint"),
    [
        ("args.x ==", "2:16+1", "the condition is incomplete", None),
        ('"args.x = 1"', "2:15+1", 'unexpected "="', "use == to compare"),
        ('"args.x =< 1"', "2:15+2", 'unexpected "=<"', "did you mean <=?"),
        ('"args.x=<1"', "2:14+2", 'unexpected "=<"', "did you mean <=?"),
        ('"args.x => 1"', "2:15+2", 'unexpected "=>"', "did you mean >=?"),
        ('"args.x =! 1"', "2:15+2", 'unexpected "=!"', "did you mean !=?"),
        ("args.x and args.y", "2:14+3", 'unexpected "and"', "use && for and"),
        ("args.x or args.y", "2:14+2", 'unexpected "or"', "use || for or"),
        ("not args.x", "2:11+4", 'unexpected "args"', "use ! for not"),
        ("args.x == 'a", "2:17+1", "the quote opened here is not closed", "close it"),
        ("args.x == None", "2:17+4", 'unknown name "None"', "write null"),
        ("args.x == True", "2:17+4", 'unknown name "True"', "write true"),
        ("len(args.x) > 1", "2:7+3", 'there is no function "len"', "functions: has, size"),
        ("mathces(args.x, 'a')", "2:7+7", 'there is no function "mathces"', 'did you mean "matches"?'),
        ("size(1, 2) == 1", "2:7+4", "size cannot be called like this", None),
        ("spend.turns > 1.5", "2:19+1", "> does not work on a whole number and a decimal number", "double("),
        ("spend.turns == 'a'", "2:19+1", "== does not work on a whole number and text", None),
        ("args.nmae == 1", "2:12+4", 'argument "nmae" is not declared', 'did you mean "name"?'),
        ('args["zzz"] == 1', "2:13+3", 'argument "zzz" is not declared', "known: name, x"),
        ("params . b == 1", "2:16+1", 'param "b" is not declared', "known: a"),
        ("size(args.x)", "2:7+12", "a condition must be true or false, but this is a whole number", "compare it"),
        ("now > '2026-12-24'", "2:11+1", "> does not work on a time and text", "timestamp('2026-"),
        ("now > 12", "2:11+1", "> does not work on a time and a whole number", "duration('2h')"),
        ("now", "2:7+3", "a condition must be true or false, but this is a time", "compare it"),
        ("now - now", "2:7+9", "a condition must be true or false, but this is a duration", "compare it"),
        ("now.getHour() > 8", "2:11+7", 'there is no function "getHour"', 'did you mean "getHours"?'),
        ("'yes'", "2:8+3", 'unknown variable "yes"', "variables: args, params"),
    ],
)
def test_mistake_has_place_message_and_hint(written: str, at: str, message: str, hint: str | None) -> None:
    ((place, said, fix),) = reported(written)
    assert (place, said) == (at, message)
    assert (hint or "") in (fix or "")
    assert (fix is None) == (hint is None)


def test_only_the_first_syntax_error_is_reported() -> None:
    assert len(reported("args.x = agrs.y = 'a")) == 1
    assert [place for place, _, _ in reported("agrs.x == 1 && spnd.y > 2 && args.x == None")] == [
        "2:7+4",
        "2:22+4",
        "2:46+4",
    ]


@pytest.mark.parametrize(
    "written",
    [
        "args.x == 1",
        "args.x",  # what it is shows only when it runs
        "args.x in ['a', 'b'] && !(args.name.startsWith('c'))",
        "args.exists(k, k == 'x')",
        "args.x.all(each, each.price < 10.0)",
        "args.name == 'see params.zzz and args[\"q\"]'",
        "args.x == 1 // params.zzz",
        'args.name == """a "quoted" params.zzz"""',
        "args.name == r'\\\\d' || args.name.matches(r'^\\\\d+$')",
        "matches(args.name, '^a')",
        "calls.anything > 1 && 'server.tool' in calls",
        "duration('1h') > duration('1m')",
        "now.getHours() < 9 || now.getDayOfWeek('+01:00') in [0, 6]",
        "now - timestamp(args.x) > duration('1h')",
    ],
)
def test_valid_condition_has_no_problem(written: str) -> None:
    quoted = '"' + written.replace("\\\\", "\\").replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert reported(quoted) == []


def test_field_references_of_a_condition() -> None:
    text = "args.x == params['a'] && spend . turns > 1 && has(calls.t) && 'args.q' == args[\"z\"] && args.map(k, k)"
    expected = [("args", "x"), ("params", "a"), ("spend", "turns"), ("calls", "t"), ("args", "z")]
    found = list(field_references(text))
    assert sorted((variable, field) for variable, field, _ in found) == sorted(expected)
    assert all(text.startswith(field, offset) for _, field, offset in found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("1 > 2", False),
        ("'a' == 'a' && !false", True),
        ("args.x == 1", None),
        ("1 / 0 == 1", None),
        ("1 + 1", None),
        ("[1, 2].all(x, x > 5)", None),  # not worked out: it might be any number of rounds
        ("'a'.matches('b')", None),
    ],
)
def test_constant_condition_is_recognised(text: str, value: bool | None) -> None:
    assert cheap_constant_value(text) is value


# --- what a condition may cost ------------------------------------------------------------------------------


def test_pattern_of_matches_must_be_a_literal_for_re2() -> None:
    assert [(p.code, p.message) for p in check("\"args.name.matches('(?=a)')\"")] == [
        ("spec.pattern", "this regular expression cannot be used: invalid perl operator: (?=")
    ]
    together = "the pattern of matches must be a literal text"
    for text in ("args.name.matches(args.x)", "args.name.matches('a' + 'b')", "matches(args.name, 'a' + args.x)"):
        assert [message for _, message, _ in reported(f'"{text}"')] == [together]
    assert "too large" in check("\"args.name.matches('\\\\\\\\pL{900}')\"")[0].message


def test_patterns_in_condition_finds_literals_with_places() -> None:
    text = "args.a.matches('x,(') && matches(args.b, r\"y\") && 'matches(z)' == '' && args.c.matches('p' + args.d)"
    found = list(patterns_in_condition(text))
    assert [pattern for pattern, _, _ in found] == ["x,(", "y", None]
    assert [text[at : at + width] for _, at, width in found] == ["'x,('", 'r"y"', "matches"]


def test_condition_with_a_loop_has_a_length_limit() -> None:
    start, end = "args.x.all(each, each in [", "1])"
    fits = start + "1," * ((MAX_LOOP_CONDITION - len(start + end)) // 2) + end
    assert MAX_LOOP_CONDITION - 1 <= len(fits) <= MAX_LOOP_CONDITION
    assert reported(f'"{fits}"') == []
    ((_, message, _),) = reported(f'"{fits}  "')
    assert message == "a condition with all, exists, map or filter can have at most 500 characters"
    assert reported('"' + "args.x == 1 || " * 40 + 'true"') == []  # longer, but without rounds


@pytest.mark.parametrize(
    "text",
    [
        "(" * 4000 + "1" + ")" * 4000,
        "[" * 4000 + "1" + "]" * 4000,
        "!" * 8000 + "true",
        "-" * 8000 + "1",
        "1+" * 4000 + "1 == 1",
        "true&&" * 1300 + "true",
        "true?true:" * 800 + "true",
        "args" + ".x" * 4000,
        "args" + "[0]" * 2700,
        "{1:" * 1500 + "1" + "}" * 1500,
        "matches(" * 1000,
        "'" * 8191,
        '"' * 8191,
        "\\" * 8191,
        "a||" * 2700 + "a",
        "args.zzz||" * 800 + "true",
        "[1].all(a," * 30 + "true" + ")" * 30,
        "args.name.matches('" + "(a|b)" * 1000 + "')",
        "'a'.matches('" + "(x+x+)+y" * 100 + "')",
        "//" * 4000,
        "\0" * 100,
    ],
)
def test_hostile_condition_is_checked_in_bounded_time(text: str) -> None:
    place = SourcePlace(Source(Path("/p/spec.yaml"), "spec.yaml", text), 1, 1)
    with at_most(400_000):
        found = check_condition(ScalarNode(text, text, place, "file", 0, len(text)), FIELDS)
        assert found or cheap_constant_value(text) in (True, False, None)
    assert {problem.code for problem in found} <= {"spec.condition", "spec.pattern", "spec.unknown_arg"}
