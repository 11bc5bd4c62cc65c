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
    "agentrun.engine.clock": ("StepClock",),
    "agentrun.testing.hooks": ("HookDouble", "SinkDouble", "hook", "sink"),
    "agentrun.testing.journals": ("Crash", "CrashingJournals", "FailingJournal", "FailingJournals"),
    "agentrun.testing.models": (
        "Script",
        "after",
        "call",
        "calls",
        "fails",
        "replies",
        "says",
        "scripted",
        "text",
    ),
    "agentrun.testing.people": ("Person", "approving"),
    "agentrun.testing.suite.evidence": ("Evidence",),
    "agentrun.testing.tools": ("Stub", "stub"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module  # late: nothing is imported before it is used

            return getattr(import_module(home), name)
    raise AttributeError(f"module 'agentrun.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
