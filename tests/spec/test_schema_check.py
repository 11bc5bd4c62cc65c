"""Schema problems of documents: place, code, message, hint, and how many are reported."""

import json
from pathlib import Path

import pytest

from agentrun.spec.document_loader import load_document
from agentrun.spec.problems import Problem, Source, render_problem
from agentrun.spec.schema_check import (
    CHUNK_ENTRIES,
    LARGE_DOCUMENT_VALUES,
    MAX_CHUNKS,
    find_schema_problems,
)
from agentrun.spec.tree import MappingNode, plain_data
from agentrun.spec.yaml_parser import MAX_PROBLEMS, parse_yaml_document

from ..projects import TOOL, agent
from ..steps import at_most


def source(text: str) -> Source:
    return Source(Path("/p/spec.yaml"), "spec.yaml", text)


def schema_problems(text: str, kind: str = "agent") -> list[Problem]:
    return [each.problem for each in find_schema_problems(parse_yaml_document(source(text)), kind)]


def one(text: str) -> tuple[str, str, str, str | None]:
    """The only problem of a spec that begins with these lines."""
    (problem,) = schema_problems(agent(text))
    return f"{problem.line}:{problem.column}", problem.code, problem.message, problem.hint


DEFER = "policy: {default: ask, rules: [{id: r, defer: x, until:"


@pytest.mark.parametrize(
    ("text", "at", "code", "message", "hint"),
    [
        ("zzz: 1", "1:1", "unknown_key", 'unknown key "zzz" at the top of the document', "known keys: admi"),
        ("model: {provider: p, name: m, zz: 1}", "1:31", "unknown_key", 'unknown key "zz" in "model"', "known"),
        ("budgets: {token: 1}", "1:11", "unknown_key", 'unknown key "token" in "budgets"', 'mean "tokens"?'),
        ("model: {name: m}", "1:1", "missing_key", '"model" needs the key "provider"', "The wire format"),
        ("hooks: [{at: on_stop}]", "1:9", "missing_key", 'item 1 of "hooks" needs the key ', None),
        ("name: null", "1:7", "wrong_type", '"name" must be a name of ', "write a value"),
        ("name:", "1:1", "wrong_type", '"name" must be a name of ', "write a value"),
        ("description: true", "1:14", "wrong_type", "must be text, not true or false", 'in quotes: "true"'),
        ("description: 1.5", "1:14", "wrong_type", "must be text, not a number (1.5)", 'in quotes: "1.5"'),
        ("description: [a]", "1:14", "wrong_type", "must be text, not a list", None),
        ("tools: 5", "1:8", "wrong_type", '"tools" must be a mapping or a list, not a number (5)', None),
        ("tools: {x: [a]}", "1:12", "wrong_type", '"x" must be a mapping, not a list', None),
        ("model: openai/gpt-5", "1:8", "wrong_type", "must be a mapping", "{provider: openai, name: gpt-5}"),
        ('budgets: {turns: "5"}', "1:18", "wrong_type", "must be a whole number, not text", "without quotes: 5"),
        ("budgets: {turns: 1.5}", "1:18", "wrong_type", "must be a whole number, not a number (1.5)", None),
        ("limits: {tool_timeout: 30}", "1:24", "wrong_type", "must be a duration with its unit", "for example 30s"),
        ("model: {provider: p, name: m, stop: END}", "1:37", "wrong_type", "must be a list", '["END"]'),
        ("budgets: {on_turns: stopp}", "1:21", "wrong_value", "must be one of fail, stop", 'did you mean "stop"?'),
        ("guards: {cycle: of}", "1:17", "wrong_value", "must be a whole number, a mapping or off; ", 'mean "off"?'),
        ("name: A b", "1:7", "wrong_text", '"name" must be a name of at most 64 ', 'for example "a_b"'),
        ("name: 9", "1:7", "wrong_type", '"name" must be a name of at most 64 ', "in quotes"),
        ("budgets: {time: 2 hours}", "1:17", "wrong_text", "must be a duration with its unit", "for example 2h"),
        ('budgets: {time: "90"}', "1:17", "wrong_text", "must be a duration with its unit", "for example 90s"),
        (f"{DEFER} 2026-12-24 08:00}}]}}", "1:57", "wrong_text", "a time with its time zone", "2026-12-24T08:00Z"),
        (f"{DEFER} 2026-12-24}}]}}", "1:57", "wrong_text", "a time with its time zone", "2026-12-24T00:00:00Z"),
        (f"{DEFER} Person}}]}}", "1:57", "wrong_text", "a duration (30m, 2h, 7d) or `person`", "for example person"),
        (f"{DEFER} tomorrow}}]}}", "1:57", "wrong_text", '; it is "tomorrow"', None),
        ("budgets: {tokens: 1_000}", "1:19", "wrong_text", "must be a whole number, or a number ", "for example 1000"),
        ("output: {max_bytes: 5 MB}", "1:21", "wrong_text", "must be a number of bytes", None),
        ("params: {Order ID: {}}", "1:10", "name", "the key must be a name of ", 'for example "order_id"'),
        ("params: {1: {}}", "1:10", "name", "the key must be a name of ", None),
        ("budgets: {turns: 0}", "1:18", "out_of_range", '"turns" must be at least 1; it is 0', None),
        ("budgets: {cost: 0}", "1:17", "out_of_range", '"cost" must be at least 0.000001; it is 0', None),
        ("limits: {depth: 4}", "1:17", "out_of_range", '"depth" must be at most 3; it is 4', None),
        ("model: {provider: p, name: m, top_p: 0}", "1:38", "out_of_range", '"top_p" must be more than 0', None),
        ('description: ""', "1:14", "out_of_range", '"description" must have at least 1 character', None),
        ("instructions: []", "1:15", "out_of_range", '"instructions" must have at least 1 item', None),
    ],
)  # fmt: skip
def test_problem_has_place_code_message_and_hint(text: str, at: str, code: str, message: str, hint: str | None) -> None:
    found = schema_problems(agent(text))[0]
    assert (f"{found.line}:{found.column}", found.code) == (at, f"spec.{code}")
    assert message in found.message
    if hint is not None:
        assert hint in (found.hint or "")
    elif code != "missing_key":
        assert found.hint is None
    assert "\n" not in render_problem(found).split("\n", 1)[0]


