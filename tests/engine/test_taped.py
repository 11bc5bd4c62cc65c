"""Whatever a run sees of the world is on its tape, and the tape alone gives the same run."""

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
from ..worlds import completion, failure
from .places import AGENT, HOOK, PYTHON
from .tapes import BEGAN, Taken, asks, cassette, recorded, replayed

World = Callable[[StepClock], dict[str, Any]]
PIXEL = b"\x89PNG not really"


def shop(**changes: Any) -> Package:
    """An agent with one tool that is allowed, and one that asks."""
    rules = [rule("allow", "look", id="look"), rule("ask", "refund", id="ask", reason="money")]
    tools = {"look": {**PYTHON, "effect": "read", "parallel": True}, "refund": PYTHON}
    return package(**{"tools": tools, "policy": {"rules": rules}, **changes})


class Blunt:
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


LOOK = asks(("look", {"at": 1}))
DONE = completion("Done.")


def both(folder: Path, agent: Package, world: World, *replies: Any, **given: Any) -> Taken:
    """Recorded and replayed: the same journal. Gives the recorded run."""
    taken = recorded(agent, world, *replies, **given)
    again = replayed(agent, cassette(folder, taken.interactions))
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
def test_results_of_a_tool(tmp_path: Path, gives: Any) -> None:
    both(tmp_path, shop(), tools(look=Blunt(gives)), LOOK, DONE)


def test_pictures_of_a_tool(tmp_path: Path) -> None:
    """The bytes are on the tape too: the next request needs them."""

    class Camera:
        def __init__(self, blobs: Any) -> None:
            self._blobs = blobs

        async def run(self, call: Any) -> ToolReturn:
            return ToolReturn((Text("look"), Image("image/png", self._blobs.put(PIXEL), len(PIXEL))))

    from agentrun.engine.memory import MemoryBlobs

    blobs = MemoryBlobs()
    taken = both(tmp_path, shop(), lambda clock: {"content": blobs, "executors": {"python": Camera(blobs)}}, LOOK, DONE)
    assert data_hash(PIXEL) in taken.interactions[1].reply.body.decode()


def test_a_tool_that_takes_too_long(tmp_path: Path) -> None:
    def world(clock: StepClock) -> dict[str, Any]:
        return {"executors": {"look": stub("late", delay=5000, clock=clock), "refund": stub("")}}

    taken = both(tmp_path, shop(), world, LOOK, 300, DONE)
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
def test_approvals(tmp_path: Path, person: Any) -> None:
    asked = asks(("refund", {"amount": 9}))
    world: World = lambda clock: {**tools()(clock), "approver": person}  # short
    taken = both(tmp_path, shop(), world, asked, DONE)
    assert [each.call.url for each in taken.interactions][1] == "approval://refund"


def test_an_approval_that_nobody_gives_in_time(tmp_path: Path) -> None:
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved", delay=200_000, clock=clock)}
    taken = both(tmp_path, shop(), world, asks(("refund", {"amount": 9})), DONE)
    assert "timed_out" in taken.canonical


def test_an_approval_is_not_reused_when_the_question_changed(tmp_path: Path) -> None:
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved")}  # short
    taken = recorded(shop(), world, asks(("refund", {"amount": 9})), DONE)
    tape = cassette(tmp_path, taken.interactions)
    rules = [rule("allow", "look", id="look"), rule("ask", "refund", id="ask", reason="a lot of money")]
    done = replayed(shop(policy={"rules": rules}), tape)
    assert (done.outcome.code, done.outcome.exit_code) == ("cassette.miss", 3)
    assert (done.outcome.fields["call"], done.outcome.fields["turn"]) == ("c1.0", 1)


def test_a_case_may_answer_otherwise(tmp_path: Path) -> None:
    """The recorded answer is used up and does not count; what follows is another conversation, and a miss."""
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved")}  # short
    taken = recorded(shop(), world, asks(("refund", {"amount": 9})), DONE)
    tape = cassette(tmp_path, taken.interactions)
    same = replayed(shop(), tape, PresetApprover({"refund": "approved"}, "case"))
    assert (same.outcome.answer, "by: case" in same.canonical) == ("Done.", True)
    other = replayed(shop(), tape, PresetApprover({"refund": "denied"}, "case"))
    assert (other.outcome.code, "tool_started" in other.canonical) == ("cassette.miss", False)
    about_others = replayed(shop(), tape, PresetApprover({"look": "denied"}, "case"))
    assert about_others.canonical == taken.canonical


