"""Policy evaluation: the most restrictive matching rule wins, and a failed condition counts against the call."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core import policy
from agentrun.core.effects import RunTool
from agentrun.core.facts import CallRefused, EarlierRuns, Ruled, RunResumed
from agentrun.core.messages import ToolResult, text_of
from agentrun.core.package import Package, Stage
from agentrun.core.policy import (
    PolicyDecision,
    condition_variables,
    evaluate_policy,
    has_rules,
    mask_patterns,
    split_reason,
)

from ..packages import package
from .script import RUN_STARTED, Run, RunWaits, calls_reply, rule, text_reply, tool

RULINGS = ("interrupt", "deny", "defer", "ask", "modify", "allow")
"""From the most restrictive on."""
NOTHING: dict[str, Any] = {"args": {}, "params": {}, "spend": {}, "calls": {}, "session": {}}


def agent(*rules: dict[str, Any], default: str = "deny", **changes: Any) -> Package:
    numbered = [each if each["id"] != "r1" else {**each, "id": f"r{place}"} for place, each in enumerate(rules, 1)]
    tools = {name: tool(parallel=False) for name in ("refund", "search", "mail")}
    return package(tools=tools, policy={"default": default, "rules": numbered}, **changes)


def ruling(given: Package, target: str = "refund", **variables: Any) -> PolicyDecision:
    return evaluate_policy(given, "tool_call", target, NOTHING | variables)


def results(run: Run) -> list[str]:
    """What the model reads of its calls."""
    last = run.requests[-1].request.messages
    return [text_of(message.parts) for message in last if isinstance(message, ToolResult)]


# the most restrictive wins


@pytest.mark.parametrize("order", [list(order) for order in itertools.permutations(range(3))])
@pytest.mark.parametrize("three", list(itertools.combinations(RULINGS, 3)))
def test_most_restrictive_of_three_rules_wins_in_any_order(order: list[int], three: tuple[str, ...]) -> None:
    rules = [rule(three[place], "refund", id=f"rule-{three[place]}", set={"q": "x"}) for place in order]
    verdict = ruling(agent(*rules))
    assert (verdict.ruling, verdict.rules) == (three[0], (f"rule-{three[0]}",))


RULE = st.builds(
    lambda place, name, when, key: rule(name, id=f"r-{place}", when=when, set={key: 1} if name == "modify" else {}),
    st.integers(0, 99),
    st.sampled_from(RULINGS),
    st.sampled_from([None, "true", "false", "args.nothing == 1"]),
    st.sampled_from("abc"),
)


@given(st.lists(RULE, max_size=6, unique_by=lambda each: each["id"]), st.randoms())
def test_order_of_random_rules_does_not_matter(rules: list[dict[str, Any]], random: Any) -> None:
    shuffled = list(rules)
    random.shuffle(shuffled)
    one, two = ruling(agent(*rules)), ruling(agent(*shuffled))
    assert (one.ruling, one.rules, one.arguments) == (two.ruling, two.rules, two.arguments)
    matching = [each["ruling"] for each in rules if applies(each)]
    if matching and (worst := min(matching, key=RULINGS.index)) != "modify":
        assert one.ruling == worst
        assert one.rules == tuple(sorted(each["id"] for each in rules if each["ruling"] == worst and applies(each)))
    elif not matching:
        failing = any(each["when"] == "args.nothing == 1" for each in rules)
        assert (one.ruling, one.rules, one.reason is None) == ("deny", (), not failing)


def applies(each: dict[str, Any]) -> bool:
    """As SEMANTICS has it: what cannot be told is no for allow and modify, yes for the others."""
    return {None: True, "true": True, "false": False}.get(each["when"], each["ruling"] not in ("allow", "modify"))


def test_planted_reversed_severity_lets_the_most_lenient_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a severity turned round the most lenient wins."""
    monkeypatch.setattr(policy, "RULINGS", RULINGS)
    assert ruling(agent(rule("deny"), rule("allow"))).ruling == "allow"


def test_decision_has_ids_and_reasons_of_the_deciding_rules() -> None:
    rules = (rule("deny", reason="too much"), rule("deny"), rule("deny", reason="not now"), rule("ask", reason="?"))
    assert ruling(agent(*rules)) == PolicyDecision("deny", ("r1", "r2", "r3"), "too much; not now")