@pytest.mark.parametrize("kind", ["tools", "policy", "budgets", "cases"])
def test_unknown_key_is_reported_in_every_kind_of_document(kind: str) -> None:
    (problem,) = schema_problems(
        'agentrun: "1"\nzzz: 1\n' + {"cases": "cases: [{name: a}]"}.get(kind, f"{kind}: {{}}"), kind
    )
    assert (problem.line, problem.code) == (2, "spec.unknown_key")


def test_one_value_is_reported_once() -> None:
    """Six kinds of tools, each of which wants a mapping, are one problem."""
    assert one("tools: {x: 1}") == ("1:12", "spec.wrong_type", '"x" must be a mapping, not a number (1)', None)


def test_a_misspelt_key_is_not_also_missing() -> None:
    assert [problem.code for problem in schema_problems(agent("model: {provder: p, name: m}"))] == ["spec.unknown_key"]
    both = schema_problems(agent("model: {zzz: p, name: m}"))
    assert [problem.code for problem in both] == ["spec.unknown_key", "spec.missing_key"]


@pytest.mark.parametrize(
    "line",
    [
        "model: {provider: p, name: m, api_key: %s}",
        "tools: {x: {kind: http, url: 'https://a.example', auth: {secret: %s}}}",
        "model: {provider: p, name: m, headers: {X-Api-Key: [%s]}}",
        "tools: {x: {kind: mcp, command: [x], env: {GITHUB_TOKEN: {a: %s}}}}",
        "sinks: {x: {kind: http, url: 'https://a.example', auth: {secret: %s}}}",
    ],
)
@pytest.mark.parametrize("value", ["Xk29fjw0dk2l1aPq", '"Zq8 vB3!kT"', "8473625190827", "5.5e17"])
def test_value_under_a_credential_key_is_never_shown(line: str, value: str) -> None:
    found = schema_problems(agent(line % value))
    reported = json.dumps([problem.as_json() for problem in found]) + "".join(f"{p.message}{p.hint}" for p in found)
    assert found
    for form in {value.strip('"'), str(plain_data(parse_yaml_document(source(value))))}:
        assert form not in reported


def test_variable_name_under_a_credential_key_gets_a_hint() -> None:
    for written in ("OPENAI_API_KEY", "$OPENAI_API_KEY", "{OPENAI_API_KEY}"):
        assert one(f'model: {{provider: p, name: m, api_key: "{written}"}}')[3] == "write ${OPENAI_API_KEY}"


