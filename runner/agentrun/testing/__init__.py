"""What tests of agents are made of: models, tools, people, hooks and sinks that do as they are told, and the laws that
every run keeps.

    from agentrun.testing import StepClock, calls, scripted, stub, text

    model = scripted(calls("search", q="vcr"), text("Found 3 results."))
    outcome = agentrun.run(package, "vcr?", model=model, tools={"search": stub("3 results")}, clock=StepClock())
"""

from __future__ import annotations

from agentrun.engine.clock import StepClock
from agentrun.testing.hooks import HookDouble, SinkDouble, hook, sink
from agentrun.testing.journals import Crash, CrashingJournals, FailingJournal, FailingJournals
from agentrun.testing.models import Script, after, call, calls, fails, replies, says, scripted, text
from agentrun.testing.people import Person, approving
from agentrun.testing.tools import Stub, stub

__all__ = [
    "Crash",
    "CrashingJournals",
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