def test_who_answers_in_advance_needs_no_recorded_answer(tmp_path: Path) -> None:
    """Asked in other words the recorded answer is not found, and is not left over either."""
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved")}  # short
    tape = cassette(tmp_path, recorded(shop(), world, asks(("refund", {"amount": 9})), DONE).interactions)
    rules = [rule("allow", "look", id="look"), rule("ask", "refund", id="ask", reason="a lot of money")]
    done = replayed(shop(policy={"rules": rules}), tape, PresetApprover({"refund": "approved"}, "case"))
    assert done.outcome.answer == "Done."


HOOKED = {"hooks": [HOOK], "tools": {"look": {**PYTHON, "effect": "read"}}, "policy": {"default": "allow"}}


def _raise(question: Any) -> Any:
    raise LookupError("nothing")


async def _later(question: Any) -> Any:
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
        _later,
    ],
)
def test_hooks(tmp_path: Path, hook: Any) -> None:
    world: World = lambda clock: {"executors": {"look": stub("seen")}, "hooks": {"careful": hook}}
    taken = both(tmp_path, package(**HOOKED), world, LOOK, DONE)
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
def test_sinks(tmp_path: Path, gives: Any, delivery: str) -> None:
    agent = package(sinks={"out": {"kind": "stdout", "delivery": delivery, "timeout": 1000}})
    taken = both(tmp_path, agent, lambda clock: {"sinks": {"stdout": Sink(gives)}}, DONE)
    assert taken.interactions[1].call.url == "sink://out"


def test_a_sink_that_takes_too_long(tmp_path: Path) -> None:
    agent = package(sinks={"out": {"kind": "stdout", "delivery": "required", "timeout": 1000}})
    taken = both(tmp_path, agent, lambda clock: {"sinks": {"stdout": Sink(None, 5000, clock)}}, DONE)
    assert taken.outcome.code == "delivery.failed"


