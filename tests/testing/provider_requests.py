"""Requests to a scripted provider in every format, sent by hand."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentrun.core.effects import ModelRequest, OfferedTool
from agentrun.core.messages import Message, Transcript, user_message
from agentrun.providers.codec import ConversationEncoder, codec_for
from agentrun.testing.provider import ScriptedProvider
from agentrun.wire import HttpCall

from ..packages import ROUTE, package

PROVIDERS = ("openai", "openai-responses", "anthropic", "gemini")
TOOLS = tuple(OfferedTool(name, "A tool.", {"type": "object"}) for name in ("search", "docs.read"))


def script(*turns: dict[str, Any], order: str = "conversation") -> str:
    """JSON is YAML."""
    return json.dumps({"agentrun": "1", "order": order, "turns": turns})


def model_request(
    provider: str, messages: Sequence[Message] = (user_message("Hi"),), *, stream: bool = False
) -> ModelRequest:
    routes = [ROUTE | {"provider": provider, "name": "m-1", "base_url": "http://x/v1"}]
    model = package(model={"routes": routes, "stream": stream, "temperature": None, "reasoning": "low"}).model
    return ModelRequest(model.routes[0], model, "Be brief.", Transcript(messages), None, TOOLS)


def call_of(request: ModelRequest) -> HttpCall:
    return ConversationEncoder(codec_for(request.route.provider), lambda blob: b"").encode(request)


class ServerAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """What an error says."""
        return str(self.json["error"]["message"])


def send(server: ScriptedProvider, call: HttpCall | ModelRequest) -> ServerAnswer:
    """One request on a connection of its own. Raises what reading a cut reply raises."""
    call = call_of(call) if isinstance(call, ModelRequest) else call
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("POST", call.url.removeprefix("http://x"), call.body, dict(call.headers))
        reply = connection.getresponse()
        headers = {name.lower(): value for name, value in reply.getheaders()}
        return ServerAnswer(reply.status, headers, reply.read())
    finally:
        connection.close()
