"""Spec coverage: each kind of part, covered and not covered."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.core.facts import Continue, Deny
from agentrun.core.fault import Fault
from agentrun.testing.doubles import approving, call, calls, fails, hook, reply, sink, stub

from .coverage_runs import CoveredRuns

TOOLS = """\
input: Go.
tools:
  look: {kind: shell, description: d, argv: [x]}
  pay: {kind: shell, description: d, argv: [x], args: {type: object, properties: {sum: {type: integer}}}}
policy:
  default: deny
  rules:
    - {id: looks, allow: look}
    - {id: little, allow: pay, when: "args.sum < 10"}
    - {id: much, ask: pay, when: "args.sum >= 10"}
"""
HOOK = "def ask(question):\n    return None\n"


def test_only_tools_that_ran_are_covered(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, TOOLS).run(calls("look"), "Done.")
    assert covered.parts("tool") == {"look": True, "pay": False}
    assert covered.part("tool", "pay").note is None
    assert covered.part("tool", "pay").place.endswith("spec.yaml:4")


def test_denied_tool_is_not_covered_and_noted(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, TOOLS).run(calls("pay", sum=50), "Done.", approver=approving("denied"))
    assert covered.part("tool", "pay").covered is False
    assert covered.part("tool", "pay").note == "the model called it, but it never ran"
    covered.run(calls("pay", sum=50), "Done.", approver=approving("approved"))
    assert covered.part("tool", "pay").covered is True


def test_rule_is_covered_when_it_decides_a_ruling(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, TOOLS).run(calls("pay", sum=9), "Done.")
    assert covered.parts("rule") == {"looks": False, "little": True, "much": False}
    assert covered.part("rule", "much").place.endswith("spec.yaml:10")
    covered.run(calls("pay", sum=10), "Done.", approver=approving("denied"))
    assert covered.parts("rule") == {"looks": False, "little": True, "much": True}


def test_a_rule_that_a_stricter_one_overrules_is_not_covered(tmp_path: Path) -> None:
    text = TOOLS + '    - {id: never, deny: pay, when: "args.sum >= 0"}\n'
    covered = CoveredRuns(tmp_path, text).run(calls("pay", sum=9), "Done.")
    assert (covered.parts("rule")["little"], covered.parts("rule")["never"]) == (False, True)


def test_run_start_rules_are_covered(tmp_path: Path) -> None:
    text = """\
params: {who: {type: string, default: me}}
input: "{{ who }}"
policy:
  rules:
    - {id: known, on: run_start, allow: "*", when: 'params.who == "me"'}
    - {id: others, on: run_start, deny: "*", when: 'params.who == "you"'}