def test_rules_match_their_targets() -> None:
    given = agent(rule("allow", "refund"), rule("ask", "ma*", "x"))
    assert [ruling(given, name).ruling for name in ("refund", "refund2", "mail", "x", "y")] == [
        *("allow", "deny", "ask", "ask", "deny")
    ]


# conditions


@pytest.mark.parametrize("name", RULINGS)
@pytest.mark.parametrize(
    ("when", "error"),
    [
        ("args.n > 5", "No matching overloads found : _>_(string, int64)"),
        ("args.n", "its result is neither true nor false"),
        ("1/0 == 1", "divide by zero"),
        ("args.l.exists(x, args.l.exists(y, x > y && y > x))", "Iteration budget exceeded"),
        ("args.l.all(x, args.l.all(y, params.t + params.t != ''))", "+ in all, exists, map or filter could build"),
    ],
)
def test_failed_condition_counts_against_the_call(name: str, when: str, error: str) -> None:
    given = agent(rule(name, when=when, set={"q": 1}), default="ask")
    found = ruling(given, args={"n": "text", "l": list(range(200))}, params={"t": "x" * 20_000})
    if name in ("allow", "modify"):
        assert (found.ruling, found.rules) == ("ask", ()), "it does not match"
    else:
        assert (found.ruling, found.rules) == (name, ("r1",)), "it matches"
    assert found.reason is not None
    assert found.reason.startswith(f"the condition of r1 cannot be evaluated: {error}")


def test_reason_names_every_failed_condition() -> None:
    rewrites = rule("modify", when="args.n > 1", set={"q": 1})
    rules = (rewrites, rule("allow", reason="small"), rule("allow", when="1 > 2"))
    failed = 'the condition of r1 cannot be evaluated: Key not found in map : "n"'
    assert ruling(agent(*rules)) == PolicyDecision("allow", ("r2",), f"small; {failed}")
    more = (*rules, rule("modify", reason="safe", set={"p": 1}))
    assert ruling(agent(*more)) == PolicyDecision("modify", ("r4",), f"safe; {failed}", {"p": 1})


def test_reason_is_split_into_own_reasons_and_failed_conditions() -> None:
    one = 'the condition of r1 cannot be evaluated: Key not found in map : "n"'
    two = "the condition of r2 cannot be evaluated: divide by zero"
    assert split_reason(None) == (None, ())
    assert split_reason("small; the condition of the order") == ("small; the condition of the order", ())
    assert split_reason(one) == (None, (one,))
    assert split_reason(f"small; safe; {one}; {two}") == ("small; safe", (one, two))


@pytest.mark.parametrize("name", RULINGS)
def test_rule_applies_only_if_its_condition_is_true(name: str) -> None:
    given = agent(rule(name, when="args.n > 5", set={"q": 1}), default="ask")
    assert ruling(given, args={"n": 6}).rules == ("r1",)
    assert ruling(given, args={"n": 5}) == PolicyDecision("ask", (), None)


# defaults and stages


@pytest.mark.parametrize("default", ["deny", "ask", "allow"])
def test_policy_default_applies_only_to_tool_calls(default: str) -> None:
    given = agent(default=default)
    assert ruling(given) == PolicyDecision(default, (), None)  # type: ignore[arg-type]  # the test gives the right kind
    stages: tuple[Stage, ...] = ("run_start", "input", "model_request", "tool_result", "output", "delivery")
    for stage in stages:
        assert evaluate_policy(given, stage, "x", NOTHING) == PolicyDecision("allow", (), None)
        assert not has_rules(given, stage)
    assert has_rules(given, "tool_call")


def test_rule_applies_only_to_its_stage() -> None:
    given = agent(rule("deny", on="output"))
    assert evaluate_policy(given, "output", "output", NOTHING).ruling == "deny"
    assert evaluate_policy(given, "input", "input", NOTHING).ruling == "allow"
    assert ruling(replace(given, policy=replace(given.policy, default="allow"))).ruling == "allow"
    assert has_rules(given, "output")
    assert not has_rules(given, "input")


# modify


def test_modify_rules_are_merged() -> None:
    given = agent(rule("modify", set={"a": 1}, mask=["x"]), rule("modify", set={"b": 2}, mask=["y"]), rule("allow"))
    assert ruling(given) == PolicyDecision("modify", ("r1", "r2"), None, {"a": 1, "b": 2}, ("x", "y"))


