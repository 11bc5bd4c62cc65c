"""Injected faults of model calls: codes, retries, waits, fallbacks and cut replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.cassette.interactions import Cassette
from agentrun.cassette.player import Player
from agentrun.core.facts import RouteSwitched
from agentrun.engine.ports import ReplyDelta
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.wire import HttpReply

from ...engine.recorded_runs import reply_with_calls
from ...packages import ROUTE
from ...replays import replay_package
from ...scripted_service import completion, failure
from .injected_runs import SECOND, case, fault, record_and_replay, record_case, replay, shop

LOOK = reply_with_calls(("look", {"at": 1}))
DONE_REPLY = completion("Done.")
STREAM = {"model": {"stream": True}}


def streamed(text: str) -> HttpReply:
    """A reply of OpenAI's in events of more than a hundred bytes: each comes in two pieces."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": word}} for word in text.split()]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    events = [*({"id": "x", "choices": [each]} for each in choices), {"id": "x", "choices": [], "usage": usage}]
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n"
    return HttpReply(200, (("content-type", "text/event-stream"),), body.encode())


def test_rate_limited_model_is_retried_on_the_replay_clock(tmp_path: Path) -> None:
    run = record_and_replay(tmp_path, shop(), case(fault("model#2", status=429, times=2)), LOOK, DONE_REPLY)
    assert (run.ending, run.failed) == ("completed", ["provider.rate_limited"] * 2)
    assert len(run.waits) == 2
    assert run.time >= sum(run.waits) >= 2250, "one second and two, a quarter less at most"
    assert run.laid.untriggered_faults() == ()


@pytest.mark.parametrize(("times", "ending"), [(3, "completed"), (4, "provider.rate_limited")])
def test_model_that_stays_rate_limited_fails_the_run(tmp_path: Path, times: int, ending: str) -> None:
    cassette, _ = record_case(tmp_path, shop(), case(), LOOK, DONE_REPLY)
    run = replay(shop(), case(fault("model#2", status=429, times=times)), cassette)
    assert (run.ending, len(run.failed)) == (ending, times)


def test_retry_after_of_a_fault_is_respected(tmp_path: Path) -> None:
    cassette, _ = record_case(tmp_path, shop(), case(), LOOK, DONE_REPLY)
    run = replay(shop(), case(fault("model#1", status=429, retry_after=7)), cassette)
    assert (run.ending, run.waits) == ("completed", [7000])
    assert (
        replay(shop(), case(fault("model#1", status=429, retry_after=61)), cassette).ending == "provider.rate_limited"
    )


