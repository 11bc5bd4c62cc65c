"""Gives answers to sinks. What goes wrong there is a fault, whatever it was."""

from __future__ import annotations

from copy import deepcopy

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.effects import Deliver
from agentrun.core.facts import DeliveryFinished
from agentrun.core.fault import Fault
from agentrun.engine.attempt import Late, Raised, attempt, caught
from agentrun.engine.ports import SinkPort
from agentrun.engine.world import World, sink_of
from agentrun.errors import CassetteError


async def deliver(world: World, effect: Deliver) -> DeliveryFinished:
    sink = sink_of(world, effect.name, effect.sink)
    match await attempt(world.clock, effect.sink.timeout, lambda: handed(sink, effect)):
        case Late():
            fault = _failed(effect, f"took longer than {effect.sink.timeout} ms", reason="timeout")
            return DeliveryFinished(effect.name, fault)
        case Raised(error):
            raise error
        case said:
            return DeliveryFinished(effect.name, said)


async def handed(sink: SinkPort, effect: Deliver) -> Fault | None:
    """Why a sink does not have the answer. None: it has it."""
    copied = effect if effect.output is UNSET else replace(effect, output=deepcopy(effect.output))
    said: object = await caught(lambda: sink.deliver(copied))
    match said:
        case None:
            return None
        case Raised(CassetteError() as error):
            raise error
        case Raised() as raised:
            return _failed(effect, f"raised {raised.message}", reason="exception", error=raised.kind)
        case Fault("delivery.failed") as fault:
            return fault
        case Fault() as fault:
            return _failed(effect, f"refused: {fault.message}", reason=fault.code)
        case _:
            return _failed(effect, "gave something that is no answer", reason="answer")


def _failed(effect: Deliver, what: str, **fields: str) -> Fault:
    return Fault("delivery.failed", f"the sink {effect.name} {what}", {"sink": effect.name, **fields})
