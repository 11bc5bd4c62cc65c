"""Loop guards: when parallel_tools, repeated_call and cycle trip, and their faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core import evolve as evolve_module
from agentrun.core import guards
from agentrun.core.facts import ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.guards import call_signature
from agentrun.core.messages import Image, Reply, ToolCall
from agentrun.core.tally import fnv1a

from ..packages import package
from .guarded_agents import OFF, TOOLS, agent, by_calls, changing, in_order, only, outcome_of_replies, passes, trips
from .script import Run, calls_reply, rule, text_reply
from .shape_parts import policy


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
    passes(agent(), calls_reply(*calls[:8]))
    fault = trips(agent(), calls_reply(*calls), code="guard.parallel_tools")
    assert fault.fields == {"count": 9, "limit": 8, "turn": 1}
    assert fault.hint == "raise limits.parallel_tools, or set limits.on_oversize_batch"


@pytest.mark.parametrize(("mode", "ran"), [("reject_all", 0), ("run_first", 2)])
def test_oversize_batch_does_not_trip_with_reject_all_or_run_first(mode: str, ran: int) -> None:
    given = agent(limits={"parallel_tools": 2, "on_oversize_batch": mode})
    run = Run(given, calls_reply("a", "b", "c"), text_reply("Done."))
    outcome = run.finish()
    assert (outcome.status, len(run.ran)) == ("completed", ran)


# repeated_call


def test_repeated_call_trips_at_its_limit() -> None:
    same = calls_reply(("search", '{"q":"x"}'))
    passes(only(repeated_call=3), same, same)
    fault = trips(only(repeated_call=3), same, same, same, code="guard.repeated_call")
    assert fault.fields == {"pattern": ["search"], "count": 3, "limit": 3, "call": "c3.0"}
    assert fault.hint == "raise guards.repeated_call, or mark the tool `observation: true`"


@given(limit=st.integers(2, 8))
def test_repeated_call_trips_at_any_limit(limit: int) -> None:
    passes(only(repeated_call=limit), *[calls_reply("a")] * (limit - 1))
    trips(only(repeated_call=limit), *[calls_reply("a")] * limit, code="guard.repeated_call")


def test_three_identical_parallel_calls() -> None:
    fault = trips(only(repeated_call=3), calls_reply("w", "w", "w"), code="guard.repeated_call")
    assert fault.fields == {"pattern": ["w"], "count": 3, "limit": 3, "call": "c1.2"}
    passes(only(repeated_call=3), calls_reply("w", "w"))
    fault = trips(only(repeated_call=3), calls_reply("v", "w"), calls_reply("w", "w"), code="guard.repeated_call")
    assert fault.fields["call"] == "c2.1", "the tail goes on from reply to reply"


def test_identical_parallel_reads_count_once() -> None:
    passes(only(repeated_call=3), calls_reply(*["a"] * 8))
    passes(only(repeated_call=3), calls_reply("a", "a", "a"), calls_reply("a", "a", "a"))
    fault = trips(only(repeated_call=3), *[calls_reply("a", "a", "a")] * 3, code="guard.repeated_call")
    assert fault.fields == {"pattern": ["a"], "count": 3, "limit": 3, "call": "c3.0"}
    passes(only(cycle=3), calls_reply(*"ababab"))
    passes(only(repeated_call=3), calls_reply("a", "b", "a"), calls_reply("b"))
    trips(
        only(repeated_call=3),
        calls_reply("a", "b", "a"),
        calls_reply("b"),
        calls_reply("b"),
        code="guard.repeated_call",
    )


@pytest.mark.parametrize("call", [("a", "{broken"), ("a", '{"q": 1}')])
def test_identical_parallel_reads_count_once_also_if_none_of_them_runs(call: tuple[str, str]) -> None:
    passes(only(repeated_call=3), calls_reply(call, call, call), calls_reply(call))
    trips(
        only(repeated_call=3),
        calls_reply(call, call, call),
        calls_reply(call),
        calls_reply(call),
        code="guard.repeated_call",
    )


def test_identical_parallel_calls_of_an_unknown_tool_all_count() -> None:
    trips(only(repeated_call=3), calls_reply("nobody", "nobody", "nobody"), code="guard.repeated_call")


def test_with_compare_calls_every_parallel_call_counts() -> None:
    trips(by_calls(repeated_call=3), calls_reply("a", "a", "a"), code="guard.repeated_call")
    trips(by_calls(repeated_call=3), calls_reply("a"), calls_reply("a", "a"), code="guard.repeated_call")
    fault = trips(by_calls(cycle=3), calls_reply(*"ababab"), code="guard.cycle")
    assert fault.fields["call"] == "c1.5"


# results: a call that brings something new is not a repetition


def test_fifty_polls_with_changing_results_pass() -> None:
    passes(agent(), *[calls_reply("a")] * 50, result=changing)
    passes(agent(), *[calls_reply("w")] * 50, result=changing)
    passes(agent(), *[calls_reply("a", "b")] * 50, result=changing)
    passes(agent(), *[calls_reply("a"), calls_reply("b")] * 25, result=changing)


def test_results_that_alternate_are_changes_too() -> None:
    """A sensor that reads 20, 21, 20, 21 is polled; one call alone is no cycle."""
    passes(agent(), *[calls_reply("a")] * 50, result=in_order(*["20", "21"] * 25))


@pytest.mark.parametrize("guard", ["repeated_call", "cycle", "repeated_batch"])
def test_with_compare_calls_changing_results_do_not_matter(guard: str) -> None:
    limit, replies = (3, [calls_reply("a")] * 3) if guard != "cycle" else (3, [calls_reply("a"), calls_reply("b")] * 3)
    limit = 2 if guard == "repeated_batch" else limit
    passes(only(**{guard: limit}), *replies, result=changing)
    passes(by_calls(**{guard: limit}), *replies[:-1], result=changing)
    trips(by_calls(**{guard: limit}), *replies, code=f"guard.{guard}", result=changing)


@given(limit=st.integers(3, 6), before=st.integers(1, 4))
def test_equal_results_in_a_row_trip_after_changing_ones(limit: int, before: int) -> None:
    """The last call has no result yet and equals the ones before it."""
    results = [*[f"{n} %" for n in range(before)], *["100 %"] * (limit - 1)]
    calls = [calls_reply("a")] * (len(results) + 1)
    passes(only(repeated_call=limit), *calls[:-1], result=in_order(*results))
    fault = trips(only(repeated_call=limit), *calls, result=in_order(*results), code="guard.repeated_call")
    assert fault.fields["count"] == limit


def test_limit_of_two_trips_at_every_repetition() -> None:
    """The second call has no result when it is checked."""
    trips(only(repeated_call=2), calls_reply("a"), calls_reply("a"), code="guard.repeated_call", result=changing)


def test_calls_of_one_reply_have_no_results_yet_and_count_as_equal() -> None:
    """Two calls that must not be repeated, after one with another result."""
    passes(only(repeated_call=3), calls_reply("w"), calls_reply("w"), calls_reply("v"), result=changing)
    trips(only(repeated_call=3), calls_reply("w"), calls_reply("w", "w"), code="guard.repeated_call", result=changing)


def test_result_is_compared_as_the_model_reads_it() -> None:
    """A rule that masks what changes makes the results equal; so does a refusal."""
    mask = rule("modify", on="tool_result", mask=["[0-9]+"])
    given = package(tools=TOOLS, policy=policy(mask), guards=OFF | {"repeated_call": 3})
    trips(given, *[calls_reply("a")] * 3, code="guard.repeated_call", result=changing)
    given = package(tools=TOOLS, policy=policy(rule("deny", "a", on="tool_result")), guards=OFF | {"repeated_call": 3})
    trips(given, *[calls_reply("a")] * 3, code="guard.repeated_call", result=changing)


def test_parts_that_are_no_text_are_compared() -> None:
    def image(content: str) -> ToolFinished:
        return ToolFinished("", (Image("image/png", content, 3),))

    passes(only(repeated_call=3), *[calls_reply("a")] * 9, result=lambda effect: image(f"sha256:{effect.id}"))
    trips(
        only(repeated_call=3),
        *[calls_reply("a")] * 3,
        code="guard.repeated_call",
        result=lambda effect: image("sha256:1"),
    )


def test_failures_are_results() -> None:
    same = Fault("tool.execution", "no such file", {"tool": "a"})
    trips(only(repeated_call=3), *[calls_reply("a")] * 3, code="guard.repeated_call", result=same)
    passes(
        only(repeated_call=3),
        *[calls_reply("a")] * 9,
        result=lambda effect: Fault("tool.execution", f"no file {effect.id}", {"tool": "a"}),
    )


def test_planted_guard_that_counts_replies_misses_parallel_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that looks at replies only does not see parallel calls."""
    monkeypatch.setattr(
        guards, "extend_streaks", lambda streaks, tail, read, compare: [((0, 0, 0, 0), (("", "", None),))] * len(read)
    )
    passes(only(repeated_call=3), calls_reply("w", "w", "w"))


