"""Facts: what happened in a run. A journal contains only facts, and the state is made from them.

Rule 1  Facts are in the past tense, frozen and closed. Every `match` over them ends in `assert_never`.
Rule 2  A fact is a decision (made by `decide`; an audit makes it again and compares) or an observation (came from
        outside; an audit takes it as given).
Rule 3  A fact contains all that is needed to understand it later, texts included: a new wording in the code must not
        change what an old journal means. A fact never repeats earlier ones.
Rule 4  Facts are not garbage collected (`gc=False`), like messages and state: they are many and have no cycles.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.effect_ids import CallId, Purpose, parse_effect_id
from agentrun.core.fault import Fault
from agentrun.core.messages import VOLATILE, Content, Message, Reply, User
from agentrun.core.package import HookPoint, Ruling, Stage
from agentrun.core.spend import BudgetShare, ChildSpend

# --- calls ---


class Decision(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    """A fact that `decide` made."""


class CallRefused(Decision, frozen=True, tag="call_refused"):
    """The call does not run. The model reads why."""

    call: str
    code: str
    told: str
    """What the model reads."""
    fields: dict[str, Any] = {}


class CallCancelled(Decision, frozen=True, tag="call_cancelled"):
    """The run no longer waits for the call, whether it was started or not."""

    call: str
    told: str
    """What the model reads, if the run continues."""
    by: str | None = None
    """The call that made it unnecessary. Null: the run ended."""


class ArgumentsCompleted(Decision, frozen=True, tag="arguments_completed"):
    """Defaults were filled in for arguments that the model left out. It does not read them."""

    call: str
    arguments: dict[str, Any]
    """All arguments, including the defaults."""


class ToolStarted(Decision, frozen=True, tag="tool_started"):
    """The call is about to run. Written before it runs."""

    call: str
    tool: str
    key: Annotated[str, VOLATILE]
    """Idempotency key. It is the same when the call runs again."""


class ResultShared(Decision, frozen=True, tag="result_shared"):
    """The call gets the result of an identical call of the same reply. It does not run itself."""

    call: str
    tool: str
    source: str
    """The call that ran."""


class ChildStarted(Decision, frozen=True, tag="child_started"):
    """A sub-agent is about to start, or to continue."""

    call: str
    tool: str
    run: Annotated[str, VOLATILE]
    """The run of the sub-agent."""
    share: BudgetShare
    """Its share of the budget of this run."""


class Observation(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    """A fact that came from outside."""


class ToolFinished(Observation, frozen=True, tag="tool_finished"):
    """The call returned a result, or failed."""

    call: str
    parts: tuple[Content, ...]
    """What the model reads."""
    fault: Fault | None = None
    blob: Annotated[str | None, VOLATILE] = None
    """Hash of the whole text, if the model reads only a part of it. On a cassette, sensitive values are redacted."""
    spent: Annotated[ChildSpend | None, VOLATILE] = None
    """What a sub-agent used. Its own journal has the details, and more after a crash."""


class ChildSuspended(Observation, frozen=True, tag="child_suspended"):
    """The sub-agent waits for someone outside."""

    call: str
    waits_for: tuple[str, ...]


class CallSettled(Observation, frozen=True, tag="call_settled"):
    """Someone decided how to continue with a call whose outcome is not known."""

    call: str
    how: Literal["retry", "result", "stop"]
    by: str
    parts: tuple[Content, ...] = ()
    """With `result`: what the model reads."""
    message_id: Annotated[str | UnsetType, VOLATILE] = UNSET
    """The message of another process that brought it. Absent: it came from the process that works on the run."""


class ResultsGiven(Decision, frozen=True, tag="results_given"):
    """All calls of a reply have their results. The model reads them in call order."""

    turn: int
    ended_by: str | None = None
    """The terminal call whose result is the answer."""
    repeats: tuple[str, ...] | UnsetType = UNSET
    """Reads that guards do not count, because an identical call of the reply counts. Absent: none."""


SingleCallFact: TypeAlias = (ArgumentsCompleted | CallRefused | CallCancelled) | (
    ToolStarted | ResultShared | ChildStarted | ToolFinished | ChildSuspended | CallSettled
)
CallFact: TypeAlias = SingleCallFact | ResultsGiven


# --- gates: hooks, policy and approvals ---


ApprovalAnswer: TypeAlias = Literal[
    "approved", "approved_for_session", "denied", "timed_out", "cancelled", "unavailable"
]


class _HookAnswer(Struct, frozen=True, forbid_unknown_fields=True, tag_field="answer"):
    """Base of the answers of a hook."""


class Continue(_HookAnswer, frozen=True, tag="continue"):
    """Continue."""


class Deny(_HookAnswer, frozen=True, tag="deny"):
    """Do not continue."""

    reason: str
    """Why. The model reads it."""


class Modify(_HookAnswer, frozen=True, tag="modify"):
    """Continue with this instead: the arguments of a call, or the text of anything else."""

    value: dict[str, Any] | str
    """All arguments of the call, or the whole text."""


class Inject(_HookAnswer, frozen=True, tag="inject"):
    """Continue, and add this message to the conversation."""

    text: str
    """A message of the user."""


class HookFailure(_HookAnswer, frozen=True, tag="failed"):
    """The hook failed, or its answer cannot be used."""

    fault: Fault


HookAnswer: TypeAlias = Continue | Deny | Modify | Inject | HookFailure


class HookAsked(Decision, frozen=True, tag="hook_asked"):
    """A hook is about to be asked."""

    effect: Annotated[str, VOLATILE]
    hook: str
    point: HookPoint
    subject: str


class HookAnswered(Observation, frozen=True, tag="hook_answered"):
    """The hook answered."""

    effect: Annotated[str, VOLATILE]
    hook: str
    point: HookPoint
    subject: str
    answer: HookAnswer
    closes: bool = False
    """Whether the answer blocks: a denial, or the failure of a hook that must not fail."""


class RewrittenMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of the conversation after a rule masked parts of it."""

    index: int
    message: Message


