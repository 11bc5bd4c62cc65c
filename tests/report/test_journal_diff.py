"""The diff of two journals: each kind of change is reported with its place."""

from collections.abc import Callable
from typing import Any

import pytest

from agentrun.journal.yaml_text import dump_plain_yaml
from agentrun.report.change import RunChange
from agentrun.report.journal_diff import compare_journal_facts, compare_journals

Facts = list[dict[str, Any]]

USAGE = {"input": 100, "output": 20}


def reply(turn: int, text: str = "", *calls: tuple[str, str], **more: Any) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"kind": "text", "text": text}] if text else []
    parts += [
        {"kind": "tool_call", "id": f"c{turn}.{n}", "tool": tool, "arguments": arguments}
        for n, (tool, arguments) in enumerate(calls)
    ]
    said = {"message": {"role": "assistant", "parts": parts}, "finish": "tool_calls" if calls else "stop"}
    told = {**said, "usage": USAGE, "model": "gpt-4.1-mini", **more}
    return {"model_replied": {"turn": turn, "reply": told, "cost": 100}}


def allowed_call(call: str, tool: str, result: str, rule: str = "reads") -> Facts:
    return [
        {"ruled": {"subject": call, "stage": "tool_call", "ruling": "allow", "rules": [rule]}},
        {"tool_started": {"call": call, "tool": tool}},
        {"tool_finished": {"call": call, "parts": [{"kind": "text", "text": result}]}},
    ]


def model_asked(turn: int, **more: Any) -> dict[str, Any]:
    return {"model_asked": {"turn": turn, "route": "openai/gpt-4.1-mini", **more}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"kind": "text", "text": text}]}


def run_started(**more: Any) -> dict[str, Any]:
    told = {
        "agent": "support",
        "rules": 2,
        "params": {"order": "1042"},
        "instructions": "Help.\nBe brief.\nBe kind.",
        "input": user("Where is it?"),
        **more,
    }
    return {"run_started": told}


def run() -> Facts:
    return [
        run_started(),
        {"hook_answered": {"hook": "check", "point": "on_input", "subject": "input", "answer": {"answer": "continue"}}},
        model_asked(1),
        reply(1, "I look.", ("look", '{"id":"1042"}'), ("weigh", '{"id":"1042"}')),
        *allowed_call("c1.0", "look", '{"total":120,"state":"late"}'),
        *allowed_call("c1.1", "weigh", "heavy"),
        {"results_given": {"turn": 1}},
        model_asked(2),
        reply(2, "", ("refund", '{"amount":20}')),
        {"ruled": {"subject": "c2.0", "stage": "tool_call", "ruling": "ask", "rules": ["money"], "reason": "money"}},
        {"approval_asked": {"subject": "c2.0", "target": "refund", "rules": ["money"]}},
        {"approval_answered": {"subject": "c2.0", "answer": "approved", "by": "ada"}},
        {"tool_started": {"call": "c2.0", "tool": "refund"}},
        {"tool_finished": {"call": "c2.0", "parts": [{"kind": "text", "text": "paid"}]}},
        {"results_given": {"turn": 2}},
        model_asked(3),
        reply(3, "Done: 20 is paid."),
        {"answer_reached": {}},
        {"delivery_started": {"sink": "mail"}},
        {"delivery_finished": {"sink": "mail"}},
        {"run_stopped": {"status": "completed"}},
    ]


