"""All port calls of a run are recorded on its cassette, and the cassette alone replays the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.canonical_json import data_hash
from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.player import Player
from agentrun.core.effects import ToolReturn
from agentrun.core.facts import Continue, Deny, Modify
from agentrun.core.fault import Fault
from agentrun.core.messages import Image, Text
from agentrun.core.package import Package
from agentrun.engine.approvals import PresetApprover
from agentrun.engine.cassette_ports import ReplayExchanger
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import MAX_PARALLEL_EFFECTS
from agentrun.errors import InternalError, ProviderError, ToolError
from agentrun.testing import approving, stub
from agentrun.wire import HttpCall, HttpReply

from ..core.script import rule
from ..packages import package
from ..scripted_service import completion, failure
from .memory_worlds import AGENT, HOOK, PYTHON
from .recorded_runs import BEGAN, EndedRun, cassette, record_in_memory, replay_cassette, reply_with_calls

World = Callable[[StepClock], dict[str, Any]]
PIXEL = b"\x89PNG not really"


def shop(**changes: Any) -> Package:
    """An agent with one tool that is allowed, and one that asks."""
    rules = [rule("allow", "look", id="look"), rule("ask", "refund", id="ask", reason="money")]
    tools = {"look": {**PYTHON, "effect": "read", "parallel": True}, "refund": PYTHON}
    return package(**{"tools": tools, "policy": {"rules": rules}, **changes})


class ScriptedExecutor:
    """An executor that does what it is told to."""

    def __init__(self, *does: Any) -> None:
        self._does = list(does)

    async def run(self, call: Any) -> ToolReturn:
        what = self._does.pop(0)
        if isinstance(what, BaseException):
            raise what
        return what  # type: ignore[no-any-return]  # some of it is wrong on purpose


def tools(**given: Any) -> World:
    return lambda clock: {"executors": {"look": stub("seen"), "refund": stub("paid"), **given}}


LOOK = reply_with_calls(("look", {"at": 1}))
DONE_REPLY = completion("Done.")


def record_and_replay(folder: Path, agent: Package, world: World, *replies: Any, **given: Any) -> EndedRun:
    """Recorded and replayed: the same journal. Gives the recorded run."""
    taken = record_in_memory(agent, world, *replies, **given)
    again = replay_cassette(agent, cassette(folder, taken.interactions))
    assert again.canonical == taken.canonical
    assert (again.outcome.answer, again.outcome.code) == (taken.outcome.answer, taken.outcome.code)
    return taken


@pytest.mark.parametrize(
    "gives",
    [
        ToolReturn((Text("plain"),)),
        ToolReturn((Text('{"a": "ä\\n"}'),)),
        ToolReturn((Text(""),)),
        ToolReturn((Text("lone \ud800 half"),)),
        ToolReturn(()),
        ToolReturn((Text("a"), Text("b"))),
        ToolReturn((Text("bad"),), Fault("tool.execution", "it broke", {"tool": "look"})),
        ToolReturn((), Fault("tool.fatal", "the end", {"tool": "look"})),
        ToolReturn((Text("x" * 100_000),)),
        ValueError("no such page"),
        ToolError("tool.aborted", "stop", fields={"tool": "look"}),
        SystemExit(3),
        "not a result",
        ToolReturn((), Fault("nonsense", "unknown code")),
    ],
    ids=repr,
)
def test_tool_results_are_recorded_and_replayed(tmp_path: Path, gives: Any) -> None:
    record_and_replay(tmp_path, shop(), tools(look=ScriptedExecutor(gives)), LOOK, DONE_REPLY)


def test_images_of_a_tool_are_recorded_with_their_bytes(tmp_path: Path) -> None:
    """The bytes are on the cassette too: the next request needs them."""

    class Camera:
        def __init__(self, blobs: Any) -> None:
            self._blobs = blobs

        async def run(self, call: Any) -> ToolReturn:
            return ToolReturn((Text("look"), Image("image/png", self._blobs.put(PIXEL), len(PIXEL))))

    from agentrun.engine.memory import MemoryBlobs

    blobs = MemoryBlobs()
    taken = record_and_replay(
        tmp_path, shop(), lambda clock: {"content": blobs, "executors": {"python": Camera(blobs)}}, LOOK, DONE_REPLY
    )
    assert data_hash(PIXEL) in taken.interactions[1].reply.body.decode()


def test_tool_timeout_is_recorded_and_replayed(tmp_path: Path) -> None:
    def world(clock: StepClock) -> dict[str, Any]:
        return {"executors": {"look": stub("late", delay=5000, clock=clock), "refund": stub("")}}

    taken = record_and_replay(tmp_path, shop(), world, LOOK, 300, DONE_REPLY)
    assert "tool.timeout" in taken.canonical
    given_up = taken.interactions[1]
    assert (given_up.stopped, given_up.start, given_up.end) == (True, 0, 1000), "from its start to when it was given up"


@pytest.mark.parametrize(
    "person",
    [
        approving("approved", by="ada"),
        approving("denied", by="ada"),
        approving("approved_for_session", by="ada"),
        approving("unavailable", by="nobody"),
        approving(lambda question: 1 / 0),  # type: ignore[arg-type,return-value]  # somebody who raises
        approving(lambda question: "perhaps"),  # type: ignore[arg-type,return-value]  # and somebody who cannot decide
    ],
)
def test_approvals_are_recorded_and_replayed(tmp_path: Path, person: Any) -> None:
    asked = reply_with_calls(("refund", {"amount": 9}))
    world: World = lambda clock: {**tools()(clock), "approver": person}  # short
    taken = record_and_replay(tmp_path, shop(), world, asked, DONE_REPLY)
    assert [each.call.url for each in taken.interactions][1] == "approval://refund"


def test_approval_timeout_is_recorded_and_replayed(tmp_path: Path) -> None:
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved", delay=200_000, clock=clock)}
    taken = record_and_replay(tmp_path, shop(), world, reply_with_calls(("refund", {"amount": 9})), DONE_REPLY)
    assert "timed_out" in taken.canonical


def test_an_approval_is_not_reused_when_the_question_changed(tmp_path: Path) -> None:
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved")}  # short
    taken = record_in_memory(shop(), world, reply_with_calls(("refund", {"amount": 9})), DONE_REPLY)
    recorded_cassette = cassette(tmp_path, taken.interactions)
    rules = [rule("allow", "look", id="look"), rule("ask", "refund", id="ask", reason="a lot of money")]
    done = replay_cassette(shop(policy={"rules": rules}), recorded_cassette)
    assert (done.outcome.code, done.outcome.exit_code) == ("cassette.miss", 3)
    assert (done.outcome.fields["call"], done.outcome.fields["turn"]) == ("c1.0", 1)


def test_preset_answer_replaces_the_recorded_approval(tmp_path: Path) -> None:
    """The recorded answer is used up and does not count; what follows is another conversation, and a miss."""
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved")}  # short
    taken = record_in_memory(shop(), world, reply_with_calls(("refund", {"amount": 9})), DONE_REPLY)
    recorded_cassette = cassette(tmp_path, taken.interactions)
    same = replay_cassette(shop(), recorded_cassette, PresetApprover({"refund": "approved"}, "case"))
    assert (same.outcome.answer, "by: case" in same.canonical) == ("Done.", True)
    other = replay_cassette(shop(), recorded_cassette, PresetApprover({"refund": "denied"}, "case"))
    assert (other.outcome.code, "tool_started" in other.canonical) == ("cassette.miss", False)
    about_others = replay_cassette(shop(), recorded_cassette, PresetApprover({"look": "denied"}, "case"))
    assert about_others.canonical == taken.canonical


def test_preset_answer_to_a_changed_question_uses_up_the_recorded_one(tmp_path: Path) -> None:
    """Asked in other words the recorded answer is not found, and is not left over either."""
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved")}  # short
    recorded_cassette = cassette(
        tmp_path, record_in_memory(shop(), world, reply_with_calls(("refund", {"amount": 9})), DONE_REPLY).interactions
    )
    rules = [rule("allow", "look", id="look"), rule("ask", "refund", id="ask", reason="a lot of money")]
    done = replay_cassette(
        shop(policy={"rules": rules}), recorded_cassette, PresetApprover({"refund": "approved"}, "case")
    )
    assert done.outcome.answer == "Done."


AGENT_WITH_HOOK = {"hooks": [HOOK], "tools": {"look": {**PYTHON, "effect": "read"}}, "policy": {"default": "allow"}}


def _raise(question: Any) -> Any:
    raise LookupError("nothing")


async def _deny_async(question: Any) -> Any:
    return Deny("not today")


@pytest.mark.parametrize(
    "hook",
    [
        lambda question: Continue(),
        lambda question: Deny("no"),
        lambda question: Modify({"at": 2}),
        lambda question: Modify({"at": {1, 2}}),
        lambda question: "yes",
        _raise,
        _deny_async,
    ],
)
def test_hook_answers_are_recorded_and_replayed(tmp_path: Path, hook: Any) -> None:
    world: World = lambda clock: {"executors": {"look": stub("seen")}, "hooks": {"careful": hook}}
    taken = record_and_replay(tmp_path, package(**AGENT_WITH_HOOK), world, LOOK, DONE_REPLY)
    assert taken.interactions[1].call.url == "hook://careful"


class Sink:
    def __init__(self, gives: Any, delay: int = 0, clock: StepClock | None = None) -> None:
        self._gives, self._delay, self._clock = gives, delay, clock

    async def deliver(self, delivery: Any) -> Any:
        if self._clock is not None:
            await self._clock.sleep_until(self._clock.now() + self._delay)
        if isinstance(self._gives, Exception):
            raise self._gives
        return self._gives


@pytest.mark.parametrize("gives", [None, Fault("delivery.failed", "full"), Fault("internal", "no"), OSError("gone"), 7])
@pytest.mark.parametrize("delivery", ["required", "optional"])
def test_deliveries_are_recorded_and_replayed(tmp_path: Path, gives: Any, delivery: str) -> None:
    agent = package(sinks={"out": {"kind": "stdout", "delivery": delivery, "timeout": 1000}})
    taken = record_and_replay(tmp_path, agent, lambda clock: {"sinks": {"stdout": Sink(gives)}}, DONE_REPLY)
    assert taken.interactions[1].call.url == "sink://out"


def test_delivery_timeout_is_recorded_and_replayed(tmp_path: Path) -> None:
    agent = package(sinks={"out": {"kind": "stdout", "delivery": "required", "timeout": 1000}})
    taken = record_and_replay(tmp_path, agent, lambda clock: {"sinks": {"stdout": Sink(None, 5000, clock)}}, DONE_REPLY)
    assert taken.outcome.code == "delivery.failed"


@pytest.mark.parametrize(
    "replies",
    [
        [failure(429, "slow down", retry_after="7"), failure(503), DONE_REPLY],
        [ProviderError("provider.transient", "no", fields={"status": None, "reason": "refused"}), DONE_REPLY],
        [ProviderError("provider.timeout", "late", fields={"status": None, "limit": 9})] * 4,
        [ProviderError("provider.zero_output", "cut", fields={"status": None, "received": 9}), DONE_REPLY],
        [failure(401, "who are you")],
        [700_000, DONE_REPLY, DONE_REPLY],
    ],
    ids=["refusals", "no connection", "timeouts", "cut off", "fatal", "longer than a call may take"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_provider_failures_are_recorded_and_replayed(tmp_path: Path, replies: list[Any], stream: bool) -> None:
    agent = package(model={"stream": stream})
    taken = record_and_replay(tmp_path, agent, lambda clock: {}, *replies)
    assert len(taken.interactions) == len([each for each in replies if not isinstance(each, int)])


def test_calls_of_one_batch_are_recorded_in_the_order_they_began(tmp_path: Path) -> None:
    """The last of three is done first; the recording has them as they were asked for."""

    class Slow:
        def __init__(self, clock: StepClock) -> None:
            self._clock = clock

        async def run(self, call: Any) -> ToolReturn:
            await self._clock.sleep_until(self._clock.now() + 100 * (4 - call.arguments["at"]))
            return ToolReturn((Text(f"seen {call.arguments['at']}"),))

    batch = reply_with_calls(("look", {"at": 1}), ("look", {"at": 2}), ("look", {"at": 3}))
    taken = record_and_replay(
        tmp_path, shop(), lambda clock: {"executors": {"python": Slow(clock)}}, batch, DONE_REPLY, width=8
    )
    assert [each.reply.body for each in taken.interactions[1:4]] == [b"seen 1", b"seen 2", b"seen 3"]
    assert [each.end for each in taken.interactions[1:4]] == [300, 200, 100]
    again = replay_cassette(shop(), cassette(tmp_path, taken.interactions), width=8)
    moments = [record.at - BEGAN for record in again.records]
    assert moments == sorted(moments)
    assert moments[-1] == 301, "together they took as long as the longest; no two ends are told as one"


class SleepingExecutor:
    """Takes as long as it is told to."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    async def run(self, call: Any) -> ToolReturn:
        await self._clock.sleep_until(self._clock.now() + call.arguments.get("ms", 10))
        return ToolReturn((Text(f"{call.name} done"),))


