"""Guards that count over a session, observation tools, the order of guards, and detector state."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import EarlierRuns, Modify, ReplyDiscarded
from agentrun.core.guards import call_signature
from agentrun.core.messages import Reply
from agentrun.core.tally import fnv1a
from agentrun.errors import code_of

from ..packages import package
from .guarded_agents import OFF, TOOLS, agent, only, outcome_of_replies, passes, trips
from .script import STARTED, Run, called, hook, said

# repeated_batch


def test_repeated_batch_trips_above_its_limit() -> None:
    batch = called("a", "b")
    passes(only(repeated_batch=2), batch, batch)
    fault = trips(only(repeated_batch=2), batch, batch, batch, code="guard.repeated_batch")
    signs = [call_signature(call, {})[1] for call in batch.message.calls]
    assert fault.fields == {"signature": text_hash(sorted_json(signs)), "count": 3, "limit": 2, "turn": 3}
    assert fault.hint == "raise guards.repeated_batch"


def test_order_within_a_batch_counts() -> None:
    passes(only(repeated_batch=2), called("a", "b"), called("a", "b"), called("b", "a"))


def test_batch_scope_counts_consecutive_batches_or_the_session() -> None:
    replies = [called("a"), called("b"), called("a"), called("b"), called("a")]
    passes(only(repeated_batch=2), *replies)
    fault = trips(only(repeated_batch=2, batch_scope="session"), *replies, code="guard.repeated_batch")
    assert (fault.fields["count"], fault.fields["turn"]) == (3, 5)


@given(limit=st.integers(1, 5), scope=st.sampled_from(["consecutive", "session"]))
def test_repeated_batch_trips_above_any_limit(limit: int, scope: str) -> None:
    given = only(repeated_batch=limit, batch_scope=scope)
    passes(given, *[called("a")] * limit)
    trips(given, *[called("a")] * (limit + 1), code="guard.repeated_batch")


def test_batches_of_earlier_runs_count_in_the_session_scope() -> None:
    first = Run(only(), called("a"), called("a"), said("Done."))
    first.finish()
    later = replace(STARTED, earlier=EarlierRuns(runs=1, batches=first.state.detector.batches.totals()))
    trips(only(repeated_batch=2, batch_scope="session"), called("a"), code="guard.repeated_batch", started=later)
    passes(only(repeated_batch=2), called("a"), called("a"), started=later)


# stagnation


def replies_with_text(*texts: str) -> list[Reply]:
    """Replies that say a text and call something new."""
    return [called(("a", f'{{"q":"{n}"}}'), text=text) for n, text in enumerate(texts)]


def test_stagnation_trips_above_its_limit() -> None:
    passes(agent(), *replies_with_text(*["Hm."] * 5))
    fault = trips(agent(), *replies_with_text(*["Hm."] * 6), code="guard.stagnation")
    assert fault.fields == {"hash": fnv1a("Hm."), "count": 6, "limit": 5}
    assert fault.hint == "raise guards.stagnation"


def test_stagnation_counts_texts_that_are_not_consecutive() -> None:
    """A → B → A is caught."""
    passes(only(stagnation=1), *replies_with_text("A", "B"))
    fault = trips(only(stagnation=1), *replies_with_text("A", "B", "A"), code="guard.stagnation")
    assert fault.fields == {"hash": fnv1a("A"), "count": 2, "limit": 1}


def test_stagnation_ignores_surrounding_whitespace() -> None:
    trips(only(stagnation=1), *replies_with_text("A", " \n A\t"), code="guard.stagnation")
    passes(only(stagnation=1), *replies_with_text("A", "a", "A."))


def test_empty_text_does_not_count_for_stagnation() -> None:
    passes(only(stagnation=1), *replies_with_text(*["", "  \n"] * 10))


def test_final_answers_do_not_count_for_stagnation() -> None:
    passes(only(stagnation=1), *replies_with_text("Done."))
    run = Run(only(stagnation=1), said("Done."))
    run.finish()
    assert run.state.detector.texts.totals() == {}


def test_a_hook_that_rewords_does_not_hide_stagnation() -> None:
    given = package(
        tools=TOOLS, policy={"default": "allow"}, guards=OFF | {"stagnation": 2}, hooks=[hook("after_model")]
    )
    run = Run(given, *replies_with_text("A", "A", "A"), said("Done."), hooks={"watch": Modify("A, with a footer")})
    assert run.finish().fields == {"hash": fnv1a("A"), "count": 3, "limit": 2}


def test_texts_of_earlier_runs_count_for_stagnation() -> None:
    first = Run(only(), *replies_with_text("A", "A", "B"), said("C"))
    first.finish()
    texts = first.state.detector.texts.totals()
    assert texts == {fnv1a("A"): 2, fnv1a("B"): 1}
    later = replace(STARTED, earlier=EarlierRuns(runs=1, texts=texts))
    fault = trips(only(stagnation=2), *replies_with_text("A"), code="guard.stagnation", started=later)
    assert fault.fields["count"] == 3
    passes(only(stagnation=2), *replies_with_text("B", "C", "C"), started=later)


# observation tools


@pytest.mark.parametrize("guard", ["repeated_call", "cycle"])
def test_observation_tools_have_a_higher_call_and_cycle_limit(guard: str) -> None:
    lap = [called("watch"), called("look")] if guard == "cycle" else [called("watch")]
    passes(only(**{guard: 3}), *(lap * 15)[:-1])
    fault = trips(only(**{guard: 3}), *(lap * 15), code=f"guard.{guard}")
    assert (fault.fields["count"], fault.fields["limit"]) == (15, 15)


def test_observation_tools_have_a_higher_batch_limit() -> None:
    passes(only(repeated_batch=2), *[called("watch", "look")] * 15)
    fault = trips(only(repeated_batch=2), *[called("watch", "look")] * 16, code="guard.repeated_batch")
    assert (fault.fields["count"], fault.fields["limit"]) == (16, 15)


def test_observation_limit_can_be_set() -> None:
    given = only(repeated_call=3, observation=5)
    passes(given, *[called("watch")] * 4)
    trips(given, *[called("watch")] * 5, code="guard.repeated_call")


def test_one_other_tool_restores_the_usual_limit() -> None:
    fault = trips(only(cycle=3), *[called("watch"), called("a")] * 3, code="guard.cycle")
    assert fault.fields["limit"] == 3
    fault = trips(only(repeated_batch=2), *[called("watch", "a")] * 3, code="guard.repeated_batch")
    assert fault.fields["limit"] == 2


def test_observation_does_not_change_the_stagnation_limit() -> None:
    trips(only(stagnation=1), called("watch", text="A"), called("look", text="A"), code="guard.stagnation")


# order, and what detectors remember


ORDER = ["guard.parallel_tools", "guard.repeated_call", "guard.cycle", "guard.repeated_batch", "guard.stagnation"]


@pytest.mark.parametrize("first", range(5))
def test_guards_are_checked_in_a_fixed_order(first: int) -> None:
    """With all guards before it off, each is the first to speak of those that trip."""
    limits = {"repeated_call": 3, "cycle": 2, "repeated_batch": 1, "stagnation": 3}
    on: dict[str, Any] = {
        name: None if place < first else limit for place, (name, limit) in enumerate(limits.items(), 1)
    }
    given = agent(batch_scope="session", limits={} if first else {"parallel_tools": 3}, **on)
    longer = called("a", "b", "a", "b", "b", "b", text="A")
    earlier = EarlierRuns(batches={_batch(longer): 1}, texts={fnv1a("A"): 3})
    fault = trips(given, longer, code=ORDER[first], started=replace(STARTED, earlier=earlier))
    assert code_of(fault.code).exit == 5


def _batch(reply: Reply) -> str:
    return text_hash(sorted_json([call_signature(call, {})[1] for call in reply.message.calls]))


@given(st.lists(st.sampled_from(["a", "b", "watch", "look"]), min_size=1, max_size=12), st.data())
def test_detector_state_is_the_same_after_a_refold(names: list[str], data: st.DataObject) -> None:
    """A run that was cut anywhere and folded again trips where the other does."""
    given = agent(stagnation=2)
    whole = Run(given, *[called(name, text=name) for name in names], said("Done."))
    outcome = whole.finish()
    cut = data.draw(st.integers(1, len(whole.records) - 1))
    state = fold(whole.records[:cut])
    for record in whole.records[cut:]:
        state = evolve(state, record)
    assert state.detector == whole.state.detector
    assert outcome.code == outcome_of_replies(given, *[called(name, text=name) for name in names]).code


def test_discarded_reply_does_not_count_for_guards() -> None:
    cut_off = replace(called("a", text="A"), finish="length")
    given = package(
        tools=TOOLS,
        policy={"default": "allow"},
        model={"max_output_tokens": 10},
        limits={"on_truncated": "escalate"},
        guards={"repeated_call": 2, "stagnation": 1, "repeated_batch": 1},
    )
    run = Run(given, cut_off, cut_off, called("a", text="A"), said("Done."))
    assert run.finish().status == "completed"
    assert len(run.of(ReplyDiscarded)) == 2
    assert run.state.detector.texts.totals() == {fnv1a("A"): 1}
    assert run.state.detector.in_a_row == 1


# empty_outcome


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_empty_outcome_trips_above_its_budget(budget: int) -> None:
    given = agent(empty_outcome=budget)
    fault = trips(given, *[said(f"Text {n}.") for n in range(budget + 1)], code="guard.empty_outcome")
    assert fault.fields == {"observed": budget + 1, "budget": budget}


def test_a_batch_that_ran_resets_empty_outcomes() -> None:
    given = agent(empty_outcome=1)
    trips(given, said("A"), called("a"), said("B"), said("C"), code="guard.empty_outcome")
    trips(given, said("A"), called("nobody"), said("B"), code="guard.empty_outcome")


def test_texts_of_empty_outcomes_count_for_stagnation() -> None:
    """Their texts count: a model that says one thing again and again is stopped."""
    fault = trips(agent(empty_outcome=50), *[said("Done?")] * 6, code="guard.stagnation")
    assert fault.fields == {"hash": fnv1a("Done?"), "count": 6, "limit": 5}
