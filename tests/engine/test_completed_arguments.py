"""Defaults that were filled in: people, hooks and tools get them, but requests are matched without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentrun.cassette.player import Player
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.messages import Text
from agentrun.core.package import Package
from agentrun.engine.clock import StepClock
from agentrun.engine.worlds.replay import UNREACHABLE
from agentrun.testing import approving, hook, stub
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpReply

from ..core.script import rule
from ..packages import package
from ..scripted_service import completion
from ..tools.http_calls import TOOL as HTTP
from .memory_worlds import HOOK, MCP, PYTHON
from .recorded_runs import Service, cassette, record_in_memory, replay_cassette, reply_with_calls

ARGS = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "copies": {"type": "integer", "default": 1}},
    "required": ["order"],
}
AS_WRITTEN, COMPLETED = {"order": "7"}, {"order": "7", "copies": 1}
DONE_REPLY = completion("Done.")


def printer(**changes: Any) -> Package:
    parts = {"tools": {"print": {**PYTHON, "args": ARGS}}, "policy": {"rules": [rule("ask", "*")]}, "hooks": [HOOK]}
    return package(**{**parts, **changes})


def test_tool_hook_and_person_get_defaults_and_the_cassette_has_none(tmp_path: Path) -> None:
    executor, person, careful = stub("printed"), approving("approved"), hook()

    def world(_: StepClock) -> dict[str, Any]:
        return {"executors": {"print": executor}, "approver": person, "hooks": {"careful": careful}}

    taken = record_in_memory(printer(), world, reply_with_calls(("print", AS_WRITTEN)), DONE_REPLY)
    assert [call.arguments for call in executor.calls] == [COMPLETED]
    assert [question.value for question in person.questions] == [COMPLETED]
    assert [question.value for question in careful.questions] == [COMPLETED]
    bodies = {each.call.url: json.loads(each.call.body) for each in taken.interactions if "://" in each.call.url}
    assert bodies["tool://print"] == AS_WRITTEN
    assert bodies["approval://print"]["value"] == AS_WRITTEN
    assert bodies["hook://careful"]["value"] == AS_WRITTEN
    assert "arguments_completed" in taken.canonical
    again = replay_cassette(printer(), cassette(tmp_path, taken.interactions))
    assert again.canonical == taken.canonical


def test_mcp_server_gets_no_defaults() -> None:
    calls: list[RunTool] = []

    class Server:
        async def run(self, call: RunTool) -> ToolReturn:
            calls.append(call)
            return ToolReturn((Text("printed"),))

    pinned = {"print": {"description": "Prints.", "args": ARGS, "digest": "sha256:0"}}
    agent = printer(tools={"srv": {**MCP, "pinned": pinned}}, hooks=[], policy={"default": "allow"})
    record_in_memory(
        agent, lambda _: {"executors": {"mcp": Server()}}, reply_with_calls(("srv__print", AS_WRITTEN)), DONE_REPLY
    )
    assert [call.arguments for call in calls] == [AS_WRITTEN]


HTTP_AGENT = printer(
    tools={
        "print": {**HTTP, "args": ARGS, "url": "http://shop.example/{{ args.order }}?n={{ args.copies | default(0) }}"}
    },
    hooks=[],
    policy={"default": "allow"},
)


def test_http_request_has_defaults_and_an_older_cassette_without_them_still_matches(tmp_path: Path) -> None:
    shop: list[Service] = []

    def world(clock: StepClock) -> dict[str, Any]:
        shop.append(Service(clock, HttpReply(200, (("content-type", "text/plain"),), b"printed")))
        return {"executors": {"http": HttpTools(shop[0])}}

    taken = record_in_memory(HTTP_AGENT, world, reply_with_calls(("print", AS_WRITTEN)), DONE_REPLY)
    (sent,) = shop[0].calls
    assert sent.url == "http://shop.example/7?n=1"
    ask, request, last = taken.interactions
    assert request.call.url == sent.url, "the cassette has the request that was sent"
    tools: Any = {"executors": {"http": HttpTools(UNREACHABLE)}}
    assert replay_cassette(HTTP_AGENT, cassette(tmp_path, taken.interactions), **tools).canonical == taken.canonical
    earlier = replace(request, request=replace(request.call, url="http://shop.example/7?n=0"))
    older = cassette(tmp_path, (ask, earlier, last))
    assert replay_cassette(HTTP_AGENT, older, **tools).canonical == taken.canonical
    other = replace(request, request=replace(request.call, url="http://shop.example/8?n=0"))
    missed = replay_cassette(HTTP_AGENT, cassette(tmp_path, (ask, other, last)), **tools).outcome
    assert missed.code == "cassette.miss"
    assert "7?n=1" in json.dumps(missed.fields), "the request that would be sent is reported"


def test_recording_again_reuses_an_older_interaction_without_defaults(tmp_path: Path) -> None:
    service = Service(StepClock(0), HttpReply(200, (("content-type", "text/plain"),), b"printed"))

    def world(_: StepClock) -> dict[str, Any]:
        return {"executors": {"http": HttpTools(service)}}

    taken = record_in_memory(HTTP_AGENT, world, reply_with_calls(("print", AS_WRITTEN)), DONE_REPLY)
    ask, request, last = taken.interactions
    earlier = replace(request, request=replace(request.call, url="http://shop.example/7?n=0"))
    kept = Player(cassette(tmp_path, (ask, earlier, last)))
    again = record_in_memory(HTTP_AGENT, world, kept=kept)
    assert len(service.calls) == 1, "the shop is not asked again"
    assert again.canonical == taken.canonical


def test_request_that_cannot_be_made_without_defaults_is_matched_with_them(tmp_path: Path) -> None:
    tool = {**HTTP, "args": ARGS, "url": "http://shop.example/{{ args.order }}?n={{ args.copies }}"}
    agent = printer(tools={"print": tool}, hooks=[], policy={"default": "allow"})
    service = Service(StepClock(0), HttpReply(200, (("content-type", "text/plain"),), b"printed"))
    taken = record_in_memory(
        agent,
        lambda _: {"executors": {"http": HttpTools(service)}},
        reply_with_calls(("print", AS_WRITTEN)),
        DONE_REPLY,
    )
    assert [call.url for call in service.calls] == ["http://shop.example/7?n=1"]
    again = replay_cassette(agent, cassette(tmp_path, taken.interactions), executors={"http": HttpTools(UNREACHABLE)})
    assert again.canonical == taken.canonical
