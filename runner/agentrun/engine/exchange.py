"""One request to a model over HTTP, and what came of it.

Rule 1  A reply that is whole is kept, however the connection ends after it. One that is not is none.
Rule 2  Who asked for a stream may get a whole reply: servers that cannot stream do so, and errors always are.
"""

from __future__ import annotations

from collections.abc import Callable

from agentrun.core.effects import AskModel
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.errors import ProviderError
from agentrun.providers.codec import Codec
from agentrun.wire import HttpCall, HttpReply, Sender

_CUT = ("provider.zero_output", "provider.timeout")


async def exchange(
    codec: Codec, sender: Sender, effect: AskModel, call: HttpCall, delta: Callable[[str], None]
) -> Reply | Fault:
    """Send a call, streamed if the request says so. Raises what the sender raises."""
    if not effect.request.settings.stream:
        return codec.decode(await sender.send(call, gap=effect.gap, time=effect.time), effect.request)
    decoder = codec.stream(effect.request)

    def hear(data: bytes) -> None:
        for text in decoder.feed(data):
            delta(text)

    try:
        reply = await sender.send(call, gap=effect.gap, time=effect.time, heard=hear)
    except ProviderError as error:
        if error.code in _CUT and isinstance(answer := decoder.end(), Reply):
            return answer
        raise
    return decoder.end() if is_stream(reply) else codec.decode(reply, effect.request)


def is_stream(reply: HttpReply) -> bool:
    """Whether its body is what was heard of it."""
    kinds = [value for name, value in reply.headers if name.lower() == "content-type"]
    return reply.status == 200 and not any("json" in kind or "html" in kind for kind in kinds)
