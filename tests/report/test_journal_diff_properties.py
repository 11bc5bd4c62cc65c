"""Properties of the journal diff: every difference is reported, nothing raises, and it is fast."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.core.facts import fact_kind
from agentrun.journal.canonical import fact_block
from agentrun.journal.yaml_text import parse_plain_yaml
from agentrun.report.fact_diff import fact_label
from agentrun.report.formatting import MAX_LINE_LENGTH
from agentrun.report.journal_diff import compare_journal_facts, compare_journals
from agentrun.report.journal_tree import FactNode
from agentrun.spec.problems import escape_invisible

from ..journal.journals import ANY_FACT, JSON_VALUES, KINDS, facts
from ..journal.shapes import golden
from ..steps import at_most
from .rendered_runs import HOSTILE
from .test_journal_diff import Facts, allowed_call, model_asked, reply, run, run_started

TODAY = [path for path in golden() if path.parent == golden()[-1].parent and "." not in path.stem]
JOURNALS = {path.stem: path.with_suffix(".yaml").read_text(encoding="utf-8") for path in TODAY}


def test_golden_journals_differ_exactly_when_their_text_does() -> None:
    assert len(JOURNALS) > 10
    for one, two in product(JOURNALS.values(), repeat=2):
        found = compare_journals(one, two)
        assert bool(found) is (one != two)
        assert all(0 < len(each.text) <= MAX_LINE_LENGTH and each.text == escape_invisible(each.text) for each in found)


@settings(max_examples=40)
@given(st.lists(ANY_FACT, max_size=3), st.lists(ANY_FACT, max_size=3))
def test_any_two_journals_differ_in_both_directions(one: list[Any], two: list[Any]) -> None:
    before, after = ("\n".join(map(fact_block, told)) for told in (one, two))
    assert compare_journals(before, before) == ()
    there, back = compare_journals(before, after), compare_journals(after, before)
    assert bool(there) is bool(back) is (before != after)
    assert all(
        each.text == escape_invisible(each.text) and len(each.text) <= MAX_LINE_LENGTH for each in (*there, *back)
    )


@settings(max_examples=10)  # of each of thirty kinds
@given(st.data())
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__struct_config__.tag))
def test_added_fact_of_every_kind_is_reported(kind: Any, data: st.DataObject) -> None:
    fact = data.draw(facts(kind))
    ((name, told),) = plain_fact(fact).items()
    if name not in ("run_started", "time_passed", "run_resumed"):
        assert fact_label(FactNode(name, told), "refund").kind != "other", "a fact that is told by its name only"
    before, after = run(), [*run()[:-1], {name: told}, run()[-1]]
    assert compare_journal_facts(before, after)
    assert compare_journal_facts(after, before)


def plain_fact(fact: Any) -> dict[str, Any]:
    (told,) = parse_plain_yaml(fact_block(fact))
    assert list(told) == [fact_kind(fact)]
    return dict(told)


@settings(max_examples=40)
@given(
    st.lists(
        JSON_VALUES | st.dictionaries(st.sampled_from(["run_started", "model_replied", "ruled", "x"]), JSON_VALUES),
        max_size=5,
    )
)
def test_any_data_is_compared_without_error(told: list[Any]) -> None:
    assert compare_journal_facts(told, told) == ()
    if told != run():
        assert compare_journal_facts(told, run())
        assert compare_journal_facts(run(), told)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_escaped_and_cut(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    facts = [
        run_started(instructions=text),
        model_asked(1),
        reply(1, text, (text, text)),
        *allowed_call("c1.0", text, text),
    ]
    for each in (*compare_journal_facts(run(), facts), *compare_journal_facts(facts, run())):
        assert each.text == escape_invisible(each.text)
        assert "\n" not in each.text
        assert len(each.text) <= MAX_LINE_LENGTH


def long_run(turns: int, first: int = 0) -> Facts:
    told: Facts = [run_started()]
    for turn in range(1, turns + 1):
        arguments = f'{{"id":{turn + first}}}'
        told += [
            model_asked(turn),
            reply(turn, "", ("look", arguments)),
            *allowed_call(f"c{turn}.0", "look", "x" * 500),
        ]
    return told


@pytest.mark.parametrize(("turns", "other", "first"), [(200, 201, 0), (200, 200, 5), (200, 190, 1000)])
def test_long_runs_are_compared_quickly(turns: int, other: int, first: int) -> None:
    one, two = long_run(turns), long_run(other, first)
    with at_most(1_800_000):
        assert compare_journal_facts(one, two)
