"""What happened: the only things a journal holds, and all that state is made of.

Rule 1  Facts are past tense, frozen and closed. Every `match` over them ends in `assert_never`.
Rule 2  A fact is a decision (made by `decide`; an audit makes it again and compares) or an observation
        (came from outside; an audit takes it as given). Its base class says which.
Rule 3  A fact holds what is needed to understand it later, texts included: new wording in the code must not
        change what an old journal means. It never repeats the history before it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.effect_ids import CallId, Purpose, parse_effect_id
from agentrun.core.fault import Fault
from agentrun.core.messages import VOLATILE, Content, Message, Reply, User
from agentrun.core.package import Ruling, Stage

# --- facts of single calls, and of the batch that a reply asks for --------------------------------------------


class Decision(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    """A fact that `decide` made."""


class CallRefused(Decision, frozen=True, tag="call_refused"):
    """The call will not run; the model reads why."""

    call: str
    code: str
    told: str
    """What the model reads."""
    fields: dict[str, Any] = {}  # msgspec copies it


class CallCancelled(Decision, frozen=True, tag="call_cancelled"):
    """The call is not waited for any more, whether it was started or not."""

    call: str
    told: str
    """What the model reads, if it reads on."""
    by: str | None = None
    """The call that made it unnecessary. Null: the run ended."""


class ToolStarted(Decision, frozen=True, tag="tool_started"):
    """The call is about to run. Written before it does."""

    call: str
    tool: str
    key: Annotated[str, VOLATILE]
    """Idempotency key: the same when the call is run again."""


class ChildStarted(Decision, frozen=True, tag="child_started"):
    """A sub-agent is about to run, or to go on."""

    call: str
    tool: str
    run: Annotated[str, VOLATILE]
    """The child's run."""
    share: BudgetShare
    """Carved out of this run's budget for it."""


class ChildSpend(Struct, frozen=True, forbid_unknown_fields=True):
    """What a child used of its share."""

    tokens: int = 0
    cost: int = 0
    tool_calls: int = 0
    runs: int | UnsetType = UNSET
    """Runs that were started below it. Absent: none."""