READ_TOOL = {**PYTHON, "effect": "read", "parallel": True, "timeout": 30_000}
AGENT_WITH_ABORT = {
    "tools": {
        "slow": READ_TOOL,
        "quick": {**READ_TOOL, "aborts_siblings": True},
        "last": {**READ_TOOL, "terminal": True},
        "look": READ_TOOL,
    },
    "policy": {"default": "allow"},
}


@pytest.mark.parametrize(
    "batch",
    [
        [("slow", {"ms": 1500}), ("quick", {"ms": 100}), ("look", {})],
        [("quick", {"ms": 100}), ("slow", {"ms": 1500}), ("look", {})],
        [("slow", {"ms": 1500}), ("last", {"ms": 100}), ("look", {})],
        [("last", {"ms": 100}), ("slow", {"ms": 500}), ("look", {"ms": 20})],
    ],
)
@pytest.mark.parametrize("time", [None, 1000, 50])
def test_recorded_times_decide_which_calls_are_stopped(tmp_path: Path, batch: Any, time: int | None) -> None:
    """When a call ends the others, or the time is over, in the middle of a batch."""
    agent = package(**AGENT_WITH_ABORT, budgets={"time": time})
    taken = record_in_memory(
        agent,
        lambda clock: {"executors": {"python": SleepingExecutor(clock)}},
        reply_with_calls(*batch),
        DONE_REPLY,
        width=MAX_PARALLEL_EFFECTS,
    )
    again = replay_cassette(agent, cassette(tmp_path, taken.interactions), width=MAX_PARALLEL_EFFECTS)
    assert again.canonical == taken.canonical
    assert again.outcome.tool_calls == taken.outcome.tool_calls


