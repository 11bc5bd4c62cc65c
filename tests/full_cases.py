"""Cases that use every key of the language and every type of assertion."""

from typing import Any

STEPS: list[Any] = [{"tool": "refund", "args": {"amount": {"lte": 50}}, "status": "ok"}, "search"]
SCHEMA = {"type": "object"}

ASSERTIONS: list[dict[str, Any]] = [
    {"type": "equals", "value": "x"},
    {"type": "contains", "value": "x"},
    {"type": "contains-all", "value": ["x"]},
    {"type": "contains-any", "value": ["x"]},
    {"type": "icontains", "value": "x"},
    {"type": "icontains-all", "value": ["x"]},
    {"type": "icontains-any", "value": ["x"]},
    {"type": "regex", "value": "x"},
    {"type": "starts-with", "value": "x"},
    {"type": "is-json", "value": SCHEMA},
    {"type": "json-schema", "value": SCHEMA},
    {"type": "jmespath", "value": "x", "expected": 1},
    {"type": "cel", "value": "true"},
    {"type": "python", "value": "m:f", "network": True},
    {"type": "tools-exact", "value": STEPS},
    {"type": "tools-in-order", "value": STEPS},
    {"type": "tools-any-order", "value": STEPS},
    {"type": "tool-called", "value": "refund", "args": {"amount": 1}, "status": "ok"},
    {"type": "tool-calls", "tool": "refund", "value": 1, "min": 1, "max": 1},
    {"type": "step-status", "tool": "refund", "nth": 1, "value": "ok"},
    {"type": "ruling", "value": "ask", "target": "refund", "stage": "tool_call", "rule": "big"},
    {"type": "approval", "value": "approved", "target": "refund"},
    {"type": "tokens", "min": 1, "max": "2k"},
    {"type": "cost", "min": 0, "max": 0.5},
    {"type": "turns", "value": 1, "min": 1, "max": 1},
    {"type": "time", "min": "1s", "max": "2s"},
    {"type": "outcome", "value": "completed"},
    {"type": "journal-snapshot", "usage": "exact", "ignore": ["model_replied.reply.model"]},
]
"""One assertion of each type, with all of its keys."""

INJECT = {
    "status": 429,
    "retry_after": 1,
    "cut_after_chunk": 1,
    "refused": True,
    "timeout": True,
    "empty": True,
    "error": "x",
    "fatal": "x",
    "answer": "denied",
    "times": 2,
}
DEFAULTS: dict[str, Any] = {
    "params": {"a": 1},
    "profile": "ci",
    "approvals": {"refund": "denied"},
    "stubs": {"refund": {"result": 1, "error": "x"}},
    "clock": {"start": "2026-01-31T09:00:00Z", "step": "1s"},
    "faults": [{"at": "model#2", "inject": INJECT}],
    "tags": ["slow"],
    "skip": "x",
    "usage": "none",
}
CASE: dict[str, Any] = {
    **DEFAULTS,
    "name": "a",
    "input": "x",
    "turns": [{"input": "x", "assert": ASSERTIONS[:1]}, "y"],
    "cassette": "b",
    "xfail": "x",
}
IN_A_LIST = {"stubs": {"refund": [{"result": 1, "error": "x"}]}}
IN_FILES: list[dict[str, Any]] = [{"type": kind, "value": {"file": "a.json"}} for kind in ("is-json", "json-schema")]


def documents_with_assertion(assertion: dict[str, Any]) -> list[dict[str, Any]]:
    """Documents with one assertion, wherever it may stand."""
    turn = {"input": "x", "assert": [assertion]}
    return [
        {"agentrun": "1", "cases": [{"name": "a", "assert": [assertion]}]},
        {"agentrun": "1", "cases": [{"name": "a", "turns": [turn]}]},
        {"agentrun": "1", "defaults": {"assert": [assertion]}, "cases": [{"name": "a"}]},
    ]


CASES: list[dict[str, Any]] = [
    {"agentrun": "1", "defaults": DEFAULTS, "cases": [CASE]},
    {"agentrun": "1", "defaults": IN_A_LIST, "cases": [{"name": "a", **IN_A_LIST}]},
    *(document for assertion in [*ASSERTIONS, *IN_FILES] for document in documents_with_assertion(assertion)),
]
"""Documents that have every key between them."""
