"""agentrun: test LLM agents like code.

    import agentrun

    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.")          # a script, a worker, a notebook
    outcome = await agentrun.arun("specs/triage.yaml", "The printer is on fire.")   # an event loop
    outcome = agentrun.replay("specs/triage.yaml", case="default")                  # a recorded case, offline
    package = agentrun.compile("specs/triage.yaml")     # compile a spec once, for many runs
    outcome = agentrun.run(package, "The printer is on fire.", model=model, tools={"look": look})

The stored runs of a project, in one program: `async with agentrun.open(project) as runtime`. Runs with your own ports:
`Runtime` and `Request`.

For the functions of a spec: `ToolError` and `progress` in tools; in hooks `HookQuestion` and the answers `Continue`,
`Deny`, `Modify` and `Inject`.

Names are imported when they are first used, so that `import agentrun` is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name; the import of `typing` would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from agentrun.compiler.compile import compile, load
    from agentrun.compiler.package_file import PackageFile
    from agentrun.core.effects import Deliver, ModelRequest
    from agentrun.core.facts import Continue, Deny, Inject, Modify, Record
    from agentrun.core.fault import Fault
    from agentrun.core.messages import (
        Assistant,
        File,
        Image,
        Message,
        Reply,
        Text,
        ToolCall,
        ToolResult,
        Usage,
        User,
        message_from_dict,
    )
    from agentrun.core.outcome import Outcome, Question
    from agentrun.core.trajectory import ObservedCall
    from agentrun.engine.api import aresume, arun, audit, replay, resume, run
    from agentrun.engine.events import (
        ALL_EVENTS,
        Cursor,
        Event,
        Gap,
        Scope,
        agent_scope,
        family_scope,
        filter_scope,
        run_scope,
    )
    from agentrun.engine.handle import RunHandle
    from agentrun.engine.hooks import HookQuestion
    from agentrun.engine.memory import MemoryJournals
    from agentrun.engine.ports import ReplyDelta, ToolProgress
    from agentrun.engine.project_runtime import ProjectRuntime, open
    from agentrun.engine.request import Attachment, Request, Snapshot
    from agentrun.engine.runtime import Runtime
    from agentrun.engine.stream import (
        CallFinished,
        CallProgressed,
        CallRequested,
        QuestionAsked,
        RulingMade,
        RunEnded,
        SpendUpdated,
        StreamEvent,
        TextDelta,
        TextWithdrawn,
        astream,
        stream,
    )
    from agentrun.engine.waiting_questions import WaitingQuestion
    from agentrun.errors import (
        AgentrunError,
        CassetteError,
        HostError,
        LimitError,
        OutputError,
        PackageError,
        PolicyError,
        ProviderError,
        RequestError,
        SpecError,
        StorageError,
        ToolError,
    )
    from agentrun.journal.canonical import canonical
    from agentrun.store.run_summary import RunSummary
    from agentrun.tools.progress import progress

__all__ = [
    "ALL_EVENTS",
    "AgentrunError",
    "Assistant",
    "Attachment",
    "CallFinished",
    "CallProgressed",
    "CallRequested",
    "CassetteError",
    "Continue",
    "Cursor",
    "Deliver",
    "Deny",
    "Event",
    "Fault",
    "File",
    "Gap",
    "HookQuestion",
    "HostError",
    "Image",
    "Inject",
    "LimitError",
    "MemoryJournals",
    "Message",
    "ModelRequest",
    "Modify",
    "ObservedCall",
    "Outcome",
    "OutputError",
    "PackageError",
    "PackageFile",
    "PolicyError",
    "ProjectRuntime",
    "ProviderError",
    "Question",
    "QuestionAsked",
    "Record",
    "Reply",
    "ReplyDelta",
    "Request",
    "RequestError",
    "RulingMade",
    "RunEnded",
    "RunHandle",
    "RunSummary",
    "Runtime",
    "Scope",
    "Snapshot",
    "SpecError",
    "SpendUpdated",
    "StorageError",
    "StreamEvent",
    "Text",
    "TextDelta",
    "TextWithdrawn",
    "ToolCall",
    "ToolError",
    "ToolProgress",
    "ToolResult",
    "Usage",
    "User",
    "WaitingQuestion",
    "agent_scope",
    "aresume",
    "arun",
    "astream",
    "audit",
    "canonical",
    "compile",
    "family_scope",
    "filter_scope",
    "load",
    "message_from_dict",
    "open",
    "progress",
    "replay",
    "resume",
    "run",
    "run_scope",
    "stream",
]

_NAMES_BY_MODULE = {
    "agentrun.engine.project_runtime": ("ProjectRuntime", "open"),
    "agentrun.engine.waiting_questions": ("WaitingQuestion",),
    "agentrun.store.run_summary": ("RunSummary",),
    "agentrun.compiler.compile": ("compile", "load"),
    "agentrun.compiler.package_file": ("PackageFile",),
    "agentrun.core.effects": ("Deliver", "ModelRequest"),
    "agentrun.core.facts": ("Continue", "Deny", "Inject", "Modify", "Record"),
    "agentrun.core.fault": ("Fault",),
    "agentrun.core.messages": (
        "Assistant",
        "File",
        "Image",
        "Message",
        "Reply",
        "Text",
        "ToolCall",
        "ToolResult",
        "Usage",
        "User",
        "message_from_dict",
    ),
    "agentrun.core.outcome": ("Outcome", "Question"),
    "agentrun.core.trajectory": ("ObservedCall",),
    "agentrun.engine.api": ("aresume", "arun", "audit", "replay", "resume", "run"),
    "agentrun.engine.events": (
        "ALL_EVENTS",
        "Cursor",
        "Event",
        "Gap",
        "Scope",
        "agent_scope",
        "family_scope",
        "filter_scope",
        "run_scope",
    ),
    "agentrun.engine.handle": ("RunHandle",),
    "agentrun.engine.hooks": ("HookQuestion",),
    "agentrun.engine.memory": ("MemoryJournals",),
    "agentrun.engine.ports": ("ReplyDelta", "ToolProgress"),
    "agentrun.engine.request": ("Attachment", "Request", "Snapshot"),
    "agentrun.engine.runtime": ("Runtime",),
    "agentrun.engine.stream": (
        "CallFinished",
        "CallProgressed",
        "CallRequested",
        "QuestionAsked",
        "RulingMade",
        "RunEnded",
        "SpendUpdated",
        "StreamEvent",
        "TextDelta",
        "TextWithdrawn",
        "astream",
        "stream",
    ),
    "agentrun.errors": (
        "AgentrunError",
        "CassetteError",
        "HostError",
        "LimitError",
        "OutputError",
        "PackageError",
        "PolicyError",
        "ProviderError",
        "RequestError",
        "SpecError",
        "StorageError",
        "ToolError",
    ),
    "agentrun.journal.canonical": ("canonical",),
    "agentrun.tools.progress": ("progress",),
}
_HOMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentrun' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
