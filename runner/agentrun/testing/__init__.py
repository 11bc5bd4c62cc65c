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
    from agentrun.testing.hooks import HookDouble, SinkDouble, hook, sink
    from agentrun.testing.journals import Crash, CrashingJournals, FailingJournal, FailingJournals
    from agentrun.testing.models import Script, after, call, calls, fails, replies, says, scripted, text
    from agentrun.testing.people import Person, approving
    from agentrun.testing.suite.evidence import Evidence
    from agentrun.testing.tools import Stub, stub

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
    "Crash": "agentrun.testing.journals",
    "CrashingJournals": "agentrun.testing.journals",
    "Evidence": "agentrun.testing.suite.evidence",
    "FailingJournal": "agentrun.testing.journals",
    "FailingJournals": "agentrun.testing.journals",
    "HookDouble": "agentrun.testing.hooks",
    "Person": "agentrun.testing.people",
    "Script": "agentrun.testing.models",
    "SinkDouble": "agentrun.testing.hooks",
    "StepClock": "agentrun.engine.clock",
    "Stub": "agentrun.testing.tools",
    "after": "agentrun.testing.models",
    "approving": "agentrun.testing.people",
    "call": "agentrun.testing.models",
    "calls": "agentrun.testing.models",
    "fails": "agentrun.testing.models",
    "hook": "agentrun.testing.hooks",
    "replies": "agentrun.testing.models",
    "says": "agentrun.testing.models",
    "scripted": "agentrun.testing.models",
    "sink": "agentrun.testing.hooks",
    "stub": "agentrun.testing.tools",
    "text": "agentrun.testing.models",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentrun.testing' has no attribute {name!r}")
    from importlib import import_module  # late: nothing is imported before it is used

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
