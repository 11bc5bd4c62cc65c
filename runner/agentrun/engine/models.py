"""Asks models. The boundary never raises: whatever goes wrong becomes a `ModelFailed` with a code."""

from __future__ import annotations

from collections.abc import Callable

from agentrun.core.effects import AskModel
from agentrun.core.facts import Fact, Fault, ModelFailed, ModelReplied
from agentrun.engine.ports import Sender
from agentrun.errors import AgentrunError
from agentrun.providers.codec import Codec, Decoded


class Models:
    def __init__(self, sender: Sender, codec_for: Callable[[str], Codec]) -> None:
        self._sender = sender
        self._codec_for = codec_for

    async def perform(self, effect: AskModel) -> Fact:
        answer = await self._ask(effect)
        if isinstance(answer, Fault):
            return ModelFailed(effect.id, effect.turn, effect.attempt, answer)
        return ModelReplied(effect.id, effect.turn, effect.attempt, answer.in_turn(effect.turn))

    async def _ask(self, effect: AskModel) -> Decoded:
        try:
            codec = self._codec_for(effect.request.route.provider)
            return codec.decode(await self._sender.send(codec.encode(effect.request)))
        except AgentrunError as error:
            return Fault(error.code, error.message, error.fields, error.hint)
        except Exception as error:  # noqa: BLE001  # our own bug: the run still ends with its terminal record
            return Fault("internal", f"{type(error).__name__} while asking the model", {"error": type(error).__name__})
