"""All that a run knows about itself: a fold over its journal, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from agentrun.core.effect_ids import DeliveryId, Purpose
from agentrun.core.facts import AnswerLabel, ApprovalAnswer, BudgetShare, CancelRequested, RunStarted, RunStopped
from agentrun.core.fault import Fault
from agentrun.core.messages import ZERO_USAGE, Content, Reply, ToolCall, Transcript, Usage, User
from agentrun.core.package import Ruling
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
"""fresh: nothing happened yet. starting: the input is looked at. thinking: the model is to be asked. asking: a
request is under way. failed: its fault is to be judged. waiting: it will be sent again. answered: its reply is to be
judged. acting: the calls of a reply are under way. ending: there is an answer, and it is looked at and delivered.
stopping: the end is known, and hooks hear of it. stopped: over."""

CallStatus: TypeAlias = Literal[
    "new",
    "asking",
    "deferred",
    "denied",
    "ready",
    "started",
    "lost",
    "asleep",
    "abandoned",
    "finished",
    "done",
]
"""new: to be checked and ruled on. asking: a person is to be asked. deferred: the rules want to be asked again
later. denied: a hook, a rule or a person said no. ready: it may run. started: it is running. lost: it was running when
its owner went away. asleep: a child that waits for somebody outside. abandoned: somebody decided to stop over it.
finished: it has a result that is to be looked at. done: it has a result and never ran, or is not waited for."""


CallSignature: TypeAlias = tuple[str, str]
"""A call as guards see it: the tool, and a hash of tool and arguments."""
Streaks: TypeAlias = tuple[int, int, int, int]


class GateState(Struct, frozen=True, gc=False):
    """How far something has come on its way past hooks, policy and people."""

    subject: str = ""
    hooks_answered: int = 0
    """Hooks that have answered."""
    hook: str | None = None
    """The hook that is being asked: its effect."""
    denial: str | None = None
    """Why a hook said no."""
    by: str | None = None
    """The hook that said no, or the person who answered."""
    ruling: Ruling | None = None
    rules: tuple[str, ...] = ()
    reason: str | None = None
    granted: bool = False
    """Whether an earlier approval answers the question."""
    rewritten: bool = False
    """Whether a rule has rewritten it: such rules are not asked again."""
    question: str | None = None
    """What a person is asked: its hash."""
    grant: str | None = None
    """What an approval for the session would answer from then on."""
    answer: ApprovalAnswer | None = None
    text: str | None = None
    """What a rule made of the text, for one delivery."""


NO_GATE = GateState()
"""Nothing is on its way."""


class CallState(Struct, frozen=True, gc=False):
    """One call of the batch under way."""

    call: ToolCall
    arguments: dict[str, Any] | None
    """Parsed, and rewritten where that happened. None: not a JSON object."""
    streaks: Streaks
    """How many calls in a row, up to this one, equal the one 1, 2, 3 or 4 places before."""
    recent: tuple[CallSignature, ...]
    """The latest four calls, this one included."""
    status: CallStatus = "new"
    checked: bool = False
    """Whether the arguments were found valid."""
    gate: GateState = NO_GATE
    """On the way in."""
    result_gate: GateState = NO_GATE
    """On the way out."""
    counted: bool = False
    """Whether it counts as a call that ran. It counts once, also when it is started again."""
    share: BudgetShare | None = None
    """What was carved out for a child."""
    parts: tuple[Content, ...] = ()
    """What the model will read."""
    fault: Fault | None = None


class PendingRequest(Struct, frozen=True, gc=False):
    """The request under way."""

    effect: str
    purpose: Purpose
    reserved: int
    """Tokens."""
    cost: int
    """Micro-dollars."""


class SpendMeter(Struct, frozen=True, gc=False):
    """What was used."""

    usage: Usage = ZERO_USAGE
    """As reported, summed. Null: a call did not say."""
    tokens: int = 0
    """Tokens that count against the budget."""
    cost: int = 0
    """Micro-dollars."""
    tool_calls: int = 0
    """Calls that ran, those of children included."""
    runs: int = 0
    """Runs that were started below this one, of all depths."""
    calls: Mapping[str, int] = {}
    """Calls that ran, by tool."""


class GuardState(Struct, frozen=True, gc=False):
    """What the guards remember."""

    tail: tuple[CallSignature, ...] = ()
    """The latest four calls."""
    streaks: Streaks = (0, 0, 0, 0)
    """How many of the latest calls in a row equal the one 1, 2, 3 or 4 places before."""
    batch: str | None = None
    """Signature of the latest batch."""
    in_a_row: int = 0
    """How often it came in a row."""
    batches: Tally = field(default_factory=Tally)
    """Batches of the session."""
    texts: TextTally = field(default_factory=TextTally)
    """Texts of the assistant in the session that were not its last word."""
    empty: int = 0
    """Stops without a tool call since the last batch that ran."""


class ConversationState(Struct, frozen=True, gc=False):
    """What the model reads."""

    instructions: str = ""
    """As they are sent."""
    transcript: Transcript = field(default_factory=Transcript)
    """What was said before the reply that is being judged."""
    estimate: int = 0
    """Tokens of the transcript, estimated."""
    checked_messages: int = 0
    """Messages that hooks and rules on requests have seen."""


class RequestState(Struct, frozen=True, gc=False):
    """The request under way, and how the requests before it went."""

    asking: PendingRequest | None = None
    purpose: Purpose = "answer"
    """Of the latest request."""
    hidden: tuple[str, ...] = ()
    """Tools that the latest request did not offer."""
    route: int = 0
    """Which route is asked."""
    tries: int = 0
    """Requests that failed in this turn on this route."""
    waited: int = 0
    """Milliseconds waited in this turn on this route."""
    until: int = 0
    """When a request that failed may be sent again."""
    fault: Fault | None = None
    """Why the latest request failed."""


class ReplyState(Struct, frozen=True, gc=False):
    """The latest reply, and what is left of earlier ones that were cut off."""

    latest: Reply | None = None
    original_text: str = ""
    """Its text as the model said it, whatever a hook made of it."""
    earlier_text: str = ""
    """What earlier replies, cut off at their cap, said of the answer."""
    truncations: int = 0
    """Replies in a row that were cut off."""
    cap: int | None = None
    """Tokens that the next reply may have, when more than the settings say."""


class CompactionState(Struct, frozen=True, gc=False):
    """How far the conversation was summed up."""

    overflow: bool = False
    """Whether the provider said that the conversation does not fit."""
    summary: Reply | None = None
    """The latest reply to a request for a summary."""
    failures: int = 0
    """In a row."""


class EndingState(Struct, frozen=True, gc=False):
    """The answer, what is done with it, and how the run is to end."""

    answer: str | None = None
    """The answer, when it is not simply the reply's text."""
    label: AnswerLabel | None = None
    ended_by: str | None = None
    """The terminal call whose result is the answer."""
    cut_short: bool = False
    """Whether the run was brought to its end because its turns were spent."""
    repairs: int = 0
    """How often the answer was refused."""
    delivering: str | None = None
    """The sink that is being served."""
    delivered: Mapping[str, Fault | None] = {}
    """Sinks that were served, and what went wrong."""
    stop: RunStopped | None = None
    """How the run is to end, after its calls are closed and its hooks were told."""


