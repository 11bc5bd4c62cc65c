"""What a snapshot contains of a journal: usage, cost, and values that are ignored."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.journal.yaml_text import YamlTextError, dump_plain_yaml, parse_plain_yaml
from agentrun.report.journal_diff import compare_journal_facts, compare_journals
from agentrun.report.journal_spend import round_to_two_digits, rounded_spend
from agentrun.report.snapshot_form import SnapshotForm, dump_snapshot, parse_snapshot, usage_detail, without_usage

from ..journal.shapes import golden
from .test_journal_diff import Facts, allowed_call, child, find, model_asked, reply, run, run_started

EXACT, ROUNDED, NONE = SnapshotForm("exact"), SnapshotForm("rounded"), SnapshotForm("none")
JOURNALS = [path.with_suffix(".yaml") for path in golden()]


def text(facts: Facts, form: SnapshotForm = ROUNDED) -> str:
    return dump_snapshot(deepcopy(facts), form).text


def with_usage(facts: Facts, tokens: int, cost: int = 0) -> Facts:
    """The facts, with all usage in the first reply."""
    changed = deepcopy(facts)
    for number, fact in enumerate(each for each in changed if "model_replied" in each):
        replied = fact["model_replied"]
        replied["reply"]["usage"] = {"input": 0 if number else tokens, "output": 0}
        replied["cost"] = 0 if number else cost
    return changed


# --- usage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_exact_snapshot_is_the_canonical_form(path: Path) -> None:
    canonical = path.read_text(encoding="utf-8")
    facts = parse_plain_yaml(canonical)
    assert text(facts, EXACT) == canonical
    assert parse_snapshot(canonical) == facts


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rounded_snapshot_has_one_total_and_no_other_usage(path: Path) -> None:
    facts = parse_plain_yaml(path.read_text(encoding="utf-8"))
    snapshot = text(facts)
    assert "usage:" not in snapshot
    assert "cost:" not in snapshot
    assert [line for line in snapshot.splitlines() if "spent:" in line] == [snapshot.splitlines()[-1]]
    assert snapshot.endswith(f"\n\n- spent: {rounded_spend(facts)}\n")
    assert text(facts, NONE) + f"\n- spent: {rounded_spend(facts)}\n" == snapshot
    assert parse_snapshot(snapshot) == [*without_usage(facts), {"spent": rounded_spend(facts)}]
    assert yaml.safe_load(snapshot) == parse_snapshot(snapshot)


def test_rounded_line_has_tokens_and_cost() -> None:
    assert text(with_usage(run(), 2181, 1089)).splitlines()[-1] == "- spent: 2.2k tokens, $0.0011"
    assert text(with_usage(run(), 2181)).splitlines()[-1] == "- spent: 2.2k tokens"
    assert text(with_usage(run(), 1)).splitlines()[-1] == "- spent: 1 token"


@pytest.mark.parametrize(
    ("exact", "rounded", "written"),
    [
        (0, 0, "0 tokens"),
        (9, 9, "9 tokens"),
        (99, 99, "99 tokens"),
        (100, 100, "100 tokens"),
        (104, 100, "100 tokens"),
        (105, 110, "110 tokens"),
        (994, 990, "990 tokens"),
        (995, 1000, "1k tokens"),
        (2249, 2200, "2.2k tokens"),
        (2250, 2300, "2.3k tokens"),
        (9949, 9900, "9.9k tokens"),
        (9950, 10_000, "10k tokens"),
        (104_999, 100_000, "100k tokens"),
        (105_000, 110_000, "110k tokens"),
        (994_999, 990_000, "990k tokens"),
        (995_000, 1_000_000, "1M tokens"),
        (1_249_999, 1_200_000, "1.2M tokens"),
        (1_250_000, 1_300_000, "1.3M tokens"),
        (12_500_000_000, 13_000_000_000, "13000M tokens"),
    ],
)
def test_tokens_are_rounded_to_two_significant_digits(exact: int, rounded: int, written: str) -> None:
    assert round_to_two_digits(exact) == rounded
    assert rounded_spend(with_usage(run(), exact)) == written


@pytest.mark.parametrize(
    ("micro_dollars", "written"),
    [
        (1, "$0.000001"),
        (99, "$0.000099"),
        (104, "$0.0001"),
        (105, "$0.00011"),
        (1049, "$0.001"),
        (1050, "$0.0011"),
        (99_499, "$0.099"),
        (99_500, "$0.10"),
        (1_249_999, "$1.20"),
        (1_250_000, "$1.30"),
        (104_999_999, "$100.00"),
    ],
)
def test_cost_is_rounded_to_two_significant_digits(micro_dollars: int, written: str) -> None:
    assert rounded_spend(with_usage(run(), 0, micro_dollars)) == f"0 tokens, {written}"


def test_total_includes_sub_agents_and_the_parts_of_a_conversation() -> None:
    one = [run_started(), model_asked(1), reply(1, "Yes.")]
    assert rounded_spend(one) == "120 tokens, $0.0001"
    assert rounded_spend([*one, *one, *one]) == "360 tokens, $0.0003"
    parent = child("High.")
    inside = find(parent, "child_started")["journal"]
    assert rounded_spend(inside) == "120 tokens, $0.0001"
    assert rounded_spend(parent) == "240 tokens, $0.0002"
    assert text(parent).count("spent:") == 1


def test_unreported_usage_is_counted_and_not_taken_for_zero() -> None:
    facts = with_usage(run(), 500)
    find(facts, "model_replied", 1)["reply"]["usage"] = None
    assert rounded_spend(facts) == "500 tokens, 1 reply without usage"
    find(facts, "model_replied", 2)["reply"]["usage"] = {"input": 3}
    assert rounded_spend(facts) == "500 tokens, 2 replies without usage"


def test_usage_of_a_turn_changes_only_the_exact_snapshot() -> None:
    before, after = with_usage(run(), 2210), with_usage(run(), 2249)
    assert text(before) == text(after)
    assert text(before, NONE) == text(after, NONE)
    assert text(before, EXACT) != text(after, EXACT)
    over = with_usage(run(), 2250)
    assert text(before) != text(over)
    assert text(before, NONE) == text(over, NONE)


def test_share_of_a_sub_agent_is_left_out_because_it_depends_on_usage() -> None:
    before, after = child("High.", 100), child("High.", 90)
    for facts, tokens in ((before, 100), (after, 90)):
        start = find(facts, "child_started")
        start["share"] |= {"cost": tokens, "tool_calls": 3}
        find(start["journal"], "run_started")["parent"] = {"call": "c1.0", "depth": 1, "share": start["share"]}
    assert text(before) == text(after)
    assert text(before, EXACT) != text(after, EXACT)
    assert text(before).count("tool_calls: 3") == 2


# --- ignored values -------------------------------------------------------------------------------------------


def ignoring(facts: Facts, *paths: str) -> tuple[list[Any], dict[str, int]]:
    taken = dump_snapshot(deepcopy(facts), SnapshotForm("none", paths))
    return parse_snapshot(taken.text), taken.ignored


def test_ignored_value_is_written_as_ignored() -> None:
    facts, ignored = ignoring(run(), "model_replied.reply.model", "tool_finished.parts.*.text")
    assert [each["model_replied"]["reply"]["model"] for each in facts if "model_replied" in each] == ["[ignored]"] * 3
    assert [part["text"] for each in facts for part in each.get("tool_finished", {}).get("parts", [])] == [
        "[ignored]"
    ] * 3
    assert ignored == {"model_replied.reply.model": 3, "tool_finished.parts.*.text": 3}
    assert 'model: "[ignored]"' in dump_snapshot(run(), SnapshotForm("none", ("model_replied.reply.model",))).text


def test_path_leads_into_arguments_and_results_that_are_json() -> None:
    facts, ignored = ignoring(run(), "model_replied.reply.message.parts.*.arguments.amount", "*.parts.0.text.total")
    assert find(facts, "model_replied", 1)["reply"]["message"]["parts"][0]["arguments"] == '{"amount":"[ignored]"}'
    assert find(facts, "tool_finished")["parts"][0]["text"] == '{"total":"[ignored]","state":"late"}'
    assert list(ignored.values()) == [1, 1]


def test_facts_of_sub_agents_are_ignored_by_the_same_path() -> None:
    facts, ignored = ignoring(child("High."), "model_replied.reply.model")
    inside = find(facts, "child_started")["journal"]
    assert find(inside, "model_replied")["reply"]["model"] == "[ignored]"
    assert ignored == {"model_replied.reply.model": 2}


def test_whole_facts_can_be_ignored_and_compared() -> None:
    facts, ignored = ignoring(run(), "approval_*", "model_replied")
    assert ignored == {"approval_*": 2, "model_replied": 3}
    assert {"approval_asked": "[ignored]"} in facts
    assert compare_journal_facts(facts, without_usage(run()))


def test_path_that_leads_nowhere_is_counted_as_zero() -> None:
    assert ignoring(run(), "tool_finished.absent")[1] == {"tool_finished.absent": 0}
    assert ignoring(run(), "model_replied.cost")[1] == {"model_replied.cost": 0}, "left out of this form"


# --- differences ----------------------------------------------------------------------------------------------


def test_rounded_totals_are_compared() -> None:
    one, two = text(with_usage(run(), 2200, 1100)), text(with_usage(run(), 2300, 1100))
    assert [(each.kind, each.text) for each in compare_journals(one, two)] == [
        ("spend", "spend: 2.2k tokens, $0.0011 → 2.3k tokens, $0.0011")
    ]


def test_changes_of_behaviour_are_reported_between_snapshots_as_between_journals() -> None:
    changed = run()
    find(changed, "tool_finished")["parts"][0]["text"] = "early"
    expected = [each.text for each in compare_journal_facts(run(), changed)]
    assert expected
    for form in (EXACT, ROUNDED, NONE):
        assert [each.text for each in compare_journals(text(run(), form), text(changed, form))] == expected


@pytest.mark.parametrize("form", [ROUNDED, NONE], ids=["rounded", "none"])
def test_journal_equals_its_own_snapshot(form: SnapshotForm) -> None:
    facts = child("High.", 90)
    snapshot = parse_snapshot(text(facts, form))
    assert compare_journal_facts(facts, snapshot) == compare_journal_facts(snapshot, facts) == ()
    longer = [*facts, *allowed_call("c1.1", "look", "x")]
    assert compare_journal_facts(longer, snapshot)
    assert compare_journal_facts(snapshot, longer)


def test_total_of_a_snapshot_is_compared_with_the_journal() -> None:
    snapshot = parse_snapshot(text(with_usage(run(), 2200)))
    assert [each.text for each in compare_journal_facts(with_usage(run(), 2350), snapshot)] == [
        "spend: 2.4k tokens → 2.2k tokens"
    ]
    assert compare_journal_facts(with_usage(run(), 2249), snapshot) == ()


def test_another_form_of_the_same_journal_is_reported() -> None:
    texts = {form.usage: text(run(), form) for form in (EXACT, ROUNDED, NONE)}
    assert {usage: usage_detail(parse_snapshot(each)) for usage, each in texts.items()} == {
        each: each for each in texts
    }
    assert [each.text for each in compare_journals(texts["exact"], texts["rounded"])] == [
        "the usage in the journal: exact → rounded"
    ]


def test_total_is_read_only_from_the_last_line() -> None:
    spent, fact = "- spent: 2.2k tokens\n", dump_plain_yaml([{"answer_reached": {}}])
    assert parse_snapshot(f"{fact}\n{spent}") == [{"answer_reached": {}}, {"spent": "2.2k tokens"}]
    assert parse_snapshot(spent) == [{"spent": "2.2k tokens"}]
    with pytest.raises(YamlTextError, match="line 1 "):
        parse_snapshot(f"{spent}\n{fact}")
    with pytest.raises(YamlTextError):
        parse_snapshot(f"a: 1\n{spent}")