@pytest.mark.parametrize(
    "replies",
    [
        [failure(429, "slow down", retry_after="7"), failure(503), DONE],
        [ProviderError("provider.transient", "no", fields={"status": None, "reason": "refused"}), DONE],
        [ProviderError("provider.timeout", "late", fields={"status": None, "limit": 9})] * 4,
        [ProviderError("provider.zero_output", "cut", fields={"status": None, "received": 9}), DONE],
        [failure(401, "who are you")],
        [700_000, DONE, DONE],
    ],
    ids=["refusals", "no connection", "timeouts", "cut off", "fatal", "longer than a call may take"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_failures_of_the_provider(tmp_path: Path, replies: list[Any], stream: bool) -> None:
    agent = package(model={"stream": stream})
    taken = both(tmp_path, agent, lambda clock: {}, *replies)
    assert len(taken.interactions) == len([each for each in replies if not isinstance(each, int)])


def test_calls_of_one_batch_are_on_the_tape_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    """The last of three is done first; the recording has them as they were asked for."""

    class Slow:
        def __init__(self, clock: StepClock) -> None:
            self._clock = clock

        async def run(self, call: Any) -> ToolReturn:
            await self._clock.sleep_until(self._clock.now() + 100 * (4 - call.arguments["at"]))
            return ToolReturn((Text(f"seen {call.arguments['at']}"),))

    batch = asks(("look", {"at": 1}), ("look", {"at": 2}), ("look", {"at": 3}))
    taken = both(tmp_path, shop(), lambda clock: {"executors": {"python": Slow(clock)}}, batch, DONE, width=8)
    assert [each.reply.body for each in taken.interactions[1:4]] == [b"seen 1", b"seen 2", b"seen 3"]
    assert [each.end for each in taken.interactions[1:4]] == [300, 200, 100]
    again = replayed(shop(), cassette(tmp_path, taken.interactions), width=8)
    moments = [record.at - BEGAN for record in again.records]
    assert moments == sorted(moments)
    assert moments[-1] == 301, "together they took as long as the longest; no two ends are told as one"


class Sleepy:
    """Takes as long as it is told to."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    async def run(self, call: Any) -> ToolReturn:
        await self._clock.sleep_until(self._clock.now() + call.arguments.get("ms", 10))
        return ToolReturn((Text(f"{call.name} done"),))


READ = {**PYTHON, "effect": "read", "parallel": True, "timeout": 30_000}
RUSHED = {
    "tools": {
        "slow": READ,
        "quick": {**READ, "aborts_siblings": True},
        "last": {**READ, "terminal": True},
        "look": READ,
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
def test_who_is_still_at_work_is_told_by_the_recorded_times(tmp_path: Path, batch: Any, time: int | None) -> None:
    """When a call ends the others, or the time is over, in the middle of a batch."""
    agent = package(**RUSHED, budgets={"time": time})
    taken = recorded(
        agent, lambda clock: {"executors": {"python": Sleepy(clock)}}, asks(*batch), DONE, width=MAX_PARALLEL_EFFECTS
    )
    again = replayed(agent, cassette(tmp_path, taken.interactions), width=MAX_PARALLEL_EFFECTS)
    assert again.canonical == taken.canonical
    assert again.outcome.tool_calls == taken.outcome.tool_calls


@given(
    st.lists(st.tuples(st.sampled_from(["slow", "quick", "last", "look"]), st.integers(1, 3)), min_size=2, max_size=5),
    st.integers(0, 2**32),
)
def test_calls_that_end_together_end_in_the_recorded_order(calls: list[tuple[str, int]], chance: int) -> None:
    """Whatever order they ended in, and although a millisecond holds many ends."""
    agent = package(**RUSHED)
    batch = asks(*((name, {"ms": milliseconds, "n": n}) for n, (name, milliseconds) in enumerate(calls)))
    order = Random(chance)  # noqa: S311  # the chance is the test's own
    world: World = lambda clock: {"executors": {"python": Sleepy(clock)}}  # short
    taken = recorded(
        agent, world, batch, DONE, width=MAX_PARALLEL_EFFECTS, order=lambda ready: order.randrange(len(ready))
    )
    tape = Cassette(taken.interactions, {}, BEGAN, "")
    assert replayed(agent, tape, width=MAX_PARALLEL_EFFECTS).canonical == taken.canonical


def test_a_child_shares_the_tape_under_a_path_of_its_own(tmp_path: Path) -> None:
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
    taken = both(
        tmp_path, agent, lambda clock: {}, asks(("inner", {})), completion("inner answer"), completion("outer")
    )
    assert [each.path for each in taken.interactions] == ["", "c1.0", ""]
    assert "inner answer" in taken.canonical


# --- what a replay does not do -----------------------------------------------------------------------------------


def test_nothing_stands_behind_a_tape() -> None:
    from agentrun.engine.unreachable_ports import UNREACHABLE

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


def test_a_call_that_the_tape_does_not_hold_is_not_executed(tmp_path: Path) -> None:
    taken = recorded(shop(), tools(), LOOK, DONE)
    model, _, last = taken.interactions
    done = replayed(shop(), cassette(tmp_path, (model, last)))
    assert (done.outcome.code, done.outcome.fields["call"], done.outcome.fields["turn"]) == ("cassette.miss", "c1.0", 1)


def test_a_question_to_a_hook_that_the_tape_does_not_hold(tmp_path: Path) -> None:
    """It is no answer of the hook, also of one that may fail."""
    agent = package(**{**HOOKED, "hooks": [{**HOOK, "on_failure": "continue"}]})
    world: World = lambda clock: {"executors": {"look": stub("")}, "hooks": {"careful": lambda question: Continue()}}
    taken = recorded(agent, world, LOOK, DONE)
    done = replayed(agent, cassette(tmp_path, (taken.interactions[0], *taken.interactions[2:])))
    assert (done.outcome.code, "tool_started" in done.canonical) == ("cassette.miss", False)


def test_a_delivery_that_the_tape_does_not_hold(tmp_path: Path) -> None:
    agent = package(sinks={"out": {"kind": "stdout", "delivery": "optional", "timeout": 1000}})
    taken = recorded(agent, lambda clock: {"sinks": {"stdout": Sink(None)}}, DONE)
    assert replayed(agent, cassette(tmp_path, taken.interactions[:1])).outcome.code == "cassette.miss"


def test_time_in_a_replay() -> None:
    """It moves to the recorded end; what lies before the start of an exchange is no part of what it took."""
    ask = HttpCall("CALL", "tool://look", (), b"{}")
    late = Interaction(ask, HttpReply(200, (), b""), start=20_000, end=20_800)
    clock = StepClock(BEGAN)

    async def never(heard: Any) -> HttpReply:
        raise AssertionError("nothing is done in a replay")

    def play(limit: int) -> None:
        tape = ReplayExchanger(Player(Cassette((late,), {}, BEGAN, "")), clock)
        clock.run(clock.within(limit, tape.exchange(ask, "", never)))

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
def test_a_reply_that_was_edited_into_nonsense(tmp_path: Path, url: str, body: bytes) -> None:
    batch = asks(("look", {"at": 1}), ("refund", {"amount": 1}))
    world: World = lambda clock: {**tools()(clock), "approver": approving("approved")}  # short
    taken = recorded(shop(), world, batch, DONE)

    def edited(each: Interaction) -> Interaction:
        json = (("content-type", "application/json"),)
        return replace(each, reply=replace(each.reply, headers=json, body=body)) if each.call.url == url else each

    done = replayed(shop(), cassette(tmp_path, tuple(map(edited, taken.interactions))))
    assert (done.outcome.code, done.outcome.exit_code) == ("cassette.damaged", 3)


# --- what is kept of an earlier recording ------------------------------------------------------------------------


def test_a_prefix_is_kept_and_the_rest_is_recorded(tmp_path: Path) -> None:
    first = recorded(shop(), tools(), LOOK, completion("Old."))
    kept = Player(cassette(tmp_path, first.interactions))
    looked = stub("something else")
    again = recorded(shop(), tools(look=looked), completion("New."), kept=kept, until=2)
    assert (looked.count, again.outcome.answer) == (0, "New.")
    assert again.interactions[0].reply == first.interactions[0].reply
    assert [each.reply.body for each in again.interactions[:2]] == [each.reply.body for each in first.interactions[:2]]
    assert replayed(shop(), cassette(tmp_path, again.interactions)).outcome.answer == "New."


def test_a_prefix_must_fit(tmp_path: Path) -> None:
    first = recorded(shop(), tools(), LOOK, DONE)
    kept = Player(cassette(tmp_path, first.interactions))
    agent = shop(instructions=["Something else."])
    assert recorded(agent, tools(), LOOK, DONE, kept=kept, until=2).outcome.code == "cassette.miss"


def test_only_what_the_tape_lacks_is_recorded(tmp_path: Path) -> None:
    first = recorded(shop(), tools(), LOOK, completion("Old."))
    kept = Player(cassette(tmp_path, first.interactions[:1] + first.interactions[2:]))
    looked = stub("seen")
    again = recorded(shop(), tools(look=looked), kept=kept)
    assert (looked.count, again.outcome.answer) == (1, "Old.")
    whole = [each.reply.body for each in first.interactions]
    assert [each.reply.body for each in again.interactions] == whole, "in the order in which they were asked for"


def test_what_is_new_comes_after_what_is_kept_in_time(tmp_path: Path) -> None:
    slow: World = lambda clock: {"executors": {"look": stub("seen", delay=700, clock=clock), "refund": stub("")}}
    first = recorded(shop(), slow, LOOK, DONE)
    kept = Player(cassette(tmp_path, first.interactions))
    again = recorded(shop(), slow, 50, DONE, kept=kept, until=2)
    ends = [(each.start, each.end) for each in again.interactions]
    assert ends == [(0, 0), (0, 700), (700, 750)]
