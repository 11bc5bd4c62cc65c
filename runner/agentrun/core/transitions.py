"""Which fact may follow in which phase of a run, and in which status of a call.

The tables say where a fact can lead; the diagrams in docs/states.md are drawn from them. `legal.py` refuses the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from agentrun.core.facts import (
    AnswerReached,
    CancelRequested,
    CompactionFailed,
    ContextCompacted,
    DeliveryFinished,
    DeliverySkipped,
    DeliveryStarted,
    Fact,
    MessageQueued,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    ModelTold,
    OutputRefused,
    ReplyDiscarded,
    RetryPlanned,
    RouteSwitched,
    RunEnding,
    RunResumed,
    RunStarted,
    RunStopped,
    TimePassed,
    WorkLost,
)
from agentrun.core.facts_calls import (
    CallCancelled,
    CallRefused,
    CallSettled,
    ChildStarted,
    ChildSuspended,
    ResultsGiven,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.facts_gates import ApprovalAnswered, ApprovalAsked, HookAnswered, HookAsked, Point, Ruled
from agentrun.core.package import Stage
from agentrun.core.state import CallStatus, Phase

Leads: TypeAlias = Mapping[type[Fact], tuple[Phase, ...]]


def _live(phase: Phase, leads: Leads) -> Leads:
    """A phase of a run that is under way: some things can happen at any time."""
    outside: Leads = {CancelRequested: (phase,), TimePassed: (phase,), RunResumed: (phase,), RunStopped: ("stopped",)}
    end: Leads = {} if phase == "stopping" else {RunEnding: ("stopping",), MessageQueued: (phase,)}
    return {**outside, **end, **leads}


LEGAL: Mapping[Phase, Leads] = {
    "fresh": {RunStarted: ("starting",)},
    "starting": _live(
        "starting",
        {
            HookAsked: ("starting", "thinking"),
            HookAnswered: ("starting",),
            Ruled: ("starting", "thinking"),
            ApprovalAsked: ("starting",),
            ApprovalAnswered: ("starting",),
            WorkLost: ("starting",),
            ModelTold: ("thinking",),
            ModelAsked: ("asking",),
        },
    ),
    "thinking": _live(
        "thinking",
        {
            HookAsked: ("thinking",),
            HookAnswered: ("thinking",),
            Ruled: ("thinking",),
            WorkLost: ("thinking",),
            ModelTold: ("thinking",),
            ModelAsked: ("asking",),
            AnswerReached: ("ending",),
        },
    ),
    "asking": _live("asking", {ModelReplied: ("answered",), ModelFailed: ("failed",), WorkLost: ("thinking",)}),
    "failed": _live(
        "failed",
        {
            RetryPlanned: ("waiting",),
            RouteSwitched: ("thinking",),
            ModelAsked: ("asking",),
            RunResumed: ("failed", "thinking"),
        },
    ),
    "waiting": _live("waiting", {ModelAsked: ("asking",), RunResumed: ("waiting", "thinking")}),
    "answered": _live(
        "answered",
        {
            HookAsked: ("answered", "acting"),
            HookAnswered: ("answered",),
            WorkLost: ("answered",),
            Ruled: ("acting",),
            CallRefused: ("acting",),
            ReplyDiscarded: ("thinking",),
            ModelTold: ("thinking",),
            OutputRefused: ("thinking",),
            ContextCompacted: ("thinking",),
            CompactionFailed: ("thinking",),
            AnswerReached: ("ending",),
        },
    ),
    "acting": _live(
        "acting",
        {
            HookAsked: ("acting",),
            HookAnswered: ("acting",),
            Ruled: ("acting",),
            ApprovalAsked: ("acting",),
            ApprovalAnswered: ("acting",),
            CallRefused: ("acting",),
            CallCancelled: ("acting",),
            ToolStarted: ("acting",),
            ChildStarted: ("acting",),
            ToolFinished: ("acting",),
            ChildSuspended: ("acting",),
            CallSettled: ("acting",),
            WorkLost: ("acting",),
            ResultsGiven: ("thinking", "answered"),
        },
    ),
    "ending": _live(
        "ending",
        {
            HookAsked: ("ending",),
            HookAnswered: ("ending", "thinking"),
            Ruled: ("ending",),
            ApprovalAsked: ("ending",),
            ApprovalAnswered: ("ending",),
            DeliveryStarted: ("ending",),
            DeliveryFinished: ("ending",),
            DeliverySkipped: ("ending",),
            WorkLost: ("ending",),
            ModelTold: ("thinking",),
            OutputRefused: ("thinking",),
        },
    ),
    "stopping": _live(
        "stopping",
        {
            CallCancelled: ("stopping",),
            HookAsked: ("stopping",),
            HookAnswered: ("stopping",),
            WorkLost: ("stopping",),
        },
    ),
    "stopped": {},
}

POINT_PHASE: Mapping[Point, Phase] = {
    "on_input": "starting",
    "before_model": "thinking",
    "after_model": "answered",
    "before_tool": "acting",
    "after_tool": "acting",
    "on_output": "ending",
    "on_stop": "stopping",
}
STAGE_PHASE: Mapping[Stage, Phase] = {
    "input": "starting",
    "model_request": "thinking",
    "tool_call": "acting",
    "tool_result": "acting",
    "output": "ending",
    "delivery": "ending",
}
"""Where hooks are asked and rules are made, by point and by stage."""

CallLeads: TypeAlias = Mapping[type[Fact], tuple[CallStatus, ...]]


def _open(leads: CallLeads) -> CallLeads:
    """A status of a call that can still be given up."""
    return {CallCancelled: ("done",), **leads}


CALL_LEGAL: Mapping[CallStatus, CallLeads] = {
    "new": _open(
        {
            CallRefused: ("done",),
            HookAsked: ("new",),
            HookAnswered: ("new", "denied"),
            Ruled: ("new", "ready", "asking", "deferred", "denied"),
            WorkLost: ("new",),
        }
    ),
    "asking": _open({ApprovalAsked: ("asking",), ApprovalAnswered: ("ready", "denied"), RunResumed: ("new",)}),
    "deferred": _open({RunResumed: ("new",)}),
    "denied": _open({CallRefused: ("done",)}),
    "ready": _open(
        {CallRefused: ("done",), ToolStarted: ("started",), ChildStarted: ("started",), RunResumed: ("new",)}
    ),
    "started": _open({ToolFinished: ("finished",), ChildSuspended: ("asleep",), WorkLost: ("lost",)}),
    "lost": _open(
        {ToolStarted: ("started",), ChildStarted: ("started",), CallSettled: ("ready", "finished", "abandoned")}
    ),
    "asleep": _open({RunResumed: ("ready",)}),
    "abandoned": _open({}),
    "finished": {
        CallRefused: ("done",),
        HookAsked: ("finished",),
        HookAnswered: ("finished",),
        Ruled: ("finished",),
        WorkLost: ("finished",),
    },
    "done": {},
}
