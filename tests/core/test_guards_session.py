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
from .guarded_agents import OFF, TOOLS, agent, by_calls, changing, in_order, only, outcome_of_replies, passes, trips
from .script import RUN_STARTED, Run, calls_reply, hook, text_reply

# repeated_batch


def test_repeated_batch_trips_above_its_limit() -> None:
    batch = calls_reply("a", "b")
    passes(only(repeated_batch=2), batch, batch)
    fault = trips(only(repeated_batch=2), batch, batch, batch, code="guard.repeated_batch")
    assert fault.fields == {"signature": _batch(batch), "count": 3, "limit": 2, "turn": 3}
    fault = trips(by_calls(repeated_batch=2), batch, batch, batch, code="guard.repeated_batch")
    assert fault.fields == {"signature": _batch(batch), "count": 3, "limit": 2, "turn": 3}
    assert fault.hint == "raise guards.repeated_batch"


def test_order_within_a_batch_does_not_count() -> None:
    batches = [calls_reply("a", "b"), calls_reply("b", "a"), calls_reply("a", "b")]
    for limits in (only, by_calls):
        fault = trips(limits(repeated_batch=2), *batches, code="guard.repeated_batch")
        assert fault.fields["signature"] == _batch(batches[1])
        passes(limits(repeated_batch=2), *batches[:2], calls_reply("a", "c"), batches[2])


def test_batch_with_another_result_is_another_batch() -> None:
    batch = calls_reply("a", "b")
    results = ["1", "2", "1", "3", "1", "3"]
    passes(only(repeated_batch=2), batch, batch, batch, result=in_order(*results))
    fault = trips(only(repeated_batch=2), *[batch] * 4, code="guard.repeated_batch", result=in_order(*results))
    assert fault.fields["count"] == 3, "two with equal results, and the one that has none yet"
    swapped = [calls_reply("a", "b"), calls_reply("b", "a"), calls_reply("a", "b")]
    trips(only(repeated_batch=2), *swapped, code="guard.repeated_batch", result=in_order("1", "2", "2", "1"))
    passes(only(repeated_batch=2), *swapped, result=in_order("1", "2", "1", "2", "1", "2"))


def test_batch_scope_counts_consecutive_batches_or_the_session() -> None:
    replies = [calls_reply("a"), calls_reply("b"), calls_reply("a"), calls_reply("b"), calls_reply("a")]
    passes(only(repeated_batch=2), *replies)
    fault = trips(only(repeated_batch=2, batch_scope="session"), *replies, code="guard.repeated_batch")
    assert (fault.fields["count"], fault.fields["turn"]) == (3, 5)


@given(limit=st.integers(1, 5), scope=st.sampled_from(["consecutive", "session"]))
def test_repeated_batch_trips_above_any_limit(limit: int, scope: str) -> None:
    given = only(repeated_batch=limit, batch_scope=scope)
    passes(given, *[calls_reply("a")] * limit)
    trips(given, *[calls_reply("a")] * (limit + 1), code="guard.repeated_batch")


def test_batches_of_earlier_runs_count_in_the_session_scope() -> None:
    first = Run(only(), calls_reply("a"), calls_reply("a"), text_reply("Done."))
    first.finish()
    detector = first.state.detector
    in_session = {"repeated_batch": 2, "batch_scope": "session"}
    later = replace(RUN_STARTED, earlier=EarlierRuns(runs=1, batches=detector.batches.totals()))
    trips(by_calls(**in_session), calls_reply("a"), code="guard.repeated_batch", started=later)
    passes(only(**in_session), calls_reply("a"), calls_reply("a"), started=later)
    later = replace(RUN_STARTED, earlier=EarlierRuns(runs=1, result_batches=detector.result_batches.totals()))
    trips(only(**in_session), calls_reply("a"), code="guard.repeated_batch", started=later)
    passes(by_calls(**in_session), calls_reply("a"), calls_reply("a"), started=later)
    for guarded in (only(repeated_batch=2), by_calls(repeated_batch=2)):
        passes(guarded, calls_reply("a"), calls_reply("a"), started=later)


