"""Gives answers to sinks. What goes wrong there is a fault, whatever it was."""

from __future__ import annotations

from copy import deepcopy

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.effects import Deliver
from agentrun.core.facts import DeliveryFinished
from agentrun.core.facts_base import Fault
from agentrun.engine.attempt import Late, Raised, attempt
from agentrun.engine.world import World, sink_of


async def deliver(world: World, effect: Deliver) -> DeliveryFinished:
    sink = sink_of(world, effect.name, effect.sink)
    copied = effect if effect.output is UNSET else replace(effect, output=deepcopy(effect.output))
    said: object = await attempt(world.clock, effect.sink.timeout, lambda: sink.deliver(copied))
    match said:
        case None:
            return DeliveryFinished(effect.name)
        case Late():
            return _failed(effect, f"took longer than {effect.sink.timeout} ms", reason="timeout")
        case Raised() as raised:
            return _failed(effect, f"raised {raised.message}", reason="exception", error=raised.kind)
        case Fault() as fault:
            return _failed(effect, f"refused: {fault.message}", reason=fault.code)
        case _:
            return _failed(effect, "gave something that is no answer", reason="answer")


def _failed(effect: Deliver, what: str, **fields: str) -> DeliveryFinished:
    fault = Fault("delivery.failed", f"the sink {effect.name} {what}", {"sink": effect.name, **fields})
    return DeliveryFinished(effect.name, fault)