def find(facts: Facts, kind: str, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = [fact[kind] for fact in facts if kind in fact][number]
    return found


def after(kind: str, *facts: dict[str, Any], number: int = 0) -> Callable[[Facts], None]:
    """Puts facts behind one of a kind."""

    def put(told: Facts) -> None:
        at = [n for n, fact in enumerate(told) if kind in fact][number]
        told[at + 1 : at + 1] = facts

    return put


def change_fact(kind: str, number: int = 0, /, **values: Any) -> Callable[[Facts], None]:
    return lambda told: find(told, kind, number).update(values)


def text(kind: str, number: int, words: str) -> Callable[[Facts], None]:
    return change_fact(kind, number, parts=[{"kind": "text", "text": words}])


def renamed(told: Facts) -> None:
    find(told, "model_replied", 1)["reply"]["message"]["parts"][0]["arguments"] = '{"amount":25,"fast":true}'


def swapped(told: Facts) -> None:
    find(told, "model_replied")["reply"]["message"]["parts"][1:] = [
        {"kind": "tool_call", "id": "c1.0", "tool": "weigh", "arguments": '{"id":"1042"}'},
        {"kind": "tool_call", "id": "c1.1", "tool": "look", "arguments": '{"id":"1042"}'},
    ]
    for fact in told:
        for data in fact.values():
            for key in ("call", "subject"):
                if data.get(key) in ("c1.0", "c1.1"):
                    data[key] = "c1.1" if data[key] == "c1.0" else "c1.0"


def one_call_less(told: Facts) -> None:
    find(told, "model_replied")["reply"]["message"]["parts"].pop()
    told[:] = [
        fact for fact in told if not any("c1.1" in (data.get("call"), data.get("subject")) for data in fact.values())
    ]


def new_step(told: Facts) -> None:
    at = next(n for n, fact in enumerate(told) if fact.get("model_asked", {}).get("turn") == 2)
    for fact in told[at:]:
        for data in fact.values():
            if "turn" in data:
                data["turn"] += 1
            for key in ("call", "subject"):
                if data.get(key) == "c2.0":
                    data[key] = "c3.0"
    find(told, "model_replied", 1)["reply"]["message"]["parts"][0]["id"] = "c3.0"
    step = [
        model_asked(2),
        reply(2, "", ("track", '{"parcel":7}')),
        *allowed_call("c2.0", "track", "lost"),
        {"results_given": {"turn": 2}},
    ]
    told[at:at] = step


def stopped_early(told: Facts) -> None:
    """The first request got no reply."""
    del told[3:-1]
    told[-1]["run_stopped"].update(status="failed", fault=LIMIT)


FAULT = {"code": "provider.overloaded", "message": "busy"}
LIMIT = {"code": "budget.turns", "message": "the budget of 3 turns is used up"}

# What is done to the run, and all that is told of it: kind, how, text.
TABLE: dict[str, tuple[Callable[[Facts], None], list[tuple[str, str, str]]]] = {
    "agent": (change_fact("run_started", agent="help"), [("agent", "changed", "the agent: “support” → “help”")]),
    "prompt": (
        change_fact("run_started", instructions="Help.\nBe long.\nBe kind.\nBe quick."),
        [
            ("instructions", "changed", "instructions line 2: “Be brief.” → “Be long.”"),
            ("instructions", "new", "instructions line 4 is new: “Be quick.”"),
        ],
    ),
    "prompt-line-gone": (
        change_fact("run_started", instructions="Help.\nBe kind."),
        [("instructions", "gone", "instructions line 2 is gone: “Be brief.”")],
    ),
    "other-prompts": (
        change_fact("run_started", prompts={"nudge": "Go on."}),
        [("prompt", "new", "the prompt nudge is new: “Go on.”")],
    ),
    "input": (
        change_fact("run_started", input=user("Where was it?")),
        [("input", "changed", "the message: “Where is it?” → “Where was it?”")],
    ),
    "params": (
        change_fact("run_started", params={"order": "7", "region": "eu"}),
        [
            ("params", "changed", "params.order “1042” → “7”"),
            ("params", "new", "params.region is new: “eu”"),
        ],
    ),
    "history": (
        change_fact("run_started", earlier={"runs": 1}),
        [("history", "changed", 'the earlier conversation: it null → {"runs":1}')],
    ),
    "route": (
        change_fact("model_asked", 1, route="anthropic/claude-haiku-4-5"),
        [
            (
                "route",
                "changed",
                "turn 2: the model that is asked: “openai/gpt-4.1-mini” → “anthropic/claude-haiku-4-5”",
            )
        ],
    ),
    "hidden-tools": (
        change_fact("model_asked", 1, hidden=["refund"]),
        [("tools", "changed", 'turn 2: tools hidden from the model: [] → ["refund"]')],
    ),
    "reply": (
        lambda told: find(told, "model_replied")["reply"]["message"]["parts"][0].update(text="I see."),
        [("reply", "changed", "turn 1: the reply: “I look.” → “I see.”")],
    ),
    "answer": (
        lambda told: find(told, "model_replied", 2)["reply"]["message"]["parts"][0].update(text="Done: 25 is paid."),
        [("reply", "changed", "turn 3: the answer: “Done: 20 is paid.” → “Done: 25 is paid.”")],
    ),
    "finish": (
        lambda told: find(told, "model_replied", 2)["reply"].update(finish="length"),
        [("finish", "changed", "turn 3: the finish reason: “stop” → “length”")],
    ),
    "model": (
        lambda told: find(told, "model_replied", 2)["reply"].update(model="gpt-5"),
        [("model", "changed", "turn 3: the model that answered: “gpt-4.1-mini” → “gpt-5”")],
    ),
    "argument": (renamed, [("argument", "changed", "turn 2: the call of refund: amount 20 → 25, fast is new: true")]),
    "call-moved": (swapped, [("call", "moved", "turn 1: the order of the calls: look, weigh → weigh, look")]),
    "call-gone": (one_call_less, [("call", "gone", "turn 1: the call of weigh(id=“1042”) is gone")]),
    "result": (
        text("tool_finished", 0, '{"total":130,"state":"late","by":"sea"}'),
        [("result", "changed", "turn 1: the result of look changed: total 120 → 130, by is new: “sea”")],
    ),
    "result-text": (
        text("tool_finished", 1, "light"),
        [("result", "changed", "turn 1: the result of weigh changed: “heavy” → “light”")],
    ),
    "result-failed": (
        change_fact("tool_finished", 1, parts=[], fault={"code": "tool.timeout", "message": "too slow"}),
        [("result", "changed", "turn 1: the end of weigh: a result (heavy) → tool.timeout: too slow")],
    ),
    "ruling": (
        change_fact("ruled", 1, ruling="deny", rules=["no-scales"], reason="broken"),
        [
            (
                "ruling",
                "changed",
                "turn 1: the ruling on weigh changed: allow → deny (by no-scales: broken; was by reads)",
            )
        ],
    ),
    "ruling-by-another-rule": (
        change_fact("ruled", 0, rules=[]),
        [("ruling", "changed", "turn 1: the ruling on look is still allow, now by default; was by reads")],
    ),
    "approval": (
        change_fact("approval_answered", answer="denied", by="bob"),
        [("approval", "changed", "turn 2: the approval of refund: approved by ada → denied by bob")],
    ),
    "hook": (
        change_fact("hook_answered", answer={"answer": "deny", "reason": "no"}),
        [("hook", "changed", "the answer of the hook check (on_input) about the message: continue → deny: no")],
    ),
    "retry": (
        after(
            "model_asked",
            {"model_failed": {"turn": 2, "fault": FAULT}},
            {"retry_planned": {"turn": 2}},
            model_asked(2),
            number=1,
        ),
        [("fault", "new", "turn 2: the failed request (provider.overloaded: busy) is new")],
    ),
    "route-switched": (
        after(
            "model_asked", {"route_switched": {"turn": 2, "source": "a/b", "target": "c/d", "fault": FAULT}}, number=1
        ),
        [("route", "new", "turn 2: the switch from a/b to c/d (provider.overloaded: busy) is new")],
    ),
    "repair": (
        after(
            "model_replied",
            {"output_refused": {"turn": 3, "errors": ["/a: it is missing"], "repair": user("Again.")}},
            number=2,
        ),
        [("repair", "new", "turn 3: the repair of the answer (/a: it is missing) is new")],
    ),
    "told": (
        after("results_given", {"model_told": {"why": "wrap_up", "messages": [user("Come to an end.")]}}, number=1),
        [("told", "new", "turn 3: the message to the model (wrap_up) (Come to an end.) is new")],
    ),
    "compaction": (
        after("results_given", {"context_compacted": {"replaced": 4, "summary": user("S"), "before": 9, "after": 2}}),
        [("compaction", "new", "turn 2: the compaction (4 messages) is new")],
    ),
    "delivery": (
        change_fact("delivery_finished", fault={"code": "delivery.failed", "message": "full"}),
        [("delivery", "changed", "the delivery to mail: delivered → delivery.failed: full")],
    ),
    "delivery-new": (
        after("delivery_finished", {"delivery_started": {"sink": "log"}}, {"delivery_finished": {"sink": "log"}}),
        [("delivery", "new", "the delivery to log is new")],
    ),
    "step": (
        new_step,
        [
            ("step", "new", "turn 2: the step is new: it calls track(parcel=7)"),
            ("spend", "changed", "spend up 33 %: 360 → 480 tokens, $0.0003 → $0.0004, 3 → 4 turns"),
        ],
    ),
    "no-reply": (
        stopped_early,
        [
            ("reply", "gone", "turn 1: the reply (I look.) is gone"),
            ("call", "gone", "turn 1: the call of look(id=“1042”) is gone"),
            ("call", "gone", "turn 1: the call of weigh(id=“1042”) is gone"),
            ("step", "gone", "turn 2: the step is gone: it calls refund(amount=20)"),
            ("step", "gone", "turn 3: the step is gone: it says “Done: 20 is paid.”"),
            (
                "outcome",
                "changed",
                "the outcome: completed → budget.turns (budget.turns: the budget of 3 turns is used up)",
            ),
            ("delivery", "gone", "the delivery to mail is gone"),
            ("spend", "changed", "spend down: 360 → 0 tokens, $0.0003 → $0.00, 3 → 1 turns"),
        ],
    ),
    "outcome": (
        change_fact("run_stopped", status="failed", fault=LIMIT),
        [
            (
                "outcome",
                "changed",
                "the outcome: completed → budget.turns (budget.turns: the budget of 3 turns is used up)",
            )
        ],
    ),
    "label": (
        change_fact("run_stopped", label="truncated"),
        [("outcome", "changed", "the outcome: completed → completed (truncated)")],
    ),
    "output": (
        change_fact("run_stopped", output={"queue": "a"}),
        [("output", "changed", 'the output: it null → {"queue":"a"}')],
    ),
    "spend": (
        lambda told: find(told, "model_replied")["reply"].update(usage={"input": 136, "output": 20}),
        [("spend", "changed", "spend up 10 %: 360 → 396 tokens")],
    ),
    "cached-tokens": (
        lambda told: find(told, "model_replied")["reply"].update(usage={**USAGE, "cached": 7}),
        [("spend", "changed", "spend differs: 0 → 7 cached tokens")],
    ),
    "terminal-tool": (
        change_fact("results_given", 1, ended_by="c2.0"),
        [("result", "changed", "turn 2: after the results: the model reads them → call 1 ends the run")],
    ),
    "unknown-fact": (
        after("results_given", {"moon_rose": {"phase": 1}}),
        [("other", "new", "turn 2: the fact moon_rose is new")],
    ),
    "unknown-field": (
        change_fact("results_given", weather="rain"),
        [("other", "changed", "the journal differs in [10].results_given.weather is new: “rain”")],
    ),
}


def kind_how_and_text(changes: tuple[RunChange, ...]) -> list[tuple[str, str, str]]:
    return [(change.kind, change.how, change.text) for change in changes]


@pytest.mark.parametrize("name", TABLE)
def test_change_is_reported_with_kind_and_text(name: str) -> None:
    change, told = TABLE[name]
    now = run()
    change(now)
    assert kind_how_and_text(compare_journal_facts(run(), now)) == told
    assert compare_journal_facts(now, run()), "the other way round something differs too"
    assert compare_journal_facts(now, now) == ()


def test_change_has_turn_call_and_values_as_data() -> None:
    now = run()
    renamed(now)
    (change,) = compare_journal_facts(run(), now)
    assert (change.run, change.turn, change.call, change.path) == (None, 2, "c2.0", "")
    assert (change.before, change.after) == ({"amount": 20}, {"amount": 25, "fast": True})


def test_moved_step_is_reported_as_moved() -> None:
    def steps(*tools: str) -> Facts:
        told: Facts = [run_started()]
        for turn, tool in enumerate(tools, 1):
            told += [
                model_asked(turn),
                reply(turn, "", (tool, "{}")),
                *allowed_call(f"c{turn}.0", tool, "x"),
                {"results_given": {"turn": turn}},
            ]
        return told

    assert kind_how_and_text(compare_journal_facts(steps("a", "b", "c", "d"), steps("b", "c", "d", "a"))) == [
        ("step", "moved", "turn 4: the step moved here from turn 1: it calls a()")
    ]


def test_changed_model_is_reported_in_its_first_turn() -> None:
    def facts_with_routes(route: str, late: str) -> Facts:
        facts = run()
        for number, name in enumerate((route, route, late)):
            find(facts, "model_asked", number)["route"] = name
            find(facts, "model_replied", number)["reply"]["model"] = name
        return facts

    assert kind_how_and_text(
        compare_journal_facts(facts_with_routes("a/b", "a/b"), facts_with_routes("a/c", "a/d"))
    ) == [
        ("route", "changed", "turn 1: the model that is asked: “a/b” → “a/c”"),
        ("model", "changed", "turn 1: the model that answered: “a/b” → “a/c”"),
        ("route", "changed", "turn 3: the model that is asked: “a/b” → “a/d”"),
        ("model", "changed", "turn 3: the model that answered: “a/b” → “a/d”"),
    ]


def test_refusal_with_another_reason_is_reported_as_a_changed_result() -> None:
    def refused(by: str) -> Facts:
        told: dict[str, Any] = {"call": "c1.0", "code": "tool.denied", "told": f"{by} denies it", "fields": {"by": by}}
        return [run_started(), model_asked(1), reply(1, "", ("refund", "{}")), {"call_refused": told}]

    assert kind_how_and_text(compare_journal_facts(refused("ada"), refused("a rule"))) == [
        ("result", "changed", "turn 1: the result of refund changed: “ada denies it” → “a rule denies it”")
    ]


def test_first_param_is_reported_as_new() -> None:
    bare = run()
    del bare[0]["run_started"]["params"]
    (change,) = compare_journal_facts(bare, run())
    assert (change.how, change.text.partition(":")[0]) == ("new", "params.order is new")


def test_structured_output_is_compared_by_field_and_reported_once() -> None:
    def typed(queue: str) -> Facts:
        output = {"queue": queue, "urgent": True}
        words = f'{{"queue":"{queue}","urgent":true}}'
        return [
            run_started(),
            model_asked(1),
            reply(1, words),
            {"run_stopped": {"status": "completed", "output": output}},
        ]

    assert kind_how_and_text(compare_journal_facts(typed("billing"), typed("other"))) == [
        ("output", "changed", "the output: queue “billing” → “other”")
    ]


def child(answer: str, share: int = 100) -> Facts:
    journal = [run_started(agent="reader"), model_asked(1), reply(1, answer), {"run_stopped": {"status": "completed"}}]
    start = {"call": "c1.0", "tool": "reader", "share": {"tokens": share}, "journal": journal}
    return [
        run_started(),
        model_asked(1),
        reply(1, "", ("reader", "{}")),
        {"child_started": start},
        {"tool_finished": {"call": "c1.0", "parts": [{"kind": "text", "text": answer}]}},
    ]


def test_change_inside_a_sub_agent_is_reported_with_its_call() -> None:
    (change,) = compare_journal_facts(child("High."), child("Low."))
    assert change.text == "turn 1, reader, turn 1: the answer: “High.” → “Low.”"
    assert (change.turn, change.path) == (1, "c1.0")


def test_changed_budget_share_of_a_sub_agent_is_reported() -> None:
    (change,) = compare_journal_facts(child("High."), child("High.", 90))
    assert (change.kind, change.text) == ("share", "turn 1: the budget of the sub-agent reader: tokens 100 → 90")


def test_runs_of_a_conversation_are_aligned_one_by_one() -> None:
    def talk(*messages: str) -> Facts:
        return [
            fact
            for message in messages
            for fact in (
                run_started(input=user(message)),
                model_asked(1),
                reply(1, "Yes."),
                {"run_stopped": {"status": "completed"}},
            )
        ]

    assert kind_how_and_text(compare_journal_facts(talk("a", "b"), talk("a", "c"))) == [
        ("input", "changed", "run 2: the message: “b” → “c”")
    ]
    new, spend = compare_journal_facts(talk("a"), talk("a", "b"))
    assert (new.kind, new.how, new.run, new.text) == ("run", "new", 2, "run 2: it is new: “b”")
    assert spend.kind == "spend"


def test_missing_end_of_a_cut_run_is_not_reported() -> None:
    now = run()
    renamed(now)
    short = now[: next(n for n, fact in enumerate(now) if "approval_answered" in fact)]
    assert kind_how_and_text(compare_journal_facts(run(), short, cut=True)) == [
        ("argument", "changed", "turn 2: the call of refund: amount 20 → 25, fast is new: true")
    ]


def test_compare_journals_reports_format_and_read_errors() -> None:
    one, two = (dump_plain_yaml(facts) for facts in (run(), [*run()[:-1], {"run_stopped": {"status": "failed"}}]))
    assert compare_journals(one, one) == ()
    assert [each.text for each in compare_journals(one, two)] == ["the outcome: completed → failed"]
    assert [each.text for each in compare_journals(one, one + "\n")] == [
        "the journals have the same content in another format"
    ]
    assert [each.text for each in compare_journals("<<<<<<<\n", one)] == [
        "the old journal cannot be read: line 1 is not in the format of a canonical journal"
    ]
    assert [each.text for each in compare_journals(one, "a: 1\n")] == [
        "the new journal cannot be read: line 1 is not in the format of a canonical journal"
    ]
    assert compare_journals("", one)


def test_secrets_and_control_characters_are_not_in_the_text() -> None:
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    now = run()
    text("tool_finished", 1, f"\x1b[2J {key}")(now)
    find(now, "model_replied", 1)["reply"]["message"]["parts"][0]["arguments"] = (
        '{"amount":20,"api_key":"hunter2hunter2"}'
    )
    told = " ".join(change.text for change in compare_journal_facts(run(), now))
    assert "\x1b" not in told
    assert key not in told
    assert "hunter2" not in told
    assert "***" in told