@given(st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=8), st.integers(1, 3), st.data())
def test_session_scope_counts_the_most_frequent_result(results: list[str], limit: int, data: st.DataObject) -> None:
    """In one run, or continued by another one: a batch trips if it had the same results more often than allowed."""
    given = only(repeated_batch=limit, batch_scope="session")
    trip = next((n for n in range(1, len(results) + 1) if max(map(results[:n].count, results)) >= limit), None)
    cut = data.draw(st.integers(0, len(results) if trip is None else trip))
    first = Run(given, *[calls_reply("a")] * cut, text_reply("Done."), tools={"a": in_order(*results)})
    assert first.finish().code is None
    earlier = EarlierRuns(runs=1, result_batches=first.state.detector.result_batches.totals())
    rest = [*results[cut:], "end"]
    outcome = outcome_of_replies(
        given, *[calls_reply("a")] * len(rest), started=replace(RUN_STARTED, earlier=earlier), result=in_order(*rest)
    )
    assert outcome.code == (None if trip is None else "guard.repeated_batch")
    assert trip is None or outcome.turns == trip - cut + 1


# stagnation


def replies_with_text(*texts: str) -> list[Reply]:
    """Replies that say a text and call something new."""
    return [calls_reply(("a", f'{{"q":"{n}"}}'), text=text) for n, text in enumerate(texts)]


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
    run = Run(only(stagnation=1), text_reply("Done."))
    run.finish()
    assert run.state.detector.texts.totals() == {}


def test_a_hook_that_rewords_does_not_hide_stagnation() -> None:
    given = package(
        tools=TOOLS, policy={"default": "allow"}, guards=OFF | {"stagnation": 2}, hooks=[hook("after_model")]
    )
    run = Run(
        given, *replies_with_text("A", "A", "A"), text_reply("Done."), hooks={"watch": Modify("A, with a footer")}
    )
    assert run.finish().fields == {"hash": fnv1a("A"), "count": 3, "limit": 2}


def test_texts_of_earlier_runs_count_for_stagnation() -> None:
    first = Run(only(), *replies_with_text("A", "A", "B"), text_reply("C"))
    first.finish()
    texts = first.state.detector.texts.totals()
    assert texts == {fnv1a("A"): 2, fnv1a("B"): 1}
    later = replace(RUN_STARTED, earlier=EarlierRuns(runs=1, texts=texts))
    fault = trips(only(stagnation=2), *replies_with_text("A"), code="guard.stagnation", started=later)
    assert fault.fields["count"] == 3
    passes(only(stagnation=2), *replies_with_text("B", "C", "C"), started=later)


# observation tools


@pytest.mark.parametrize("guard", ["repeated_call", "cycle"])
def test_observation_tools_have_a_higher_call_and_cycle_limit(guard: str) -> None:
    lap = [calls_reply("watch"), calls_reply("look")] if guard == "cycle" else [calls_reply("watch")]
    passes(only(**{guard: 3}), *(lap * 15)[:-1])
    fault = trips(only(**{guard: 3}), *(lap * 15), code=f"guard.{guard}")
    assert (fault.fields["count"], fault.fields["limit"]) == (15, 15)


def test_observation_tools_have_a_higher_batch_limit() -> None:
    passes(only(repeated_batch=2), *[calls_reply("watch", "look")] * 15)
    fault = trips(only(repeated_batch=2), *[calls_reply("watch", "look")] * 16, code="guard.repeated_batch")
    assert (fault.fields["count"], fault.fields["limit"]) == (16, 15)


def test_observation_limit_can_be_set() -> None:
    given = only(repeated_call=3, observation=5)
    passes(given, *[calls_reply("watch")] * 4)
    trips(given, *[calls_reply("watch")] * 5, code="guard.repeated_call")


def test_one_other_tool_restores_the_usual_limit() -> None:
    fault = trips(only(cycle=3), *[calls_reply("watch"), calls_reply("a")] * 3, code="guard.cycle")
    assert fault.fields["limit"] == 3
    fault = trips(only(repeated_batch=2), *[calls_reply("watch", "a")] * 3, code="guard.repeated_batch")
    assert fault.fields["limit"] == 2


