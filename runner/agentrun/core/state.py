"""The state of a run: a fold over its journal, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from agentrun.core.effect_ids import DeliveryId, Purpose
from agentrun.core.facts import AnswerLabel, ApprovalAnswer, CancelRequested, RunStarted, RunStopped, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import ZERO_USAGE, Content, Reply, ToolCall, Transcript, Usage, User
from agentrun.core.package import Ruling
from agentrun.core.spend import BudgetShare, Spend
from agentrun.core.tally import Tally, TextTally
from agentrun.errors import InternalError

Phase: TypeAlias = Literal[
    "fresh",
    "starting",
    "thinking",
    "asking",
    "failed",
    "waiting",
    "answered",
    "acting",
    "ending",
    "stopping",
    "stopped",
]
"""fresh: nothing happened yet. starting: the input is checked. thinking: the model will be asked. asking: a request is
running. failed: it failed. waiting: it will be sent again. answered: there is a reply to process. acting: the calls of
the reply run. ending: there is an answer to check and deliver. stopping: calls are closed and hooks are informed.
stopped: the run is over."""

CallStatus: TypeAlias = Literal[
    "new", "asking", "deferred", "denied", "ready", "started", "lost", "asleep", "abandoned", "finished", "done"
]
"""new: will be checked and ruled on. asking: a person is asked. deferred: the rules are asked again later. denied: a
hook, a rule or a person denied it. ready: it may run. started: it runs. lost: it was running when its process ended.
asleep: a sub-agent that waits for someone outside. abandoned: someone decided to stop the run because of it. finished:
it has a result, which passes hooks and rules next. done: it has a result but never ran, or nothing waits for it."""


CallSignature: TypeAlias = tuple[str, str]
"""A call as guards see it: the tool, and a hash of tool and arguments."""
PastCall: TypeAlias = tuple[str, str, str | None]
"""The signature of a call, and a hash of the result that the model read. Null: the call has no result yet."""
Streaks: TypeAlias = tuple[int, ...]
"""How many calls in a row, up to the latest, equal the call 1, 2, 3 or 4 positions before."""
NO_STREAKS: Streaks = (0, 0, 0, 0)


class GateState(Struct, frozen=True, gc=False):
    """How far a subject has come at the gate: hooks, policy and approval."""

    subject: str = ""
    hooks_answered: int = 0
    hook: str | None = None
    """The effect of the hook that is being asked."""
    denial: str | None = None
    by: str | None = None
    """The hook that denied, or the person who answered."""
    ruling: Ruling | None = None
    rules: tuple[str, ...] = ()
    reason: str | None = None
    granted: bool = False
    rewritten: bool = False
    """Whether a rule has rewritten the subject. Rules that modify are then not asked again."""
    question: str | None = None
    grant: str | None = None
    """The hash of all questions that an approval for the session would answer."""
    answer: ApprovalAnswer | None = None
    answer_reason: str | None = None
    """Why the person denied it, if they said so."""
    text: str | None = None
    """The text that a rule set, for one delivery."""
    until: int | None = None
    """With the ruling defer: when a resume asks the rules again."""
    person: bool = False
    """With the ruling defer: whether only a person ends it."""
    lapsed: tuple[str, ...] = ()
    """Rules that deferred the subject for a time that is over. They do not defer it again."""


NO_GATE = GateState()


class CallState(Struct, frozen=True, gc=False):
    call: ToolCall
    arguments: dict[str, Any] | None
    """The parsed arguments, after hooks and rules rewrote them, without defaults. None: not a JSON object."""
    signature: CallSignature
    status: CallStatus = "new"
    checked: bool = False
    """Whether the arguments are valid."""
    gate: GateState = NO_GATE
    result_gate: GateState = NO_GATE
    counted: bool = False
    """Whether it counts as a call that ran. It counts once, even if it is started again."""
    share: BudgetShare | None = None
    parts: tuple[Content, ...] = ()
    """What the model will read."""
    fault: Fault | None = None
    completed_arguments: dict[str, Any] | None = None
    """The arguments with the defaults that were filled in. None: there were none to fill in."""
    returned: ToolFinished | None = None
    """The result before hooks and rules changed it."""

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def all_arguments(self) -> dict[str, Any] | None:
        """The arguments, including defaults."""
        return self.arguments if self.completed_arguments is None else self.completed_arguments

    @property
    def tool(self) -> str:
        return self.call.tool


class PendingRequest(Struct, frozen=True, gc=False):
    effect: str
    purpose: Purpose
    reserved: int
    """Tokens."""
    cost: int


class SpendMeter(Spend, frozen=True, gc=False):
    usage: Usage = ZERO_USAGE
    """The sum of the reported usage. Null: a call did not report it."""
    runs: int = 0
    """Runs that were started below this one, at any depth."""
    calls: Mapping[str, int] = {}

    def plus(self, **amounts: int) -> SpendMeter:
        return replace(self, **{name: getattr(self, name) + amount for name, amount in amounts.items()})


class GuardState(Struct, frozen=True, gc=False):
    """Calls and batches count in two ways: by tool and arguments, and by tool, arguments and result."""

    tail: tuple[PastCall, ...] = ()
    """The latest calls that have results."""
    call_streaks: Streaks = NO_STREAKS
    result_streaks: Streaks = NO_STREAKS
    """The same for calls whose results are equal too."""
    batch: str | None = None
    """The signature of the latest batch, whether it has results or not."""
    in_a_row: int = 0
    batches: Tally = field(default_factory=Tally)
    result_batch: str | None = None
    """The latest batch that has results, and a hash of them."""
    results_in_a_row: int = 0
    result_batches: Tally = field(default_factory=Tally)
    most_equal: Tally = field(default_factory=Tally)
    """How often each batch had the same results, for the results that it had most often."""
    texts: TextTally = field(default_factory=TextTally)
    """Texts of the assistant in the session that did not end a run."""
    empty: int = 0
    """Stops without a tool call since the last batch that ran."""


class ConversationState(Struct, frozen=True, gc=False):
    instructions: str = ""
    transcript: Transcript = field(default_factory=Transcript)
    """The messages before the latest reply."""
    estimate: int = 0
    checked_messages: int = 0
    """How many messages hooks and rules on requests have checked."""


class RequestState(Struct, frozen=True, gc=False):
    asking: PendingRequest | None = None
    purpose: Purpose = "answer"
    hidden: tuple[str, ...] = ()
    route: int = 0
    tries: int = 0
    """Requests that failed in this turn on this route."""
    waited: int = 0
    """Milliseconds waited in this turn on this route."""
    until: int = 0
    fault: Fault | None = None


class ReplyState(Struct, frozen=True, gc=False):
    latest: Reply | None = None
    original_text: str = ""
    """Its text as the model wrote it, before hooks changed it."""
    earlier_text: str = ""
    """The text of earlier replies to the same request, which were cut off at their limit."""
    truncations: int = 0
    cap: int | None = None
    """The limit of the next reply in tokens, if it is larger than the setting."""


class CompactionState(Struct, frozen=True, gc=False):
    overflow: bool = False
    """Whether the provider reported that the conversation does not fit."""
    summary: Reply | None = None
    failures: int = 0


class EndingState(Struct, frozen=True, gc=False):
    answer: str | None = None
    """The answer, if it is not simply the text of the reply."""
    label: AnswerLabel | None = None
    ended_by: str | None = None
    cut_short: bool = False
    """Whether the run ends because its turns are used up."""
    repairs: int = 0
    delivering: str | None = None
    delivered: Mapping[str, Fault | None] = {}
    stop: RunStopped | None = None
    """How the run will end, after its calls are closed and its hooks are informed."""


class State(Struct, frozen=True, gc=False):
    phase: Phase = "fresh"
    seq: int = 0
    now: int = 0
    began: int = 0
    paused: int = 0
    """Milliseconds in which the run waited for someone outside, or no process worked on it."""
    start: RunStarted | None = None
    package: str = ""
    """The fingerprint of the package that the run uses: the first one, or that of the last resume."""
    turns: int = 0
    in_turn: bool = False
    attempt: int = 0
    warned: bool = False
    conversation: ConversationState = field(default_factory=ConversationState)
    requests: RequestState = RequestState()
    replies: ReplyState = ReplyState()
    compaction: CompactionState = CompactionState()
    calls: tuple[CallState, ...] = ()
    gate: GateState = NO_GATE
    """The gate of the run as a whole. Calls have their own gates."""
    meter: SpendMeter = SpendMeter()
    meter_at_batch_start: SpendMeter = SpendMeter()
    """Conditions use it, so that the order in which calls finish does not matter."""
    detector: GuardState = field(default_factory=GuardState)
    detector_before_reply: GuardState = field(default_factory=GuardState)
    """The detector without the latest reply, in case that is discarded."""
    queue: tuple[User, ...] = ()
    grants: tuple[str, ...] = ()
    ending: EndingState = EndingState()
    cancelled: CancelRequested | None = None
    stopped: RunStopped | None = None

    @property
    def started(self) -> RunStarted:
        if self.start is None:
            raise InternalError("internal", "the run has not started")
        return self.start

    @property
    def reply(self) -> Reply:
        """The latest reply of the model."""
        if self.replies.latest is None:
            raise InternalError("internal", "there is no reply")
        return self.replies.latest

    @property
    def elapsed(self) -> int:
        """Milliseconds that count against the budget."""
        return self.now - self.began - self.paused

    def gate_for(self, subject: str) -> GateState:
        return self.gate if self.gate.subject == subject else GateState(subject)


def pending_effects(state: State) -> tuple[str, ...]:
    effects = []
    if state.requests.asking is not None:
        effects.append(state.requests.asking.effect)
    if state.gate.hook is not None:
        effects.append(state.gate.hook)
    if state.ending.delivering is not None:
        effects.append(str(DeliveryId(state.ending.delivering)))
    for call in state.calls:
        if call.status == "started":
            effects.append(call.id)
        effects += [gate.hook for gate in (call.gate, call.result_gate) if gate.hook is not None]
    return tuple(effects)


def find_call(state: State, id: str) -> CallState | None:
    for call in state.calls:
        if call.call.id == id:
            return call
    return None