@given(
    st.lists(st.tuples(st.sampled_from(["slow", "quick", "last", "look"]), st.integers(1, 3)), min_size=2, max_size=5),
    st.integers(0, 2**32),
)
def test_calls_that_end_at_the_same_time_replay_in_recorded_order(calls: list[tuple[str, int]], chance: int) -> None:
    """Whatever order they ended in, and although a millisecond holds many ends."""
    agent = package(**AGENT_WITH_ABORT)
    batch = reply_with_calls(*((name, {"ms": milliseconds, "n": n}) for n, (name, milliseconds) in enumerate(calls)))
    order = Random(chance)  # noqa: S311  # the chance is the test's own
    world: World = lambda clock: {"executors": {"python": SleepingExecutor(clock)}}  # short
    taken = record_in_memory(
        agent, world, batch, DONE_REPLY, width=MAX_PARALLEL_EFFECTS, order=lambda ready: order.randrange(len(ready))
    )
    recorded_cassette = Cassette(taken.interactions, {}, BEGAN)
    assert replay_cassette(agent, recorded_cassette, width=MAX_PARALLEL_EFFECTS).canonical == taken.canonical


def test_sub_agent_is_recorded_on_the_same_cassette_under_its_path(tmp_path: Path) -> None:
    """Parent and child ask the same question; each gets its own answer."""
    inner = package(name="inner", input="Same?", instructions=["Same."], params={})
    agent = package(
        name="outer",
        input="Same?",
        instructions=["Same."],
        params={},
        tools={"inner": AGENT},
        agents={"inner": inner},
        policy={"default": "allow"},
    )
    taken = record_and_replay(
        tmp_path,
        agent,
        lambda clock: {},
        reply_with_calls(("inner", {})),
        completion("inner answer"),
        completion("outer"),
    )
    assert [each.path for each in taken.interactions] == ["", "c1.0", ""]
    assert "inner answer" in taken.canonical