def test_two_rules_that_set_the_same_argument_deny() -> None:
    rules = (rule("modify", set={"a": 1, "b": 1}), rule("modify", set={"c": 1}), rule("modify", set={"b": 1, "d": 1}))
    assert ruling(agent(*rules)) == PolicyDecision("deny", ("r1", "r3"), "two rules set the argument b")
    assert ruling(agent(rules[0], rules[1])).ruling == "modify"


def test_modified_calls_are_evaluated_without_modify_rules() -> None:
    given = agent(rule("modify", set={"a": 1}), rule("allow"))
    assert evaluate_policy(given, "tool_call", "refund", NOTHING, rewritten=True) == PolicyDecision(
        "allow", ("r2",), None
    )
    alone = agent(rule("modify", set={"a": 1}))
    assert evaluate_policy(alone, "tool_call", "refund", NOTHING, rewritten=True) == PolicyDecision("deny", (), None)


def test_modified_arguments_are_ruled_on_again_in_a_run() -> None:
    given = agent(
        rule("modify", "refund", set={"q": "safe"}), rule("deny", "refund", when="has(args.q) && args.q == 'safe'")
    )
    run = Run(
        replace(given, policy=replace(given.policy, default="allow")), calls_reply(("refund", "{}")), text_reply("No.")
    )
    run.finish()
    first, second = run.of(Ruled)
    assert (first.ruling, first.arguments) == ("modify", {"q": "safe"})
    assert (second.ruling, second.rules, second.arguments) == ("deny", ("r2",), UNSET)
    assert run.ran == []
    run = Run(
        agent(rule("modify", set={"q": "safe"}), default="allow"),
        calls_reply(("refund", '{"z":1}')),
        text_reply("Yes."),
    )
    run.finish()
    (effect,) = [effect for effect in run.effects if isinstance(effect, RunTool)]
    assert effect.arguments == {"z": 1, "q": "safe"}


def test_modified_arguments_are_validated() -> None:
    run = Run(agent(rule("modify", set={"q": 7}), default="allow"), calls_reply("refund"), text_reply("No."))
    run.finish()
    (refused,) = run.of(CallRefused)
    assert (refused.code, refused.fields) == ("tool.invalid_arguments", {"tool": "refund", "field": "q"})


# mask


@pytest.mark.parametrize(
    ("text", "patterns", "left"),
    [
        ("a 12 b 345", ("[0-9]+",), "a *** b ***"),
        ("a 12 b", ("[0-9]+", "b"), "a *** ***"),
        ("key", (), "key"),
        ("äöü 1", ("ö",), "ä***ü 1"),
        ("Aa", ("(?i)a",), "******"),
        ("1", (r"(\d)",), "***"),
        ("none", ("x",), "none"),
    ],
)
def test_mask_patterns_replaces_matches(text: str, patterns: tuple[str, ...], left: str) -> None:
    assert mask_patterns(text, patterns) == left


def test_mask_patterns_takes_linear_time() -> None:
    """With backtracking this would not come back."""
    assert mask_patterns("a" * 30_000 + "!", ("(a+)+$",)) == "a" * 30_000 + "!"


# what conditions see


def test_condition_variables_of_a_run() -> None:
    earlier = EarlierRuns(runs=2, turns=7)
    started = replace(RUN_STARTED, params={"team": "x"}, earlier=earlier)
    run = Run(agent(default="allow"), calls_reply(("search", "{}")), text_reply("Yes."), started=started, takes=10)
    assert condition_variables(run.state) == {
        "args": {},
        "params": {"team": "x"},
        "spend": {"turns": 0, "tokens": 0, "cost": 0, "time": 0, "tool_calls": 0},
        "calls": {},
        "session": {"runs": 2, "turns": 7},
        "now": datetime(1970, 1, 1, tzinfo=UTC),
    }
    run.finish()
    seen = condition_variables(run.state, {"a": 1})
    assert seen["args"] == {"a": 1}
    assert seen["spend"] == {"turns": 2, "tokens": 50, "cost": 0, "time": 30, "tool_calls": 1}
    assert seen["calls"] == {"search": 1}


