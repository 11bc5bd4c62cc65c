"""Retries of failed model requests: which faults, how long to wait, and fallback to another route."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core import retry
from agentrun.core.facts import RetryPlanned, RouteSwitched
from agentrun.core.fault import Fault
from agentrun.core.outcome import Outcome
from agentrun.core.package import RetrySettings
from agentrun.core.retry import may_fall_back, retry_delay
from agentrun.errors import ERROR_CODES, code_of

from ..packages import ROUTE, package
from .script import RUN_STARTED, Run, calls_reply, text_reply, tool

RETRY = RetrySettings(attempts=4, first_delay=1000, max_delay=15_000, max_wait=60_000)
OVERLOADED = Fault("provider.overloaded", "busy", {"status": 503})
RETRYABLE = [
    code for code, meaning in ERROR_CODES.items() if code.startswith("provider.") and meaning.retry == "retryable"
]
FOR_GOOD = [code for code in ERROR_CODES if code not in RETRYABLE]
SEEDS = st.text(max_size=8)


def limited(seconds: object) -> Fault:
    return Fault("provider.rate_limited", "slow down", {"status": 429, "retry_after": seconds})


def wait(
    fault: Fault = OVERLOADED, *, retry: RetrySettings = RETRY, tries: int = 1, waited: int = 0, seed: str = "s"
) -> int | None:
    return retry_delay(retry, fault, tries=tries, waited=waited, seed=seed)


def waits(run: Run) -> list[int]:
    return [fact.wait for fact in run.of(RetryPlanned)]


def test_retryable_provider_codes() -> None:
    assert set(RETRYABLE) == {
        "provider.transient",
        "provider.timeout",
        "provider.overloaded",
        "provider.rate_limited",
        "provider.zero_output",
        "provider.empty",
    }


@pytest.mark.parametrize("code", RETRYABLE)
def test_retryable_fault_is_retried(code: str) -> None:
    assert wait(Fault(code, "no")) is not None
    assert Run(package(), Fault(code, "no"), text_reply("Yes.")).finish().answer == "Yes."


@pytest.mark.parametrize("code", FOR_GOOD)
def test_other_fault_is_not_retried(code: str) -> None:
    assert wait(Fault(code, "no")) is None


@pytest.mark.parametrize("attempts", [1, 2, 4])
def test_run_fails_after_the_allowed_attempts(attempts: int) -> None:
    retry = replace(RETRY, attempts=attempts)
    assert attempts == 1 or wait(retry=retry, tries=attempts - 1) is not None
    assert wait(retry=retry, tries=attempts) is None
    given = package(retry={"attempts": attempts})
    assert Run(given, *[OVERLOADED] * (attempts - 1), text_reply("Yes.")).finish().status == "completed"
    run = Run(given, *[OVERLOADED] * attempts)
    outcome = run.finish()
    assert (outcome.code, outcome.retry, outcome.exit_code) == ("provider.overloaded", "retryable", 6)
    assert outcome.fields == {"status": 503, "turn": 1, "attempts": attempts}
    assert [request.id for request in run.requests] == [f"m1.{n}" for n in range(1, attempts + 1)]
    assert outcome.turns == 1, "one turn, however often it is tried"


@given(tries=st.integers(1, 12), first=st.integers(0, 5000), longest=st.integers(0, 20_000), seed=SEEDS)
def test_delay_doubles_up_to_the_maximum_minus_jitter(tries: int, first: int, longest: int, seed: str) -> None:
    """Doubled from the first, at most the longest, and less than that by a quarter at most."""
    retry = RetrySettings(attempts=20, first_delay=first, max_delay=longest, max_wait=10**9)
    full = min(first * 2 ** (tries - 1), longest)
    found = wait(retry=retry, tries=tries, seed=seed)
    assert found is not None
    assert full - full // 4 <= found <= full
    assert found == wait(retry=retry, tries=tries, seed=seed), "the same failure, the same wait"


def jitter(seed: str) -> int:
    found = wait(seed=seed)
    assert found is not None
    return 1000 - found


def test_jitter_reaches_both_ends() -> None:
    shares = {jitter(str(n)) for n in range(5000)}
    assert (min(shares), max(shares)) == (0, 250)
    assert jitter("run-1/1/1") == int.from_bytes(hashlib.sha256(b"run-1/1/1").digest()[:4], "big") % 251


def test_jitter_differs_between_runs() -> None:
    run = Run(package(), OVERLOADED, OVERLOADED, text_reply("Yes."))
    run.finish()
    seeds = ["run-1/1/1", "run-1/1/2"]
    assert waits(run) == [wait(tries=tries, seed=seed) for tries, seed in enumerate(seeds, 1)]
    other = Run(package(), OVERLOADED, OVERLOADED, text_reply("Yes."), started=replace(RUN_STARTED, run="run-2"))
    other.finish()
    assert waits(run) != waits(other), "runs that fail together do not come back together"


@given(seconds=st.integers(0, 60), seed=SEEDS)
def test_retry_after_is_the_minimum_delay(seconds: int, seed: str) -> None:
    alone = wait(seed=seed)
    assert alone is not None
    assert wait(limited(seconds), seed=seed) == max(alone, seconds * 1000)


def test_retry_after_may_be_longer_than_the_longest_delay() -> None:
    assert wait(limited(20)) == 20_000


def test_missing_retry_after_uses_the_usual_delay() -> None:
    assert wait(limited(None)) == wait()


def test_delay_beyond_max_wait_is_no_retry() -> None:
    assert wait(limited(60)) == 60_000
    assert wait(limited(61)) is None, "no use to wait: it ends the tries"
    assert wait(limited(20), waited=40_000) == 20_000
    assert wait(limited(20), waited=40_001) is None


def test_run_fails_when_total_waiting_exceeds_max_wait() -> None:
    run = Run(package(retry={"max_wait": 50_000}), limited(20), limited(30), text_reply("Yes."))
    assert run.finish().status == "completed"
    assert waits(run) == [20_000, 30_000]
    run = Run(package(retry={"max_wait": 49_999}), limited(20), limited(30), text_reply("Yes."))
    outcome = run.finish()
    assert (outcome.code, waits(run)) == ("provider.rate_limited", [20_000])
    assert outcome.fields == {"status": 429, "retry_after": 30, "turn": 1, "attempts": 2}


def test_retry_is_sent_when_its_delay_is_over() -> None:
    run = Run(package(), OVERLOADED, text_reply("Yes."))
    planned = run.until(RetryPlanned)
    assert isinstance(planned, RetryPlanned)
    assert planned.until == run.now + planned.wait
    run.finish()
    (again,) = [record for record in run.records if getattr(record.fact, "effect", None) == "m1.2"][:1]
    assert again.at == planned.until


def test_attempts_and_waiting_start_again_every_turn() -> None:
    given = package(tools={"search": tool()}, policy={"default": "allow"}, retry={"attempts": 2})
    run = Run(given, OVERLOADED, calls_reply("search"), OVERLOADED, text_reply("Yes."))
    assert run.finish().status == "completed"
    assert [request.id for request in run.requests] == ["m1.1", "m1.2", "m2.1", "m2.2"]
    first = Run(
        package(retry={"max_wait": 30_000}, tools={"search": tool()}, policy={"default": "allow"}),
        limited(30),
        calls_reply("search"),
        limited(30),
        text_reply("Yes."),
    )
    assert first.finish().status == "completed", "and its own waiting"


def routes(*names: str) -> dict[str, object]:
    return {"routes": [{**ROUTE, "name": name} for name in names]}


def routes_used(run: Run) -> list[str]:
    return [request.request.route.name for request in run.requests]


def run_with_routes(
    *answers: object, attempts: int = 1, names: tuple[str, ...] = ("a", "b", "c")
) -> tuple[Run, Outcome]:
    given = package(model=routes(*names), retry={"attempts": attempts})
    run = Run(given, *answers)  # type: ignore[arg-type]  # the test gives the right kind
    return run, run.finish()


def test_routes_are_tried_in_order() -> None:
    run, outcome = run_with_routes(OVERLOADED, Fault("provider.fatal", "no key"), text_reply("Yes."))
    assert (outcome.answer, routes_used(run)) == ("Yes.", ["a", "b", "c"])
    assert run.of(RouteSwitched) == [
        RouteSwitched(1, "openai/a", "openai/b", OVERLOADED),
        RouteSwitched(1, "openai/b", "openai/c", Fault("provider.fatal", "no key")),
    ]
    assert outcome.turns == 1


def test_fault_of_the_last_route_is_the_outcome() -> None:
    run, outcome = run_with_routes(
        OVERLOADED, Fault("provider.decode", "not JSON", {"offset": 3}), Fault("provider.empty", "none")
    )
    assert (outcome.code, outcome.fields) == ("provider.empty", {"turn": 1, "attempts": 1})
    assert routes_used(run) == ["a", "b", "c"]


def test_attempts_and_waiting_start_again_on_every_route() -> None:
    run, outcome = run_with_routes(OVERLOADED, OVERLOADED, OVERLOADED, text_reply("Yes."), attempts=2, names=("a", "b"))
    assert (outcome.status, routes_used(run)) == ("completed", ["a", "a", "b", "b"])
    assert len(waits(run)) == 2
    _, outcome = run_with_routes(limited(60), OVERLOADED, limited(60), text_reply("Yes."), attempts=2, names=("a", "b"))
    assert outcome.status == "completed", "the waiting too"


def test_route_with_a_too_long_retry_after_falls_back() -> None:
    run, outcome = run_with_routes(limited(61), text_reply("Yes."), attempts=4)
    assert (outcome.status, routes_used(run), waits(run)) == ("completed", ["a", "b"], [])


def test_later_turns_stay_on_the_fallback_route() -> None:
    given = package(
        model=routes("a", "b"), retry={"attempts": 1}, tools={"search": tool()}, policy={"default": "allow"}
    )
    run = Run(given, OVERLOADED, calls_reply("search"), text_reply("Yes."))
    assert run.finish().status == "completed"
    assert routes_used(run) == ["a", "b", "b"]


@pytest.mark.parametrize("code", ["cassette.miss", "provider.inconsistent_history", "internal", "cancelled"])
def test_fault_that_no_route_can_fix_does_not_fall_back(code: str) -> None:
    run, outcome = run_with_routes(Fault(code, "no"), text_reply("Yes."))
    assert (outcome.code, routes_used(run)) == (code, ["a"])
    assert outcome.exit_code == code_of(code).exit


def test_codes_that_may_fall_back() -> None:
    cures = {code for code in ERROR_CODES if may_fall_back(Fault(code, ""))}
    assert cures == {code for code in ERROR_CODES if code.startswith("provider.")} - {"provider.inconsistent_history"}


def test_planted_fallback_after_a_cassette_miss_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule that lets everything fall back, a replay asks for what was never recorded."""
    monkeypatch.setattr(retry, "may_fall_back", lambda fault: True)
    run, _ = run_with_routes(Fault("cassette.miss", "no"), text_reply("Yes."))
    assert routes_used(run) == ["a", "b"]


def test_context_overflow_falls_back_to_another_route() -> None:
    run, outcome = run_with_routes(Fault("provider.context_overflow", "too long"), text_reply("Yes."))
    assert (outcome.answer, routes_used(run)) == ("Yes.", ["a", "b"])


@given(
    st.lists(st.sampled_from([OVERLOADED, limited(5), Fault("provider.fatal", "no"), text_reply("Yes.")]), min_size=8)
)
def test_attempts_per_route_never_exceed_the_limit(answers: list[object]) -> None:
    run, _ = run_with_routes(*answers, text_reply("Yes."), attempts=2, names=("a", "b"))
    assert all(routes_used(run).count(name) <= 2 for name in "ab")
    assert routes_used(run) == sorted(routes_used(run))
    assert sum(waits(run)) <= 2 * 60_000
