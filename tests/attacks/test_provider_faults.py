"""Faults 24 to 26 of a provider over a real socket, where retries are bounded, journaled and counted once."""

import time
from email.utils import formatdate
from pathlib import Path

import pytest

from agentrun.core.evolve import fold
from agentrun.core.facts import ModelAsked, ModelFailed, ModelReplied, RetryPlanned, RouteSwitched
from agentrun.wire import HttpReply

from ..net.certificates import Certificate
from ..scripted_service import completion, failure
from ..servers import CLOSE, RESET, Drip, Plan, Server, Wait, chunk, closed_port, head, streamed
from .provider_runs import GOOD, GOOD_STREAM, QUICK, STREAM, agent, events, live, run, run_with_deltas

CUT_STREAM = events(*STREAM[:2])


# --- 24 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ([RESET], "provider.transient"),
        ([CLOSE], "provider.transient"),
        (failure(500), "provider.transient"),
        (failure(502), "provider.transient"),
        (failure(503), "provider.overloaded"),
        (failure(529), "provider.overloaded"),
        (failure(408), "provider.timeout"),
        (failure(429), "provider.rate_limited"),
        ([head(200, ("Content-Length", "999")) + b'{"id"', RESET], "provider.zero_output"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_one_failure_is_tried_again(plan: Plan, code: str, stream: bool) -> None:
    done = live(plan, GOOD_STREAM if stream else GOOD, stream=stream)
    assert done.outcome.answer == "Water."
    assert done.failures == [code]
    assert done.attempts == [1, 2]
    assert [fact.attempt for fact in done.of(ModelReplied)] == [2]
    assert (done.outcome.usage.input, done.outcome.usage.output) == (20, 5), "counted once"
    assert len({request.body for request in done.requests}) == 1, "the same request"


@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_stream_that_is_cut_is_discarded(end: str) -> None:
    done = live([*streamed(CUT_STREAM)[:2], end], GOOD_STREAM, stream=True)
    assert done.outcome.answer == "Water."
    assert done.failures == ["provider.zero_output"]
    assert b"".join(str(record).encode() for record in done.records).count(b"Wa") == 1, "nothing of it is journaled"


@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_stream_that_was_whole_before_the_cut_is_kept(end: str) -> None:
    done = live([*streamed(events(*STREAM))[:2], end], stream=True)
    assert (done.outcome.answer, done.failures) == ("Water.", [])


def test_stream_without_its_last_event_is_empty_and_retried() -> None:
    done = live(streamed(CUT_STREAM), GOOD_STREAM, stream=True)
    assert (done.outcome.answer, done.failures) == ("Water.", ["provider.empty"])


def test_deltas_of_a_cut_stream_are_withdrawn() -> None:
    with Server([*streamed(CUT_STREAM)[:2], RESET], GOOD_STREAM) as server:
        outcome, heard = run_with_deltas(agent(server.url, stream=True))
    assert outcome.answer == "Water."
    assert heard == ["Wa", "ter.", None, "Wa", "ter."]


@pytest.mark.parametrize("stream", [False, True])
def test_permanent_500_ends_after_four_attempts(stream: bool) -> None:
    done = live(failure(500), stream=stream)
    assert done.failures == ["provider.transient"] * 4
    assert done.attempts == [1, 2, 3, 4]
    assert len(done.requests) == 4
    assert len(done.of(RetryPlanned)) == 3
    assert done.outcome.fault is not None
    assert done.outcome.fault.fields == {"status": 500, "turn": 1, "attempts": 4}
    assert (done.code, done.outcome.exit_code) == ("provider.transient", 6)


def test_refused_connection_ends_after_four_attempts() -> None:
    outcome, records = run(agent(f"http://127.0.0.1:{closed_port()}"))
    assert outcome.fault is not None
    assert outcome.fault.fields == {"status": None, "reason": "refused", "turn": 1, "attempts": 4}
    assert [type(record.fact).__name__ for record in records].count("ModelFailed") == 4


def test_unknown_host_is_a_transient_dns_failure() -> None:
    outcome, _ = run(agent("http://nowhere.invalid"))
    assert outcome.fault is not None
    assert (outcome.fault.code, outcome.fault.fields["reason"]) == ("provider.transient", "dns")


def test_untrusted_certificate_fails_and_nothing_is_sent(tmp_path: Path) -> None:
    with Server(GOOD, tls=Certificate(tmp_path).server()) as server:
        outcome, _ = run(agent(server.url))
    assert outcome.fault is not None
    assert outcome.fault.fields == {"status": None, "reason": "tls", "turn": 1, "attempts": 4}
    assert server.requests == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_client_errors_are_not_retried(status: int) -> None:
    done = live(failure(status))
    assert (done.code, done.attempts) == ("provider.fatal", [1])


def test_fallback_route_is_asked_after_the_retries() -> None:
    with Server(completion("Sand.")) as other:
        done = live(failure(500), fallback=[other.url])
    assert done.outcome.answer == "Sand."
    assert done.failures == ["provider.transient"] * 4
    assert len(done.of(RouteSwitched)) == 1
    assert (len(done.requests), len(other.requests)) == (4, 1)


# --- Retry-After ------------------------------------------------------------------------------------------------


def _retry_after_date(seconds: int) -> dict[str, str]:
    now = time.time()
    return {"date": formatdate(now, usegmt=True), "retry_after": formatdate(now + seconds, usegmt=True)}


@pytest.mark.parametrize(
    ("headers", "least"), [({"retry_after": "1"}, 1000), (_retry_after_date(1), 1000), (_retry_after_date(-99), 0)]
)
def test_retry_after_of_the_provider_is_waited_for(headers: dict[str, str], least: int) -> None:
    done = live(failure(429, **headers), GOOD)
    assert done.outcome.answer == "Water."
    (planned,) = done.of(RetryPlanned)
    assert least <= planned.wait <= least + 4
    between = done.requests[1].at - done.requests[0].at
    assert between >= least / 1000


@pytest.mark.parametrize("headers", [{"retry_after": "99999999"}, _retry_after_date(10**8)])
def test_too_long_retry_after_ends_the_retries(headers: dict[str, str]) -> None:
    done = live(failure(429, **headers))
    assert (done.code, done.attempts) == ("provider.rate_limited", [1])
    assert done.outcome.fault is not None
    assert done.outcome.fault.fields["retry_after"] == 3600


# --- 25 ---------------------------------------------------------------------------------------------------------


def test_an_answer_that_comes_too_late_is_ignored() -> None:
    late: Plan = [Wait(30), head(200, ("Content-Length", "2")) + b"{}"]
    done = live(late, GOOD, limits={"call_time": 1000})
    assert done.outcome.answer == "Water."
    assert done.failures == ["provider.timeout"]
    assert [request.connection for request in done.requests] == [1, 2], "not on the connection of the late answer"


def test_late_reply_counts_its_reservation() -> None:
    """Nobody knows what it took: the reservation counts."""
    done = live([Wait(30)], retry={**QUICK, "attempts": 1}, limits={"call_time": 300})
    (asked,) = done.of(ModelAsked)
    assert fold(done.records).meter.tokens == asked.reserved > 0


# --- 26 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        [Wait(30)],
        [Drip(b"HTTP/1.1 100 Continue\r\n\r\n", 0.05)],
        [b"HTTP/1.1 200 OK\r\n", Drip(b"X: y\r\n", 0.05)],
        [head(200, ("Content-Length", "99999")), Drip(b"x", 0.05)],
        streamed(Drip(chunk(b": thinking\n\n"), 0.05)),
        streamed(CUT_STREAM, Drip(chunk(events(STREAM[0])), 0.05)),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_endless_reply_times_out(plan: Plan, stream: bool) -> None:
    begin = time.monotonic()
    done = live(plan, stream=stream, retry={**QUICK, "attempts": 1}, limits={"call_time": 700, "stream_gap": 30_000})
    assert time.monotonic() - begin >= 0.7
    assert (done.code, done.failures) == ("provider.timeout", ["provider.timeout"])
    assert done.outcome.fault is not None
    assert done.outcome.fault.fields["limit"] == 700


def test_stalled_stream_times_out_and_is_retried() -> None:
    plan = streamed(CUT_STREAM, Wait(60))
    done = live(plan, GOOD_STREAM, stream=True, limits={"call_time": 60_000, "stream_gap": 1000})
    assert [fact.fault.fields["limit"] for fact in done.of(ModelFailed)] == [1000]
    assert (done.outcome.answer, done.failures) == ("Water.", ["provider.timeout"])


def test_run_over_its_time_budget_closes_its_connection() -> None:
    """The time of the run is over in the middle of a reply."""
    done = live([Wait(30)], budgets={"time": 400}, limits={"call_time": 30_000})
    assert done.code == "budget.time"


def test_every_attempt_is_journaled() -> None:
    plans: list[Plan | HttpReply] = [failure(500), [RESET], failure(529), GOOD]
    done = live(*plans)
    kinds = [type(record.fact).__name__ for record in done.records]
    attempt = ["ModelAsked", "ModelFailed", "RetryPlanned"]
    assert [kind for kind in kinds if kind in (*attempt, "ModelReplied")] == [
        *attempt * 3,
        "ModelAsked",
        "ModelReplied",
    ]
    assert done.failures == ["provider.transient", "provider.transient", "provider.overloaded"]
    assert done.attempts == [1, 2, 3, 4]
