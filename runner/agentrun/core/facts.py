"""What happened: the only things a journal holds, and all that state is made of.

Rule 1  Facts are past tense, frozen and closed. Every `match` over them ends in `assert_never`.
Rule 2  A fact is a decision (made by `decide`; an audit makes it again and compares) or an observation
        (came from outside; an audit takes it as given). Its base class says which.
Rule 3  A fact holds what is needed to understand it later, texts included: new wording in the code must not
        change what an old journal means. It never repeats the history before it.

This file has the facts of a run as a whole; those of a single call are in `facts_calls.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.effect_ids import Purpose
from agentrun.core.facts_base import Decision, Fault, Observation, Share
from agentrun.core.facts_calls import CallFact
from agentrun.core.facts_gates import GateFact
from agentrun.core.messages import VOLATILE, Message, Reply, User

RULES = 2
"""The version of the rules in `decide`. A journal says under which version its decisions were made."""

Status: TypeAlias = Literal["completed", "failed"]
Label: TypeAlias = Literal["budget.turns", "filtered", "refused", "truncated", "unknown_finish"]
"""What a reader of a completed run must know: why the answer may not be all that was asked for."""
Why: TypeAlias = Literal["wrap_up", "continue", "nudge", "follow_up"]
"""Why the model is told something: few turns are left, its reply was cut off, it stopped without a tool call, or
somebody sent a message."""


class Earlier(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run knows of the runs before it in its session."""

    runs: int = 0
    turns: int = 0
    messages: tuple[Message, ...] = ()
    """The conversation so far, as much of it as is carried."""
    texts: dict[str, int] = {}
    """How often the assistant said each text, by its hash."""
    batches: dict[str, int] = {}
    """How often each batch of calls was asked for, by its signature."""
    grants: tuple[str, ...] = ()
    """Questions that were approved for the session."""


