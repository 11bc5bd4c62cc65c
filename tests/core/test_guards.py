"""Loop guards: when parallel_tools, repeated_call and cycle trip, and their faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core import evolve_calls, guards
from agentrun.core.guards import call_signature
from agentrun.core.messages import Reply, ToolCall
from agentrun.core.tally import fnv1a

from .guarded_agents import agent, only, outcome_of_replies, passes, trips
from .script import Run, called, said


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", "cbf29ce484222325"),
        ("a", "af63dc4c8601ec8c"),
        ("b", "af63df4c8601f1a5"),
        ("foobar", "85944171f73967e8"),
        ("chongo was here!\n", "46810940eff5f915"),
    ],
)
def test_fnv1a_matches_the_published_vectors(text: str, hashed: str) -> None:
    """The vectors that its authors published."""
    assert fnv1a(text) == hashed


@given(st.text())
def test_fnv1a_has_sixteen_digits(text: str) -> None:
    assert len(fnv1a(text)) == 16
    assert int(fnv1a(text), 16) < 2**64


def test_call_signature_uses_name_and_canonical_arguments() -> None:
    one, two = ToolCall("c1.0", "a", '{"x":1, "y":2}'), ToolCall("c2.0", "a", '{"y":2,"x":1}')
    assert call_signature(one, {"x": 1, "y": 2}) == call_signature(two, {"y": 2, "x": 1}), "canonical arguments"
    assert call_signature(one, None) != call_signature(two, None), "as they were written"
    assert call_signature(one, {}) != call_signature(ToolCall("c1.0", "b", "{}"), {}), "the name counts"


# parallel_tools


def test_more_parallel_calls_than_allowed_trip_the_guard() -> None:
    calls = [("search", f'{{"q":"{n}"}}') for n in range(9)]
    passes(agent(), called(*calls[:8]))
    fault = trips(agent(), called(*calls), code="guard.parallel_tools")
    assert fault.fields == {"count": 9, "limit": 8, "turn": 1}
    assert fault.hint == "raise limits.parallel_tools, or set limits.on_oversize_batch"


@pytest.mark.parametrize(("mode", "ran"), [("reject_all", 0), ("run_first", 2)])
def test_oversize_batch_does_not_trip_with_reject_all_or_run_first(mode: str, ran: int) -> None:
    given = agent(limits={"parallel_tools": 2, "on_oversize_batch": mode})
    run = Run(given, called("a", "b", "c"), said("Done."))
    outcome = run.finish()
    assert (outcome.status, len(run.ran)) == ("completed", ran)


# repeated_call


def test_repeated_call_trips_at_its_limit() -> None:
    same = called(("search", '{"q":"x"}'))
    passes(only(repeated_call=3), same, same)
    fault = trips(only(repeated_call=3), same, same, same, code="guard.repeated_call")
    assert fault.fields == {"pattern": ["search"], "count": 3, "limit": 3, "call": "c3.0"}
    assert fault.hint == "raise guards.repeated_call, or mark the tool `observation: true`"


@given(limit=st.integers(2, 8))
def test_repeated_call_trips_at_any_limit(limit: int) -> None:
    passes(only(repeated_call=limit), *[called("a")] * (limit - 1))
    trips(only(repeated_call=limit), *[called("a")] * limit, code="guard.repeated_call")


def test_three_identical_parallel_calls() -> None:
    fault = trips(only(repeated_call=3), called("a", "a", "a"), code="guard.repeated_call")
    assert fault.fields == {"pattern": ["a"], "count": 3, "limit": 3, "call": "c1.2"}
    passes(only(repeated_call=3), called("a", "a"))
    fault = trips(only(repeated_call=3), called("b", "a"), called("a", "a"), code="guard.repeated_call")
    assert fault.fields["call"] == "c2.1", "the tail goes on from reply to reply"


def test_planted_guard_that_counts_replies_misses_parallel_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that looks at replies only does not see parallel calls."""
    monkeypatch.setattr(
        evolve_calls, "extend_streaks", lambda detector, read: [((0, 0, 0, 0), (("", ""),))] * len(read)
    )
    passes(only(repeated_call=3), called("a", "a", "a"))


def test_another_call_in_between_resets_repeated_call() -> None:
    passes(only(repeated_call=3), called("a"), called("a"), called("b"), called("a"), called("a"))
    passes(only(repeated_call=3), *[called(("a", f'{{"q":"{n}"}}')) for n in range(10)])


