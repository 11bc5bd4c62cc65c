"""Interactions of every kind with their expected descriptions."""

from __future__ import annotations

from typing import Any

from agentrun.canonical_json import sorted_json
from agentrun.cassette.interactions import Failure, Interaction
from agentrun.wire import HttpCall, HttpReply

from ..scripted_service import completion, failure

QUESTION = {"model": "local-7b", "messages": [{"role": "user", "content": "Hi"}]}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1'}}


def called(url: str, body: Any, reply: Any, *, method: str = "CALL", status: int = 200, **more: Any) -> Interaction:
    text = reply if isinstance(reply, bytes) else sorted_json(reply)
    return Interaction(HttpCall(method, url, (), sorted_json(body)), HttpReply(status, (), text), **more)


def asked(reply: HttpReply, **more: Any) -> Interaction:
    return Interaction(
        HttpCall("POST", "http://localhost:8080/v1/chat/completions", (), sorted_json(QUESTION)), reply, **more
    )


NONE = HttpReply(599, (), b"")
LOCAL = "model openai local-7b at localhost:8080, 1 message"
KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0"
INTERACTIONS: dict[str, tuple[Interaction, str, str]] = {
    "refused": (
        asked(NONE, failure=Failure("provider.transient", "connection refused")),
        LOCAL,
        "failed: connection refused (provider.transient)",
    ),
    "cut": (
        asked(HttpReply(200, (), b"data: {"), failure=Failure("provider.zero_output", "the stream was cut")),
        LOCAL,
        "failed, after 7B of a reply: the stream was cut (provider.zero_output)",
    ),
    "cancelled": (asked(NONE, stopped=True), LOCAL, "cancelled before a reply came"),
    "overloaded": (
        asked(failure(503, "busy", retry_after="7")),
        LOCAL,
        "503, retry-after 7: busy (provider.overloaded)",
    ),
    "no JSON": (asked(HttpReply(200, (), b"<html>")), LOCAL, "unreadable: …"),
    "too long": (
        asked(completion("Once", "length")),
        LOCAL,
        "text “Once”; cut off at its longest; 20 in, 5 out tokens",
    ),
    "refusal": (asked(completion(None, refusal="No.")), LOCAL, "refuses “No.”; 20 in, 5 out tokens"),
    "no JSON in a call": (
        asked(completion(None, "tool_calls", tool_calls=[CALL], usage=None)),
        LOCAL,
        'calls f("{\\"a\\": 1")',
    ),
    "lines": (asked(completion("One.\nTwo.", usage=None)), LOCAL, "text “One. (2 lines, 9B)”"),
    "failed tool": (
        called("tool://f", {}, {"returned": {"parts": [], "fault": {"code": "tool.execution", "message": "no"}}}),
        "tool f()",
        "failed: no (tool.execution)",
    ),
    "picture": (
        called("tool://f", [1], {"returned": {"parts": [{"kind": "image", "media_type": "image/png", "size": 2048}]}}),
        "tool f([1])",
        "[image/png, 2kB]",
    ),
    "hook": (
        called("hook://check", {"point": "before_tool", "target": "refund", "value": {}}, {"answer": "continue"}),
        "hook check, before_tool of refund",
        "continue",
    ),
    "hook that denies": (
        called("hook://check", {"point": "on_input", "target": "input"}, {"answer": "deny", "reason": "rude"}),
        "hook check, on_input of input",
        "deny “rude”",
    ),
    "hook that changes": (
        called("hook://check", {"point": "on_input", "target": "input"}, {"answer": "modify", "value": {"a": 1}}),
        "hook check, on_input of input",
        'modify {"a":1}',
    ),
    "sink": (called("sink://report", {"text": "Done."}, {}), "delivery to report of “Done.”", "delivered"),
    "sink that failed": (
        called("sink://report", {"text": "Done."}, {"fault": {"code": "delivery.failed", "message": "full"}}),
        "delivery to report of “Done.”",
        "failed: full (delivery.failed)",
    ),
    "stage": (
        called("approval://input", {"reason": None, "rules": [], "value": "text"}, {"answer": "denied", "by": "Ada"}),
        "approval of input",
        "denied by Ada",
    ),
    "any": (
        called("https://shop.example/orders/1", 100, b"gone", method="GET", status=404),
        "GET https://shop.example/orders/1, 4B",
        "404: gone",
    ),
    "secret": (
        called("tool://login", {"password": "9f8a7b6c5d4e3f2a1b0c", "note": KEY}, f"ok {KEY}".encode()),
        'tool login(note="***", password="***")',
        "ok *** (31B)",
    ),
    "placeholder": (
        called("tool://login", {"note": "token: [redacted:STOCK_TOKEN]"}, b'{"token": "[redacted:STOCK_TOKEN]"}'),
        'tool login(note="token: [redacted:STOCK_TOKEN]")',
        '{"token": "[redacted:STOCK_TOKEN]"}',
    ),
    "terminal": (
        called("tool://f\x1b[2J", {"a\u202e": "\x07"}, b"\x1b]52;c;eA==\x07"),
        'tool f\\x1b[2J(a\\u202e="\\u0007")',
        "\\x1b]52;c;eA==\\x07",
    ),
    "another form": (called("tool://f", {}, {"returned": 7}), "tool f()", '{"returned":7}'),
    "no form": (called("approval://f", 7, b"\xff"), "approval of f", "\ufffd"),
    "child": (
        called("tool://f", {}, b"ok", path="c2.0.c1.1", start=5),
        "in c2.0.c1.1: tool f()",
        "ok",
    ),
}
"""Name → the interaction, its request and its outcome. `…` stands for any text."""