def test_problems_have_the_path_to_remove() -> None:
    text = "zzz: 1\nparams: {P: {}}\nhooks: [{id: h, at: on_stop, call: 5}]\nmodel: {provider: p}\n"
    paths = {fault.path for fault in find_schema_problems(parse_yaml_document(source(agent(text))), "agent")}
    assert paths == {("hooks", 0, "call"), ("model",), ("params", "P"), ("zzz",)}


# --- wide documents -----------------------------------------------------------------------------------------


def tools(count: int, bad: dict[int, str]) -> str:
    lines = [f"  t{index}: {bad.get(index, TOOL)}" for index in range(count)]
    return agent("tools:\n" + "\n".join(lines))


def test_large_document_is_checked_in_chunks() -> None:
    last = CHUNK_ENTRIES * MAX_CHUNKS
    bad = {0: "1", CHUNK_ENTRIES - 1: "2", CHUNK_ENTRIES: "3", last: "4", last + 1: "5"}
    text = tools(last + 2, bad)
    assert text.count(":") > LARGE_DOCUMENT_VALUES
    found = schema_problems(text)
    assert [problem.line for problem in found] == [
        2,
        CHUNK_ENTRIES + 1,
        CHUNK_ENTRIES + 2,
        last + 2,
    ]  # and not the one beyond


def test_problem_beyond_the_last_chunk_is_reported_as_too_large() -> None:
    (problem,) = schema_problems(tools(CHUNK_ENTRIES * MAX_CHUNKS + 2, {CHUNK_ENTRIES * MAX_CHUNKS + 1: "1"}))
    assert (problem.code, problem.line) == ("spec.too_large", 1)


def test_items_of_a_long_list_keep_their_places() -> None:
    rules = [f"  - {{id: r{index}, allow: [x]}}" for index in range(900)]
    rules[700] = "  - {id: r700, allow: [x, 5]}"
    rules[701] = "  - {id: r701, alow: [x]}"
    found = schema_problems(agent("policy:\n rules:\n" + "\n".join(rules)))
    assert [(problem.line, problem.column, problem.code) for problem in found] == [
        (703, 27, "spec.wrong_type"),
        (704, 16, "spec.unknown_key"),
    ]


def test_too_many_items_of_a_large_document_are_reported() -> None:
    rules = "\n".join(f"  - {{id: r{index}, allow: [x]}}" for index in range(1001))
    (problem,) = schema_problems(agent(f"policy:\n rules:\n{rules}"))
    assert problem.message == '"rules" must have at most 1,000 items'


def test_large_mapping_reports_no_false_missing_keys() -> None:
    text = "\n".join(f"z{index}: 1" for index in range(3 * LARGE_DOCUMENT_VALUES))
    assert {problem.code for problem in schema_problems(agent(text))} == {"spec.unknown_key"}


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"z{index}: 1" for index in range(15_000)),
        "tools:\n" + "\n".join(f" t{index}: 1" for index in range(15_000)),
        "params:\n" + "\n".join(f" P{index}: {{type: string}}" for index in range(8_000)),
        "tools: {x: {kind: shell, argv: [x], " + ",".join(f"z{index}: 1" for index in range(15_000)) + "}}",
        "policy: {rules: [" + ",".join("{id: 5}" for _ in range(8_000)) + "]}",
        "model: {provider: p, name: m, headers: {" + ",".join(f'"a b{index}": 1' for index in range(10_000)) + "}}",
    ],
)
def test_number_of_problems_and_memory_are_bounded(text: str) -> None:
    root = parse_yaml_document(source(agent(text)))
    with at_most(800_000):
        found = find_schema_problems(root, "agent")
    assert len(found) == MAX_PROBLEMS


def test_load_gives_the_document_and_its_problems() -> None:
    document = load_document(source(agent("zzz: 1")), "agent")
    assert isinstance(document.root, MappingNode)
    assert [fault.problem for fault in document.schema_problems] == list(document.problems)
    assert plain_data(document.root)["zzz"] == 1
    listed = load_document(source("- a\n"), "cases")
    assert (listed.root, [problem.message for problem in listed.problems]) == (
        None,
        ["a cases file must be a mapping"],
    )