def test_observation_does_not_change_the_stagnation_limit() -> None:
    trips(only(stagnation=1), calls_reply("watch", text="A"), calls_reply("look", text="A"), code="guard.stagnation")


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
    longer = calls_reply("w", "v", "w", "v", "v", "v", text="A")
    earlier = EarlierRuns(result_batches={f"{_batch(longer)} sha256:0": 1}, texts={fnv1a("A"): 3})
    fault = trips(given, longer, code=ORDER[first], started=replace(RUN_STARTED, earlier=earlier))
    assert code_of(fault.code).exit == 5


def _batch(reply: Reply) -> str:
    return text_hash(sorted_json(sorted(_signatures(reply))))


def _signatures(reply: Reply) -> list[str]:
    return [call_signature(call, {})[1] for call in reply.message.calls]


def test_detector_does_not_grow_with_the_square_of_the_run() -> None:
    """Neither what it remembers, nor what it does: each result is hashed once."""

    def remembered(turns: int) -> int:
        run = Run(only(), *[calls_reply("a", "b")] * turns, text_reply("Done."), tools=dict.fromkeys(TOOLS, changing))
        run.finish()
        assert len(run.state.detector.tail) == 4
        return len(repr(run.state.detector))

    one, two, four = remembered(20), remembered(40), remembered(80)
    assert four - two < 2.2 * (two - one)


@given(st.lists(st.sampled_from(["a", "b", "watch", "look"]), min_size=1, max_size=12), st.data())
def test_detector_state_is_the_same_after_a_refold(names: list[str], data: st.DataObject) -> None:
    """A run that was cut anywhere and folded again trips where the other does."""
    given = agent(stagnation=2)
    whole = Run(given, *[calls_reply(name, text=name) for name in names], text_reply("Done."))
    outcome = whole.finish()
    cut = data.draw(st.integers(1, len(whole.records) - 1))
    state = fold(whole.records[:cut])
    for record in whole.records[cut:]:
        state = evolve(state, record)
    assert state.detector == whole.state.detector
    assert outcome.code == outcome_of_replies(given, *[calls_reply(name, text=name) for name in names]).code


def test_discarded_reply_does_not_count_for_guards() -> None:
    cut_off = replace(calls_reply("a", text="A"), finish="length")
    given = package(
        tools=TOOLS,
        policy={"default": "allow"},
        model={"max_output_tokens": 10},
        limits={"on_truncated": "escalate"},
        guards={"repeated_call": 2, "stagnation": 1, "repeated_batch": 1},
    )
    run = Run(given, cut_off, cut_off, calls_reply("a", text="A"), text_reply("Done."))
    assert run.finish().status == "completed"
    assert len(run.of(ReplyDiscarded)) == 2
    assert run.state.detector.texts.totals() == {fnv1a("A"): 1}
    assert run.state.detector.in_a_row == 1


# empty_outcome


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_empty_outcome_trips_above_its_budget(budget: int) -> None:
    given = agent(empty_outcome=budget)
    fault = trips(given, *[text_reply(f"Text {n}.") for n in range(budget + 1)], code="guard.empty_outcome")
    assert fault.fields == {"observed": budget + 1, "budget": budget}


def test_a_batch_that_ran_resets_empty_outcomes() -> None:
    given = agent(empty_outcome=1)
    trips(given, text_reply("A"), calls_reply("a"), text_reply("B"), text_reply("C"), code="guard.empty_outcome")
    trips(given, text_reply("A"), calls_reply("nobody"), text_reply("B"), code="guard.empty_outcome")


def test_texts_of_empty_outcomes_count_for_stagnation() -> None:
    """Their texts count: a model that says one thing again and again is stopped."""
    fault = trips(agent(empty_outcome=50), *[text_reply("Done?")] * 6, code="guard.stagnation")
    assert fault.fields == {"hash": fnv1a("Done?"), "count": 6, "limit": 5}
