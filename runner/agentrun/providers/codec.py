"""The codecs of providers: they encode neutral requests to HTTP and decode HTTP to neutral replies, without IO.

Rule 1  The same request gives the same bytes on every machine. A codec has no state.
Rule 2  A codec accepts any bytes and never raises: a reply that breaks the protocol is a `Fault`. Only the declared
        fields are read. If one has the wrong type, the whole reply is `provider.decode` with the JSON pointer.
Rule 3  A `Reply` is always complete. A reply that was cut off is never returned as a `Reply`.
Rule 4  The sender adds credentials and the values of `${NAME}`. A codec never does.
Rule 5  A conversation is encoded in segments. A segment is an `Assistant` message and everything up to the next one;
        the first is everything before the first `Assistant`. A finished segment does not change, so its bytes are kept.
Rule 6  A codec is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Protocol, TypeAlias

from msgspec import Meta, Struct

from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Message, Reply
from agentrun.core.package import ModelSettings, Package, Route
from agentrun.core.package_tools import Tool
from agentrun.errors import HostError, PackageError
from agentrun.wire import HttpCall, HttpReply

ReplyOrFault: TypeAlias = Reply | Fault
ReadBlob: TypeAlias = Callable[[str], bytes]
"""Returns the bytes of an image or a file by their hash."""
TokenCount = Annotated[int, Meta(ge=0, le=2**53 - 1)]
CODECS: Mapping[str, str] = {
    "anthropic": "agentrun.providers.anthropic:Anthropic",
    "gemini": "agentrun.providers.gemini:GeminiGenerate",
    "openai": "agentrun.providers.openai_chat:OpenAIChat",
    "openai-responses": "agentrun.providers.openai_responses:OpenAIResponses",
}


class StreamDecoder(Protocol):
    def feed(self, data: bytes) -> list[str]:
        """Add bytes, in pieces of any size, and return the new texts of the reply."""

    def end(self) -> ReplyOrFault:
        """The result after the last byte or a cut connection. Without the last event it is `provider.empty`."""


class Codec(Protocol):
    def problems(self, model: ModelSettings, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:
        """The settings that this provider does not support: sentences that begin with the key in the spec."""

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        """Encode one segment to items of the conversation. They depend only on the segment and the route."""

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        """The HTTP request with the items of all segments."""

    def decode(self, reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
        """Decode a reply that is not streamed, with any status."""

    def stream(self, request: ModelRequest) -> StreamDecoder:
        """A decoder for one streamed reply with status 200. For any other status use `decode`."""


class ConversationEncoder:
    """Encodes the requests of one run. Every message is encoded once."""

    def __init__(self, codec: Codec, blob: ReadBlob) -> None:
        self._codec = codec
        self._blob = blob
        self._begin(None)

    def _begin(self, route: Route | None) -> None:
        self._route = route
        self._messages: tuple[Message, ...] = ()
        self._items: list[bytes] = []
        self._last = 0, 0

    def encode(self, request: ModelRequest) -> HttpCall:
        if request.route != self._route or request.messages.until(len(self._messages)) != self._messages:
            self._begin(request.route)
        new = request.messages.since(len(self._messages))
        if new and not isinstance(new[0], Assistant):
            messages, items = self._last  # the last segment is removed, because messages were added to it
            self._messages = self._messages[:messages]
            del self._items[items:]
            new = request.messages.since(messages)
        for segment in split_segments(new):
            encoded = self._codec.segment(segment, request, self._blob)
            self._last = len(self._messages), len(self._items)
            self._messages += segment
            self._items += encoded
        return self._codec.call(request, self._items)


def split_segments(messages: Sequence[Message]) -> Iterator[tuple[Message, ...]]:
    start = 0
    for index, message in enumerate(messages):
        if isinstance(message, Assistant) and index > start:
            yield tuple(messages[start:index])
            start = index
    if messages:
        yield tuple(messages[start:])


class ProviderHome(Struct, frozen=True):
    """The default address of a provider, and the environment variable that replaces it, as in the provider's SDKs."""

    address: str
    variable: str


_OPENAI = ProviderHome("https://api.openai.com/v1", "OPENAI_BASE_URL")
PROVIDER_HOMES: Mapping[str, ProviderHome] = {
    "anthropic": ProviderHome("https://api.anthropic.com", "ANTHROPIC_BASE_URL"),
    "gemini": ProviderHome("https://generativelanguage.googleapis.com", "GOOGLE_GEMINI_BASE_URL"),
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
}


@cache
def codec_for(provider: str) -> Codec:
    """Raises `provider.not_found`."""
    if provider not in CODECS:
        message, hint = f"there is no provider {provider!r}", f"known providers: {', '.join(sorted(CODECS))}"
        raise HostError("provider.not_found", message, hint=hint, fields={"provider": provider})
    module, _, name = CODECS[provider].partition(":")
    codec: Codec = getattr(import_module(module), name)()
    return codec


def provider_url(route: Route) -> str:
    """The base URL of a route, without a slash at the end."""
    return (route.base_url or PROVIDER_HOMES[route.provider].address).rstrip("/")


def refuse_unsupported(package: Package, route: Route) -> None:
    """Raise `package.invalid` for settings that the provider does not support."""
    has_schema = package.output.schema is not None
    if problems := codec_for(route.provider).problems(package.model, route, package.tools, has_schema):
        message = f"{route_name(route)} does not support the settings of the package: {'; '.join(problems)}"
        fields = {"pointer": "/model", "route": route_name(route), "problems": problems}
        raise PackageError("package.invalid", message, fields=fields)