# --- what a replay does not do -----------------------------------------------------------------------------------


def test_unreachable_ports_raise_internal_errors() -> None:
    from agentrun.engine.worlds.replay import UNREACHABLE

    clock = StepClock()
    call: Any = None
    for work in (
        UNREACHABLE.run(call),
        UNREACHABLE.deliver(call),
        UNREACHABLE.answer(call),
        UNREACHABLE.send(call, gap=0, time=0),
    ):
        with pytest.raises(InternalError):
            clock.run(work)
    with pytest.raises(InternalError):
        UNREACHABLE(call)


def test_call_missing_on_the_cassette_is_a_miss_and_not_executed(tmp_path: Path) -> None:
    taken = record_in_memory(shop(), tools(), LOOK, DONE_REPLY)
    model, _, last = taken.interactions
    done = replay_cassette(shop(), cassette(tmp_path, (model, last)))
    assert (done.outcome.code, done.outcome.fields["call"], done.outcome.fields["turn"]) == ("cassette.miss", "c1.0", 1)


def test_hook_answer_missing_on_the_cassette_is_a_miss(tmp_path: Path) -> None:
    """It is no answer of the hook, also of one that may fail."""
    agent = package(**{**AGENT_WITH_HOOK, "hooks": [{**HOOK, "on_failure": "continue"}]})
    world: World = lambda clock: {"executors": {"look": stub("")}, "hooks": {"careful": lambda question: Continue()}}
    taken = record_in_memory(agent, world, LOOK, DONE_REPLY)
    done = replay_cassette(agent, cassette(tmp_path, (taken.interactions[0], *taken.interactions[2:])))
    assert (done.outcome.code, "tool_started" in done.canonical) == ("cassette.miss", False)


