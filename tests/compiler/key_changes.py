"""One change for every key of an agent, and the package sections that it changes.

A change is a dotted path into the rich agent and the new value there. Without more it changes the section of its first
step. A tool's kind is changed by another tool in its place.
"""

from typing import Any

from ..documents import Document, document_with
from ..full_spec import ARGS, FIND, RICH

DROP = object()
"""The value of a change that takes a key away."""

Change = tuple[str, Any, set[str]]

COMMON: Document = {
    "description": "Does something else.",
    "effect": "at_most_once",
    "parallel": True,
    "timeout": "21s",
    "visible": "spend.turns < 8",
    "observation": True,
    "terminal": True,
    "aborts_siblings": True,
    "on_denied": "stop",
}
"""What tools of every kind have, changed."""

CLOSED: Document = {**ARGS, "additionalProperties": True}
ROUTE: Document = {
    "provider": "own",
    "name": "gpt-4.1-nano",
    "base_url": "https://third.example/v1",
    "api_key": "${THIRD_KEY}",
    "headers": {"X-Team": "green"},
    "context_window": 300000,
    "options": {"logprobs": 0},
    "price.input": 0.5,
    "price.output": 1.7,
    "price.cached_input": 0.2,
}
"""A route, changed."""

TOOLS: dict[str, Document] = {
    "refund": {
        "call": "shop.refunds:give",
        "isolation": "process",
        "args.properties.amount": {"type": "number", "maximum": 5},
    },
    "ledger": {
        "actions": {"find": FIND},
        "env": {"LEDGER": "fixed"},
        "kind": {"kind": "shell", "argv": ["ledger"], "description": "Reads the ledger."},
    },
    "lookup": {
        "url": "https://shop.example/order/{{ args.id }}",
        "method": "PUT",
        "query": {"region": "{{ order_id }}"},
        "headers": {"X-Shop": "red"},
        "body": {"note": "for {{ args.id }}", "count": 2},
        "auth": DROP,
        "auth.secret": "${OTHER_TOKEN}",
        "auth.header": "X-Other",
        "auth.scheme": "",
        "result": "items[1]",
        "hosts": ["shop.example"],
        "private_network": True,
        "max_bytes": "65KiB",
        "args": CLOSED,
    },
    "search": {
        "actions.find": {**FIND, "title": "Find"},
        "kind": {"kind": "shell", "argv": ["search"], "description": "Finds orders."},
    },
    "run": {
        "argv": ["systemctl", "status", "{{ args.id }}"],
        "env": {"LANG": "C.UTF-8"},
        "cwd": "code",
        "stdin": "units {{ args.id }}",
        "exits": [0, 4],
        "dash_args": True,
        "grace": "4s",
        "args": CLOSED,
    },
    "probe": {
        "actions.drop": CLOSED,
        "kind": {"kind": "http", "url": "https://probe.example", "description": "Probes."},
    },
    "docs": {
        "command": ["mcp-server-docs", "--all"],
        "env": {"DOCS_HOME": "papers"},
        "tools": ["search_*"],
        "effects": {"search_*": "idempotent"},
        "requests": ["sampling"],
        "start_timeout": "5s",
    },
    "wiki": {"url": "https://wiki.example/other", "headers": {"X-Wiki": "2"}, "private_network": True},
    "billing": {"params": {"tone": "cold"}},
}