"""
    covered = CoveredRuns(tmp_path, text).run("Hello.")
    assert covered.parts("rule") == {"known": True, "others": False}
    assert covered.parts("code")["policy.denied"] is False
    covered.run("Hello.", params={"who": "you"})
    assert covered.parts("rule") == {"known": True, "others": True}
    assert covered.parts("code")["policy.denied"] is True


@pytest.mark.parametrize("on_turns", ["fail", "stop"])
def test_budget_is_covered_when_a_run_reaches_it(tmp_path: Path, on_turns: str) -> None:
    covered = CoveredRuns(tmp_path, f"budgets: {{turns: 1, tokens: 9k, on_turns: {on_turns}}}\n{TOOLS}").run("Done.")
    assert covered.parts("budget") == {"turns": False, "tokens": False}
    covered.run(reply("Well.", call("look")))
    assert covered.parts("budget") == {"turns": True, "tokens": False}


def test_default_budgets_are_not_counted(tmp_path: Path) -> None:
    assert CoveredRuns(tmp_path, "input: Go.\nbudgets: {tokens: 5k}").run("Done.").parts("budget") == {"tokens": False}


def test_only_enabled_guards_of_the_spec_are_counted(tmp_path: Path) -> None:
    text = f"guards: {{repeated_call: 2, cycle: off, stagnation: 4}}\nlimits: {{parallel_tools: 1}}\n{TOOLS}"
    covered = CoveredRuns(tmp_path, text).run(calls("look"), "Done.")
    assert covered.parts("guard") == {"repeated_call": False, "stagnation": False, "parallel_tools": False}
    covered.run(calls("look"), calls("look"))
    assert covered.parts("guard") == {"repeated_call": True, "stagnation": False, "parallel_tools": False}


@pytest.mark.parametrize("oversize", ["fail", "reject_all", "run_first"])
def test_oversize_batch_covers_parallel_tools_in_every_mode(tmp_path: Path, oversize: str) -> None:
    text = f"limits: {{parallel_tools: 1, on_oversize_batch: {oversize}}}\n{TOOLS}"
    covered = CoveredRuns(tmp_path, text).run(calls("look"), "Done.")
    assert covered.parts("guard") == {"parallel_tools": False}
    covered.run(calls(call("look"), call("pay", sum=1)), "Done.")
    assert covered.parts("guard") == {"parallel_tools": True}


def test_asked_hook_is_covered_and_noted_if_it_always_continues(tmp_path: Path) -> None:
    text = f'hooks:\n  - {{id: see, at: before_tool, call: "hooks:ask"}}\n{TOOLS}'
    covered = CoveredRuns(tmp_path, text, **{"hooks.py": HOOK}).run("Done.", hooks={"see": hook()})
    assert covered.parts("hook") == {"see": False}
    covered.run(calls("look"), "Done.", hooks={"see": hook(Continue())})
    assert covered.part("hook", "see").note == "it always answered `continue`"
    assert covered.of().noted == (covered.part("hook", "see"),)
    covered.run(calls("look"), "Done.", hooks={"see": hook(Deny("no"))})
    assert covered.part("hook", "see").note is None


def test_calls_of_a_sub_agent_cover_its_own_spec(tmp_path: Path) -> None:
    child = TOOLS.replace("input: Go.\n", 'agentrun: "1"\nname: child\nmodel: {provider: openai, name: m}\n') + (
        "instructions: Be brief.\nbudgets: {tokens: 5k}\n"
    )
    parent = "input: Go.\ntools: {helper: {kind: agent, description: d, spec: child.yaml}}\npolicy: {default: allow}"
    covered = CoveredRuns(tmp_path, parent, child_yaml=child).run("Done.")
    assert covered.parts("tool") == {"helper": False}
    assert covered.parts("tool", "child.yaml") == {"look": False, "pay": False}
    covered.run(calls("helper", message="Look."), calls("look"), "Seen.", "Done.")
    assert covered.parts("tool") == {"helper": True}
    assert covered.parts("tool", "child.yaml") == {"look": True, "pay": False}
    assert covered.parts("rule", "child.yaml") == {"looks": True, "little": False, "much": False}


def test_parts_of_a_profile_are_counted_with_the_profile(tmp_path: Path) -> None:
    text = f"{TOOLS}profiles:\n  strict:\n    tools: {{more: {{kind: shell, description: d, argv: [x]}}}}\n"
    text += (
        "    policy: {default: allow}\n    budgets: {cost: 1, tokens: 2k}\n    model: {price: {input: 1, output: 1}}\n"
    )
    covered = CoveredRuns(tmp_path, text).run(calls("look"), "Done.")
    assert covered.parts("tool") == {"look": True, "pay": False, "more": False}
    assert covered.part("tool", "more").profile == "strict"
    assert covered.part("tool", "look").profile is None
    assert [part.profile for part in covered.of().parts if part.kind == "budget"] == [None, "strict"]
    covered.run(calls(call("more"), call("pay", sum=1)), "Done.", profile="strict")
    assert covered.parts("tool") == {"look": True, "pay": True, "more": True}


def test_spec_of_a_skipped_case_is_counted(tmp_path: Path) -> None:
    report = CoveredRuns(tmp_path, TOOLS).covering.report()
    assert (report.covered, report.percent) == (0, 0.0)
    assert report.total > 0


# --- codes ------------------------------------------------------------------------------------------------------

PROVIDER = ("rate_limited", "overloaded", "transient", "timeout", "zero_output", "empty", "fatal")
LOOK = "tools: {look: {kind: shell, description: d, argv: [x]}}\npolicy: {default: allow}"
SOME = "tools: {look: {kind: shell, description: d, argv: [x]}}\npolicy: {default: deny, rules: [{id: a, allow: look}]}"
STRICT = "args: {type: object, properties: {a: {type: string}}, required: [a]}"


def test_provider_faults_and_default_budgets_are_listed_apart(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, "input: Go.")
    assert set(covered.parts("provider fault")) == {f"provider.{name}" for name in PROVIDER}
    assert (covered.parts("code"), covered.parts("default budget")) == ({}, {"turns": False})
    assert CoveredRuns(tmp_path, "input: Go.\nbudgets: {turns: 3}").parts("default budget") == {}
    covered.run(fails("provider.rate_limited"), fails("provider.fatal"))
    occurred = [name for name, is_covered in covered.parts("provider fault").items() if is_covered]
    assert occurred == ["provider.rate_limited", "provider.fatal"]
    assert {part.kind for part in covered.of().parts} == {"prompt", "budget"}, "these count"


def test_prompt_is_covered_when_a_run_uses_it(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, "input: Go.\nguards: {empty_outcome: 1, nudge: Call a tool.}")
    assert covered.parts("prompt") == {"instructions": False, "input": False, "guards.nudge": False}
    covered.run("Done.", "Done.", message="Other words.")
    assert covered.parts("prompt") == {"instructions": True, "input": False, "guards.nudge": True}
    covered.run("Done.", "Done.")
    assert covered.parts("prompt") == {"instructions": True, "input": True, "guards.nudge": True}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (LOOK, "tool.unknown tool.execution tool.timeout"),
        (LOOK.replace("[x]", "[x], visible: spend.turns > 1"), "tool.unknown tool.execution tool.timeout tool.hidden"),
        (
            LOOK.replace("[x]", f"[x], {STRICT}"),
            "tool.unknown tool.execution tool.timeout tool.invalid_arguments tool.missing_field",
        ),
        (
            LOOK.replace("[x]", f"[x], {STRICT.replace(', required: [a]', '')}"),
            "tool.unknown tool.execution tool.timeout tool.invalid_arguments",
        ),
        (SOME, "tool.unknown tool.execution tool.timeout"),
        (
            SOME.replace("allow: look", "allow: look, when: spend.turns > 1"),
            "tool.unknown tool.execution tool.timeout tool.denied",
        ),
        (
            LOOK.replace("default: allow", "default: ask"),
            "tool.unknown tool.execution tool.timeout tool.denied approval.denied approval.timed_out",
        ),
        (
            f"{LOOK}\nlimits: {{on_oversize_batch: run_first}}",
            "tool.unknown tool.execution tool.timeout tool.invalid_call",
        ),
        ("policy: {rules: [{id: a, on: output, interrupt: '*'}]}", "policy.interrupted"),
        ("policy: {rules: [{id: a, on: input, deny: '*'}]}", "policy.denied"),
        ("policy: {rules: [{id: a, on: output, ask: '*'}]}", "approval.denied approval.timed_out"),
        ("output: {schema: {type: object}}", "output.invalid"),
        ("admission: {max_chars: 10}", "input.rejected"),
        ("context: {overflow: fail}", "context.overflow"),
        ("context: {overflow: compact}", "context.overflow context.failed"),
        ("sinks: {out: {kind: stdout}}", "delivery.failed"),
        ("sinks: {out: {kind: stdout, delivery: disabled}}", ""),
        ("budgets: {turns: 3}\nguards: {cycle: 3}", ""),
    ],
)
def test_counted_codes_follow_from_the_spec(tmp_path: Path, text: str, codes: str) -> None:
    assert set(CoveredRuns(tmp_path, f"input: Go.\n{text}").parts("code")) == set(codes.split())


def test_code_is_covered_when_it_occurs_in_a_run(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, TOOLS)

    def codes() -> set[str]:
        return {name for name, is_covered in covered.parts("code").items() if is_covered}

    covered.run("Done.")
    assert codes() == set()
    covered.run(calls("look"), calls("what"), calls("pay", sum="x"), "Done.", tool=stub(fails="tool.timeout"))
    assert codes() >= {"tool.timeout", "tool.unknown", "tool.invalid_arguments"}
    assert "tool.execution" not in codes()
    covered.run(calls("pay", sum=10), "Done.", approver=approving("denied"))
    assert codes() >= {"tool.denied", "approval.denied"}
    assert "approval.timed_out" not in codes()


def test_failed_delivery_covers_delivery_failed(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, "input: Go.\nsinks: {out: {kind: stdout, delivery: optional}}")
    assert covered.run("Done.", sinks={"stdout": sink()}).parts("code")["delivery.failed"] is False
    broken = sink(fails=Fault("delivery.failed", "no"))
    assert covered.run("Done.", sinks={"stdout": broken}).parts("code")["delivery.failed"] is True


def test_refused_input_covers_input_rejected(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, "input: Go.\nadmission: {max_chars: 5}").run("Done.")
    assert covered.parts("code")["input.rejected"] is False
    assert covered.run("Done.", message="Go away.").parts("code")["input.rejected"] is True