@pytest.mark.parametrize(
    ("inject", "code", "attempts"),
    [
        ({"status": 400}, "provider.fatal", 1),
        ({"status": 408}, "provider.timeout", 4),
        ({"status": 500}, "provider.transient", 4),
        ({"status": 503}, "provider.overloaded", 4),
        ({"status": 529}, "provider.overloaded", 4),
        ({"refused": True}, "provider.transient", 4),
        ({"timeout": True}, "provider.timeout", 4),
        ({"empty": True}, "provider.empty", 4),
        ({"cut_after_chunk": 0}, "provider.zero_output", 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "openai-responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_each_model_fault_has_its_code_with_every_provider(
    inject: dict[str, Any], code: str, attempts: int, provider: str, stream: bool
) -> None:
    route = {**ROUTE, "provider": provider, "name": "m"}
    agent = shop(model={"routes": [route], "stream": stream, "max_output_tokens": 100, "temperature": None})
    run = replay(agent, case(fault("model", **inject, times=9)), Cassette((), {}, 0))
    assert (run.ending, run.failed) == (code, [code] * attempts)


@pytest.mark.parametrize(("stream", "limit"), [(False, 600_000), (True, 60_000)])
def test_model_timeout_takes_the_configured_time(tmp_path: Path, stream: bool, limit: int) -> None:
    """Of a stream it is the silence that is too long, of a whole reply the reply."""
    agent = shop(model={"stream": stream})
    cassette, _ = record_case(tmp_path, agent, case(), DONE_REPLY)
    run = replay(agent, case(fault("model#1", timeout=True)), cassette)
    assert (run.ending, run.failed) == ("completed", ["provider.timeout"])
    assert limit <= run.time - run.waits[0] < limit + 100


@pytest.mark.parametrize(
    "inject", [{"status": 500}, {"refused": True}, {"empty": True}, {"cut_after_chunk": 0}], ids=str
)
def test_failed_route_falls_back_to_the_next(tmp_path: Path, inject: dict[str, Any]) -> None:
    """Its attempts belong to the same call: the one after it is model#2."""
    agent = shop(model={"routes": [ROUTE, SECOND]})
    faults = fault("model#1", **inject, times=4), fault("model#2", status=429)
    run = record_and_replay(tmp_path, agent, case(*faults), LOOK, DONE_REPLY)
    assert (run.ending, len(run.failed), run.laid.untriggered_faults()) == ("completed", 5, ())
    switched = [each.fact.target for each in run.run.journal if isinstance(each.fact, RouteSwitched)]
    assert switched == ["openai/gpt-4.1"]


def test_recorded_reply_of_a_failed_route_counts_as_played(tmp_path: Path) -> None:
    """Two recordings in one: of the route that fails now, and of the one that answers then."""
    agent = shop(model={"routes": [ROUTE, SECOND]})
    cassette, _ = record_case(tmp_path, agent, case(), completion("First."))
    laid = case(fault("model#1", status=500, times=4))
    more, _ = record_case(tmp_path, agent, laid, completion("Second."))
    whole = replace(cassette, interactions=cassette.interactions + more.interactions)
    run = replay(agent, laid, whole)
    assert (run.ending, run.run.outcome.answer, run.run.unused_error) == ("completed", "Second.", None)


def test_recorded_failures_follow_an_injected_one(tmp_path: Path) -> None:
    cassette, _ = record_case(tmp_path, shop(), case(), failure(429), DONE_REPLY)
    run = replay(shop(), case(fault("model#1", status=500)), cassette)
    assert (run.ending, run.failed) == ("completed", ["provider.transient", "provider.rate_limited"])
    assert run.run.unused_error is None


def test_failed_attempts_belong_to_the_same_model_call(tmp_path: Path) -> None:
    """A recorded attempt that failed, even after it was read, does not make the next one another call."""
    cassette, _ = record_case(tmp_path, shop(), case(), failure(500), completion(""), LOOK, DONE_REPLY)
    run = replay(shop(), case(fault("model#2", status=429)), cassette)
    assert run.failed == ["provider.transient", "provider.empty", "provider.rate_limited"]
    assert [place.at for place in run.laid.faults.places] == ["model#1", "tool:look#1", "model#2"]


def test_fault_without_a_number_applies_to_every_call(tmp_path: Path) -> None:
    cassette, _ = record_case(tmp_path, shop(), case(), LOOK, DONE_REPLY)
    run = replay(shop(), case(fault("model", status=429)), cassette)
    assert (run.ending, run.failed) == ("completed", ["provider.rate_limited"] * 2)


# --- replies that are cut -----------------------------------------------------------------------------------------


def run_and_streamed_texts(agent: Any, laid: Any, cassette: Any) -> tuple[Any, list[str | None]]:
    """The run, and the pieces of text that passed in it. None: they were taken back."""
    passed: list[str | None] = []
    player = Player(cassette)
    over = FaultInjection(laid, player)
    run = replay_package(
        agent,
        player,
        start=over.start,
        step=over.step,
        wrappers=over.wrappers,
        listen=lambda run, news: passed.append(news.text) if isinstance(news, ReplyDelta) else None,
    )
    return (run, over), passed


def test_cut_stream_is_retracted_and_retried(tmp_path: Path) -> None:
    agent = shop(**STREAM)
    cassette, _ = record_case(tmp_path, agent, case(), streamed("One two three four."))
    pieces = len(cassette.interactions[0].chunks)
    assert pieces > 3
    (run, over), passed = run_and_streamed_texts(agent, case(fault("model#1", cut_after_chunk=2)), cassette)
    assert run.outcome.answer == "Onetwothreefour."
    assert passed == ["One", "two", None, "One", "two", "three", "four."]
    assert (run.unused_error, over.untriggered_faults()) == (None, ())


def test_cut_reply_has_the_fault_of_a_recorded_cut(tmp_path: Path) -> None:
    agent = shop(**STREAM)
    cassette, _ = record_case(tmp_path, agent, case(), streamed("One two three four."))
    run = replay(agent, case(fault("model#1", cut_after_chunk=2, times=4)), cassette)
    assert run.ending == "provider.zero_output"
    assert run.run.outcome.fields == {"status": None, "received": 200, "attempts": 4, "turn": 1}


def test_cut_before_at_and_after_the_last_chunk(tmp_path: Path) -> None:
    """Before its last piece a reply is not whole; after it, it is kept; beyond it, nothing is cut."""
    agent = shop(**STREAM)
    cassette, _ = record_case(tmp_path, agent, case(), streamed("One two three four."))
    pieces = len(cassette.interactions[0].chunks)
    found = {}
    for after in (pieces - 1, pieces, pieces + 1):
        run = replay(agent, case(fault("model#1", cut_after_chunk=after)), cassette)
        assert (run.ending, run.run.unused_error) == ("completed", None)
        found[after - pieces] = len(run.failed), run.laid.untriggered_faults()
    assert found[0] == (0, ()), "it is whole"
    assert found[1] == (0, ("model#1",))
    assert found[-1][1] == ()


def test_reply_without_streaming_has_one_chunk(tmp_path: Path) -> None:
    cassette, _ = record_case(tmp_path, shop(), case(), DONE_REPLY)
    cuts = {after: replay(shop(), case(fault("model#1", cut_after_chunk=after)), cassette) for after in (0, 1, 2)}
    assert [run.failed for run in cuts.values()] == [["provider.zero_output"], [], []]
    assert [run.laid.untriggered_faults() for run in cuts.values()] == [(), (), ("model#1",)]
    assert {run.ending for run in cuts.values()} == {"completed"}


def test_attempt_with_fewer_chunks_is_not_cut(tmp_path: Path) -> None:
    agent = shop(**STREAM)
    cassette, _ = record_case(tmp_path, agent, case(), failure(429), streamed("One two three four."))
    run = replay(agent, case(fault("model#1", cut_after_chunk=3)), cassette)
    assert (run.ending, run.failed) == ("completed", ["provider.rate_limited", "provider.zero_output"])