class State(Struct, frozen=True, gc=False):
    phase: Phase = "fresh"
    seq: int = 0
    """The record this state was reached with."""
    now: int = 0
    """The time of that record."""
    began: int = 0
    """The time of the first record."""
    paused: int = 0
    """Milliseconds in which the run waited for somebody outside, or had no owner."""
    start: RunStarted | None = None
    """The first fact. None: nothing happened yet."""
    package: str = ""
    """Fingerprint of the package that the run goes by: the first one, or that of a later owner."""
    turns: int = 0
    """Turns begun."""
    in_turn: bool = False
    """Whether the latest turn is still under way."""
    attempt: int = 0
    """Requests sent in this turn."""
    warned: bool = False
    """Whether the model was told that few turns are left."""
    conversation: ConversationState = field(default_factory=ConversationState)
    requests: RequestState = RequestState()
    replies: ReplyState = ReplyState()
    compaction: CompactionState = CompactionState()
    calls: tuple[CallState, ...] = ()
    """The batch under way."""
    gate: GateState = NO_GATE
    """Of the run as a whole; calls have their own."""
    meter: SpendMeter = SpendMeter()
    meter_at_batch_start: SpendMeter = SpendMeter()
    """The meter when the batch began: conditions see the same whatever call of a batch is done first."""
    detector: GuardState = field(default_factory=GuardState)
    detector_before_reply: GuardState = field(default_factory=GuardState)
    """The detector without the latest reply, in case that is discarded."""
    queue: tuple[User, ...] = ()
    """Messages that were sent and not read."""
    grants: tuple[str, ...] = ()
    """Questions that were approved for the session."""
    ending: EndingState = EndingState()
    cancelled: CancelRequested | None = None
    stopped: RunStopped | None = None

    @property
    def started(self) -> RunStarted:
        """How the run was started. A fresh run has no start: to ask for it is our own bug."""
        if self.start is None:
            raise InternalError("internal", "the run has not started")
        return self.start

    @property
    def elapsed(self) -> int:
        """Milliseconds that count against the budget."""
        return self.now - self.began - self.paused


def pending_effects(state: State) -> tuple[str, ...]:
    """The effects whose facts are waited for."""
    found = []
    if state.requests.asking is not None:
        found.append(state.requests.asking.effect)
    if state.gate.hook is not None:
        found.append(state.gate.hook)
    if state.ending.delivering is not None:
        found.append(str(DeliveryId(state.ending.delivering)))
    for call in state.calls:
        if call.status == "started":
            found.append(call.call.id)
        found += [gate.hook for gate in (call.gate, call.result_gate) if gate.hook is not None]
    return tuple(found)


def find_call(state: State, id: str) -> CallState | None:
    """A call of the batch under way."""
    for call in state.calls:
        if call.call.id == id:
            return call
    return None
