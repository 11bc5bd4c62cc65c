"""A project that uses nearly every key of the spec language.

What one tool cannot have at once (`args` or `actions`) stands in two tools.
"""

import json
from pathlib import Path
from typing import Any

from .documents import Document, write, yaml_text
from .locks import pin

ARGS: Document = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
FIND: Document = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PRICE: Document = {"input": 0.4, "output": 1.6, "cached_input": 0.1}


def _common(**more: Any) -> Document:
    return {
        "description": "Does something with an order.",
        "parallel": False,
        "timeout": "20s",
        "visible": "spend.turns < 9",
        "observation": False,
        "terminal": False,
        "aborts_siblings": False,
        "on_denied": "tell",
        **more,
    }


TOOLS: Document = {
    "refund": {
        "kind": "python",
        "call": "shop.refunds:refund",
        "isolation": "thread",
        "args": {
            "type": "object",
            "properties": {"order": {"type": "string"}, "amount": {"type": "number"}},
            "required": ["order", "amount"],
        },
        **_common(effect="idempotent"),
    },
    "ledger": {
        "kind": "python",
        "call": "shop.refunds:ledger",
        "isolation": "process",
        "env": {"LEDGER": "${LEDGER}"},
        "actions": {"find": FIND, "drop": ARGS},
    },
    "lookup": {
        "kind": "http",
        "url": "https://shop.example/orders/{{ args.id }}",
        "method": "POST",
        "query": {"region": "{{ region }}"},
        "headers": {"X-Shop": "blue"},
        "body": {"note": "for {{ args.id }}", "count": 1},
        "auth": {"secret": "${SHOP_TOKEN}", "header": "X-Token", "scheme": "Token"},
        "result": "items[0]",
        "hosts": ["shop.example", "cdn.example"],
        "private_network": False,
        "max_bytes": "64KiB",
        "args": ARGS,
        **_common(effect="idempotent"),
    },
    "search": {
        "kind": "http",
        "url": "https://search.example/find",
        "query": {"q": "{{ args.action }}"},
        "actions": {"find": FIND, "drop": ARGS},
        "description": "Finds orders.",
    },
    "run": {
        "kind": "shell",
        "argv": ["systemctl", "show", "{{ args.id }}"],
        "env": {"LANG": "C"},
        "cwd": ".",
        "stdin": "unit {{ args.id }}",
        "exits": [0, 3],
        "dash_args": False,
        "grace": "3s",
        "args": ARGS,
        **_common(effect="idempotent"),
    },
    "probe": {"kind": "shell", "argv": ["probe"], "actions": {"find": FIND, "drop": ARGS}, "description": "Probes."},
    "docs": {
        "kind": "mcp",
        "command": ["mcp-server-docs", "--read-only"],
        "env": {"DOCS_HOME": "docs"},
        "tools": ["search_*", "read"],
        "effects": {"search_*": "read"},
        "requests": ["roots"],
        "start_timeout": "4s",
        **_common(effect="idempotent"),
    },
    "wiki": {
        "kind": "mcp",
        "url": "https://wiki.example/mcp",
        "headers": {"X-Wiki": "1"},
        "private_network": False,
        "description": "The wiki.",
    },
    "billing": {
        "kind": "agent",
        "spec": "agents/billing.yaml",
        "params": {"tone": "warm"},
        "profile": "short",
        **_common(),
    },
}

POLICY: Document = {
    "default": "deny",
    "approval_timeout": "90s",
    "rules": [
        {"id": "reads", "allow": ["lookup", "search", "docs.*", "wiki.*"]},
        {
            "id": "writes",
            "ask": ["refund", "ledger", "run", "probe", "billing"],
            "when": "spend.turns >= 0",
            "reason": "a person looks at it",
        },
        {"id": "rewrites", "modify": "run", "set": {"id": "checkout"}},
        {"id": "masks", "on": "tool_result", "modify": "*", "mask": ["token=[a-z]+", "pin=[0-9]+"]},
        {"id": "waits", "defer": "refund", "when": "args.amount > 500.0", "until": "2h"},
        {"id": "refuses", "deny": "refund", "when": "args.amount > 900.0"},
        {"id": "ends", "interrupt": "run", "when": "args.id == 'root'"},
    ],
}

BUDGETS: Document = {
    "turns": 12,
    "tokens": "50k",
    "cost": 0.25,
    "time": "2m",
    "tool_calls": 20,
    "on_turns": "stop",
    "grace": 2,
}

