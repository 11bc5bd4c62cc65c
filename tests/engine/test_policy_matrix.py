"""The policy as tables of tool, arguments, stage and ruling, checked through whole runs.

Each table says what is expected in words that stand in SEMANTICS: which rule decides, whether the tool ran, what the
model reads, how the run ends, what the journal says. A twin below plants a fault and sees the tables go red.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.compiler.validate import validate_document
from agentrun.core import gate
from agentrun.core.facts import ApprovalAsked, CallRefused, ModelReplied, Ruled, ToolStarted
from agentrun.core.package import LEGAL_RULINGS, RULINGS, Package
from agentrun.core.policy import PolicyDecision, evaluate_policy

from ..projects import agent, write_project
from .policy_runs import TOOLS, RunResult, agent_with_rules, called_name, one, run_with_policy, terminal

# --- 1. which ruling holds ---------------------------------------------------------------------------------------

EXPECTED_RULINGS = """
a rule that           | default deny | default ask  | default allow
(none)                | deny[]       | ask[]        | allow[]
allow                 | allow[allow] | allow[allow] | allow[allow]
allow if true         | allow[allow] | allow[allow] | allow[allow]
allow if false        | deny[]       | ask[]        | allow[]
allow if error        | deny[]       | ask[]        | allow[]
modify                | modify[modify] deny[] | modify[modify] ask[] | modify[modify] allow[]
modify if true        | modify[modify] deny[] | modify[modify] ask[] | modify[modify] allow[]
modify if false       | deny[]       | ask[]        | allow[]
modify if error       | deny[]       | ask[]        | allow[]
ask                   | ask[ask]     | ask[ask]     | ask[ask]
ask if true           | ask[ask]     | ask[ask]     | ask[ask]
ask if false          | deny[]       | ask[]        | allow[]
ask if error          | ask[ask]     | ask[ask]     | ask[ask]
defer                 | defer[defer] | defer[defer] | defer[defer]
defer if true         | defer[defer] | defer[defer] | defer[defer]
defer if false        | deny[]       | ask[]        | allow[]
defer if error        | defer[defer] | defer[defer] | defer[defer]
deny                  | deny[deny]   | deny[deny]   | deny[deny]
deny if true          | deny[deny]   | deny[deny]   | deny[deny]
deny if false         | deny[]       | ask[]        | allow[]
deny if error         | deny[deny]   | deny[deny]   | deny[deny]
interrupt             | interrupt[interrupt] | interrupt[interrupt] | interrupt[interrupt]
interrupt if true     | interrupt[interrupt] | interrupt[interrupt] | interrupt[interrupt]
interrupt if false    | deny[]       | ask[]        | allow[]
interrupt if error    | interrupt[interrupt] | interrupt[interrupt] | interrupt[interrupt]
"""

# --- 2. what a ruling does to a call -----------------------------------------------------------------------------

DOES = """
ruling and answer          | ran | the model reads      | the run ends     | exit
allow                      | 1   | -                    | -                | 0
deny                       | 0   | policy.denied        | -                | 0
ask: approved              | 1   | -                    | -                | 0
ask: approved_for_session  | 1   | -                    | -                | 0
ask: denied                | 0   | approval.denied      | -                | 0
ask: late                  | 0   | approval.timed_out   | -                | 0
ask: cancelled             | 0   | approval.cancelled   | -                | 0
ask: unavailable           | 0   | approval.unavailable | -                | 0
defer                      | 0   | -                    | suspended        | 8
interrupt                  | 0   | -                    | policy.interrupted | 4
"""
STOPS = """
with on_denied: stop       | ran | the model reads      | the run ends         | exit
deny                       | 0   | -                    | tool.denied          | 4
ask: denied                | 0   | -                    | approval.denied      | 4
ask: late                  | 0   | -                    | approval.timed_out   | 4
ask: cancelled             | 0   | -                    | approval.cancelled   | 4
ask: unavailable           | 0   | -                    | approval.unavailable | 4
ask: approved              | 1   | -                    | -                    | 0
"""

# --- 3. what a ruling does at each stage -------------------------------------------------------------------------

STAGES = """
stage and ruling           | requests | ran | sent      | the run ends       | exit | rulings at the stage
run_start allow            | 2 | 1 | Done 77.  | -                  | 0 | -
run_start deny             | 0 | 0 | -         | policy.denied      | 4 | -
run_start interrupt        | 0 | 0 | -         | policy.interrupted | 4 | -
input allow                | 2 | 1 | Done 77.  | -                  | 0 | allow[allow]
input ask                  | 2 | 1 | Done 77.  | -                  | 0 | ask[ask]
input ask: denied          | 0 | 0 | -         | approval.denied    | 4 | ask[ask]
input ask: unavailable     | 0 | 0 | -         | approval.unavailable | 4 | ask[ask]
input defer                | 0 | 0 | -         | suspended          | 8 | defer[defer]
input deny                 | 0 | 0 | -         | policy.denied      | 4 | deny[deny]
input interrupt            | 0 | 0 | -         | policy.interrupted | 4 | interrupt[interrupt]
model_request allow        | 2 | 1 | Done 77.  | -                  | 0 | allow[allow] allow[allow]
model_request modify       | 2 | 1 | Done 77.  | -                  | 0 | modify[modify] modify[modify]
model_request deny         | 0 | 0 | -         | policy.denied      | 4 | deny[deny]
model_request interrupt    | 0 | 0 | -         | policy.interrupted | 4 | interrupt[interrupt]
tool_call allow            | 2 | 1 | Done 77.  | -                  | 0 | allow[allow]
tool_call modify           | 2 | 1 | Done 77.  | -                  | 0 | modify[modify] allow[]
tool_call ask              | 2 | 1 | Done 77.  | -                  | 0 | ask[ask]
tool_call ask: denied      | 2 | 0 | Done 77.  | -                  | 0 | ask[ask]
tool_call defer            | 1 | 0 | -         | suspended          | 8 | defer[defer]
tool_call deny             | 2 | 0 | Done 77.  | -                  | 0 | deny[deny]
tool_call interrupt        | 1 | 0 | -         | policy.interrupted | 4 | interrupt[interrupt]
tool_result allow          | 2 | 1 | Done 77.  | -                  | 0 | allow[allow]
tool_result modify         | 2 | 1 | Done 77.  | -                  | 0 | modify[modify]
tool_result deny           | 2 | 1 | Done 77.  | -                  | 0 | deny[deny]
tool_result interrupt      | 1 | 1 | -         | policy.interrupted | 4 | interrupt[interrupt]
output allow               | 2 | 1 | Done 77.  | -                  | 0 | allow[allow]
output modify              | 2 | 1 | Done ***. | -                  | 0 | modify[modify]
output ask                 | 2 | 1 | Done 77.  | -                  | 0 | ask[ask]
output ask: denied         | 2 | 1 | -         | approval.denied    | 4 | ask[ask]
output ask: late           | 2 | 1 | -         | approval.timed_out | 4 | ask[ask]
output defer               | 2 | 1 | -         | suspended          | 8 | defer[defer]
output deny                | 2 | 1 | -         | policy.denied      | 4 | deny[deny]
output interrupt           | 2 | 1 | -         | policy.interrupted | 4 | interrupt[interrupt]
delivery allow             | 2 | 1 | Done 77.  | -                  | 0 | allow[allow]
delivery modify            | 2 | 1 | Done ***. | -                  | 0 | modify[modify]
delivery ask               | 2 | 1 | Done 77.  | -                  | 0 | ask[ask]
delivery ask: denied       | 2 | 1 | -         | approval.denied    | 4 | ask[ask]
delivery defer             | 2 | 1 | -         | suspended          | 8 | defer[defer]
delivery deny              | 2 | 1 | -         | policy.denied      | 4 | deny[deny]
delivery interrupt         | 2 | 1 | -         | policy.interrupted | 4 | interrupt[interrupt]
"""


def rows(table: str) -> list[list[str]]:
    """The lines of a table, without its head."""
    lines = [line for line in table.strip().splitlines() if line.strip()]
    return [[cell.strip() for cell in line.split(" | ")] for line in lines[1:]]


def without_reasons(came: RunResult) -> list[str]:
    return [ruling.partition(":")[0] for ruling in came.rulings]


def rules_of(words: str) -> list[dict[str, Any]]:
    ruling, _, condition = words.partition(" ")
    return [] if words == "(none)" else [one(ruling, condition)]


CELLS = [
    (words, default, cell)
    for words, *cells in rows(EXPECTED_RULINGS)
    for default, cell in zip(("deny", "ask", "allow"), cells, strict=True)
]


def check_ruling(words: str, default: str, expected: str) -> None:
    came = run_with_policy(agent_with_rules(*rules_of(words), default=default))
    assert without_reasons(came) == expected.split(" ")
    last = expected.rpartition(" ")[2].partition("[")[0]
    ran, *_ = expected_effect(f"{last}: approved" if last == "ask" else last)
    assert len(came.ran) == ran
    if came.ran:
        assert came.ran == [{"n": 1, "q": "rewritten"} if "modify" in expected else {"n": 1}]


def expected_effect(words: str, table: str = DOES) -> tuple[int, str | None, str | None, int]:
    (found,) = [row for row in rows(table) if row[0] == words]
    _, ran, read, ends, code = found
    return int(ran), None if read == "-" else read, None if ends == "-" else ends, int(code)


@pytest.mark.parametrize(("words", "default", "expected"), CELLS)
def test_rule_and_default_give_the_expected_ruling(words: str, default: str, expected: str) -> None:
    check_ruling(words, default, expected)


@pytest.mark.parametrize("words", [row[0] for row in rows(DOES)])
@pytest.mark.parametrize("kind", TOOLS)
def test_effect_of_a_ruling_on_every_kind_of_tool(words: str, kind: str) -> None:
    """To tools of every kind."""
    check_effect_of_ruling(words, kind, DOES, "tell")


@pytest.mark.parametrize("words", [row[0] for row in rows(STOPS)])
@pytest.mark.parametrize("kind", ["python", "agent"])
def test_effect_of_a_denial_with_on_denied_stop(words: str, kind: str) -> None:
    check_effect_of_ruling(words, kind, STOPS, "stop")


def check_effect_of_ruling(words: str, kind: str, table: str, on_denied: str) -> None:
    ruling, _, answer = words.partition(": ")
    given = agent_with_rules(one(ruling), default="deny", kind=kind, on_denied=on_denied)
    came = run_with_policy(given, answer or "approved")
    assert (len(came.ran), came.read, came.code, came.exit) == expected_effect(words, table)
    assert came.rulings == [f"{ruling}[{ruling}]: so it is"]
    started = [fact.tool for fact in came.facts if isinstance(fact, ToolStarted)]
    assert started == ([called_name(given)] if came.ran and kind != "agent" else [])
    expected = {"late": "timed_out"}.get(answer, answer)
    assert came.answers == ([expected] if ruling == "ask" else [])
    assert len(terminal(came)) == (came.code != "suspended")
    if came.read is not None:
        (refused,) = [fact for fact in came.facts if isinstance(fact, CallRefused)]
        assert (refused.code, refused.fields["rules"]) == ("tool.denied", [ruling])
        assert came.results == [refused.told]
        assert ("so it is" in refused.told) == (ruling == "deny")


# --- the most restrictive wins -----------------------------------------------------------------------------------

PAIRS = [(first, second) for first, second in itertools.permutations(RULINGS, 2) if "modify" not in (first, second)] + [
    ("modify", "allow"),
    ("allow", "modify"),
    ("modify", "deny"),
    ("deny", "modify"),
    ("ask", "modify"),
]


def check_pair(first: str, second: str) -> None:
    """Whatever the order in the file; the journal names the rule that decided, and only that."""
    strongest = max(first, second, key=RULINGS.index)
    came = run_with_policy(agent_with_rules(one(first), one(second), default="allow"))
    assert came.rulings[0] == f"{strongest}[{strongest}]: so it is"
    last = came.rulings[-1].partition("[")[0]
    ran, *_ = expected_effect(f"{last}: approved" if last == "ask" else last)
    assert len(came.ran) == ran


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_most_restrictive_wins(first: str, second: str) -> None:
    check_pair(first, second)


def test_all_deciding_rules_are_named_with_their_reasons() -> None:
    rules = [one("deny", id="b", reason="late"), one("deny", id="a", reason="far"), one("ask"), one("deny", id="c")]
    came = run_with_policy(
        agent_with_rules(*[{**each, "reason": None if each["id"] == "c" else each["reason"]} for each in rules])
    )
    assert came.rulings == ["deny[a, b, c]: late; far"]
    assert "late; far" in came.results[0]


# --- stages ------------------------------------------------------------------------------------------------------


def check_stage(words: str, requests: str, ran: str, sent: str, ends: str, code: str, rulings: str) -> None:
    stage, _, rest = words.partition(" ")
    ruling, _, answer = rest.partition(": ")
    target = {"delivery": "report", "tool_call": "pay", "tool_result": "pay"}.get(stage, "*")
    given = one(ruling, on=stage, targets=[target])
    if stage != "tool_call":
        given = {**given, "set": {}, "mask": ["[0-9]+"] if ruling == "modify" else []}
    came = run_with_policy(agent_with_rules(given), answer or "approved")
    assert (came.requests, len(came.ran)) == (int(requests), int(ran))
    assert came.sent == ([] if sent == "-" else [sent])
    assert (came.code, came.exit) == (None if ends == "-" else ends, int(code))
    at = [
        f"{fact.ruling}[{', '.join(fact.rules)}]"
        for fact in came.facts
        if isinstance(fact, Ruled)
        if fact.stage == stage
    ]
    assert at == ([] if rulings == "-" else rulings.split(" "))


@pytest.mark.parametrize("row", rows(STAGES), ids=lambda row: row[0])
def test_effect_of_a_ruling_at_each_stage(row: list[str]) -> None:
    check_stage(*row)


def test_table_has_every_legal_stage_and_ruling() -> None:
    shown = {tuple(row[0].partition(":")[0].split(" ")) for row in rows(STAGES)}
    assert shown == {(stage, ruling) for stage, legal in LEGAL_RULINGS.items() for ruling in legal}


@pytest.mark.parametrize("stage", LEGAL_RULINGS)
@pytest.mark.parametrize("ruling", RULINGS)
def test_illegal_ruling_for_a_stage_is_an_error_of_the_spec(stage: Any, ruling: Any, tmp_path: Any) -> None:
    key = "" if ruling != "modify" else ", set: {n: 1}" if stage == "tool_call" else ', mask: ["x"]'
    args = "{type: object, properties: {n: {type: integer}}}"
    when = ', when: "spend.turns > 3"' if ruling != "modify" else ""
    text = f"""\
