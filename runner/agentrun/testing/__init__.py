"""What tests of agents are made of: models, tools, people, hooks and sinks that do as they are told, and the laws that
every run keeps.

    from agentrun.testing import StepClock, calls, scripted, stub, text

    model = scripted(calls("search", q="vcr"), text("Found 3 results."))
    outcome = agentrun.run(package, "vcr?", model=model, tools={"search": stub("3 results")}, clock=StepClock())

Names are imported when they are first used: pytest loads the plugin in here wherever agentrun is installed.
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
        says,
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
    "says",
    "scripted",
    "sink",
    "stub",
    "text",
]

_HOMES = {
    "Crash": "agentrun.testing.doubles",
    "CrashingJournals": "agentrun.testing.doubles",
    "Evidence": "agentrun.testing.suite.evidence",
    "FailingJournal": "agentrun.testing.doubles",
    "FailingJournals": "agentrun.testing.doubles",
    "HookDouble": "agentrun.testing.doubles",
    "Person": "agentrun.testing.doubles",
    "Script": "agentrun.testing.doubles",
    "SinkDouble": "agentrun.testing.doubles",
    "StepClock": "agentrun.engine.clock",
    "Stub": "agentrun.testing.doubles",
    "after": "agentrun.testing.doubles",
    "approving": "agentrun.testing.doubles",
    "call": "agentrun.testing.doubles",
    "calls": "agentrun.testing.doubles",
    "fails": "agentrun.testing.doubles",
    "hook": "agentrun.testing.doubles",
    "replies": "agentrun.testing.doubles",
    "says": "agentrun.testing.doubles",
    "scripted": "agentrun.testing.doubles",
    "sink": "agentrun.testing.doubles",
    "stub": "agentrun.testing.doubles",
    "text": "agentrun.testing.doubles",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentrun.testing' has no attribute {name!r}")
    from importlib import import_module  # late: nothing is imported before it is used

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
