"""`HttpProvider` serves many runs and encodes the messages of each run once."""

import json
from collections.abc import Sequence
from typing import Any

from agentrun.core.effects import AskModel, ModelRequest
from agentrun.core.facts import ModelReplied
from agentrun.core.messages import Assistant, Image, Message, Text, Transcript, User, user_message
from agentrun.engine.models import HttpProvider, ModelCaller
from agentrun.providers.codec import ReadBlob
from agentrun.providers.openai_chat import OpenAIChat

from ..scripted_service import ScriptedSender, completion
from .memory_worlds import Place, ask


class CountingCodec(OpenAIChat):
    """Remembers what it encodes."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        self.seen += messages
        return super().segment(messages, request, blob)


def ask_model(models: ModelCaller, place: Place, effect: AskModel) -> None:
    assert isinstance(place.clock.run(models.ask(effect)), ModelReplied)


def sent_messages(sender: ScriptedSender) -> list[Any]:
    return [json.loads(call.body)["messages"] for call in sender.calls]


def test_interleaved_runs_encode_each_message_once() -> None:
    codec, sender = CountingCodec(), ScriptedSender([completion("ok")] * 8)
    place = Place(providers={"openai": HttpProvider(codec, sender)})
    runs = {name: ModelCaller(place.world, name) for name in ("one", "two")}
    talks = {name: Transcript([user_message(name)]) for name in runs}
    for turn in range(4):
        for name, models in runs.items():
            ask_model(models, place, ask(transcript=talks[name]))
            talks[name] = talks[name].plus(Assistant((Text(f"{name} {turn}"),)), user_message("more"))
    heard = [message for name in runs for message in list(talks[name])[:-2]]
    assert sorted(map(repr, codec.seen)) == sorted(map(repr, heard))
    assert [messages[0]["content"] for messages in sent_messages(sender)] == ["one", "two"] * 4
    assert [len(messages) for messages in sent_messages(sender)] == [1, 1, 3, 3, 5, 5, 7, 7]


def test_images_of_the_run_are_sent_as_data() -> None:
    sender = ScriptedSender([completion("ok")])
    place = Place(providers={"openai": HttpProvider(OpenAIChat(), sender)})
    picture = Image("image/png", place.world.blobs.put(b"\x89PNG"), 4)
    ask_model(ModelCaller(place.world, "one"), place, ask([User((picture,))]))
    (message,) = sent_messages(sender)[0]
    assert message["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}]