sinks: {{s: {{kind: stdout}}}}
tools: {{t: {{kind: shell, description: d, argv: [df], args: {args}}}}}
policy: {{default: allow, rules: [{{id: r, on: {stage}, {ruling}: "*"{key}{when}}}]}}
"""
    found = {problem.code for problem in validate_document(write_project(tmp_path, {"spec.yaml": agent(text)}))}
    assert found == (set() if ruling in LEGAL_RULINGS[stage] else {"spec.illegal_ruling"})


# --- modify ------------------------------------------------------------------------------------------------------


def test_modified_arguments_are_recorded_in_the_ruling() -> None:
    """The original stays where the model wrote it; what runs stands in the ruling."""
    came = run_with_policy(agent_with_rules(one("modify", set={"n": 5}), default="allow"), args={"n": 900, "q": "x"})
    assert came.ran == [{"n": 5, "q": "x"}]
    (reply, *_) = [fact.reply for fact in came.facts if isinstance(fact, ModelReplied)]
    assert reply.message.calls[0].arguments == '{"n":900,"q":"x"}'
    first, second = [fact for fact in came.facts if isinstance(fact, Ruled)]
    assert (first.ruling, first.rules, first.reason, first.arguments) == (
        *("modify", ("modify",), "so it is"),
        {"n": 5, "q": "x"},
    )
    assert (second.ruling, second.rules) == ("allow", ())


REWRITES: dict[str, tuple[list[dict[str, Any]], str, list[str], list[dict[str, Any]], str | None]] = {
    "what is rewritten is ruled on again": (
        [one("modify", set={"n": 5}), one("deny", when="args.n == 5")],
        *("allow", ["modify[modify]", "deny[deny]"], [], "policy.denied"),
    ),
    "and may be let go by another rule": (
        [one("modify", set={"n": 5}), one("allow", when="args.n == 5")],
        *("deny", ["modify[modify]", "allow[allow]"], [{"n": 5}], None),
    ),
    "what was denied is not rewritten": (
        [one("modify", set={"n": 5}), one("deny", when="args.n == 1")],
        *("allow", ["deny[deny]"], [], "policy.denied"),
    ),
    "a rule that rewrites does so once": (
        [one("modify", set={"n": 5}), one("modify", id="again", set={"q": "y"}, when="args.n == 5")],
        *("allow", ["modify[modify]", "allow[]"], [{"n": 5}], None),
    ),
    "two rules may set two fields": (
        [one("modify", set={"n": 5}), one("modify", id="other", set={"q": "y"})],
        *("allow", ["modify[modify, other]", "allow[]"], [{"n": 5, "q": "y"}], None),
    ),
    "two rules that set one field deny": (
        [one("modify", set={"n": 5}), one("modify", id="other", set={"n": 6, "q": "y"})],
        *("allow", ["deny[modify, other]"], [], "policy.denied"),
    ),
    "also when they set the same": (
        [one("modify", set={"n": 5}), one("modify", id="other", set={"n": 5})],
        *("allow", ["deny[modify, other]"], [], "policy.denied"),
    ),
    "what is rewritten is validated": (
        [one("modify", set={"n": "five"})],
        *("allow", ["modify[modify]"], [], "None"),
    ),
    "people are asked about what will run": (
        [one("modify", set={"n": 5}), one("ask", when="args.n == 5")],
        *("deny", ["modify[modify]", "ask[ask]"], [{"n": 5}], None),
    ),
}


def check_rewrite(name: str) -> None:
    rules, default, rulings, ran, read = REWRITES[name]
    for order in itertools.permutations(rules):
        came = run_with_policy(agent_with_rules(*order, default=default))
        assert (without_reasons(came), came.ran, came.read) == (rulings, ran, read)


@pytest.mark.parametrize("name", REWRITES)
def test_modify_rules_together_with_other_rules(name: str) -> None:
    check_rewrite(name)


def test_invalid_arguments_after_modify_are_refused() -> None:
    came = run_with_policy(agent_with_rules(one("modify", set={"n": "five"})))
    (refused,) = [fact for fact in came.facts if isinstance(fact, CallRefused)]
    assert (refused.code, refused.fields["field"]) == ("tool.invalid_arguments", "n")


# --- arguments and names -----------------------------------------------------------------------------------------

MATCHES = """
targets      | called  | holds
pay          | pay     | yes
pa           | pay     | no
Pay          | pay     | no
p*           | pay     | yes
*            | pay     | yes
*y           | pay     | yes
pay*         | pay     | yes
srv          | srv.pay | no
srv.pay      | srv.pay | yes
srv.*        | srv.pay | yes
*.pay        | srv.pay | yes
pay          | srv.pay | no
srv_pay      | srv.pay | no
srv?pay      | srv.pay | no
"""


@pytest.mark.parametrize("row", rows(MATCHES), ids=lambda row: f"{row[0]} {row[1]}")
def test_targets_match_exact_names_and_stars(row: list[str]) -> None:
    """Exact names match exactly; a star stands for anything, where it is written, and nothing else does."""
    targets, called, holds = row
    kind = "mcp" if called == "srv.pay" else "python"
    came = run_with_policy(agent_with_rules(one("deny", targets=[targets]), kind=kind))
    assert (len(came.ran) == 0) == (holds == "yes")


@pytest.mark.parametrize(
    ("text", "denied"),
    [("rm -rf", True), ("rm  -rf", False), ('{"q": "rm -rf"}', False), ("rm -rf; ", False)],
)
def test_matching_is_on_parsed_arguments(text: str, denied: bool) -> None:
    """However they were written: an escape in the model's JSON is the character, and no text is searched."""
    came = run_with_policy(
        agent_with_rules(one("deny", when="args.q == 'rm -rf'"), kind="shell"), args={"n": 1, "q": text}
    )
    assert (came.ran == []) == denied


