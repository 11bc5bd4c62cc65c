"""Requests, golden files and checks that the codec tests of all providers share.

A golden folder has replies in one piece (`x.reply.json`) and the same streamed (`x.stream.sse`): both come to what is
in `x.decoded.json`. Requests are in `y.request.json`. `AGENTRUN_GOLDEN=write` writes what is expected anew.
"""

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from agentrun.canonical_json import pretty_json
from agentrun.core.effects import ModelRequest, OfferedTool
from agentrun.core.fault import Fault
from agentrun.core.messages import File, Image, Message, Reply, Transcript, user_message
from agentrun.errors import ERROR_CODES
from agentrun.providers.codec import Codec, ConversationEncoder, ReplyOrFault
from agentrun.wire import HttpCall, HttpReply

from ..packages import ROUTE, package

GOLDEN = Path(__file__).parent / "golden"
BLOBS = {"sha256:a": b"\x89PNG", "sha256:b": b"%PDF", "sha256:c": "naïve".encode()}
PICTURE = Image("image/png", "sha256:a", 4)
PDF = File("plan.pdf", "application/pdf", "sha256:b", 4)
NOTE = File("note.txt", "text/markdown", "sha256:c", 6)

SEARCH = OfferedTool("docs.search", "Search the docs.", {"type": "object", "properties": {"q": {"type": "string"}}})
NOW = OfferedTool("now", "", {"type": "object", "properties": {}})


def request(
    provider: str,
    name: str,
    *messages: Message,
    output: dict[str, Any] | None = None,
    tools: tuple[OfferedTool, ...] = (),
    route: dict[str, Any] | None = None,
    instructions: str = "Be brief.",
    **settings: Any,
) -> ModelRequest:
    routes = [ROUTE | {"provider": provider, "name": name} | (route or {})]
    model = package(model={"routes": routes, "temperature": None, **settings}).model
    return ModelRequest(
        model.routes[0], model, instructions, Transcript(messages or (user_message("Hi"),)), output, tools
    )


def problems(codec: Codec, asked: ModelRequest) -> list[str]:
    """What stands in the way of a request, by the keys of the spec."""
    return [problem.split(":")[0] for problem in codec.problems(asked.settings, asked.route, {}, output=False)]


def encode(codec: Codec, asked: ModelRequest) -> HttpCall:
    return ConversationEncoder(codec, BLOBS.__getitem__).encode(asked)


def body(codec: Codec, asked: ModelRequest) -> dict[str, Any]:
    return dict(json.loads(encode(codec, asked).body))


def check_golden_file(path: Path, text: str) -> None:
    """The golden file has this text."""
    if os.environ.get("AGENTRUN_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def request_json(call: HttpCall) -> str:
    return pretty_json({"url": call.url, "headers": dict(call.headers), "body": json.loads(call.body)})


def decoded_json(found: ReplyOrFault) -> str:
    return pretty_json({type(found).__name__.lower(): msgspec.to_builtins(found)})


def golden_names(provider: str) -> list[str]:
    return sorted(path.name.removesuffix(".reply.json") for path in (GOLDEN / provider).glob("*.reply.json"))


def reply_of(provider: str, story: str) -> bytes:
    return (GOLDEN / provider / f"{story}.reply.json").read_bytes()


def stream_of(provider: str, story: str) -> bytes:
    return (GOLDEN / provider / f"{story}.stream.sse").read_bytes()


def decode(codec: Codec, asked: ModelRequest, data: bytes, status: int = 200, **headers: str) -> ReplyOrFault:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return codec.decode(HttpReply(status, named, data), asked)


def streamed(codec: Codec, asked: ModelRequest, data: bytes, cuts: list[int] | None = None) -> tuple[str, ReplyOrFault]:
    """The texts that passed, and the result."""
    decoder = codec.stream(asked)
    places = [0, *sorted(cuts or []), len(data)]
    texts = [text for start, end in pairwise(places) for text in decoder.feed(data[start:end])]
    return "".join(texts), decoder.end()


def is_reply_or_known_fault(found: ReplyOrFault) -> bool:
    return isinstance(found, Reply) or found.code in ERROR_CODES


def fault(found: ReplyOrFault) -> Fault:
    assert isinstance(found, Fault), found
    assert found.code in ERROR_CODES
    return found


def reply(found: ReplyOrFault) -> Reply:
    assert isinstance(found, Reply), found
    return found


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """The bytes cut off somewhere, or with some of them changed."""
    places = st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=3)
    return st.builds(_damage, st.just(whole), places, st.integers(0, len(whole)))


def _damage(whole: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    data = bytearray(whole)
    for place, byte in changes:
        data[place] = byte
    return bytes(data[:cut] if cut else data)


def cuts(whole: bytes) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(whole)), max_size=12)


def check_that_cut_streams_fail(asked: ModelRequest, codec: Codec, whole: bytes, last: Callable[[bytes], int]) -> None:
    """No stream that was cut before its last event is a reply."""
    for cut in range(last(whole)):
        found = streamed(codec, asked, whole[:cut])[1]
        assert fault(found).code == "provider.empty", (cut, found)
