"""Types in conditions: what is refused for the arguments of the tools that a rule names, where, and what is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.compiler.condition_types import ConditionTypes, merge_action_schemas
from agentrun.core.condition import FailedEvaluation, evaluate_condition
from agentrun.spec.problems import Problem, Source
from agentrun.spec.tree import MappingNode, ScalarNode
from agentrun.spec.yaml_parser import parse_yaml_document

from ..locks import pin
from ..named_cases import case
from ..projects import FoundProblem, find_problems
from ..steps import at_most

PRINT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "file": {"type": "string"},
        "copies": {"type": "integer", "default": 1},
        "scale": {"type": "number"},
        "index": {"type": "number"},
        "color": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "pages": {"type": "array", "items": {"type": "integer"}},
        "margins": {"type": "array", "items": {"type": "number"}},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "mode": {"enum": ["fast", "good"]},
        "level": {"enum": [1, 2.5]},
        "flag": {"const": True},
        "mixed": {"enum": ["a", 1]},
        "nothing": {"type": "null"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "both": {"type": ["integer", "null"]},
        "any": {},
        "all": True,
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {"type": "object"},
        "my-arg": {"type": "integer"},
        "options": {
            "type": "object",
            "properties": {
                "depth": {"type": "integer"},
                "paper": {
                    "type": "object",
                    "properties": {"size": {"type": "string"}, "weight": {"type": "number"}},
                    "additionalProperties": False,
                },
            },
        },
        "open": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
    },
}
EXAMPLE: dict[str, Any] = {
    "file": "a.pdf",
    "copies": 2,
    "scale": 1,
    "index": 0,
    "color": True,
    "tags": ["x"],
    "pages": [1],
    "margins": [1, 2.5],
    "grid": [[1, 2.5]],
    "pair": ["a", 1],
    "parts": [{"n": 1}],
    "mode": "fast",
    "level": 1,
    "flag": True,
    "mixed": "a",
    "nothing": None,
    "either": 1,
    "both": 1,
    "any": 1,
    "all": 1,
    "counts": {"a": 1, "b": 1},
    "free": {"a": 1, "b": {"c": 1}},
    "my-arg": 1,
    "options": {"depth": 1, "paper": {"size": "a4", "weight": 80}},
    "open": {"a": "x", "b": {"c": 1}},
}


def check(written: str, **schemas: dict[str, Any]) -> list[Problem]:
    """Problems of `when: …`, written as it would be in a file, for these tools."""
    root = parse_yaml_document(Source(Path("/p/spec.yaml"), "spec.yaml", f"when: {written}\n"))
    assert isinstance(root, MappingNode)
    node = root.get("when")
    assert isinstance(node, ScalarNode)
    return ConditionTypes().problems(node, schemas or {"print": PRINT})


def reported(written: str, **schemas: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    return [(f"{p.line}:{p.column}+{p.place.width}", p.message, p.hint) for p in check(written, **schemas)]


TYPE_ERRORS = {
    "args.copies <= '3'": ("1:19+2", "<= does not work on a whole number and text"),
    "args.file > 3": ("1:17+1", "> does not work on text and a whole number"),
    "args.scale == 'big'": ("1:18+2", "== does not work on a number and text"),
    "args.color == 'yes'": ("1:18+2", "== does not work on true or false and text"),
    "args.copies + 'x' == 'y'": ("1:19+1", "+ does not work on a whole number and text"),
    "args.copies in ['a', 'b']": ("1:19+1", "in does not work on a whole number and a list of texts"),
    "3 in args.tags": ("1:9+1", "in does not work on a whole number and a list of texts"),
    "args.tags[0] == 3": ("1:20+2", "== does not work on text and a whole number"),
    "args.tags['a'] == 'b'": ("1:16+1", "[ ] does not work on a list of texts and text"),
    "args.tags.exists(tag, tag == 3)": ("1:33+2", "== does not work on text and a whole number"),
    "args.pages.all(page, page.startsWith('a'))": (
        "1:43+1",
        "startsWith does not work on a whole number and text",
    ),
    "args.grid[0][0] == 'a'": ("1:23+2", "== does not work on a number and text"),
    "args.mode == 1": ("1:17+2", "== does not work on text and a whole number"),
    "args.level == 'a'": ("1:18+2", "== does not work on a number and text"),
    "args.flag == 'a'": ("1:17+2", "== does not work on true or false and text"),
    "args.file.startsWith(args.copies)": ("1:27+1", "startsWith does not work on text and a whole number"),
    "size(args.copies) > 1": ("1:11+1", "size does not work on a whole number"),
    "args.copies.all(x, x > 1)": (
        "1:7+1",
        "all, exists, map and filter need a list, but this is a whole number",
    ),
    "args.copies.more == 1": ("1:18+1", "a whole number has no fields"),
    "args.counts.a == 'x'": ("1:21+2", "== does not work on a whole number and text"),
    "args.options.depth <= '3'": ("1:26+2", "<= does not work on a whole number and text"),
    "args.options.paper.weight <= '80'": ("1:33+2", "<= does not work on a number and text"),
    "args['copies'] <= '3'": ("1:22+2", "<= does not work on a whole number and text"),
    "args[ \"copies\" ] <= '3'": ("1:24+2", "<= does not work on a whole number and text"),
    "args['my-arg'] <= '3'": ("1:22+2", "<= does not work on a whole number and text"),
    "args['options'].depth <= '3'": ("1:29+2", "<= does not work on a whole number and text"),
    "args.options['depth'] <= '3'": ("1:29+2", "<= does not work on a whole number and text"),
    "args['options']['paper'].weight <= '8'": ("1:39+2", "<= does not work on a number and text"),
    "args . copies <= '3'": ("1:21+2", "<= does not work on a whole number and text"),
    "has(args.copies) && args.copies <= '3'": ("1:39+2", "<= does not work on a whole number and text"),
    "args.file == 'args.copies <= 1' || args.copies <= '3'": (
        "1:54+2",
        "<= does not work on a whole number and text",
    ),
    "args.color && args.file": ("1:18+2", "&& does not work on true or false and text"),
    "(!args.copies)": ("1:8+1", "! does not work on a whole number"),
    "args.copies": ("1:7+11", "a condition must be true or false, but this is a whole number"),
    "args.tags": ("1:7+9", "a condition must be true or false, but this is a list of texts"),
    "args.options": ("1:7+12", "a condition must be true or false, but this is a mapping"),
    "args.color?args.file:args.copies": ("1:17+1", "? : does not work on true or false and text and a whole number"),
    "args.options.dpeth <= 3": ("1:20+5", 'args.options has no field "dpeth"'),
    "has(args.options.paper.wight)": ("1:30+5", 'args.options.paper has no field "wight"'),
    "args['options']['paper']['wieght'] > 1": ("1:33+6", 'args.options.paper has no field "wieght"'),
}


def test_what_does_not_work_is_reported_at_its_column() -> None:
    for written, expected in TYPE_ERRORS.items():
        with case(written):
            ((at, message, hint),) = reported(written)
            assert (at, message) == expected
            assert hint


ACCEPTED = (
    "args.copies <= 3",
    "args.copies <= 2.5",
    "args.copies == 2.0",
    "args.copies in [1.0, 2.5]",
    "args.scale <= 3",
    "args.scale == 3",
    "args.scale in [1, 2]",
    "args.scale * 2 > 3",
    "args.scale % 2 == 1",
    "args.scale + args.copies > 1",
    "args.scale > args.copies",
    "args.level == 1",
    "args.tags[args.level - 1] == 'x'",
    "args.tags[args.index] == 'x'",
    "timestamp(args.scale) > timestamp(0)",
    "args.margins == args.pages",
    "args.margins.all(each, each > 0)",
    "1 in args.margins",
    "args.grid[0][0] == 1",
    "args.color ? args.scale > 1 : args.copies > 1",
    "(args.color ? args.scale : args.copies) > 0",
    "args.pair[0] == 'a'",
    "args.parts.exists(part, part.n == 1 || part.other == 'x')",
    "args.mixed == 'a'",
    "args.mixed == 1",
    "args.either == 1",
    "args.either == null || args.either == 'x'",
    "args.both == 'x' || args.both == null",
    "args.any == 'x'",
    "args.all == 'x'",
    "args.nothing == null",
    "args.copies == null || args.copies > 1",
    "args.file != null && args.file.startsWith('a')",
    "args.free.a == 'x' || args.free.b.c == 1",
    "args.open.a == 'x' && args.open.b == 1",
    "args.open.b.c == 1",
    "args.counts.b == 1 || true",
    "has(args.copies)",
    "!has(args.copies) || args.copies <= 3",
    "has(args.options.depth) && args.options.depth <= 3",
    "has(args.options) && has(args.options.paper) && args.options.paper.weight < 100",
    "args.options == {'depth': 1} || args.options.depth == 1",
    "size(args.options) > 1 && size(args.tags) == 1 && size(args.file) > 1",
    "args.exists(name, name == 'copies')",
    "dyn(args.copies) == '3' || true",
    "string(args.copies) == '3'",
    "args['copi\\x65s'] == 'x'",
    "'args.copies <= \"3\"' == args.file // args.copies <= '3'",
    "args.matches == 1 || true",
    "spend.turns > 1",
)


def test_what_works_or_could_work_is_accepted() -> None:
    for written in ACCEPTED:
        with case(written):
            assert reported(json.dumps(written)) == []


def test_refused_conditions_fail_or_are_never_true_at_run_time() -> None:
    for written in TYPE_ERRORS:
        with case(written):
            value = evaluate_condition(written, {"args": EXAMPLE})
            assert isinstance(value, FailedEvaluation) or value is False


def test_accepted_conditions_work_at_run_time() -> None:
    for written in ACCEPTED:
        with case(written):
            assert isinstance(evaluate_condition(written, {"args": EXAMPLE, "spend": {"turns": 1}}), bool)


def test_hint_names_the_argument_its_tool_and_its_type() -> None:
    ((_, _, hint),) = reported("args.copies <= '3' && args.tags == []")
    assert hint == "args.copies of print is a whole number; args.tags of print is a list of texts"
    ((_, _, hint),) = reported("args.options.dpeth <= 3")
    assert hint == 'did you mean "depth"?'
    ((_, _, hint),) = reported("args.options.zzz <= 3")
    assert hint == "known: depth, paper"


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("|\n  args\n    .copies\n  <= '3'", "4:3+2"),
        (">\n  has(args.copies) &&\n\n  args.copies <= '3'", "4:15+2"),
        ('"args.file == \\"\\u00e9\\" || args.copies <= \'3\'"', "1:47+2"),
    ],
)
def test_column_is_right_in_other_yaml_styles(written: str, at: str) -> None:
    assert [each[0] for each in reported(written)] == [at]


def test_each_tool_is_checked() -> None:
    text = {"type": "object", "properties": {"copies": {"type": "string"}}, "additionalProperties": False}
    assert reported("args.copies == 3", print=PRINT) == []
    ((_, message, hint),) = reported("args.copies == 3", print=PRINT, fax=text)
    assert message == "== does not work on text and a whole number"
    assert hint == "args.copies of fax is text"


def test_unknown_tool_allows_anything() -> None:
    assert reported("args.copies == 'x'", crm={}) == []
    ((_, _, hint),) = reported("args.copies == 'x'", crm={}, print=PRINT)
    assert hint == "args.copies of print is a whole number"
    assert reported("args.options.dpeth == 1", crm={}, print=PRINT) == []


def test_field_of_an_object_that_one_tool_has_is_accepted() -> None:
    other = {
        "type": "object",
        "properties": {"options": {"type": "object", "properties": {"dpeth": {"type": "integer"}}}},
        "additionalProperties": False,
    }
    assert reported("args.options.dpeth == 1", print=PRINT, fax=other) == []
    assert reported("args.options.dpeth == 1", print=PRINT, fax={"type": "object", "additionalProperties": False})


def test_field_with_another_type_in_another_action_can_be_anything() -> None:
    number = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}}
    text = {"type": "object", "properties": {"n": {"type": "string"}}}
    merged = merge_action_schemas([number, text])
    assert reported("args.n == 'x'", ticket=merged) == []
    assert reported("args.m == 'x'", ticket=merged)
    assert reported("args.action == 1", ticket=merged)


def test_many_tools_with_the_same_types_are_checked_once() -> None:
    tools = {f"tool{number}": PRINT for number in range(300)}
    with at_most(100_000):
        assert reported("args.copies <= 3 && args.options.depth == 1 && args.tags == []", **tools) == []


# --- in a spec ------------------------------------------------------------------------------------------------------


def spec(rules: str, tools: str = "") -> str:
    args = "args: {type: object, properties: {copies: {type: integer, default: 1}, file: {type: string}}}"
    more = "args: {type: object, properties: {copies: {type: string}}}"
    return (
        f"policy: {{default: allow, rules: [{rules}]}}\n"
        f"tools:\n  print: {{kind: shell, description: d, argv: [x], {args}}}\n"
        f"  fax: {{kind: shell, description: d, argv: [x], {more}}}\n{tools}"
    )


def test_wrong_type_is_a_spec_error_with_its_column(tmp_path: Path) -> None:
    assert find_problems(tmp_path, spec("{id: r, deny: print, when: args.copies <= '3'}")) == [
        FoundProblem(
            "spec.yaml:1:73",
            "spec.condition",
            "<= does not work on a whole number and text",
            "args.copies of print is a whole number",
        )
    ]


@pytest.mark.parametrize(("targets", "refused"), [("print", "fax"), ("fax", "print")])
def test_rule_is_checked_against_each_tool_that_it_names(tmp_path: Path, targets: str, refused: str) -> None:
    when = "args.copies <= 3" if targets == "print" else "args.copies == 'a'"
    assert find_problems(tmp_path, spec(f'{{id: r, deny: {targets}, when: "{when}"}}')) == []
    for target in ("[print, fax]", '"*"', '["pr*", "f*"]'):
        ((_, code, _, hint),) = find_problems(tmp_path, spec(f'{{id: r, deny: {target}, when: "{when}"}}'))
        assert (code, hint) == (
            "spec.condition",
            f"args.copies of {refused} is {'text' if refused == 'fax' else 'a whole number'}",
        )


def test_field_that_no_named_tool_has_is_an_error(tmp_path: Path) -> None:
    assert find_problems(tmp_path, spec("{id: r, deny: [print, fax], when: args.file == 'a'}")) == []
    (problem,) = find_problems(tmp_path, spec("{id: r, deny: [print, fax], when: args.flie == 'a'}"))
    assert problem[1:] == ("spec.unknown_arg", 'argument "flie" is not declared', 'did you mean "file"?')


def test_rules_on_results_are_checked(tmp_path: Path) -> None:
    ((_, code, _, _),) = find_problems(
        tmp_path, spec("{id: r, on: tool_result, deny: print, when: args.copies <= '3'}")
    )
    assert code == "spec.condition"


SERVER = "  crm: {kind: mcp, command: [x]}\n"
RULE = '{id: r, deny: "crm.*", when: "args.copies <= \'3\'"}'


def test_locked_mcp_tool_is_checked_and_an_unlocked_one_is_not(tmp_path: Path) -> None:
    def lock(tools: dict[str, Any]) -> dict[str, str | bytes]:
        data = {"agentrun_lock": "1", "origin": "a test", "routes": {}, "servers": tools}
        return {"spec.lock": json.dumps(data)}

    pinned = lock({"crm": {"print": pin(args=PRINT), "other": pin()}})
    ((_, code, _, hint),) = find_problems(tmp_path, spec(RULE, SERVER), pinned)
    assert (code, hint) == ("spec.condition", "args.copies of crm.print is a whole number")
    unlocked = [each.code for each in find_problems(tmp_path, spec(RULE, SERVER), lock({}))]
    assert unlocked == ["spec.unpinned"]
    assert find_problems(tmp_path, spec(RULE, SERVER), lock({"crm": {"other": pin()}})) == []
    both = '{id: r, deny: [fax, "crm.*"], when: "args.zzz == 1"}'
    assert [each.code for each in find_problems(tmp_path, spec(both, SERVER), lock({}))] == ["spec.unpinned"]
    assert [each.code for each in find_problems(tmp_path, spec(both, SERVER), pinned)] == []
    both = '{id: r, deny: [fax, crm.print], when: "args.zzz == 1"}'
    assert [each.code for each in find_problems(tmp_path, spec(both, SERVER), pinned)] == ["spec.unknown_arg"]


def test_field_that_a_locked_mcp_tool_does_not_have_is_an_error(tmp_path: Path) -> None:
    data = {"agentrun_lock": "1", "origin": "a test", "routes": {}, "servers": {"crm": {"print": pin(args=PRINT)}}}
    rule = '{id: r, deny: crm.print, when: "args.copeis <= 3"}'
    (problem,) = find_problems(tmp_path, spec(rule, SERVER), {"spec.lock": json.dumps(data)})
    assert problem[1:] == ("spec.unknown_arg", 'argument "copeis" is not declared', 'did you mean "copies"?')


def test_python_tool_is_checked_by_its_signature(tmp_path: Path) -> None:
    source = '''
from typing import Literal, TypedDict

class Paper(TypedDict):
    weight: int

def draw(size: int, paper: Paper, name: str | None = None, mode: Literal["a", "b"] = "a", tags: list[str] = []) -> str:
    """Draws."""
    return ""
'''
    tool = "  draw: {kind: python, call: 'shop:draw'}\n"
    for when, message in {
        "args.size == 'a'": "== does not work on a whole number and text",
        "args.paper.weight > 'a'": "> does not work on a whole number and text",
        "args.paper.wieght > 1": 'args.paper has no field "wieght"',
        "args.mode == 1": "== does not work on text and a whole number",
        "1 in args.tags": "in does not work on a whole number and a list of texts",
    }.items():
        with case(when):
            rule = f'{{id: r, deny: draw, when: "{when}"}}'
            ((_, _, text, _),) = find_problems(tmp_path, spec(rule, tool), {"shop.py": source})
            assert text == message
    rule = '{id: r, deny: draw, when: "args.name == 1 || has(args.mode)"}'
    assert find_problems(tmp_path, spec(rule, tool), {"shop.py": source}) == []


def test_sub_agent_is_checked_by_its_params(tmp_path: Path) -> None:
    child = (
        'agentrun: "1"\nname: child\nmodel: {provider: openai, name: m}\nbudgets: {tokens: 5k}\n'
        "params: {days: {type: integer}, note: {type: string, default: x}}\ninstructions: '{{ days }}{{ note }}'\n"
    )
    tool = "  plan: {kind: agent, spec: child.yaml}\n"
    files: dict[str, str | bytes] = {"child.yaml": child}
    ((_, code, _, hint),) = find_problems(tmp_path, spec("{id: r, deny: plan, when: \"args.days > '3'\"}", tool), files)
    assert (code, hint) == ("spec.condition", "args.days of plan is a whole number")
    ((_, code, _, _),) = find_problems(tmp_path, spec("{id: r, deny: plan, when: \"args.note == 'a'\"}", tool), files)
    assert code == "spec.unknown_arg", "a param with a default is not an argument"
    assert (
        find_problems(
            tmp_path, spec("{id: r, deny: plan, when: \"args.message == 'a' && args.days > 1\"}", tool), files
        )
        == []
    )


def test_tool_with_actions_is_checked(tmp_path: Path) -> None:
    opens = "{type: object, properties: {n: {type: integer}}}"
    closes = "{type: object, properties: {id: {type: string}}}"
    actions = f"{{open: {opens}, close: {closes}}}"
    tool = f"  ticket: {{kind: shell, description: d, argv: [x], actions: {actions}}}\n"
    for when, count in {
        "args.n > 1 && args.id == 'a'": 0,
        "args.n == 'a'": 1,
        "args.action == 1": 1,
        "args.nn == 1": 1,
    }.items():
        with case(when):
            assert len(find_problems(tmp_path, spec(f'{{id: r, deny: ticket, when: "{when}"}}', tool))) == count


def test_broken_schema_hides_no_other_problem_and_adds_none(tmp_path: Path) -> None:
    tool = "  bad: {kind: shell, description: d, argv: [x], args: {type: object, properties: 3}}\n"
    rules = '{id: r, deny: bad, when: "args.x == 1"}, {id: s, deny: print, when: "args.copies == \'a\'"}'
    assert [each.code for each in find_problems(tmp_path, spec(rules, tool))] == ["spec.condition", "spec.json_schema"]
