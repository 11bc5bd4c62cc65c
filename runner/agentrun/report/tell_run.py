"""What a reader hears of requests to the model, and of the run as a whole."""

from __future__ import annotations

from typing import assert_never

from agentrun.core.effects import route_name
from agentrun.core.facts import (
    AnswerReached,
    CancelRequested,
    CompactionFailed,
    ContextCompacted,
    DeliveryFinished,
    DeliverySkipped,
    DeliveryStarted,
    Label,
    MessageQueued,
    ModelAsked,
    ModelFact,
    ModelFailed,
    ModelReplied,
    ModelTold,
    OutputRefused,
    ReplyDiscarded,
    RetryPlanned,
    RouteSwitched,
    RunEnding,
    RunFact,
    RunResumed,
    RunStarted,
    RunStopped,
    TimePassed,
    Why,
    WorkLost,
)
from agentrun.core.facts_base import Fault
from agentrun.core.messages import User, words
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.report.amounts import duration, magnitude
from agentrun.report.line import Line, gist, told
from agentrun.report.tell_calls import NAME, tool_of
from agentrun.report.tell_gates import subject
from agentrun.spec.text import plural, short

ERRORS = 3
"""Breaches of the contract that are named."""
LABELS: dict[Label, str] = {
    "budget.turns": "the turns are spent: the answer is what there is so far",
    "filtered": "the provider's filter cut the answer off",
    "refused": "the model declines to answer",
    "truncated": "the answer is cut off",
    "unknown_finish": "the provider does not say why the answer ended",
}
REASONS: dict[Why, str] = {
    "wrap_up": "is told to wrap up",
    "continue": "was cut off and is told",
    "nudge": "stopped and is told",
    "follow_up": "reads",
}


def tell_model(package: Package, state: State, fact: ModelFact) -> tuple[Line, ...]:
    match fact:
        case ModelAsked(purpose="compact"):
            why = f"{_fault(state.requests.fault)}; " if state.phase == "failed" and state.requests.fault else ""
            return (told(f"{why}the conversation is to be summed up", "warn", 1),)
        case ModelAsked():
            return _turn(package, state, fact)
        case ModelReplied() | ModelFailed():
            return ()  # a reply is told by its story, a failure with what is made of it
        case RetryPlanned():
            why = f"{_fault(state.requests.fault)}; " if state.requests.fault else ""
            again = f"waits {duration(fact.wait)}, attempt {state.requests.tries + 1} of {package.retry.attempts}"
            return (told(f"{why}{again}", "warn", 1),)
        case RouteSwitched():
            return (told(f"{_fault(fact.fault)}; goes on with {short(fact.target)}", "warn", 1),)
        case ReplyDiscarded():
            cap = magnitude(fact.cap)
            return (told(f"the reply was cut off; asks again for one of up to {cap} tokens", "warn", 1),)
        case _:
            assert_never(fact)


def _turn(package: Package, state: State, fact: ModelAsked) -> tuple[Line, ...]:
    if state.in_turn:
        return ()  # the same turn, asked again
    named = "" if fact.route == route_name(package.model.routes[0]) else f" · {short(fact.route)}"
    return (told(f"turn {fact.turn}{named}"),)


def tell_run(package: Package, state: State, fact: RunFact) -> tuple[Line, ...]:
    match fact:
        case RunStarted():
            asked = "goes on" if fact.input is None else _said(fact.input)
            return (told(f"{short(fact.agent, NAME)}: {asked}", "dim"),)
        case MessageQueued():
            return (told(f"a message waits: {_said(fact.message)}", "warn", 1),)
        case CancelRequested():
            return (told(f"cancelled by {short(fact.by, NAME)}", "warn", 1),)
        case RunResumed():
            other = "" if fact.package == state.package else ", with another package"
            return (told(f"the run is taken up again{other}", "warn"),)
        case WorkLost():
            return (told(f"{_lost(state, fact.effect)} was lost: whether it took place is not known", "warn", 1),)
        case ModelTold():
            return tuple(told(f"the model {REASONS[fact.why]}: {_said(each)}", "warn", 1) for each in fact.messages)
        case ContextCompacted():
            sizes = f"{magnitude(fact.before)} tokens became {magnitude(fact.after)}"
            return (told(f"{plural(fact.replaced, 'message')} summed up, {sizes}", "warn", 1),)
        case CompactionFailed():
            count = f"failure {fact.failures} of {package.context.failures}"
            return (told(f"the summary cannot be used: {fact.reason.replace('_', ' ')}, {count}", "bad", 1),)
        case OutputRefused():
            return _refused(package, state, fact)
        case AnswerReached():
            return () if fact.label is None else (told(LABELS[fact.label], "warn", 1),)
        case DeliveryFinished():
            return (_delivered(state, fact),)
        case DeliveryStarted() | DeliverySkipped() | TimePassed():
            return ()  # who kept the answer from a sink, and why, was told already
        case RunEnding():
            return ended(fact.stop)
        case RunStopped():
            return ended(fact)
        case _:
            assert_never(fact)


def ended(stop: RunStopped, *, is_child: bool = False) -> tuple[Line, ...]:
    """The end. A run that succeeded ends with its answer and `summary`; a child has neither on the screen."""
    if stop.fault is None:
        return (told(stop.status, "good"),) if is_child else ()
    hint = (told(f"→ {gist(stop.fault.hint)}", "dim", 1),) if stop.fault.hint else ()
    return (told(_fault(stop.fault), "bad"), *hint)


def _refused(package: Package, state: State, fact: OutputRefused) -> tuple[Line, ...]:
    repair = f"repair {state.ending.repairs + 1} of {package.output.repairs}"
    more = len(fact.errors) - ERRORS
    return (
        told(f"the answer breaks its contract, {repair}", "warn", 1),
        *(told(gist(error), "warn", 2) for error in fact.errors[:ERRORS]),
        *((told(f"… and {more} more", "warn", 2),) if more > 0 else ()),
    )


def _delivered(state: State, fact: DeliveryFinished) -> Line:
    sink = short(fact.sink, NAME)
    if fact.fault is None:
        if state.phase != "fresh" and state.started.replayed:
            return told(f"delivered to {sink} when it was recorded; nothing is delivered now", "dim", 1)
        return told(f"delivered to {sink}", "good", 1)
    return told(f"not delivered to {sink}: {_fault(fact.fault)}", "bad", 1)


def _lost(state: State, effect: str) -> str:
    """What was under way. A call has its id: whoever settles it needs that."""
    if state.requests.asking is not None and state.requests.asking.effect == effect:
        return "the request"
    tool = tool_of(state, effect)
    return f"{short(tool, NAME)} ({short(effect, NAME)})" if tool else subject(state, effect)


def _said(message: User) -> str:
    return gist(words(message.parts))


def _fault(fault: Fault) -> str:
    return f"{short(fault.code, NAME)}: {gist(fault.message)}"
