"""A cassette in memory.

Everything is recorded in the form of HTTP: a tool call is a `CALL tool://refund` with its arguments as the body, and
approvals, hooks and sinks are recorded the same way. So there is one file, one order and one way to match.

The metadata has the sources of Python tools, because a replay uses what they returned then. Anyone may have edited the
metadata: if it has the wrong form or is missing, no tool counts as changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from msgspec import Struct, msgpack

from agentrun.canonical_json import read_json
from agentrun.cassette.json_body import ChangedBodies, JsonBody
from agentrun.cassette.match import json_bytes
from agentrun.core.package import Package
from agentrun.core.package_tools import PythonTool
from agentrun.errors import ERROR_CODES
from agentrun.wire import HttpCall, HttpReply

REQUEST_HEADERS = frozenset({"accept", "content-type"})
RESPONSE_HEADERS = frozenset({"content-type", "date", "location", "retry-after"})
"""The headers that are recorded."""
DAY_MS = 86_400_000
NO_REPLY = 599
"""The status of an interaction without a reply. Clients that ignore `response.agentrun` see a failure too."""


def is_recordable_failure(code: str) -> bool:
    """Whether a request can fail with a code. A cassette must not contain failures of agentrun itself."""
    return code.startswith("provider.") and code in ERROR_CODES and code != "provider.not_found"


def allowed_headers(headers: Iterable[tuple[str, str]], allowed: frozenset[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in headers if name.lower() in allowed)


class Failure(Struct, frozen=True):
    code: str
    message: str
    fields: dict[str, Any] = {}


class PackedCall(Struct, frozen=True):
    """A request whose body shares its parts with those of earlier ones."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    json: JsonBody

    @property
    def body(self) -> bytes:
        return self.json.pretty()


class Interaction(Struct, frozen=True):
    request: HttpCall | PackedCall
    reply: HttpReply
    """After a failure: the part that arrived."""
    start: int | None = None
    """When it was sent, in milliseconds after the recording began."""
    end: int | None = None
    line: int = 0
    path: str = ""
    """The run that sent it: empty for the run itself, `c2.0` for the sub-agent that call c2.0 started."""
    chunks: tuple[int, ...] = ()
    """The sizes of the chunks in which the body arrived. Empty: in one."""
    failure: Failure | None = None
    stopped: bool = False
    """Whether it was cancelled before it was answered."""

    @property
    def call(self) -> HttpCall:
        """The request with its whole body, which is made for each caller: it may be large."""
        request = self.request
        if isinstance(request, HttpCall):
            return request
        return HttpCall(request.method, request.url, request.headers, request.body)

    def short_call(self, context: int = 1) -> HttpCall:
        """The request without most of what it repeats: of the earlier messages only the last `context` are left."""
        request = self.request
        short = None if isinstance(request, HttpCall) else request.json.shortened(context)
        return (
            self.call if short is None else HttpCall(request.method, request.url, request.headers, short[2].compact())
        )

    def may_equal(self, body: JsonBody | None) -> bool:
        """Whether the values of the request may be those of a body. Does not make the whole request."""
        return isinstance(self.request, HttpCall) or (body is not None and self.request.json.has_shape_of(body))

    def compact_body(self) -> bytes:
        """The body of the request as our codecs send it."""
        request = self.request
        return json_bytes(request.body) if isinstance(request, HttpCall) else request.json.compact()

    def body_digest(self) -> bytes:
        """The SHA-256 of the compact body."""
        request = self.request
        return sha256(self.compact_body()).digest() if isinstance(request, HttpCall) else request.json.digest


class BodyHashes:
    """The hashes of request bodies: equal for JSON with equal values, even if numbers are written differently."""

    def __init__(self) -> None:
        self._bodies = ChangedBodies(partial(json_bytes, read=read_json))

    def of(self, request: HttpCall | PackedCall) -> bytes:
        """The requests of a cassette are given in their order."""
        if isinstance(request, HttpCall):
            return sha256(json_bytes(request.body, read_json)).digest()
        return self._bodies.of(request.json).digest


def _dump(data: dict[str, Any]) -> bytes:
    """Any data of a YAML file, for a hash. msgspec refuses numbers of more than 64 bits."""
    return json.dumps(data, sort_keys=True, default=repr).encode()


class Cassette(Struct, frozen=True):
    interactions: tuple[Interaction, ...]
    metadata: dict[str, Any]
    recorded_at: int
    """When the recording began, in milliseconds since 1970. 0: unknown."""

    @property
    def hash(self) -> str:
        """The hash of the content, with whole requests."""
        hasher = sha256(_dump(self.metadata))
        for each in self.interactions:
            request, failure = each.request, each.failure and (each.failure.code, _dump(each.failure.fields))
            where = request.method, request.url, request.headers, each.path, each.start, each.end
            hasher.update(msgpack.encode((where, each.body_digest(), each.reply, each.chunks, failure, each.stopped)))
        return "sha256:" + hasher.hexdigest()

    def days_old(self, now: int) -> int | None:
        """Whole days since the recording. None: unknown."""
        return None if self.recorded_at == 0 else max(0, now - self.recorded_at) // DAY_MS


TOOL_SOURCES_KEY = "tool_sources"


def tool_sources(package: Package) -> dict[str, str]:
    """The hash of the source of each Python tool. Tools of sub-agents have names such as `reader/search`."""
    own = {name: tool.source for name, tool in package.tools.items() if isinstance(tool, PythonTool)}
    return own | {
        f"{agent}/{name}": source
        for agent, inner in package.agents.items()
        for name, source in tool_sources(inner).items()
    }


def recorded_tool_sources(package: Package, before: Mapping[str, Any], reused: Iterable[Interaction]) -> dict[str, str]:
    """The sources for a new recording. A tool whose results are reused keeps its source in the metadata `before`."""
    kept = {each.request.url.removeprefix("tool://") for each in reused if each.request.method == "CALL"}
    old = _recorded_sources(before)
    return {
        name: old.get(name, source) if name.rpartition("/")[2] in kept else source
        for name, source in tool_sources(package).items()
    }


def changed_tools(metadata: Mapping[str, Any], package: Package) -> tuple[str, ...]:
    """The tools whose source changed since the recording."""
    recorded = _recorded_sources(metadata)
    now = tool_sources(package) if recorded else {}
    return tuple(name for name, source in now.items() if recorded.get(name, source) != source)


def _recorded_sources(metadata: Mapping[str, Any]) -> dict[str, str]:
    sources = metadata.get(TOOL_SOURCES_KEY)
    is_valid = isinstance(sources, dict) and all(isinstance(part, str) for pair in sources.items() for part in pair)
    return sources if isinstance(sources, dict) and is_valid else {}