class Observation(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    """A fact that came from outside."""


class ToolFinished(Observation, frozen=True, tag="tool_finished"):
    """The call gave a result, or failed."""

    call: str
    parts: tuple[Content, ...]
    """What the model reads."""
    fault: Fault | None = None
    blob: Annotated[str | None, VOLATILE] = None
    """Hash of the whole text, when the model reads only a part of it. On a tape the text has no sensitive values."""
    spent: Annotated[ChildSpend | None, VOLATILE] = None
    """What a child used. Its own journal says what for; after a crash it is more."""


class ChildSuspended(Observation, frozen=True, tag="child_suspended"):
    """The sub-agent waits for somebody outside."""

    call: str
    waits_for: tuple[str, ...]


class CallSettled(Observation, frozen=True, tag="call_settled"):
    """Somebody decided what is to be made of a call whose outcome is not known."""

    call: str
    how: Literal["retry", "result", "stop"]
    by: str
    parts: tuple[Content, ...] = ()
    """With `result`: what the model reads."""


class ResultsGiven(Decision, frozen=True, tag="results_given"):
    """All calls of a reply have their results; the model reads them in call order."""

    turn: int
    ended_by: str | None = None
    """The terminal call whose result is the answer."""


SingleCallFact: TypeAlias = (
    CallRefused | CallCancelled | ToolStarted | ChildStarted | ToolFinished | ChildSuspended | CallSettled
)
"""Facts of one call."""
CallFact: TypeAlias = SingleCallFact | ResultsGiven


# --- facts of gates: what a hook, the policy or a person says about something that wants to pass --------------


HookPoint: TypeAlias = Literal[
    "on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop"
]
ApprovalAnswer: TypeAlias = Literal[
    "approved", "approved_for_session", "denied", "timed_out", "cancelled", "unavailable"
]


class _HookAnswer(Struct, frozen=True, forbid_unknown_fields=True, tag_field="answer"):
    """Base of what a hook can say."""


class Continue(_HookAnswer, frozen=True, tag="continue"):
    """Go on."""


class Deny(_HookAnswer, frozen=True, tag="deny"):
    """Do not."""

    reason: str


class Modify(_HookAnswer, frozen=True, tag="modify"):
    """Go on with this instead: the arguments of a call, or the text of anything else."""

    value: dict[str, Any] | str


class Inject(_HookAnswer, frozen=True, tag="inject"):
    """Go on, and tell the model this."""

    text: str


class HookFailure(_HookAnswer, frozen=True, tag="failed"):
    """The hook gave no answer that can be used."""

    fault: Fault


HookAnswer: TypeAlias = Continue | Deny | Modify | Inject | HookFailure


class HookAsked(Decision, frozen=True, tag="hook_asked"):
    """A hook is about to be asked."""

    effect: Annotated[str, VOLATILE]
    hook: str
    point: HookPoint
    subject: str


class HookAnswered(Observation, frozen=True, tag="hook_answered"):
    """It answered."""

    effect: Annotated[str, VOLATILE]
    hook: str
    point: HookPoint
    subject: str
    answer: HookAnswer
    closes: bool = False
    """Whether this is a no: a denial, or a failure of a hook that must not fail open."""


class RewrittenMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of the conversation with what a rule masks in it."""

    index: int
    message: Message


class Ruled(Decision, frozen=True, tag="ruled"):
    """The policy ruled."""

    subject: str
    stage: Stage
    ruling: Ruling
    rules: tuple[str, ...]
    """The rules that led to it. None: the default."""
    reason: str | None = None
    granted: bool = False
    """Whether an earlier approval for the session answers the question that the ruling asks."""
    arguments: dict[str, Any] | UnsetType = UNSET
    """With modify: the arguments of the call from here on."""
    text: str | UnsetType = UNSET
    """With modify: the text from here on (of a result, an answer, a delivery, or the instructions)."""
    messages: tuple[RewrittenMessage, ...] = ()
    """With modify on a request: the messages from here on."""


class ApprovalAsked(Decision, frozen=True, tag="approval_asked"):
    """A person is needed."""

    subject: str
    question: Annotated[str, VOLATILE]
    """Hash of all that the question is about, the run included. An answer holds for this question alone."""
    grant: Annotated[str, VOLATILE]
    """The same without run and call: what an approval for the session answers from then on."""
    target: str
    """The tool or sink, or the stage itself."""
    rules: tuple[str, ...]
    reason: str | None = None


class ApprovalAnswered(Observation, frozen=True, tag="approval_answered"):
    """Somebody, or the lack of anybody, answered."""

    subject: str
    question: Annotated[str, VOLATILE]
    answer: ApprovalAnswer
    by: str


GateFact: TypeAlias = HookAsked | HookAnswered | Ruled | ApprovalAsked | ApprovalAnswered


def is_about_call(fact: GateFact) -> bool:
    """Whether the fact is about a call or its result, and not about the run as a whole."""
    match fact:
        case Ruled():
            return fact.stage in ("tool_call", "tool_result")
        case HookAsked() | HookAnswered():
            return fact.point in ("before_tool", "after_tool")
        case _:
            return isinstance(parse_effect_id(fact.subject), CallId)


def is_about_result(fact: GateFact) -> bool:
    """Whether the fact is about the result of a call."""
    match fact:
        case Ruled():
            return fact.stage == "tool_result"
        case HookAsked() | HookAnswered():
            return fact.point == "after_tool"
        case _:
            return False


# --- what happened: the only things a journal holds, and all that state is made of ----------------------------


RULES_VERSION = 2
"""The version of the rules in `decide`. A journal says under which version its decisions were made."""

OutcomeStatus: TypeAlias = Literal["completed", "failed"]
AnswerLabel: TypeAlias = Literal["budget.turns", "filtered", "refused", "truncated", "unknown_finish"]
"""What a reader of a completed run must know: why the answer may not be all that was asked for."""
MessageReason: TypeAlias = Literal["wrap_up", "continue", "nudge", "follow_up"]
"""Why the model is told something: few turns are left, its reply was cut off, it stopped without a tool call, or
somebody sent a message."""


class EarlierRuns(Struct, frozen=True, forbid_unknown_fields=True):
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
    share: BudgetShare
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
    prompts: dict[str, str] = {}  # msgspec copies it
    """What the runtime may tell the model, rendered: `nudge`, `compact`."""
    earlier: EarlierRuns = EarlierRuns()
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

    why: MessageReason
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

    label: AnswerLabel | None = None


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

    status: OutcomeStatus
    fault: Fault | None = None
    """Why it failed."""
    label: AnswerLabel | None = None
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


def fact_kind(fact: Fact) -> str:
    """The name of a fact as it stands in the journal."""
    return str(type(fact).__struct_config__.tag)


class BudgetShare(Struct, frozen=True, forbid_unknown_fields=True):
    """What a child may spend of its parent's budget. Null: no limit."""

    tokens: int | None = None
    cost: int | None = None
    """Micro-dollars."""
    time: Annotated[int | None, VOLATILE] = None
    """Milliseconds. What is left depends on the clock."""
    tool_calls: int | None = None
    runs: int | UnsetType = UNSET
    """Runs that it may start below itself, of all depths. Absent: none, or as many as its own limit allows."""


def runs_or_zero(runs: int | UnsetType) -> int:
    """The number of runs that is written down, or left out because there are none."""
    return 0 if runs is UNSET else runs


APPROVED_ANSWERS = ("approved", "approved_for_session")
