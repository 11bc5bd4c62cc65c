"""Ask models, and send their requests over HTTP.

Rule 1  Every failure becomes a `ModelFailed` with a code.
Rule 2  Parts of a reply are published while it arrives. If the reply fails, they are withdrawn.
Rule 3  The usage that a provider reports is checked here, for all providers (`core/budget.py`, rule 3).
Rule 4  A request is sent only if every image and file of the conversation exists. Each is checked once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from agentrun.core.budget import charged_cost, reported_usage
from agentrun.core.effects import AskModel, route_name
from agentrun.core.facts import ModelFailed, ModelReplied
from agentrun.core.fault import Fault, fault_of
from agentrun.core.messages import File, Image, Message, Reply, Transcript
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_with_timeout, is_valid_fault
from agentrun.engine.ports import Blobs, Provider, ReplyDelta
from agentrun.engine.world import World, find_provider
from agentrun.errors import AgentrunError, ProviderError
from agentrun.providers.codec import Codec, ConversationEncoder
from agentrun.redactor import Redactor
from agentrun.wire import HttpCall, HttpReply, Sender

_CUT_CONNECTION = ("provider.zero_output", "provider.timeout")


class ModelCaller:
    def __init__(self, world: World, run: str) -> None:
        self._world = world
        self._run = run
        self._attachments = AttachmentChecker(world.blobs)
        self._http_providers: dict[str, HttpProvider] = {}

    async def ask(self, effect: AskModel) -> ModelReplied | ModelFailed:
        answer = self._attachments.find_fault(effect.request.messages) or await self._answer(effect)
        if isinstance(answer, Fault):
            return ModelFailed(effect.id, effect.turn, effect.attempt, answer)
        route = effect.request.route
        reply = replace(answer.with_call_ids(effect.turn, route_name(route)), usage=reported_usage(answer))
        cost = charged_cost(route.price, reply.usage, effect.cost)
        return ModelReplied(effect.id, effect.turn, effect.attempt, reply, cost)

    async def _answer(self, effect: AskModel) -> Reply | Fault:
        provider = self._provider(effect.request.route.provider)
        deltas = _DeltaStream(
            lambda text: self._world.listen(self._run, ReplyDelta(self._run, effect.id, text)), self._world.redactor
        )
        try:
            answer = await call_with_timeout(self._world.clock, effect.time, lambda: provider.ask(effect, deltas.feed))
            deltas.is_final = isinstance(answer, Reply)
        finally:
            deltas.close()
        match answer:
            case TimedOut():
                fields = {"status": None, "limit": effect.time}
                return Fault("provider.timeout", f"the reply took longer than {effect.time} ms", fields)
            case RaisedException(AgentrunError() as error):
                return fault_of(error)
            case RaisedException() as raised:
                return Fault("internal", f"{raised.kind} while asking the model", {"error": raised.kind})
            case Reply():
                return answer
            case Fault() if is_valid_fault(answer):
                return answer
            case _:
                return Fault("internal", "the provider returned neither a reply nor a valid fault")

    def _provider(self, name: str) -> Provider:
        provider = self._http_providers.get(name) or find_provider(self._world, name)
        if isinstance(provider, HttpProvider) and name not in self._http_providers:
            provider = self._http_providers[name] = provider.for_run(self._world.blobs)
        return provider


class _DeltaStream:
    """Publishes parts of a reply while it arrives, redacted."""

    def __init__(self, publish: Callable[[str | None], None], redactor: Redactor) -> None:
        self._publish = publish
        self._stream = redactor.stream() if redactor else None
        self._has_text = False
        self._closed = False
        self.is_final = False

    def feed(self, text: str) -> None:
        if not self._closed:
            self._has_text = True
            self._send(text if self._stream is None else self._stream.feed(text))

    def close(self) -> None:
        self._closed = True
        if self._has_text and not self.is_final:
            self._send(None)
        elif self._has_text and self._stream is not None:
            self._send(self._stream.end())

    def _send(self, text: str | None) -> None:
        if text != "":
            with suppress(Exception):  # a listener cannot make a request fail
                self._publish(text)


class AttachmentChecker:
    """Checks the images and files of a growing conversation."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._seen = 0
        self._last: Message | None = None

    def find_fault(self, messages: Transcript) -> Fault | None:
        """The fault for a missing image or file. Only new messages are checked, so a long run stays linear."""
        start = self._seen
        if start and (start > len(messages) or messages.since(start - 1)[0] is not self._last):
            start = 0  # the conversation was compacted
        new = messages.since(start)
        for message in new:
            for part in message.parts:
                if isinstance(part, Image | File) and (reason := self._problem(part.blob)):
                    name = part.name if isinstance(part, File) else part.media_type
                    return Fault("context.failed", f"{name} is {reason}", {"part": name, "reason": reason})
        self._seen = len(messages)
        self._last = new[-1] if new else self._last
        return None

    def _problem(self, blob: str) -> str | None:
        try:
            self._blobs.get(blob)
        except KeyError:
            return "missing"
        except (AgentrunError, OSError):
            return "unreadable"
        return None


class HttpProvider:
    """A model over HTTP. Each run has its own, which remembers the encoded messages of the run."""

    def __init__(
        self,
        codec: Codec,
        sender: Sender,
        blobs: Blobs | None = None,
        read: Callable[[Reply | Fault], None] = lambda answer: None,
    ) -> None:
        """`read`: called with each decoded reply."""
        self._codec = codec
        self._sender = sender
        self._read = read
        self._conversation = ConversationEncoder(codec, blobs.get if blobs is not None else _no_blob)

    def for_run(self, blobs: Blobs) -> HttpProvider:
        """A copy for a new run, with the images and files of its messages."""
        return HttpProvider(self._codec, self._sender, blobs, self._read)

    def with_sender(
        self, wrap: Callable[[Sender], Sender], read: Callable[[Reply | Fault], None] | None = None
    ) -> HttpProvider:
        """A copy with a wrapped sender."""
        return HttpProvider(self._codec, wrap(self._sender), None, read or self._read)

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        call = replace(self._conversation.encode(effect.request), effect=effect.id)
        answer = await ask_over_http(self._codec, self._sender, effect, call, delta)
        self._read(answer)
        return answer


def _no_blob(blob: str) -> bytes:
    """Outside of a run there are no blobs."""
    raise KeyError(blob)


async def ask_over_http(
    codec: Codec, sender: Sender, effect: AskModel, call: HttpCall, delta: Callable[[str], None]
) -> Reply | Fault:
    """Send a call, streamed if the request says so. Raises the errors of the sender."""
    if not effect.request.settings.stream:
        return codec.decode(await sender.send(call, gap=effect.gap, time=effect.time), effect.request)
    decoder = codec.stream(effect.request)

    def hear(data: bytes) -> None:
        for text in decoder.feed(data):
            delta(text)

    try:
        reply = await sender.send(call, gap=effect.gap, time=effect.time, heard=hear)
    except ProviderError as error:
        if error.code in _CUT_CONNECTION and isinstance(answer := decoder.end(), Reply):
            return answer
        raise
    return decoder.end() if is_streamed_reply(reply) else codec.decode(reply, effect.request)


def is_streamed_reply(reply: HttpReply) -> bool:
    """Whether the body was streamed, and not a JSON or HTML document."""
    kinds = [value for name, value in reply.headers if name.lower() == "content-type"]
    return reply.status == 200 and not any("json" in kind or "html" in kind for kind in kinds)