def test_another_call_in_between_resets_repeated_call() -> None:
    passes(
        only(repeated_call=3), calls_reply("a"), calls_reply("a"), calls_reply("b"), calls_reply("a"), calls_reply("a")
    )
    passes(only(repeated_call=3), *[calls_reply(("a", f'{{"q":"{n}"}}')) for n in range(10)])


def test_refused_calls_count_as_repeated() -> None:
    trips(only(repeated_call=3), *[calls_reply(("a", "{broken"))] * 3, code="guard.repeated_call")
    trips(only(repeated_call=3), *[calls_reply("nobody")] * 3, code="guard.repeated_call")


def test_spelling_of_arguments_does_not_matter() -> None:
    spelled = [calls_reply(("a", text)) for text in ('{"q":"x"}', ' {"q": "x" }', '{"q":"\\u0078"}')]
    trips(only(repeated_call=3), *spelled, code="guard.repeated_call")


def test_disabled_guards_never_trip() -> None:
    passes(only(), *[calls_reply("a", text="again")] * 30)


# cycles


def laps(length: int, times: int) -> list[Reply]:
    return [calls_reply(name) for name in "abcd"[:length]] * times


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
    passes(only(cycle=3), *[calls_reply(name) for name in ("a", "b", "c", "d", "run")] * 6)


