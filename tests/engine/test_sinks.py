"""`deliver_to_sink`: deliveries, timeouts, exceptions and invalid answers of sinks."""

from typing import Any

import pytest

from agentrun.core.effects import Deliver
from agentrun.core.facts import DeliveryFinished
from agentrun.core.fault import Fault
from agentrun.engine.perform import deliver_to_sink

from .memory_worlds import Place, delivery


class Box:
    """A sink that keeps what it gets, after a while."""

    def __init__(self, say: Any = None, wait: int = 0) -> None:
        self.say = say
        self.wait = wait
        self.got: list[Deliver] = []
        self.place = Place(sinks={"out": self})

    async def deliver(self, delivery: Deliver) -> Any:
        await self.place.clock.sleep_until(self.place.clock.now() + self.wait)
        if isinstance(self.say, BaseException):
            raise self.say
        self.got.append(delivery)
        return self.say

    def give(self, effect: Deliver) -> DeliveryFinished:
        return self.place.clock.run(deliver_to_sink(self.place.world, effect))


@pytest.mark.parametrize("wait", [0, 1000])
def test_delivery_gives_text_output_and_key_to_the_sink(wait: int) -> None:
    box = Box(wait=wait)
    assert box.give(delivery({"queue": "billing"})) == DeliveryFinished("out")
    assert [(got.text, got.output, got.key) for got in box.got] == [("the answer", {"queue": "billing"}, "key")]


def fields_of_failure(box: Box) -> dict[str, Any]:
    finished = box.give(delivery())
    assert finished.sink == "out"
    assert finished.fault is not None
    assert finished.fault.code == "delivery.failed"
    assert finished.fault.fields["sink"] == "out"
    return finished.fault.fields


def test_sink_that_takes_too_long_fails() -> None:
    assert fields_of_failure(Box(wait=1001)) == {"sink": "out", "reason": "timeout"}


@pytest.mark.parametrize("error", [OSError("full"), TimeoutError(), SystemExit(1)])
def test_sink_that_raises_fails(error: BaseException) -> None:
    assert fields_of_failure(Box(error)) == {"sink": "out", "reason": "exception", "error": type(error).__name__}


def test_fault_of_a_sink_is_the_reason_of_the_failure() -> None:
    assert fields_of_failure(Box(Fault("provider.overloaded", "later")))["reason"] == "provider.overloaded"


@pytest.mark.parametrize("rubbish", [False, True, "ok"])
def test_invalid_answer_of_a_sink_fails(rubbish: Any) -> None:
    assert fields_of_failure(Box(rubbish))["reason"] == "answer"


def test_sink_cannot_change_the_output() -> None:
    output = {"list": [1]}

    class Sly(Box):
        async def deliver(self, delivery: Deliver) -> Any:
            delivery.output["list"].append(2)

    Sly().give(delivery(output))
    assert output == {"list": [1]}