# --- approvals that last -----------------------------------------------------------------------------------------


def test_approval_asked_records_the_rules_and_the_reason() -> None:
    """What an old journal means does not change with the policy: it holds the rules and the reason."""
    came = run_with_policy(agent_with_rules(one("ask")), "denied")
    (asked,) = [fact for fact in came.facts if isinstance(fact, ApprovalAsked)]
    assert (asked.target, asked.rules, asked.reason) == ("pay", ("ask",), "so it is")


def test_deferred_call_suspends_the_run_without_a_terminal_record() -> None:
    came = run_with_policy(agent_with_rules(one("defer")))
    assert (came.code, came.exit, terminal(came)) == ("suspended", 8, [])


# --- twins: a planted fault turns the tables red -----------------------------------------------------------------


def first_wins(
    package: Package, stage: Any, target: str, variables: Any, *, rewritten: bool = False, **_: Any
) -> PolicyDecision:
    for each in package.policy.rules:
        alone = replace(package, policy=replace(package.policy, rules=(each,)))
        verdict = evaluate_policy(alone, stage, target, variables, rewritten=rewritten)
        if verdict.rules:
            return verdict
    return evaluate_policy(replace(package, policy=replace(package.policy, rules=())), stage, target, variables)


def open_on_error(
    package: Package, stage: Any, target: str, variables: Any, *, rewritten: bool = False, **_: Any
) -> PolicyDecision:
    rules = tuple(each for each in package.policy.rules if each.when != "args.nothing == 1")
    given = replace(package, policy=replace(package.policy, rules=rules))
    return evaluate_policy(given, stage, target, variables, rewritten=rewritten)


