"""`ModelCaller`: replies, cost, timeouts, faults, deltas and attachments of model requests."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agentrun.core.effects import AskModel
from agentrun.core.facts import ModelFailed, ModelReplied
from agentrun.core.fault import Fault
from agentrun.core.messages import File, Image, Message, Reply, Transcript, User, user_message
from agentrun.core.package import Route
from agentrun.engine.models import AttachmentChecker, HttpProvider, ModelCaller
from agentrun.errors import ProviderError, StorageError
from agentrun.providers.codec import codec_for

from ..packages import ROUTE
from ..scripted_service import ScriptedSender, completion, failure
from .memory_worlds import Model, Place, ask, calls, reply


def ask_model(model: Any, effect: AskModel | None = None, **parts: Any) -> tuple[ModelReplied | ModelFailed, Place]:
    place = Place(providers={"openai": model}, **parts)
    if isinstance(model, Model):
        model.clock = place.clock
    return place.clock.run(ModelCaller(place.world, "run-1").ask(effect or ask())), place


def fault_of(fact: ModelReplied | ModelFailed) -> Fault:
    assert isinstance(fact, ModelFailed)
    assert (fact.effect, fact.turn, fact.attempt) == ("m1.1", 1, 1)
    return fact.fault


def test_reply_is_recorded_as_model_replied() -> None:
    fact, _ = ask_model(Model(reply("hello")))
    assert fact == ModelReplied("m1.1", 1, 1, reply("hello"), 0)


def test_call_ids_contain_the_turn() -> None:
    fact, _ = ask_model(Model(calls(("a", {}), ("b", {}))), ask(turn=7))
    assert isinstance(fact, ModelReplied)
    assert [call.id for call in fact.reply.message.calls] == ["c7.0", "c7.1"]


@pytest.mark.parametrize(("reply", "cost"), [(reply("x"), 20 * 2 + 5 * 3), (reply("x", usage=None), 77)])
def test_cost_is_priced_by_usage_or_is_the_reservation(reply: Reply, cost: int) -> None:
    """In micro-dollars; without usage, what was reserved."""
    price = {"input": 2_000_000, "output": 3_000_000, "cached_input": 0}
    route = msgspec.convert({**ROUTE, "price": price}, Route)
    fact, _ = ask_model(Model(reply), ask(route=route))
    assert isinstance(fact, ModelReplied)
    assert fact.cost == cost


@pytest.mark.parametrize(("wait", "late"), [(500, False), (501, True)])
def test_request_over_its_time_is_a_provider_timeout(wait: int, late: bool) -> None:
    fact, place = ask_model(Model(wait, reply("x")))
    assert place.clock.now() == 1_000_500
    if late:
        assert (fault_of(fact).code, fault_of(fact).fields) == ("provider.timeout", {"status": None, "limit": 500})
    else:
        assert isinstance(fact, ModelReplied)


def test_faults_and_exceptions_of_a_provider_become_model_failed() -> None:
    fault = Fault("provider.rate_limited", "slow down", {"retry_after": 3})
    assert fault_of(ask_model(Model(fault))[0]) == fault
    error = ProviderError("provider.fatal", "no", fields={"status": 401}, hint="a key")
    assert fault_of(ask_model(Model(error))[0]) == Fault("provider.fatal", "no", {"status": 401}, "a key")
    found = fault_of(ask_model(Model(ZeroDivisionError("secret")))[0])
    assert (found.code, found.fields) == ("internal", {"error": "ZeroDivisionError"})
    assert "secret" not in found.message


@pytest.mark.parametrize(
    "rubbish", [None, "text", Fault("provider.invented", "x"), Fault("internal", "x", {"x": object()})]
)
def test_invalid_answer_of_a_provider_is_an_internal_fault(rubbish: Any) -> None:
    class Odd:
        async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Any:
            return rubbish

    assert fault_of(ask_model(Odd())[0]).code == "internal"


def test_deltas_are_published() -> None:
    fact, place = ask_model(Model("hel", 10, "lo", reply("hello")))
    assert isinstance(fact, ModelReplied)
    assert place.deltas() == ["hel", "lo"]
    assert {(run, news.run, news.effect) for run, news in place.heard} == {("run-1", "run-1", "m1.1")}


@pytest.mark.parametrize("end", [Fault("provider.transient", "cut"), OSError(), 501])
def test_deltas_of_a_failed_request_are_withdrawn(end: Any) -> None:
    _, place = ask_model(Model("hel", end, reply("too late")))
    assert place.deltas() == ["hel", None]


def test_failed_request_without_deltas_withdraws_nothing() -> None:
    assert ask_model(Model(Fault("provider.transient", "no")))[1].deltas() == []


def test_deltas_of_a_stopped_request_are_withdrawn() -> None:
    model = Model("hel", 10, reply("hello"))
    place = Place(providers={"openai": model})
    model.clock = place.clock
    asking = ModelCaller(place.world, "run-1").ask(ask())
    asking.send(None)
    asking.close()
    assert place.deltas() == ["hel", None]


def test_deltas_after_the_reply_are_ignored() -> None:
    kept: list[Callable[[str], None]] = []

    class Chatty:
        async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply:
            kept.append(delta)
            return reply("done")

    _, place = ask_model(Chatty())
    kept[0]("more")
    assert place.deltas() == []


class Shelf:
    """Counts what is looked for."""

    def __init__(self, *present: str, broken: tuple[str, ...] = ()) -> None:
        self.present = present
        self.broken = broken
        self.sought: list[str] = []

    def put(self, data: bytes) -> str:
        raise NotImplementedError

    def get(self, blob: str) -> bytes:
        self.sought.append(blob)
        if blob in self.broken:
            raise StorageError("storage.failed", "cannot be read")
        if blob not in self.present:
            raise KeyError(blob)
        return b""


def picture(blob: str) -> User:
    return User((Image("image/png", blob, 1),))


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (picture("gone"), {"part": "image/png", "reason": "missing"}),
        (User((File("a.pdf", "application/pdf", "gone", 1),)), {"part": "a.pdf", "reason": "missing"}),
        (picture("broken"), {"part": "image/png", "reason": "unreadable"}),
    ],
)
def test_missing_attachment_fails_before_the_request_is_sent(message: Message, fields: dict[str, str]) -> None:
    """Nothing is sent."""
    model = Model(reply("x"))
    shelf = Shelf("there", broken=("broken",))
    fault = fault_of(ask_model(model, ask([picture("there"), message]), blobs=shelf)[0])
    assert (fault.code, fault.fields) == ("context.failed", fields)
    assert model.asked == []


def test_attachments_of_each_message_are_checked_once() -> None:
    shelf = Shelf("a", "b", "c")
    attachments = AttachmentChecker(shelf)
    one = Transcript([picture("a")])
    two = one.plus(picture("b"))
    for messages in (one, one, two, two, two.plus(user_message("x"))):
        assert attachments.find_fault(messages) is None
    assert shelf.sought == ["a", "b"]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_attachments_are_checked_again_after_compaction(kept: int) -> None:
    """All is looked at again, however long the conversation is then."""
    attachments = AttachmentChecker(Shelf("a"))
    assert attachments.find_fault(Transcript([user_message("1"), user_message("2"), picture("a")])) is None
    summed_up = Transcript(
        [*(user_message("1"), user_message("2"))[:kept], picture("gone"), user_message("2"), user_message("3")]
    )
    assert attachments.find_fault(summed_up) is not None


def test_missing_attachment_is_reported_every_time() -> None:
    attachments = AttachmentChecker(Shelf())
    messages = Transcript([picture("a")])
    assert attachments.find_fault(messages) is not None
    assert attachments.find_fault(messages) is not None


def test_http_provider_gives_replies_faults_and_internal_errors() -> None:
    sender = ScriptedSender([completion("hello"), failure(401), OSError("no network")])
    provider = HttpProvider(codec_for("openai"), sender)
    fact, _ = ask_model(provider, ask([user_message("hi")]))
    assert isinstance(fact, ModelReplied)
    assert fact.reply.message.text == "hello"
    assert fault_of(ask_model(provider)[0]).code == "provider.fatal"
    assert fault_of(ask_model(provider)[0]).code == "internal"
    assert b'"hi"' in sender.calls[0].body