def test_delivery_missing_on_the_cassette_is_a_miss(tmp_path: Path) -> None:
    agent = package(sinks={"out": {"kind": "stdout", "delivery": "optional", "timeout": 1000}})
    taken = record_in_memory(agent, lambda clock: {"sinks": {"stdout": Sink(None)}}, DONE_REPLY)
    assert replay_cassette(agent, cassette(tmp_path, taken.interactions[:1])).outcome.code == "cassette.miss"


def test_replay_moves_the_clock_to_the_recorded_end() -> None:
    """It moves to the recorded end; what lies before the start of an exchange is no part of what it took."""
    ask = HttpCall("CALL", "tool://look", (), b"{}")
    late = Interaction(ask, HttpReply(200, (), b""), start=20_000, end=20_800)
    clock = StepClock(BEGAN)

    async def never(heard: Any) -> HttpReply:
        raise AssertionError("nothing is done in a replay")

    def play(limit: int) -> None:
        exchanger = ReplayExchanger(Player(Cassette((late,), {}, BEGAN)), clock)
        clock.run(clock.within(limit, exchanger.exchange(ask, "", never)))

    with pytest.raises(TimeoutError):
        play(799)
    assert clock.now() == BEGAN + 799, "given up when its time was over"
    play(800)
    assert clock.now() == BEGAN + 20_800