class Parent(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a child belongs."""

    run: Annotated[str, VOLATILE]
    call: str
    depth: int
    """1: a child of the run that a user started."""
    share: Share
    """What it may spend at most, whatever its own budgets say."""


class RunStarted(Observation, frozen=True, tag="run_started"):
    """The run was accepted."""

    run: Annotated[str, VOLATILE]
    package: Annotated[str, VOLATILE]
    """Fingerprint of the package."""
    replayed: Annotated[bool, VOLATILE]
    """Whether the world is a cassette."""
    agent: str
    rules: int
    params: dict[str, Any]
    """The values of the templates' variables, defaults included."""
    instructions: str
    """The system prompt, rendered."""
    input: User | None
    """Null: the conversation before goes on as it is."""
    prompts: dict[str, str] = {}  # noqa: RUF012  # msgspec copies it
    """What the runtime may tell the model, rendered: `nudge`, `compact`."""
    earlier: Earlier = Earlier()
    parent: Parent | None = None
    seed: Annotated[str | UnsetType, VOLATILE] = UNSET
    """What jitter is made of. Absent: the run. A recorded run and its replays have one, and so wait equally long."""
    programs: Annotated[dict[str, str] | UnsetType, VOLATILE] = UNSET
    """The file of each command that the agent's tools may start, as it was found when the run began."""


class MessageQueued(Observation, frozen=True, tag="message_queued"):
    """Somebody sent a message while the run was under way. It is read when the model stops."""

    id: Annotated[str, VOLATILE]
    message: User


class CancelRequested(Observation, frozen=True, tag="cancel_requested"):
    """Somebody wants the run to end."""

    by: str


class TimePassed(Observation, frozen=True, tag="time_passed"):
    """A moment that was waited for is over. The moment is the record's own time."""


class RunResumed(Observation, frozen=True, tag="run_resumed"):
    """Another owner goes on with the run."""

    package: Annotated[str, VOLATILE]
    """Fingerprint of the package it goes on with."""
    rules: int = 2
    """The version of the rules it goes on with."""


class WorkLost(Observation, frozen=True, tag="work_lost"):
    """An effect was under way when its owner went away. Whether it took place is not known."""

    effect: str


class ModelAsked(Decision, frozen=True, tag="model_asked"):
    """A request is about to be sent. Written before it is."""

    effect: Annotated[str, VOLATILE]
    turn: int
    attempt: Annotated[int, VOLATILE]
    """Requests of this turn so far, this one included."""
    route: str
    """provider/model."""
    reserved: Annotated[int, VOLATILE]
    """Tokens reserved for it: an estimate, which depends on the route."""
    cost: Annotated[int, VOLATILE] = 0
    """Micro-dollars reserved for it."""
    purpose: Purpose = "answer"
    hidden: tuple[str, ...] = ()
    """Tools that the model is not offered this time."""


class ModelReplied(Observation, frozen=True, tag="model_replied"):
    """The model answered."""

    effect: Annotated[str, VOLATILE]
    turn: int
    attempt: Annotated[int, VOLATILE]
    reply: Reply
    cost: int = 0
    """What the reply cost, in micro-dollars. 0 also when the route has no price."""


class ModelFailed(Observation, frozen=True, tag="model_failed"):
    """The request gave no answer."""

    effect: Annotated[str, VOLATILE]
    turn: int
    attempt: Annotated[int, VOLATILE]
    fault: Fault


class RetryPlanned(Decision, frozen=True, tag="retry_planned"):
    """The request is to be sent again after a while."""

    turn: int
    wait: Annotated[int, VOLATILE]
    """Milliseconds."""
    until: Annotated[int, VOLATILE]
    """Not before this moment, in milliseconds since 1970."""


class RouteSwitched(Decision, frozen=True, tag="route_switched"):
    """The route has failed for good; from here on the next one is asked."""

    turn: int
    source: str
    target: str
    fault: Fault
    """What the route failed with at last."""


class ReplyDiscarded(Decision, frozen=True, tag="reply_discarded"):
    """The reply was cut off at its cap; the request is sent again with a larger one."""

    turn: int
    cap: int
    """Tokens that the next reply may have."""


class ModelTold(Decision, frozen=True, tag="model_told"):
    """The runtime, or somebody outside, adds a message to the conversation."""

    why: Why
    messages: tuple[User, ...]


class ContextCompacted(Decision, frozen=True, tag="context_compacted"):
    """The first messages of the conversation were replaced by a summary of them."""

    replaced: int
    """How many."""
    summary: User
    before: int
    """Estimated tokens of what was replaced."""
    after: int
    """Estimated tokens of the summary."""


class CompactionFailed(Decision, frozen=True, tag="compaction_failed"):
    """The summary cannot be used."""

    reason: Literal["empty", "calls", "not_smaller"]
    failures: int
    """In a row, this one included."""


class OutputRefused(Decision, frozen=True, tag="output_refused"):
    """The answer breaks its contract, and the model is asked to repair it."""

    turn: int
    """The turn whose answer it was."""
    errors: tuple[str, ...]
    repair: User
    """What the model is told."""


class AnswerReached(Decision, frozen=True, tag="answer_reached"):
    """There is an answer; what follows is done with it."""

    label: Label | None = None


class DeliveryStarted(Decision, frozen=True, tag="delivery_started"):
    """The answer is about to be given to a sink."""

    sink: str


class DeliveryFinished(Observation, frozen=True, tag="delivery_finished"):
    """The sink has it, or failed."""

    sink: str
    fault: Fault | None = None


class DeliverySkipped(Decision, frozen=True, tag="delivery_skipped"):
    """The policy keeps the answer from an optional sink."""

    sink: str
    fault: Fault


class RunStopped(Decision, frozen=True, tag="run_stopped"):
    """The end: exactly one in every finished run."""

    status: Status
    fault: Fault | None = None
    """Why it failed."""
    label: Label | None = None
    output: Any | UnsetType = UNSET
    """The parsed answer, for an agent with an output contract that is kept."""


class RunEnding(Decision, frozen=True, tag="run_ending"):
    """The run is to end like this, after its open calls are closed and the hooks that want to know were told."""

    stop: RunStopped


ModelFact: TypeAlias = ModelAsked | ModelReplied | ModelFailed | RetryPlanned | RouteSwitched | ReplyDiscarded
"""Facts of requests to a model."""
RunFact: TypeAlias = (
    RunStarted
    | MessageQueued
    | CancelRequested
    | TimePassed
    | RunResumed
    | WorkLost
    | ModelTold
    | ContextCompacted
    | CompactionFailed
    | OutputRefused
    | AnswerReached
    | DeliveryStarted
    | DeliveryFinished
    | DeliverySkipped
    | RunEnding
    | RunStopped
)
"""Facts of a run as a whole."""
Fact: TypeAlias = RunFact | ModelFact | GateFact | CallFact


class Record(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One entry of a journal: a fact and its place."""

    seq: int
    """From 1, without gaps."""
    at: int
    """When it was written, in milliseconds since 1970. Order never comes from it."""
    epoch: int
    """Which owner of the run wrote it."""
    prev: str
    """Hash of the line before."""
    fact: Fact


def kind_of(fact: Fact) -> str:
    """The name of a fact as it stands in the journal."""
    return str(type(fact).__struct_config__.tag)