def rewrites_again(
    package: Package, stage: Any, target: str, variables: Any, *, rewritten: bool = False, **_: Any
) -> PolicyDecision:
    verdict = evaluate_policy(package, stage, target, variables, rewritten=False)
    return (
        PolicyDecision("allow", verdict.rules, verdict.reason) if rewritten and verdict.ruling == "modify" else verdict
    )


def allows_by_default(
    package: Package, stage: Any, target: str, variables: Any, *, rewritten: bool = False, **_: Any
) -> PolicyDecision:
    verdict = evaluate_policy(package, stage, target, variables, rewritten=rewritten)
    return verdict if verdict.rules else PolicyDecision("allow", (), None)


def count_failures(checks: list[Callable[[], None]]) -> int:
    """How many checks fail."""
    count = 0
    for check in checks:
        try:
            check()
        except AssertionError:
            count += 1
    return count


ALL: dict[str, list[Callable[[], None]]] = {
    "pairs": [lambda pair=pair: check_pair(*pair) for pair in PAIRS],  # type: ignore[misc]  # bound for the loop
    "holds": [lambda cell=cell: check_ruling(*cell) for cell in CELLS],  # type: ignore[misc]  # as above
    "rewrites": [lambda name=name: check_rewrite(name) for name in REWRITES],  # type: ignore[misc]  # as above
    "stages": [lambda row=row: check_stage(*row) for row in rows(STAGES)],  # type: ignore[misc]  # as above
}


@pytest.mark.parametrize(
    ("planted", "red"),
    [(first_wins, "pairs"), (open_on_error, "holds"), (rewrites_again, "rewrites"), (allows_by_default, "holds")],
)
def test_tables_detect_a_wrong_policy_evaluation(planted: Any, red: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrun.core.policy.evaluate_policy", planted)
    assert count_failures(ALL[red]) > 0


def test_tables_detect_a_gate_that_ignores_denials(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes any answer for a yes."""
    monkeypatch.setattr(gate, "APPROVED_ANSWERS", ("approved", "approved_for_session", "denied", "unavailable"))
    assert count_failures(ALL["stages"]) > 0
