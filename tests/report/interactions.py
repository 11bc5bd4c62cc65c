"""Interactions of every kind with their expected descriptions."""

from __future__ import annotations

from typing import Any

from agentrun.canonical_json import sorted_json
from agentrun.cassette.interactions import Failure, Interaction
from agentrun.wire import HttpCall, HttpReply

from ..scripted_service import completion, failure

QUESTION = {"model": "local-7b", "messages": [{"role": "user", "content": "Hi"}]}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1'}}


def make_interaction(
    url: str, body: Any, reply: Any, *, method: str = "CALL", status: int = 200, **more: Any
) -> Interaction:
    text = reply if isinstance(reply, bytes) else sorted_json(reply)
    return Interaction(HttpCall(method, url, (), sorted_json(body)), HttpReply(status, (), text), **more)


def model_interaction(reply: HttpReply, **more: Any) -> Interaction:
    return Interaction(
        HttpCall("POST", "http://localhost:8080/v1/chat/completions", (), sorted_json(QUESTION)), reply, **more
    )


NONE = HttpReply(599, (), b"")
LOCAL = "model openai local-7b at localhost:8080, 1 message"
KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0"
INTERACTIONS: dict[str, tuple[Interaction, str, str]] = {
    "refused": (
        model_interaction(NONE, failure=Failure("provider.transient", "connection refused")),
        LOCAL,
        "failed: connection refused (provider.transient)",
    ),
    "cut": (
        model_interaction(
            HttpReply(200, (), b"data: {"), failure=Failure("provider.zero_output", "the stream was cut")
        ),
        LOCAL,
        "failed, after 7B of a reply: the stream was cut (provider.zero_output)",
    ),
    "cancelled": (model_interaction(NONE, stopped=True), LOCAL, "cancelled before a reply came"),
    "overloaded": (
        model_interaction(failure(503, "busy", retry_after="7")),
        LOCAL,
        "503, retry-after 7: busy (provider.overloaded)",
    ),
    "no JSON": (model_interaction(HttpReply(200, (), b"<html>")), LOCAL, "unreadable: …"),
    "too long": (
        model_interaction(completion("Once", "length")),
        LOCAL,
        "text “Once”; cut off at the token limit; 20 in, 5 out tokens",
    ),
    "refusal": (model_interaction(completion(None, refusal="No.")), LOCAL, "refuses “No.”; 20 in, 5 out tokens"),
    "no JSON in a call": (
        model_interaction(completion(None, "tool_calls", tool_calls=[CALL], usage=None)),
        LOCAL,
        'calls f("{\\"a\\": 1")',
    ),
    "lines": (model_interaction(completion("One.\nTwo.", usage=None)), LOCAL, "text “One. (2 lines, 9B)”"),
    "failed tool": (
        make_interaction(
            "tool://f", {}, {"returned": {"parts": [], "fault": {"code": "tool.execution", "message": "no"}}}
        ),
        "tool f()",
        "failed: no (tool.execution)",
    ),
    "picture": (
        make_interaction(
            "tool://f", [1], {"returned": {"parts": [{"kind": "image", "media_type": "image/png", "size": 2048}]}}
        ),
        "tool f([1])",
        "[image/png, 2kB]",
    ),
    "hook": (
        make_interaction(
            "hook://check", {"point": "before_tool", "target": "refund", "value": {}}, {"answer": "continue"}
        ),
        "hook check, before_tool of refund",
        "continue",
    ),
    "hook that denies": (
        make_interaction(
            "hook://check", {"point": "on_input", "target": "input"}, {"answer": "deny", "reason": "rude"}
        ),
        "hook check, on_input of input",
        "deny “rude”",
    ),
    "hook that changes": (
        make_interaction(
            "hook://check", {"point": "on_input", "target": "input"}, {"answer": "modify", "value": {"a": 1}}
        ),
        "hook check, on_input of input",
        'modify {"a":1}',
    ),
    "sink": (make_interaction("sink://report", {"text": "Done."}, {}), "delivery to report of “Done.”", "delivered"),
    "sink that failed": (
        make_interaction("sink://report", {"text": "Done."}, {"fault": {"code": "delivery.failed", "message": "full"}}),
        "delivery to report of “Done.”",
        "failed: full (delivery.failed)",
    ),
    "stage": (
        make_interaction(
            "approval://input", {"reason": None, "rules": [], "value": "text"}, {"answer": "denied", "by": "Ada"}
        ),
        "approval of input",
        "denied by Ada",
    ),
    "any": (
        make_interaction("https://shop.example/orders/1", 100, b"gone", method="GET", status=404),
        "GET https://shop.example/orders/1, 4B",
        "404: gone",
    ),
    "secret": (
        make_interaction("tool://login", {"password": "9f8a7b6c5d4e3f2a1b0c", "note": KEY}, f"ok {KEY}".encode()),
        'tool login(note="***", password="***")',
        "ok *** (31B)",
    ),
    "placeholder": (
        make_interaction(
            "tool://login", {"note": "token: [redacted:STOCK_TOKEN]"}, b'{"token": "[redacted:STOCK_TOKEN]"}'
        ),
        'tool login(note="token: [redacted:STOCK_TOKEN]")',
        '{"token": "[redacted:STOCK_TOKEN]"}',
    ),
    "terminal": (
        make_interaction("tool://f\x1b[2J", {"a\u202e": "\x07"}, b"\x1b]52;c;eA==\x07"),
        'tool f\\x1b[2J(a\\u202e="\\u0007")',
        "\\x1b]52;c;eA==\\x07",
    ),
    "another form": (make_interaction("tool://f", {}, {"returned": 7}), "tool f()", '{"returned":7}'),
    "no form": (make_interaction("approval://f", 7, b"\xff"), "approval of f", "\ufffd"),
    "child": (
        make_interaction("tool://f", {}, b"ok", path="c2.0.c1.1", start=5),
        "in c2.0.c1.1: tool f()",
        "ok",
    ),
}
"""Name → the interaction, its request and its outcome. `…` stands for any text."""
