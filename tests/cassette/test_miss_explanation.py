"""The explanation of a miss: nearest interaction, causes, limits and masking of secrets."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.cassette.miss_context import MissContext, Template
from agentrun.cassette.miss_explanation import MAX_CANDIDATES, MissExplanation, explain_miss
from agentrun.cassette.prompt_diff import MAX_TEXT, MAX_WINDOW
from agentrun.cassette.request_diff import MAX_LISTED, describe_differences
from agentrun.compiler.template import render_template
from agentrun.wire import HttpCall

from .recorded_agents import SUPPORT, TONE, agent, call_of, explanation_of_change, sentences, unplayed_interactions

URL = "https://api.example/v1/chat/completions"
KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIBAQ\n-----END PRIVATE KEY-----"


def post(body: Any, url: str = URL) -> HttpCall:
    return HttpCall("POST", url, (), body if isinstance(body, bytes) else json.dumps(body).encode())


def chat(system: str, user: str = "Hi", **more: Any) -> HttpCall:
    return post({"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}], **more})


def explain(now: HttpCall, *was: HttpCall, metadata: Any = None, here: MissContext | None = None) -> MissExplanation:
    return explain_miss(now, unplayed_interactions(*was), metadata or {}, here)


def full_text(found: MissExplanation) -> str:
    return "\n".join([found.message(), *found.lines(), json.dumps(found.fields(), ensure_ascii=False)])


# --- the nearest


def test_nearest_interaction_has_the_fewest_differences() -> None:
    found = explain(chat("a\nb\nc"), chat("x\ny\nc"), chat("a\nb\nx"), chat("a\nb\ny"))
    assert found.nearest == 2


def test_nearest_interaction_has_the_same_address() -> None:
    other = post({"a": 1, "b": 2}, "https://api.example/other")
    found = explain(post({"a": 1, "b": 2, "c": 3}, "https://api.example/x"), other, post({}, "https://api.example/x"))
    assert found.nearest == 2
    assert explain(post({"a": 1}, "https://api.example/y"), post({"a": 1}, "https://b.example/y"), other).nearest == 2


def test_number_of_compared_interactions_is_limited() -> None:
    calls = [chat("x\ny")] * MAX_CANDIDATES + [chat("now", "Ho")]
    assert explain(chat("now"), *calls).nearest == 1
    assert explain(chat("now"), *calls[1:]).nearest == MAX_CANDIDATES


def test_a_tool_call_is_compared_with_calls_of_that_tool() -> None:
    found = explain(call_of("tool://pay", {"a": 1}), call_of("tool://play", {"a": 1}), call_of("tool://pay", {"b": 1}))
    assert found.nearest == 2
    assert sentences(found) == ["the call of pay: a is new: 1", "the call of pay: b is missing, but the cassette has 1"]


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (call_of("tool://pay", {}), "the cassette has no further call of pay"),
        (call_of("approval://pay", {}), "the cassette has no further question about pay"),
        (call_of("hook://check", {}), "the cassette has no further request to the hook check"),
        (call_of("sink://report", {}), "the cassette has no further delivery to report"),
        (chat("a"), "the cassette has no further request to a model"),
        (post({}, "https://shop.example/a"), "the cassette has no further request like POST https://shop.example/a"),
    ],
)
def test_request_without_a_recorded_counterpart(now: HttpCall, words: str) -> None:
    found = explain(now, call_of("tool://other", {}))
    assert (found.nearest, found.line, sentences(found)) == (None, 0, [words])


def test_changed_delivery_or_hook_request_is_described() -> None:
    assert sentences(explain(call_of("sink://out", {"text": "a"}), call_of("sink://out", {"text": "b"}))) == [
        'the delivery to out changed: text is "a", but the cassette has "b"'
    ]
    assert sentences(explain(call_of("hook://h", {"value": 1}), call_of("hook://h", {"value": 2}))) == [
        "the request to the hook h changed: value is 1, but the cassette has 2"
    ]


def test_unknown_body_is_compared_by_json_path() -> None:
    found = explain(post({"a": [1, 2]}, "https://shop.example/"), post({"a": [1, 3]}, "https://shop.example/"))
    assert sentences(found) == ["a[1] is 2, but the cassette has 3"]
    assert sentences(explain(post(b"x", URL), post(b"y", URL))) == ["the body differs and is not JSON"]
    assert sentences(explain(call_of("tool://a", 1), HttpCall("CALL", "tool://a", (), b"\xff"))) == [
        "the body differs and is not JSON"
    ]


def test_describe_differences_names_the_path() -> None:
    now, was = post({"a": 2}, "https://shop.example/"), post({"a": 1}, "https://shop.example/")
    assert list(describe_differences(was, now)) == ["a is 2, but the cassette has 1"]


# --- reasons


def make_context(source: str, params: dict[str, Any], **more: Any) -> MissContext:
    return MissContext(params=params, instructions=(Template("p.j2", 1, source),), **more)


def because(source: str, was: dict[str, Any], now: dict[str, Any], **more: Any) -> list[str | None]:
    """What the present render is said to differ from the recorded one because of."""
    found = explain(
        chat(render_template(source, now)),
        chat(render_template(source, was)),
        metadata={"params": was},
        here=make_context(source, now, **more),
    )
    return [difference.because for difference in found.differences]


def test_each_changed_line_names_its_param() -> None:
    source = "{{ a }}\nsame\n{{ b }}\n{{ c }}"
    assert because(source, {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 3, "c": 1}) == [
        "params.a changed from 1 to 2",
        "params.b changed from 1 to 3",
    ]


def test_changed_line_names_all_its_params() -> None:
    assert because("{{ a }}{{ b }}", {"a": 1, "b": 1}, {"a": 2, "b": 3}) == ["params.a and params.b changed"]


def test_line_that_changes_only_with_two_params_names_both() -> None:
    source = "{{ 'x' if a == 2 and b == 2 else 'y' }}\n{{ 'p' if a == 1 or b == 1 else 'q' }}"
    assert because(source, {"a": 1, "b": 1}, {"a": 2, "b": 2})[1] == "params.a and params.b changed"


def test_long_list_of_params_is_cut() -> None:
    names = [f"p{n}" for n in range(20)]
    source = "".join(f"{{{{ {name} }}}}" for name in names)
    (reason,) = because(source, dict.fromkeys(names, 1), dict.fromkeys(names, 2))
    assert reason == "params.p0, params.p1, params.p10, params.p11, params.p12 and 15 more changed"


def test_value_of_a_credential_param_is_masked() -> None:
    assert because("{{ token }}", {"token": "one two"}, {"token": "two one"}) == [
        'params.token changed from "***" to "***"'
    ]


def test_unchanged_template_is_not_the_cause() -> None:
    def reason(now: dict[str, str]) -> str | None:
        metadata = {"params": {}, "sections": {"instructions": "1", "model": "1"}}
        found = explain(chat("b"), chat("a"), metadata=metadata, here=make_context("b", {}, sections=now))
        return found.differences[0].because

    assert reason({"instructions": "2", "model": "1"}) == "the template changed"
    assert reason({"instructions": "1", "model": "2"}) is None


def test_line_that_no_template_renders_has_no_template_place() -> None:
    found = explain(chat("a\nb"), chat("a\nc"), metadata={"params": {}}, here=make_context("b", {}))
    assert found.differences[0].template is None
    assert found.differences[0].because is None


def test_template_that_fails_with_the_recorded_params_names_no_cause() -> None:
    source = "{{ a.b }}"
    found = explain(
        chat("2"), chat("1"), metadata={"params": {"a": "text"}}, here=make_context(source, {"a": {"b": 2}})
    )
    assert found.differences[0].template == "p.j2"
    assert found.differences[0].because is None


def test_difference_names_the_template_line_of_the_character() -> None:
    source = "Region:\n{%- if eu %} EU\n{%- else %} US\n{%- endif %}"
    found = explain(
        chat(render_template(source, {"eu": False})),
        chat(render_template(source, {"eu": True})),
        metadata={"params": {"eu": True}},
        here=make_context(source, {"eu": False}),
    )
    assert (found.differences[0].template_line, found.differences[0].line) == (3, 1)


def test_sub_agent_miss_does_not_name_params_of_the_run() -> None:
    was, now = agent(), agent(given={"region": "us"})
    found = explanation_of_change(was, now, path="c1.0")
    assert found.differences[0].template_line == 6
    assert {difference.because for difference in found.differences} == {None}


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({}, "unknown: the cassette has no fingerprints of its package"),
        (
            {"sections": {"a": "1", "b": "1", "c": "1"}, "params": {}},
            "the package and its params did not change",
        ),
        ({"sections": {"a": "1", "b": "1", "c": "1"}}, "the package did not change, so the difference comes from"),
        ({"sections": {"a": "1", "b": "2", "c": "2"}}, "the spec's sections b and c changed since the recording"),
        ({"sections": {"a": "1", "b": "1", "d": "1"}}, "the spec's sections c and d changed since the recording"),
        ({"params": {"x": 2}}, "params.x changed from 2 to 1"),
    ],
)
def test_cause_names_changed_sections_and_params(metadata: dict[str, Any], cause: str) -> None:
    known = MissContext(sections={"a": "1", "b": "1", "c": "1"}, params={"x": 1})
    found = explain(chat("a"), chat("b"), metadata=metadata, here=known)
    assert found.cause is not None
    assert found.cause.startswith(cause)
    assert explain(chat("a"), chat("b"), metadata=metadata).cause is None


# --- hostile recordings

ODD_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=3) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["params", "sections", "spec", "case"]), ODD_VALUES))
def test_any_metadata_gives_an_explanation(metadata: dict[str, Any]) -> None:
    now = agent(given={"region": "us"})
    found = explain_miss(now.call(), unplayed_interactions(agent().call()), metadata, now.here())
    assert json.loads(json.dumps(found.fields())) == found.fields()
    assert found.lines()


FIELDS = ["messages", "input", "contents", "system", "instructions", "systemInstruction", "tools", "generationConfig"]
INNER = ["role", "content", "type", "text", "parts", "function", "name", "tool_calls", "functionCall", "response"]
SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["user", "tool", "message", "text", "tool_result"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4),
    max_leaves=12,
)
BODIES = st.dictionaries(st.sampled_from(FIELDS), SHAPES, max_size=4) | SHAPES
URLS = st.sampled_from([URL, "https://a/v1/responses", "https://a/v1/messages", "https://a/models/m:generateContent"])


@given(URLS, BODIES, BODIES)
def test_any_body_gives_an_explanation(url: str, was: Any, now: Any) -> None:
    found = explain(post(now, url), post(was, url))
    assert found.nearest == (1 if found.differences[0].kind != "absent" else None)
    if was != now:
        assert "nothing that can be told" not in found.message()


def test_deeply_nested_bodies_are_compared() -> None:
    deep = [b'{"a":' * depth + end + b"}" * depth for depth in (300, 900, 5000) for end in (b"1", b"2")]
    for url in ("https://shop.example/", URL, "https://a/v1/messages"):
        for one in deep:
            for two in deep:
                if one != two:
                    assert explain(post(one, url), post(two, url)).differences


def test_long_prompts_are_compared_within_limits() -> None:
    """The whole of such a miss takes a moment; comparing all lines with all would take hours."""
    was = "\n".join(f"line {n % 7}" for n in range(10_000))
    now = "\n".join(f"line {n % 5}" for n in range(10_000))
    found = explain(chat(now), chat(was))
    assert len(found.differences) == MAX_LISTED + 1
    assert sentences(found)[-1] == "and more lines of the instructions"
    one, two = "x" * (1 << 20) + "a", "x" * (1 << 20) + "b"
    assert sentences(explain(chat(one), chat(two))) == ["the instructions differ after the first 1048576 characters"]
    assert len(full_text(explain(chat("", one[1:]), chat("", two[1:])))) < 3000
    assert MAX_TEXT == 1 << 20


def test_long_insertion_counts_all_its_lines() -> None:
    lines = [f"line {n}" for n in range(10 * MAX_WINDOW)]
    found = explain(chat("\n".join(["first", *lines, "last"])), chat("first\nlast"))
    assert sentences(found)[-1] == f"and {10 * MAX_WINDOW - MAX_LISTED} more lines of the instructions"


def test_number_of_listed_differences_is_limited() -> None:
    was, now = ({f"k{n}": {"x": n + by} for n in range(2000)} for by in (0, 1))
    found = explain(post(now, "https://shop.example/"), post(was, "https://shop.example/"))
    assert len(found.differences) == MAX_LISTED + 1
    assert sentences(found)[-1] == "and at least 995 more differences"


def test_long_tool_name_is_cut() -> None:
    found = explain(chat("a", tools=[{"type": "function", "function": {"name": "n" * 100_000}}]), chat("a"))
    assert len(full_text(found)) < 3000


# --- what is shown


@pytest.mark.parametrize(
    "secret", [KEY, PEM, f"Bearer {KEY}", "api_key=hunter2hunter2"], ids=["key", "pem", "bearer", "pair"]
)
def test_secret_in_any_place_is_masked(secret: str) -> None:
    parts = [part for part in secret.replace("=", " ").split() if len(part) > 12 and "-----" not in part]
    tool = {"type": "function", "function": {"name": "n", "description": secret}}
    other = {"type": "function", "function": {"name": "n", "description": ""}}
    places = [
        (chat(f"Use\n{secret}\nhere"), chat("Use\nnothing\nhere")),
        (chat(f"Use {secret} 1"), chat(f"Use {secret} 2")),
        (chat("a", secret), chat("a", "b")),
        (chat("a", stop=[secret]), chat("a")),
        (chat("a", tools=[tool]), chat("a", tools=[other])),
        (post({"messages": [], secret: 1}), post({"messages": []})),
        (call_of("tool://pay", {"with": secret}), call_of("tool://pay", {"with": ""})),
        (post({"a": secret}, "https://shop.example/"), post({"a": 1}, "https://shop.example/")),
    ]
    for one, two in [*places, *((two, one) for one, two in places)]:
        text = full_text(explain(one, two))
        assert [part for part in parts if part[4:] in text] == []


def test_secret_in_params_is_masked() -> None:
    known = make_context("{{ a }}", {"a": KEY})
    found = explain(chat(KEY), chat("x"), metadata={"params": {"a": f"{KEY}1"}, "sections": {KEY: "1"}}, here=known)
    assert KEY[8:] not in full_text(found)


def test_difference_between_two_secrets_is_masked() -> None:
    found = explain(chat(f"Use {KEY}"), chat(f"Use {KEY}X"))
    assert sentences(found) == ["instructions line 1 differs in a value that is masked because it may be a secret"]
    assert "they differ in a value that is masked because it may be a secret" in "\n".join(found.lines())


def test_long_line_is_cut_around_the_difference() -> None:
    found = explain(chat("x" * 500 + "us" + "y" * 500), chat("x" * 500 + "eu" + "y" * 500))
    (difference,) = found.differences
    assert difference.now == "…" + "x" * 15 + "us" + "y" * 83 + "…"
    assert difference.was == "…" + "x" * 15 + "eu" + "y" * 83 + "…"


def test_control_characters_are_escaped_in_text_and_kept_in_data() -> None:
    """Data has them, a terminal does not get them."""
    found = explain(chat("a\x1b[2Jb\u202e"), chat("a"))
    assert found.differences[0].now == "a\x1b[2Jb\u202e"
    for line in [found.message(), *found.lines()]:
        assert line.isprintable()
    assert "\\x1b[2Jb\\u202e" in found.message()


def test_template_line_is_that_of_the_current_template() -> None:
    """With the recorded templates instead of the present ones the place of a line is another."""
    was, now = agent(), agent(instructions=["New.\n" + SUPPORT, TONE], given={"region": "us"})
    found = explanation_of_change(was, now)
    amounts = next(each for each in found.differences if each.now == "Amounts are in dollars.")
    assert (amounts.line, amounts.template_line) == (4, 7)
    assert amounts.template_line != was.here().instructions[0].source.splitlines().index("Amounts are in dollars.") + 1
