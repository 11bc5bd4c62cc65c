"""The policy through the real command, with its effect on the tool, the exit code and the journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .shop_project import STORY, Project

ONCE = STORY.replace('    faults: [{status: 429, headers: {retry-after: "0"}}]\n', "")
NEVER = "id: never, allow: refund, when: args.amount < 0.0"
MATRIX = """
rules on refund                                    | --approve | trace          | exit | code               | rulings
allow: refund                                      | -    | refund 1042 20 | 0 | -                  | allow[r]
deny: refund, when: "args.amount > 5.0"            | all  | -              | 0 | -                  | deny[r]
deny: refund, when: "args.amount > 50.0"           | all  | -              | 0 | -                  | deny[]
allow: refund, when: "args.amount < 50.0"          | -    | refund 1042 20 | 0 | -                  | allow[r]
allow: refund, when: "dyn(args.order) > 5"         | all  | -              | 0 | -                  | deny[]
ask: refund                                        | all  | refund 1042 20 | 0 | -                  | ask[r]
ask: refund                                        | none | -              | 0 | -                  | ask[r]
ask: refund                                        | -    | -              | 8 | suspended          | ask[r]
ask: refund, when: "dyn(args.order) > 5"           | all  | refund 1042 20 | 0 | -                  | ask[r]
interrupt: refund, when: "args.amount == 20.0"     | all  | -              | 4 | policy.interrupted | interrupt[r]
interrupt: refund, when: "dyn(args.order) > 5"     | all  | -              | 4 | policy.interrupted | interrupt[r]
defer: refund, when: "args.amount == 20.0"         | all  | -              | 8 | suspended          | defer[r]
modify: refund, set: {amount: 3.0}  | all  | refund 1042 3  | 0 | -                  | modify[r] allow[rest]
deny: "*", on: output                              | all  | refund 1042 20 | 4 | policy.denied      | allow[rest]
deny: "*", on: run_start                           | all  | -              | 4 | policy.denied      | -
"""


def rows() -> list[list[str]]:
    lines = MATRIX.strip().splitlines()[1:]
    return [[cell.strip() for cell in line.split(" | ")] for line in lines]


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]} {row[1]}")
def test_rules_decide_the_call_the_exit_code_and_the_journal(row: list[str], tmp_path: Path) -> None:
    rule, approve, trace, exit_code, code, rulings = row
    shop = Project(tmp_path)
    # A tool that nothing could ever allow is an error: one rule allows it, in the end or never.
    rest = "id: rest, allow: refund, when: args.amount <= 50.0" if "rest" in rulings else NEVER
    shop.edit(
        "shop.yaml", "{id: money, ask: refund, reason: money}", f"{{id: r, {rule}, reason: why}}\n    - {{{rest}}}"
    )
    given = () if approve == "-" else ("--approve", approve)
    with shop.provider(ONCE) as (_, environment):
        done = shop.run("--journal", "run.jsonl", "--json", *given, **environment)
    assert done.code == int(exit_code), done.out
    assert [line for line in shop.traces() if "refund" in line] == ([] if trace == "-" else [trace])
    last = done.lines()[-1]
    fault = last.get("error") or (last.get("outcome") or {}).get("fault") or {}
    assert ("suspended" if "suspended" in last else fault.get("code", "-")) == code
    facts = [line["record"]["fact"] for line in done.lines() if "record" in line]
    found = [
        fact
        for fact in facts
        if fact["type"] == "ruled" and fact["stage"] == "tool_call" and fact["rules"] != ["reads"]
    ]
    shown = " ".join(f"{fact['ruling']}[{', '.join(fact['rules'])}]" for fact in found)
    assert (shown or "-") == rulings
    failed = "the condition of r cannot be evaluated: No matching overloads found : _>_(string, int64)"
    reasons = {"why", f"why; {failed}"} if "args.order" in rule else {"why"}
    assert {fact.get("reason") for fact in found if "r" in fact["rules"]} <= reasons
    if (shop.root / "run.jsonl").exists():
        journal = [json.loads(line)["fact"] for line in (shop.root / "run.jsonl").read_text().splitlines()]
        assert journal == facts


NESTED_EXISTS = "params.many.exists(x, params.many.exists(y, x > y && y > x))"


@pytest.mark.parametrize(("ruling", "paid"), [("allow", False), ("deny", False), ("ask", True)])
def test_condition_over_the_iteration_budget_is_named_in_the_ruling(ruling: str, paid: bool, tmp_path: Path) -> None:
    """Nested loops exceed the engine's own budget of rounds: the ruling says so, and the run goes on."""
    shop = Project(tmp_path)
    shop.edit("shop.yaml", "params: {", "params: {many: {type: array}, ")
    rule = f'{{id: r, {ruling}: refund, when: "{NESTED_EXISTS}"}}'
    shop.edit("shop.yaml", "{id: money, ask: refund, reason: money}", f"{rule}\n    - {{{NEVER}}}")
    with shop.provider(ONCE) as (_, environment):
        given = ("--approve", "all", "--param", f"many={list(range(200))}")
        done = shop.run("--json", *given, **environment)
    assert done.code == 0, done.out
    assert [line for line in shop.traces() if "refund" in line] == (["refund 1042 20"] if paid else [])
    facts = [line["record"]["fact"] for line in done.lines() if "record" in line]
    (ruled,) = [fact for fact in facts if fact["type"] == "ruled" and fact.get("reason")]
    assert ruled["reason"] == "the condition of r cannot be evaluated: Iteration budget exceeded"