ONE_REFUND = rule("deny", "refund", when="has(calls.refund) && calls.refund >= 1")


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_calls_variable_counts_earlier_calls_of_the_same_reply(parallel: bool, together: bool) -> None:
    """Calls of one reply see those before them, as calls of different replies do."""
    given = agent(ONE_REFUND, default="allow")
    given = replace(given, tools={"refund": replace(given.tools["refund"], parallel=parallel)})
    calls = [("refund", '{"q":"1"}'), ("refund", '{"q":"2"}')]
    replies = [calls_reply(*calls)] if together else [calls_reply(each) for each in calls]
    run = Run(given, *replies, text_reply("Done."))
    run.finish()
    assert run.ran == ["c1.0"]
    assert results(run)[0] == "done"
    assert results(run)[1].startswith("tool.denied: the policy rule r1 denied refund")


def test_planted_variables_without_earlier_calls_allow_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """With variables that see only what ran, two refunds of one reply both run."""
    blind = lambda state, arguments=None, index=None: condition_variables(state, arguments)  # a short look with a name
    monkeypatch.setattr(policy, "condition_variables", blind)
    run = Run(
        agent(ONE_REFUND, default="allow"), calls_reply(("refund", "{}"), ("refund", '{"q":"2"}')), text_reply("Done.")
    )
    run.finish()
    assert run.ran == ["c1.0", "c1.1"]


def test_missing_call_count_denies_the_call() -> None:
    given = agent(rule("deny", "refund", when="calls.refund >= 1"), default="allow")
    run = Run(given, calls_reply("refund"), text_reply("Done."))
    run.finish()
    assert run.ran == [], "has(calls.refund) says what is meant"


@pytest.mark.parametrize(
    ("first", "ran"),
    [("deny", ["c1.1"]), ("ask", ["c1.0"])],
)
def test_denied_calls_are_not_counted_and_asked_ones_are(first: str, ran: list[str]) -> None:
    given = agent(rule(first, "refund", when="args.q == '1'"), ONE_REFUND, default="allow")
    calls = calls_reply(("refund", '{"q":"1"}'), ("refund", '{"q":"2"}'))
    run = Run(given, calls, text_reply("Done."), people={"refund": "approved"})
    run.finish()
    assert run.ran == ran, "one that a person is asked about counts as if it ran"


def test_invalid_call_is_not_counted() -> None:
    calls = calls_reply(("refund", '{"q":1}'), ("refund", '{"q":"2"}'))
    run = Run(agent(ONE_REFUND, default="allow"), calls, text_reply("Done."))
    run.finish()
    assert run.ran == ["c1.1"]


@pytest.mark.parametrize(("limit", "ran"), [(1, ["c1.1"]), (2, ["c1.1", "c1.0"])])
def test_deferred_call_counts_the_calls_that_ran_meanwhile(limit: int, ran: list[str]) -> None:
    """So many refunds, whichever came first; what ran is not counted twice."""
    later = rule("defer", "refund", when="args.q == '1' && spend.time < 15")
    enough = rule("deny", "refund", when=f"has(calls.refund) && calls.refund >= {limit}")
    given = agent(enough, later, default="allow")
    given = replace(given, tools={"refund": replace(given.tools["refund"], parallel=True)})
    calls = calls_reply(("refund", '{"q":"1"}'), ("refund", '{"q":"2"}'))
    run = Run(given, calls, text_reply("Done."), takes=10)
    with pytest.raises(RunWaits):
        run.finish()
    assert run.ran == ["c1.1"]
    run.add(RunResumed("sha256:0"))
    run.finish()
    assert run.ran == ran


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_rule_limits_the_calls_of_one_reply(limit: int) -> None:
    enough = rule("deny", "refund", when=f"has(calls.refund) && calls.refund >= {limit}")
    run = Run(
        agent(enough, default="allow"),
        calls_reply(*[("refund", f'{{"q":"{n}"}}') for n in range(5)]),
        text_reply("Done."),
    )
    run.finish()
    assert run.ran == [f"c1.{n}" for n in range(limit)]


def test_spend_variable_counts_earlier_calls_of_the_batch() -> None:
    given = agent(rule("deny", when="spend.tool_calls >= 2"), default="allow")
    run = Run(given, calls_reply("search", "mail", "refund"), text_reply("Done."))
    run.finish()
    assert run.ran == ["c1.0", "c1.1"]