def test_repetition_of_one_call_is_no_cycle() -> None:
    passes(only(cycle=3), *[calls_reply("a")] * 30)


def test_cycle_may_contain_a_call_twice() -> None:
    lap = [calls_reply("a"), calls_reply("a"), calls_reply("b")]
    passes(only(cycle=3), *(lap * 3)[:-1])
    fault = trips(only(cycle=3), *(lap * 3), code="guard.cycle")
    assert fault.fields["pattern"] == ["a", "a", "b"]


def test_cycle_is_found_after_other_calls() -> None:
    fault = trips(only(cycle=3), calls_reply("d"), calls_reply("b"), *laps(2, 3)[:-1], code="guard.cycle")
    assert fault.fields["pattern"] == ["b", "a"], "as it stands at the tail"
    passes(only(cycle=3), *laps(2, 2), calls_reply("d"), *laps(2, 2))


def test_cycle_within_one_reply() -> None:
    fault = trips(only(cycle=3), calls_reply(*"wvwvwv"), code="guard.cycle")
    assert fault.fields["call"] == "c1.5"


@pytest.mark.parametrize("length", [2, 3, 4])
def test_cycle_with_equal_results_trips_and_one_that_changes_does_not(length: int) -> None:
    replies = laps(length, 3)
    passes(only(cycle=3), *replies, result=changing)
    last_differs = ["same"] * (3 * length - 2) + ["other"]
    passes(only(cycle=3), *replies, result=in_order(*last_differs, "end"))
    trips(only(cycle=3), *replies, code="guard.cycle", result=in_order(*["same"] * (3 * length - 1)))


def edit_and_run_replies(times: int, *, same_edit: bool = False) -> list[Reply]:
    """Edit, run, edit, run: what every coding agent does all day."""
    edits = [f'{{"q":"{0 if same_edit else n}"}}' for n in range(times)]
    return [reply for text in edits for reply in (calls_reply(("edit", text)), calls_reply(("run", '{"q":"tests"}')))]


def test_alternating_edits_and_runs_trip_nothing() -> None:
    passes(agent(), *edit_and_run_replies(30))
    fault = trips(agent(), *edit_and_run_replies(3, same_edit=True), code="guard.cycle")
    assert fault.fields["pattern"] == ["edit", "run"], "the same edit again and again is not work"


def test_planted_guard_that_compares_names_trips_on_normal_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that looks at names alone fires on it."""
    monkeypatch.setattr(evolve_module, "call_signature", lambda call, arguments: (call.tool, call.tool))
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
    outcome = outcome_of_replies(only(cycle=limit), *[calls_reply(name) for name in names])
    assert (outcome.code == "guard.cycle") == has_cycle_by_brute_force(names, limit)


def trips_by_brute_force(calls: list[tuple[str, str]], limit: int, lengths: tuple[int, ...]) -> bool:
    """Whether some first part of the calls ends in equal laps. The result of its last call is not known yet."""
    for end in range(1, len(calls) + 1):
        for length in lengths:
            tail = calls[max(end - length * limit, 0) : end]
            if len(tail) < length * limit or len({name for name, _ in tail[:length]}) < min(length, 2):
                continue
            tail[-1] = (tail[-1][0], tail[-1 - length][1])
            if tail == tail[:length] * limit:
                return True
    return False


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("12")), min_size=1, max_size=14), st.integers(2, 3))
def test_guards_that_compare_results_agree_with_brute_force(calls: list[tuple[str, str]], limit: int) -> None:
    replies, results = [calls_reply(name) for name, _ in calls], [result for _, result in calls]
    for guard, lengths in (("repeated_call", (1,)), ("cycle", (2, 3, 4))):
        outcome = outcome_of_replies(only(**{guard: limit}), *replies, result=in_order(*results))
        assert (outcome.code == f"guard.{guard}") == trips_by_brute_force(calls, limit, lengths), guard