SECTIONS: dict[str, Document] = {
    "model": {
        **ROUTE,
        "price": {"input": 9, "output": 9},
        "temperature": 0.6,
        "top_p": 0.8,
        "seed": 8,
        "stop": ["STOP", "END"],
        "max_output_tokens": "2k",
        "reasoning": "high",
        "tool_choice": "required",
        "stream": False,
        "fallback": [],
        "fallback.0": "own/claude-sonnet-4-5",
        **{f"fallback.1.{key}": value for key, value in ROUTE.items()},
    },
    "policy": {
        "default": "ask",
        "approval_timeout": "91s",
        "rules.0.id": "looks",
        "rules.0.allow": ["lookup", "search", "docs.*", "wiki.a"],
        "rules.1.ask": ["refund", "ledger", "run", "probe", "billing", "search"],
        "rules.1.when": "spend.turns >= 1",
        "rules.1.reason": "a person decides",
        "rules.2.modify": ["run", "lookup"],
        "rules.2.set": {"id": "other"},
        "rules.3.on": "output",
        "rules.3.mask": ["pin=[0-9]+", "token=[a-z]+"],
        "rules.4.defer": "ref*",
        "rules.4.until": "person",
        "rules.5.deny": "*fund",
        "rules.6.interrupt": "lookup",
    },
    "budgets": {
        "turns": 13,
        "tokens": 50001,
        "cost": 0.26,
        "time": "121s",
        "tool_calls": 21,
        "on_turns": "fail",
        "grace": 3,
    },
    "limits": {
        "parallel_tools": 5,
        "on_oversize_batch": "run_first",
        "stream_gap": "51s",
        "call_time": "501s",
        "on_truncated": "continue",
        "truncations": 1,
        "output_lines": 1001,
        "output_bytes": "41KiB",
        "depth": 3,
        "runs": 9,
    },
    "guards": {
        "repeated_call.limit": 5,
        "repeated_call.compare": "results",
        "cycle.limit": 6,
        "cycle.compare": "results",
        "repeated_batch.limit": 4,
        "repeated_batch.compare": "results",
        "repeated_batch.scope": "consecutive",
        "stagnation.limit": 7,
        "repeated_call": "off",
        "cycle": "off",
        "repeated_batch": "off",
        "stagnation": "off",
        "empty_outcome": 0,
        "nudge": "Go on.",
        "observation": 17,
    },
    "retry": {"attempts": 6, "first_delay": "3s", "max_delay": "17s", "max_wait": "71s"},
    "context": {
        "overflow": "fail",
        "compaction.prompt": "Sum it up.",
        "compaction.keep": 7,
        "compaction.failures": 1,
    },
    "admission": {"max_chars": 4001, "dedupe": False},
    "output": {
        "schema.properties.answer": {"type": "string", "maxLength": 5},
        "repairs": 2,
        "max_bytes": 32769,
        "max_depth": 13,
    },
    "sinks": {
        "paper.path": "out/other.json",
        "paper.kind": {**RICH["sinks"]["paper"], "kind": "jsonl"},
        "lines.path": "out/others.jsonl",
        "lines.kind": {**RICH["sinks"]["lines"], "kind": "file"},
        "post.url": "https://sink.example/other",
        "post.headers": {},
        "post.auth": DROP,
        "post.auth.secret": "${OTHER_TOKEN}",
        "post.auth.header": "X-Other",
        "post.auth.scheme": "Bearer",
        "post.private_network": True,
        "post.kind": RICH["sinks"]["screen"],
        "screen.kind": RICH["sinks"]["paper"],
        **{f"{name}.delivery": "required" for name in RICH["sinks"]},
        **{f"{name}.timeout": "11s" for name in RICH["sinks"]},
    },
    "hooks": {
        "0.id": "checks",
        "0.at": "on_output",
        "0.call": "shop.hooks:greet",
        "0.order": 3,
        "0.timeout": "5s",
        "0.on_failure": "deny",
    },
    "session": {"history": "none", "max_runs": 6},
    "replay": {
        "redact.0.name": "mail",
        "redact.0.path": "body.mail",
        "redact.0.pattern": "[a-z]+@shop.example",
        "volatile": ["body.seed"],
    },
}

CHANGES: list[Change] = [
    ("name", "poor", {"name"}),
    ("params.order_id.default", "1043", {"params"}),
    ("params.extra", {"type": "string", "default": ""}, {"params"}),
    ("instructions.0", "You help with order {{ order_id }}!", {"instructions"}),
    ("instructions", ["Be kind in {{ region }}.", "You help with order {{ order_id }}."], {"instructions"}),
    ("input", "Where is my order {{ order_id }}?", {"input"}),
    ("input", DROP, {"input"}),
    *((f"{section}.{key}", value, {section}) for section, keys in SECTIONS.items() for key, value in keys.items()),
    *((f"tools.{name}.{key}", value, {"tools"}) for name, keys in TOOLS.items() for key, value in keys.items()),
    *(
        (f"tools.{name}.{key}", value, {"tools"})
        for name in ("refund", "lookup", "run", "docs", "billing")
        for key, value in COMMON.items()
        if (name, key) != ("billing", "effect")
    ),
    # What stands in one section and counts in another.
    ("limits.tool_timeout", "26s", {"tools"}),
    ("tools.billing.spec", "agents/other.yaml", {"agents"}),
    ("tools.billing.profile", "long", {"agents"}),
    ("tools.billing.kind", {"kind": "shell", "argv": ["billing"], "description": "Bills."}, {"tools", "agents"}),
    ("tools.docs.kind", {"kind": "shell", "argv": ["docs"], "description": "Docs."}, {"tools", "policy"}),
]

NOT_BEHAVIOUR = {"agentrun", "description", "profiles"}
"""Keys of an agent that change nothing it does. A sub-agent's description is the parent's business."""


def apply(change: Change, document: Document = RICH) -> Document:
    at, value, _ = change
    if at == "tools.docs.kind":  # a tool, and no longer a server: the rule that names it says so
        document = document_with(document, "policy.rules.0.allow", ["lookup", "search", "docs", "wiki.*"])
    if at.endswith(".kind"):
        return document_with(document, at.removesuffix(".kind"), value)
    if value is not DROP:
        return document_with(document, at, value)
    way, _, last = at.rpartition(".")
    copied = document_with(document, at, None)
    inner: Any = copied
    for step in way.split(".") if way else ():
        inner = inner[step]
    del inner[last]
    return copied