class Ruled(Decision, frozen=True, tag="ruled"):
    """The policy made a ruling."""

    subject: str
    stage: Stage
    ruling: Ruling
    rules: tuple[str, ...]
    """The rules that led to it. Empty: the default of the policy."""
    reason: str | None = None
    granted: bool = False
    """Whether an earlier approval for the session already answers the question."""
    arguments: dict[str, Any] | UnsetType = UNSET
    """With modify: the arguments of the call from here on, without defaults that were filled in."""
    text: str | UnsetType = UNSET
    """With modify: the text from here on (of a result, an answer, a delivery, or the instructions)."""
    messages: tuple[RewrittenMessage, ...] = ()
    """With modify on a request: the messages from here on."""
    until: Annotated[int | UnsetType, VOLATILE] = UNSET
    """With defer: the time from which a resume asks the rules again, in milliseconds since 1970."""
    person: bool | UnsetType = UNSET
    """With defer: only a person ends the deferral. If both are absent, every resume asks the rules again."""


class ApprovalAsked(Decision, frozen=True, tag="approval_asked"):
    """A person is asked for approval."""

    subject: str
    question: Annotated[str, VOLATILE]
    """Hash of everything the question is about, including the run. An answer is valid for this question only."""
    grant: Annotated[str, VOLATILE]
    """The same hash without run and call. An approval for the session covers all questions with this hash."""
    target: str
    """The tool, the sink or the stage."""
    rules: tuple[str, ...]
    reason: str | None = None


class ApprovalAnswered(Observation, frozen=True, tag="approval_answered"):
    """The question was answered, or could not be answered."""

    subject: str
    question: Annotated[str, VOLATILE]
    answer: ApprovalAnswer
    by: str
    reason: str | UnsetType = UNSET
    """Why it was denied. The model reads it. Absent: no reason was given."""
    message_id: Annotated[str | UnsetType, VOLATILE] = UNSET
    """The message of another process that brought it. Absent: it came from the process that works on the run."""


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
    if isinstance(fact, Ruled):
        return fact.stage == "tool_result"
    return isinstance(fact, HookAsked | HookAnswered) and fact.point == "after_tool"


# --- the run as a whole ---


RULES_VERSION = 2
"""The version of the rules in `decide`. A journal records the version that made its decisions."""

OutcomeStatus: TypeAlias = Literal["completed", "failed"]
AnswerLabel: TypeAlias = Literal["budget.turns", "filtered", "refused", "truncated", "unknown_finish"]
"""Why the answer of a completed run may be incomplete."""
MessageReason: TypeAlias = Literal["wrap_up", "continue", "nudge", "follow_up"]
"""Why a message is added: few turns are left, the reply was cut off, the model stopped without a tool call, or someone
sent a message."""


