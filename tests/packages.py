"""Complete packages for tests: `package()` is a small agent, `package(budgets={"turns": 1})` the same with one change.

Sections are merged with the base, everything else is replaced. The result passes the package's own types.
"""

from typing import Any

import msgspec

from agentrun.core.package import Package

ROUTE: dict[str, Any] = {
    "provider": "openai",
    "name": "gpt-4.1-mini",
    "base_url": None,
    "api_key": None,
    "headers": {},
    "price": None,
    "context_window": None,
    "options": {},
}

TRIAGE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["queue", "urgent"],
    "properties": {
        "queue": {"type": "string", "enum": ["billing", "hardware", "other"]},
        "urgent": {"type": "boolean"},
    },
}
"""An output contract."""

BASE: dict[str, Any] = {
    "name": "triage",
    "params": {"team": {"type": "string", "default": "support"}},
    "model": {
        "routes": [ROUTE],
        "temperature": 0.0,
        "top_p": None,
        "seed": None,
        "stop": [],
        "max_output_tokens": None,
        "reasoning": None,
        "tool_choice": "auto",
        "stream": False,
    },
    "instructions": ["You sort tickets for the {{ team }} team.", "Answer briefly."],
    "input": "The printer of {{ team }} is on fire.",
    "tools": {},
    "agents": {},
    "policy": {"default": "deny", "rules": [], "approval_timeout": 120_000},
    "budgets": {
        "turns": 20,
        "tokens": None,
        "cost": None,
        "time": None,
        "tool_calls": None,
        "on_turns": "fail",
        "grace": None,
    },
    "limits": {
        "parallel_tools": 8,
        "on_oversize_batch": "fail",
        "stream_gap": 60_000,
        "call_time": 600_000,
        "on_truncated": "continue",
        "truncations": 3,
        "output_lines": 2000,
        "output_bytes": 51_200,
        "depth": 3,
        "runs": 100,
    },
    "guards": {
        "repeated_call": 3,
        "cycle": 3,
        "repeated_batch": 2,
        "batch_scope": "consecutive",
        "stagnation": 5,
        "empty_outcome": None,
        "nudge": "Go on.",
        "observation": 15,
        "call_compare": "results",
        "cycle_compare": "results",
        "batch_compare": "results",
    },
    "retry": {"attempts": 4, "first_delay": 1000, "max_delay": 15_000, "max_wait": 60_000},
    "context": {"overflow": "fail", "prompt": "Sum up.", "keep": 8, "failures": 3},
    "admission": {"max_chars": None, "dedupe": False},
    "output": {"schema": None, "repairs": 2, "max_bytes": 65_536, "max_depth": 24},
    "sinks": {},
    "hooks": [],
    "session": {"history": "full", "max_runs": None},
    "replay": {"redact": [], "volatile": []},
}

SECTIONS = {
    "model",
    "policy",
    "budgets",
    "limits",
    "guards",
    "retry",
    "context",
    "admission",
    "output",
    "session",
    "replay",
}


def package(**changes: Any) -> Package:
    """A package that differs from the base in the given keys."""
    plain = {key: {**BASE[key], **value} if key in SECTIONS else value for key, value in changes.items()}
    return msgspec.convert(BASE | plain, Package)


def typed(**changes: Any) -> Package:
    """A package with an output contract."""
    return package(**{**changes, "output": {"schema": TRIAGE, **changes.get("output", {})}})
