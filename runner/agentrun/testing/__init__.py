"""Test doubles for models, tools, approvers, hooks and sinks, and laws that every run must satisfy.

    from agentrun.testing import StepClock, calls, scripted, stub, text

    model = scripted(calls("search", q="vcr"), text("Found 3 results."))
    outcome = agentrun.run(package, "vcr?", model=model, tools={"search": stub("3 results")}, clock=StepClock())

Names are imported on first use, because pytest loads the plugin in this package wherever agentrun is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrun.engine.clock import StepClock
    from agentrun.testing.doubles import (
        Crash,
        CrashingJournals,
        FailingJournal,
        FailingJournals,
        HookDouble,
        Person,
        Script,
        SinkDouble,
        Stub,
        after,
        approving,
        call,
        calls,
        fails,
        hook,
        replies,
        reply,
        scripted,
        sink,
        stub,
        text,
    )
    from agentrun.testing.suite.evidence import Evidence

__all__ = [
    "Crash",
    "CrashingJournals",
    "Evidence",
    "FailingJournal",
    "FailingJournals",
    "HookDouble",
    "Person",
    "Script",
    "SinkDouble",
    "StepClock",
    "Stub",
    "after",
    "approving",
    "call",
    "calls",
    "fails",
    "hook",
    "replies",
    "reply",
    "scripted",
    "sink",
    "stub",
    "text",
]

_MODULES = {"Evidence": "agentrun.testing.suite.evidence", "StepClock": "agentrun.engine.clock"}
"""All other names are in `agentrun.testing.doubles`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'agentrun.testing' has no attribute {name!r}")
    from importlib import import_module  # late: nothing is imported before it is used

    return getattr(import_module(_MODULES.get(name, "agentrun.testing.doubles")), name)


def __dir__() -> list[str]:
    return __all__