RICH: Document = {
    "agentrun": "1",
    "name": "rich",
    "description": "Uses every key there is.",
    "params": {
        "order_id": {"type": "string", "default": "1042"},
        "region": {"type": "string", "enum": ["eu", "us"], "default": "eu"},
    },
    "model": {
        "provider": "openai",
        "name": "gpt-4.1-mini",
        "base_url": "https://llm.example/v1",
        "api_key": "${LLM_KEY}",
        "headers": {"X-Team": "blue"},
        "price": PRICE,
        "context_window": "100k",
        "options": {"logprobs": True, "bias": {"5": 1}},
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["END", "STOP"],
        "max_output_tokens": "1k",
        "reasoning": "low",
        "tool_choice": "auto",
        "stream": True,
        "fallback": [
            "own/claude-haiku-4-5",
            {
                "provider": "openai",
                "name": "gpt-4.1",
                "base_url": "https://other.example/v1",
                "api_key": "${OTHER_KEY}",
                "headers": {"X-Team": "red"},
                "price": PRICE,
                "context_window": 200000,
                "options": {"logprobs": False},
            },
        ],
    },
    "instructions": ["You help with order {{ order_id }}.", "Be kind in {{ region }}."],
    "input": "Where is order {{ order_id }}?",
    "tools": TOOLS,
    "policy": POLICY,
    "budgets": BUDGETS,
    "limits": {
        "parallel_tools": 4,
        "on_oversize_batch": "reject_all",
        "tool_timeout": "25s",
        "stream_gap": "50s",
        "call_time": "500s",
        "on_truncated": "escalate",
        "truncations": 2,
        "output_lines": 1000,
        "output_bytes": "40KiB",
        "depth": 2,
        "runs": 12,
    },
    "guards": {
        "repeated_call": {"limit": 4, "compare": "calls"},
        "cycle": {"limit": 5, "compare": "calls"},
        "repeated_batch": {"limit": 3, "compare": "calls", "scope": "session"},
        "stagnation": {"limit": 6},
        "empty_outcome": 2,
        "nudge": "Go on with {{ order_id }}.",
        "observation": 16,
    },
    "retry": {"attempts": 5, "first_delay": "2s", "max_delay": "16s", "max_wait": "70s"},
    "context": {"overflow": "compact", "compaction": {"prompt": "Sum up.", "keep": 6, "failures": 2}},
    "admission": {"max_chars": "4k", "dedupe": True},
    "output": {
        "schema": {"type": "object", "properties": {"answer": {"type": "string"}}},
        "repairs": 3,
        "max_bytes": "32KiB",
        "max_depth": 12,
    },
    "sinks": {
        "paper": {"kind": "file", "path": "out/answer.json", "delivery": "optional", "timeout": "10s"},
        "lines": {"kind": "jsonl", "path": "out/answers.jsonl", "delivery": "optional", "timeout": "10s"},
        "post": {
            "kind": "http",
            "url": "https://sink.example/answers",
            "headers": {"X-From": "rich"},
            "auth": {"secret": "${SINK_TOKEN}", "header": "X-Token", "scheme": "Token"},
            "private_network": False,
            "delivery": "optional",
            "timeout": "10s",
        },
        "screen": {"kind": "stdout", "delivery": "optional", "timeout": "10s"},
    },
    "hooks": [
        {
            "id": "check",
            "at": "after_tool",
            "call": "shop.hooks:check",
            "order": 1,
            "timeout": "4s",
            "on_failure": "continue",
        },
        {"id": "greet", "at": "before_tool", "call": "shop.hooks:greet", "order": 2},
    ],
    "session": {"history": "answers", "max_runs": 5},
    "replay": {
        "redact": [{"name": "email", "path": "body.email", "pattern": "[a-z]+@[a-z.]+"}],
        "volatile": ["body.seed", "body.user"],
    },
    "profiles": {
        "ci": {
            "description": "Runs in CI.",
            "params": {"region": {"default": "us"}},
            "model": {"stream": False},
            "instructions": "Be brief about {{ order_id }} in {{ region }}.",
            "input": "And now?",
            "tools": {"probe": None},
            "policy": {"rules": [{"id": "all", "allow": "*"}], "default": "ask"},
            "budgets": {"cost": 0.05},
            "limits": {"depth": 1},
            "guards": {"cycle": "off"},
            "retry": {"attempts": 1},
            "context": None,
            "admission": {"dedupe": False},
            "output": {"repairs": 0},
            "sinks": {"screen": None},
            "hooks": None,
            "session": {"max_runs": 1},
            "replay": {"volatile": []},
        }
    },
}

BILLING: Document = {
    "agentrun": "1",
    "name": "billing",
    "description": "Answers questions about bills.",
    "params": {"account": {"type": "string"}, "tone": {"type": "string", "default": "dry"}},
    "model": {
        "provider": "openai",
        "name": "gpt-4.1-mini",
        "max_output_tokens": 500,
        "price": {"input": 0.4, "output": 1.6},
    },
    "instructions": "You know the bills of {{ account }}. Be {{ tone }}.",
    "budgets": {"tokens": "10k"},
    "profiles": {"short": {"model": {"max_output_tokens": 100}}, "long": {"model": {"max_output_tokens": 900}}},
}

ROUTES: Document = {
    "own/claude-haiku-4-5": {
        "price": {"input": 1000000, "output": 5000000, "cached_input": 100000},
        "context_window": 200000,
    },
    "own/claude-sonnet-4-5": {
        "price": {"input": 3000000, "output": 15000000, "cached_input": 300000},
        "context_window": None,
    },
}
SERVERS: Document = {
    "docs": {
        "read": pin(description="Reads a document."),
        "search_all": pin(args=ARGS),
        "write": pin(),
    },
    "wiki": {"find": pin()},
}
"""What is pinned of the tools of servers; one of them may not be seen."""

FILES: dict[str, str] = {
    "pyproject.toml": '[tool.agentrun]\nimport_roots = ["code"]\n',
    "code/shop/__init__.py": "",
    "code/shop/refunds.py": (
        'def refund(order: str, amount: float) -> str:\n    """Gives the money back."""\n    return order\n\n\n'
        'def give(order: str, amount: float) -> str:\n    """Gives something."""\n    return order\n\n\n'
        'def ledger(action: str, **fields: object) -> str:\n    """Reads the ledger."""\n    return action\n'
    ),
    "code/shop/hooks.py": "def check(event: dict) -> None: ...\ndef greet(event: dict) -> None: ...\n",
    "specs/rich.lock": json.dumps({"agentrun_lock": "1", "origin": "a test", "routes": ROUTES, "servers": SERVERS}),
}


def project(folder: Path, document: Document = RICH, **files: str) -> Path:
    """The project on disk with this document as its spec; `files` are more files, or others in place of these."""
    children = {"specs/agents/billing.yaml": yaml_text(BILLING)}
    write(folder, {**FILES, **children, **files, "specs/rich.yaml": yaml_text(document)})
    return folder / "specs/rich.yaml"
