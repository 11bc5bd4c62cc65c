"""`Performer` gives a fact for every effect, also when a port is missing or fails."""

from typing import Any

import pytest

from agentrun.core.effects import Effect, ToolReturn
from agentrun.core.facts import (
    ApprovalAnswered,
    Continue,
    DeliveryFinished,
    Fact,
    HookAnswered,
    HookFailure,
    ModelFailed,
    ModelReplied,
    ToolFinished,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text
from agentrun.engine.approvals import NoApprover
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.perform import Performer, make_crew
from agentrun.engine.ports import Journal
from agentrun.engine.world import world_of_run
from agentrun.errors import StorageError

from ..packages import package
from .crew_effects import question
from .memory_worlds import Model, Place, ask, child, delivery, hook, reply, run


def perform(effect: Effect, **parts: Any) -> Fact:
    place = Place(**parts)
    fact = place.clock.run(Performer(world_of_run(place.world, "run-1")).perform(effect))
    assert fact is not None
    return fact


class UnreadableJournals(MemoryJournals):
    """Journals of which none can be opened."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def open(self, run: str) -> Journal:
        raise self._error


class SilentPort:
    """An executor and a sink that have nothing to say."""

    async def run(self, call: Any) -> ToolReturn:
        return ToolReturn()

    async def deliver(self, delivery: Any) -> None:
        return None


def test_every_kind_of_effect_gives_its_fact() -> None:
    assert isinstance(perform(ask(), providers={"openai": Model(reply("x"))}), ModelReplied)
    assert perform(run(), executors={"python": SilentPort()}) == ToolFinished("c1.0", ())
    assert isinstance(perform(child(), providers={"openai": Model(reply("x"))}), ToolFinished)
    answered = perform(hook(), hooks={"careful": lambda question: Continue()})
    assert isinstance(answered, HookAnswered)
    assert answered.answer == Continue()
    assert perform(delivery(), sinks={"out": SilentPort()}) == DeliveryFinished("out")


def fault_of(fact: Fact) -> Fault:
    match fact:
        case ModelFailed(fault=fault) | HookAnswered(answer=HookFailure(fault=fault)):
            return fault
        case ToolFinished(fault=Fault() as fault) | DeliveryFinished(fault=Fault() as fault):
            return fault
    raise AssertionError(f"no fault in {fact}")


@pytest.mark.parametrize(
    ("effect", "code", "fields"),
    [
        (ask(), "provider.not_found", {"provider": "openai"}),
        (run(), "host.missing", {"name": "refund", "what": "executor"}),
        (hook(), "host.missing", {"name": "careful", "what": "hook"}),
        (delivery(), "delivery.failed", {"sink": "out", "reason": "missing"}),
    ],
)
def test_effect_without_its_port_is_a_fault(effect: Effect, code: str, fields: dict[str, str]) -> None:
    fault = fault_of(perform(effect))
    assert (fault.code, fault.fields) == (code, fields)


def test_missing_hook_closes_the_gate() -> None:
    answered = perform(hook())
    assert isinstance(answered, HookAnswered)
    assert answered.closes


class BrokenMapping:
    """Fails where nobody expects it."""

    def __getitem__(self, name: object) -> Any:
        raise ZeroDivisionError("a secret")

    def __contains__(self, name: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("effect", "port"),
    [(ask(), "providers"), (run(), "executors"), (hook(), "hooks"), (delivery(), "sinks"), (child(), "journals")],
)
def test_exception_in_our_own_code_is_an_internal_fault_without_details(effect: Effect, port: str) -> None:
    """A fact all the same: the name of the error, and not a word more."""
    broken = UnreadableJournals(ZeroDivisionError("a secret")) if port == "journals" else BrokenMapping()
    fact = perform(effect, **{port: broken})
    assert (fault_of(fact).code, fault_of(fact).fields) == ("internal", {"error": "ZeroDivisionError"})
    assert "secret" not in repr(fact)


class FullBlobs:
    def put(self, data: bytes) -> str:
        raise StorageError("storage.failed", "no space left", fields={"errno": 28})

    def get(self, blob: str) -> bytes:
        raise KeyError(blob)


def test_result_that_cannot_be_stored_is_a_storage_fault() -> None:
    """The call ran; that its text is lost ends the run."""

    class Long:
        async def run(self, call: Any) -> ToolReturn:
            return ToolReturn((Text("x" * 1000),))

    fault = fault_of(perform(run(), executors={"python": Long()}, blobs=FullBlobs()))
    assert (fault.code, fault.fields) == ("storage.failed", {"errno": 28})


@pytest.mark.parametrize("code", ["storage.failed", "journal.poisoned", "journal.stale_owner"])
def test_failing_journal_of_a_sub_agent_is_raised(code: str) -> None:
    """It is raised: nobody knows what the child did."""

    with pytest.raises(StorageError, match=code):
        perform(child(), journals=UnreadableJournals(StorageError(code, "no")))


def test_unreadable_journal_of_a_sub_agent_is_a_fault() -> None:
    journals = UnreadableJournals(StorageError("recovery.failed", "no"))
    assert fault_of(perform(child(), journals=journals)).code == "recovery.failed"


def test_keyboard_interrupt_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        perform(ask(), providers={"openai": Model(KeyboardInterrupt())})


def test_crew_asks_the_approver_of_the_world() -> None:
    place = Place(approver=NoApprover())
    crew = make_crew(world_of_run(place.world, "run-1"), package())
    crew.consult([question("c1.0")])
    given = place.clock.run(crew.next_fact(None))
    assert given == ApprovalAnswered("c1.0", "c1.0?", "unavailable", "nobody")


def test_crew_uses_the_approval_timeout_of_the_policy() -> None:
    class Slow:
        async def answer(self, question: Any) -> Any:
            await place.clock.sleep_until(place.clock.now() + 100)
            return "approved", "slow"

    for limit, wanted in ((100, "approved"), (99, "timed_out")):
        place = Place(approver=Slow())
        crew = make_crew(world_of_run(place.world, "run-1"), package(policy={"approval_timeout": limit}))
        crew.consult([question("c1.0")])
        given = place.clock.run(crew.next_fact(None))
        assert isinstance(given, ApprovalAnswered)
        assert given.answer == wanted


def test_crew_without_approver_ignores_questions() -> None:
    crew = make_crew(world_of_run(Place().world, "run-1"), package())
    crew.consult([question("c1.0")])
    assert not crew.busy