def test_refused_calls_count_as_repeated() -> None:
    trips(only(repeated_call=3), *[called(("a", "{broken"))] * 3, code="guard.repeated_call")
    trips(only(repeated_call=3), *[called("nobody")] * 3, code="guard.repeated_call")


def test_spelling_of_arguments_does_not_matter() -> None:
    spelled = [called(("a", text)) for text in ('{"q":"x"}', ' {"q": "x" }', '{"q":"\\u0078"}')]
    trips(only(repeated_call=3), *spelled, code="guard.repeated_call")


def test_disabled_guards_never_trip() -> None:
    passes(only(), *[called("a", text="again")] * 30)


# cycles


def laps(length: int, times: int) -> list[Reply]:
    return [called(name) for name in "abcd"[:length]] * times


@pytest.mark.parametrize("length", [2, 3, 4])
def test_cycle_trips_at_its_limit(length: int) -> None:
    three = laps(length, 3)
    passes(only(cycle=3), *three[:-1])
    fault = trips(only(cycle=3), *three, code="guard.cycle")
    assert fault.fields == {
        "pattern": list("abcd"[:length]),
        "count": 3,
        "limit": 3,
        "call": f"c{3 * length}.0",
    }
    assert fault.hint == "raise guards.cycle, or mark the tools `observation: true`"


@pytest.mark.parametrize("length", [2, 3, 4])
@pytest.mark.parametrize("limit", [2, 5])
def test_cycle_trips_at_any_limit(length: int, limit: int) -> None:
    whole = laps(length, limit)
    passes(only(cycle=limit), *whole[:-1])
    trips(only(cycle=limit), *whole, code="guard.cycle")


def test_cycle_of_five_calls_is_not_detected() -> None:
    passes(only(cycle=3), *[called(name) for name in ("a", "b", "c", "d", "run")] * 6)


def test_repetition_of_one_call_is_no_cycle() -> None:
    passes(only(cycle=3), *[called("a")] * 30)


def test_cycle_may_contain_a_call_twice() -> None:
    lap = [called("a"), called("a"), called("b")]
    passes(only(cycle=3), *(lap * 3)[:-1])
    fault = trips(only(cycle=3), *(lap * 3), code="guard.cycle")
    assert fault.fields["pattern"] == ["a", "a", "b"]


def test_cycle_is_found_after_other_calls() -> None:
    fault = trips(only(cycle=3), called("d"), called("b"), *laps(2, 3)[:-1], code="guard.cycle")
    assert fault.fields["pattern"] == ["b", "a"], "as it stands at the tail"
    passes(only(cycle=3), *laps(2, 2), called("d"), *laps(2, 2))


def test_cycle_within_one_reply() -> None:
    fault = trips(only(cycle=3), called(*"ababab"), code="guard.cycle")
    assert fault.fields["call"] == "c1.5"


def edit_and_run_replies(times: int, *, same_edit: bool = False) -> list[Reply]:
    """Edit, run, edit, run: what every coding agent does all day."""
    edits = [f'{{"q":"{0 if same_edit else n}"}}' for n in range(times)]
    return [reply for text in edits for reply in (called(("edit", text)), called(("run", '{"q":"tests"}')))]


def test_alternating_edits_and_runs_trip_nothing() -> None:
    passes(agent(), *edit_and_run_replies(30))
    fault = trips(agent(), *edit_and_run_replies(3, same_edit=True), code="guard.cycle")
    assert fault.fields["pattern"] == ["edit", "run"], "the same edit again and again is not work"


def test_planted_guard_that_compares_names_trips_on_normal_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that looks at names alone fires on it."""
    monkeypatch.setattr(guards, "call_signature", lambda call, arguments: (call.tool, call.tool))
    assert outcome_of_replies(agent(), *edit_and_run_replies(30)).code == "guard.cycle"


def has_cycle_by_brute_force(names: list[str], limit: int) -> bool:
    """By brute force: some cycle of 2 to 4 different calls stands `limit` times at the tail of some first part."""
    for end in range(1, len(names) + 1):
        for length in (2, 3, 4):
            tail = names[max(end - length * limit, 0) : end]
            lap = tail[-length:]
            if len(tail) == length * limit and tail == lap * limit and len(set(lap)) > 1:
                return True
    return False


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=14), st.integers(2, 3))
def test_cycle_guard_agrees_with_brute_force(names: list[str], limit: int) -> None:
    outcome = outcome_of_replies(only(cycle=limit), *[called(name) for name in names])
    assert (outcome.code == "guard.cycle") == has_cycle_by_brute_force(names, limit)