@pytest.mark.parametrize(
    ("url", "body"),
    [
        ("tool://look", b"{}"),
        ("tool://look", b"nothing"),
        ("tool://look", b'{"returned": {"parts": [{"kind": "text"}]}}'),
        ("tool://look", b'{"returned": {"fault": {"code": "nonsense", "message": ""}}}'),
        ("tool://look", b'{"returned": {}, "blobs": {"sha256:0": "YQ=="}}'),
        ("approval://refund", b'{"answer": "perhaps", "by": "x"}'),
        ("approval://refund", b'{"answer": "approved"}'),
    ],
)
def test_invalid_recorded_reply_is_a_damaged_cassette(tmp_path: Path, url: str, body: bytes) -> None:
    batch = reply_with_calls(("look", {"at": 1}), ("refund", {"amount": 1}))
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved")}  # short
    taken = record_in_memory(shop(), world, batch, DONE_REPLY)

    def edited(each: Interaction) -> Interaction:
        json = (("content-type", "application/json"),)
        return replace(each, reply=replace(each.reply, headers=json, body=body)) if each.call.url == url else each

    done = replay_cassette(shop(), cassette(tmp_path, tuple(map(edited, taken.interactions))))
    assert (done.outcome.code, done.outcome.exit_code) == ("cassette.damaged", 3)


# --- what is kept of an earlier recording ------------------------------------------------------------------------


def test_interactions_up_to_until_are_kept_and_the_rest_recorded(tmp_path: Path) -> None:
    first = record_in_memory(shop(), tools(), LOOK, completion("Old."))
    kept = Player(cassette(tmp_path, first.interactions))
    looked = stub("something else")
    again = record_in_memory(shop(), tools(look=looked), completion("New."), kept=kept, until=2)
    assert (looked.count, again.outcome.answer) == (0, "New.")
    assert again.interactions[0].reply == first.interactions[0].reply
    assert [each.reply.body for each in again.interactions[:2]] == [each.reply.body for each in first.interactions[:2]]
    assert replay_cassette(shop(), cassette(tmp_path, again.interactions)).outcome.answer == "New."


def test_kept_interactions_that_do_not_match_are_a_miss(tmp_path: Path) -> None:
    first = record_in_memory(shop(), tools(), LOOK, DONE_REPLY)
    kept = Player(cassette(tmp_path, first.interactions))
    agent = shop(instructions=["Something else."])
    assert record_in_memory(agent, tools(), LOOK, DONE_REPLY, kept=kept, until=2).outcome.code == "cassette.miss"


def test_only_interactions_missing_on_the_cassette_are_recorded(tmp_path: Path) -> None:
    first = record_in_memory(shop(), tools(), LOOK, completion("Old."))
    kept = Player(cassette(tmp_path, first.interactions[:1] + first.interactions[2:]))
    looked = stub("seen")
    again = record_in_memory(shop(), tools(look=looked), kept=kept)
    assert (looked.count, again.outcome.answer) == (1, "Old.")
    whole = [each.reply.body for each in first.interactions]
    assert [each.reply.body for each in again.interactions] == whole, "in the order in which they were asked for"


def test_new_interactions_start_after_the_kept_ones(tmp_path: Path) -> None:
    slow: World = lambda clock: {"executors": {"look": stub("seen", delay=700, clock=clock), "refund": stub("")}}
    first = record_in_memory(shop(), slow, LOOK, DONE_REPLY)
    kept = Player(cassette(tmp_path, first.interactions))
    again = record_in_memory(shop(), slow, 50, DONE_REPLY, kept=kept, until=2)
    ends = [(each.start, each.end) for each in again.interactions]
    assert ends == [(0, 0), (0, 700), (700, 750)]