class MessageOrigin(Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that were read from the journal of an earlier run."""

    run: Annotated[str, VOLATILE]
    messages: int
    """How many."""


class EarlierRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run knows of the earlier runs of its session."""

    runs: int = 0
    turns: int = 0
    messages: tuple[Message, ...] = ()
    """The part of the earlier conversation that is carried over."""
    texts: dict[str, int] = {}
    """How often the assistant wrote each text, by hash."""
    batches: dict[str, int] = {}
    """How often each batch of calls was requested, by signature."""
    grants: tuple[str, ...] = ()
    """Questions that were approved for the session."""
    result_batches: dict[str, int] | UnsetType = UNSET
    """How often each batch of calls had the same results, by signature and results. Absent: no guard needs it."""
    origins: Annotated[tuple[MessageOrigin, ...] | UnsetType, VOLATILE] = UNSET
    """The runs that the messages come from, in their order. Further messages came with the request. Absent: the run has
    no session, or is the first in it."""


StandIns: TypeAlias = Literal["cassette", "case"]


class Parent(Struct, frozen=True, forbid_unknown_fields=True):
    """The parent of a sub-agent."""

    run: Annotated[str, VOLATILE]
    call: str
    depth: int
    """1: called by the run that a user started."""
    share: BudgetShare
    """What the sub-agent may spend at most, whatever its own budgets allow."""


class RunStarted(Observation, frozen=True, tag="run_started"):
    """The run was accepted."""

    run: Annotated[str, VOLATILE]
    package: Annotated[str, VOLATILE]
    """Fingerprint of the package."""
    replayed: Annotated[bool, VOLATILE]
    """Whether the run is replayed from a cassette."""
    agent: str
    rules: int
    params: dict[str, Any]
    """The values of all params, including defaults."""
    instructions: str
    """The rendered system prompt."""
    input: User | None
    """Null: the earlier conversation continues as it is."""
    prompts: dict[str, str] = {}
    """Rendered prompts that the runtime may send: `nudge`, `compact`."""
    earlier: EarlierRuns = EarlierRuns()
    parent: Parent | None = None
    seed: Annotated[str | UnsetType, VOLATILE] = UNSET
    """The seed of retry jitter. Absent: the id of the run. A recorded run and its replays have the same seed."""
    programs: Annotated[dict[str, str] | UnsetType, VOLATILE] = UNSET
    """The file of each command that the tools may start, as found when the run started."""
    session: Annotated[str | UnsetType, VOLATILE] = UNSET
    """The session of the run. Absent: none."""
    stand_ins: Annotated[StandIns | UnsetType, VOLATILE] = UNSET
    """What replaces a part of the real world: a cassette, or the stubs and faults of a case. Such a run cannot be
    resumed. Absent: nothing does, or the whole run is replayed."""
    predecessor: Annotated[str | UnsetType, VOLATILE] = UNSET
    """The run before this one in its session; of a fork, it can be a run of another session. Absent: none."""


class MessageQueued(Observation, frozen=True, tag="message_queued"):
    """Someone sent a message during the run. The model reads it after its next stop."""

    id: Annotated[str, VOLATILE]
    message: User


class CancelRequested(Observation, frozen=True, tag="cancel_requested"):
    """Someone asked to cancel the run."""

    by: str
    message_id: Annotated[str | UnsetType, VOLATILE] = UNSET
    """The message of another process that brought it. Absent: it came from the process that works on the run."""


class TimePassed(Observation, frozen=True, tag="time_passed"):
    """A wait is over. The time is that of the record."""


class RunResumed(Observation, frozen=True, tag="run_resumed"):
    """Another process continues the run."""

    package: Annotated[str, VOLATILE]
    """Fingerprint of the package it continues with."""
    rules: int = 2
    """The version of the rules it continues with."""
    torn: int | UnsetType = UNSET
    """The size of an incomplete last line, which was cut off and kept in another file. Absent: there was none."""


class WorkLost(Observation, frozen=True, tag="work_lost"):
    """An effect was running when its process ended. It is not known whether it took effect."""

    effect: str


class ModelAsked(Decision, frozen=True, tag="model_asked"):
    """A request is about to be sent. Written before it is sent."""

    effect: Annotated[str, VOLATILE]
    turn: int
    attempt: Annotated[int, VOLATILE]
    """The number of requests in this turn, including this one."""
    route: str
    """provider/model."""
    reserved: Annotated[int, VOLATILE]
    """Tokens reserved for it. An estimate that depends on the route."""
    cost: Annotated[int, VOLATILE] = 0
    """Micro-dollars reserved for it."""
    purpose: Purpose = "answer"
    hidden: tuple[str, ...] = ()
    """Tools that are not offered in this request."""


class ModelReplied(Observation, frozen=True, tag="model_replied"):
    """The model replied."""

    effect: Annotated[str, VOLATILE]
    turn: int
    attempt: Annotated[int, VOLATILE]
    reply: Reply
    cost: int = 0
    """The cost of the reply in micro-dollars. Also 0 if the route has no price."""


class ModelFailed(Observation, frozen=True, tag="model_failed"):
    """The request failed."""

    effect: Annotated[str, VOLATILE]
    turn: int
    attempt: Annotated[int, VOLATILE]
    fault: Fault


class RetryPlanned(Decision, frozen=True, tag="retry_planned"):
    """The request will be sent again after a wait."""

    turn: int
    wait: Annotated[int, VOLATILE]
    """Milliseconds."""
    until: Annotated[int, VOLATILE]
    """The end of the wait, in milliseconds since 1970."""


class RouteSwitched(Decision, frozen=True, tag="route_switched"):
    """The route failed for good. The next one is used from here on."""

    turn: int
    source: str
    target: str
    fault: Fault
    """The last failure of the route."""


class ReplyDiscarded(Decision, frozen=True, tag="reply_discarded"):
    """The reply was cut off at its limit. The request is sent again with a larger limit."""

    turn: int
    cap: int
    """Tokens that the next reply may have."""


class ModelTold(Decision, frozen=True, tag="model_told"):
    """The runtime, or someone outside, adds messages to the conversation."""

    why: MessageReason
    messages: tuple[User, ...]


class ContextCompacted(Decision, frozen=True, tag="context_compacted"):
    """The first messages of the conversation were replaced by a summary."""

    replaced: int
    """The number of replaced messages."""
    summary: User
    before: int
    """Estimated tokens of the replaced messages."""
    after: int
    """Estimated tokens of the summary."""


class CompactionFailed(Decision, frozen=True, tag="compaction_failed"):
    """The summary cannot be used."""

    reason: Literal["empty", "calls", "not_smaller"]
    failures: int
    """The number of failures in a row, including this one."""


class OutputRefused(Decision, frozen=True, tag="output_refused"):
    """The answer does not match its schema, and the model is asked to repair it."""

    turn: int
    """The turn of the answer."""
    errors: tuple[str, ...]
    repair: User
    """The message to the model."""


class AnswerReached(Decision, frozen=True, tag="answer_reached"):
    """There is an answer. It is checked and delivered next."""

    label: AnswerLabel | None = None


class DeliveryStarted(Decision, frozen=True, tag="delivery_started"):
    """The answer is about to be delivered to a sink."""

    sink: str


class DeliveryFinished(Observation, frozen=True, tag="delivery_finished"):
    """The delivery succeeded or failed."""

    sink: str
    fault: Fault | None = None


class DeliverySkipped(Decision, frozen=True, tag="delivery_skipped"):
    """The policy does not allow the delivery to an optional sink."""

    sink: str
    fault: Fault


class RunStopped(Decision, frozen=True, tag="run_stopped"):
    """The run ended. Every finished run has exactly one such fact."""

    status: OutcomeStatus
    fault: Fault | None = None
    """Why the run failed."""
    label: AnswerLabel | None = None
    output: Any | UnsetType = UNSET
    """The parsed answer, if the agent has an output schema and the answer matches it."""


class RunEnding(Decision, frozen=True, tag="run_ending"):
    """The run will end like this, after its open calls are closed and its `on_stop` hooks were asked."""

    stop: RunStopped


ModelFact: TypeAlias = ModelAsked | ModelReplied | ModelFailed | RetryPlanned | RouteSwitched | ReplyDiscarded
_StepFact: TypeAlias = ModelTold | ContextCompacted | CompactionFailed | OutputRefused | AnswerReached
_DeliveryFact: TypeAlias = DeliveryStarted | DeliveryFinished | DeliverySkipped
RunFact: TypeAlias = (
    (RunStarted | MessageQueued | CancelRequested | TimePassed | RunResumed | WorkLost)
    | _StepFact
    | _DeliveryFact
    | (RunEnding | RunStopped)
)
Fact: TypeAlias = RunFact | ModelFact | GateFact | CallFact


FACT_KINDS = tuple(str(kind.__struct_config__.tag) for kind in get_args(Fact))


class UnknownFact(Struct, frozen=True, gc=False):
    """A fact that a later release wrote. It is no `Fact`: it can be shown, but no state can be made from it."""

    kind: str
    data: dict[str, Any]


class Record(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One entry of a journal: a fact and its position."""

    seq: int
    """From 1, without gaps."""
    at: int
    """When it was written, in milliseconds since 1970. The order does not depend on it."""
    epoch: int
    """Which process wrote it: 1 for the first, one more after each resume."""
    prev: str
    """Hash of the previous line."""
    fact: Fact


def fact_kind(fact: Fact | UnknownFact) -> str:
    return fact.kind if isinstance(fact, UnknownFact) else str(type(fact).__struct_config__.tag)


APPROVED_ANSWERS = ("approved", "approved_for_session")
