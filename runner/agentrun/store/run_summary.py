"""One line about a run, made from its journal: what `agentrun runs` lists.

Rule 1  A finished run never changes. Its records are added up without checking them, because many runs are read at
        once; `agentrun verify` checks them.
Rule 2  An unfinished run is checked and folded, to find out whether it waits for someone. If that is not possible, the
        run is damaged, and its code says why.
Rule 3  Whether a process works on a run is not in the journal, so it is not in the summary either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.budget import charged_tokens
from agentrun.core.evolve import MAYBE_CHARGED, fold
from agentrun.core.facts import FACT_KINDS, Record
from agentrun.core.messages import Usage
from agentrun.core.state import CallStatus, State, pending_effects
from agentrun.errors import StorageError
from agentrun.journal.records import FactBlobReader, inline_fact, no_blobs

StoredStatus: TypeAlias = Literal["running", "waiting", "interrupted", "completed", "failed", "cancelled", "damaged"]
"""running: a process works on it. waiting: a person must answer or decide, or a rule deferred something. interrupted:
it is not finished, and nothing works on it. damaged: its journal cannot be read."""
UNFINISHED_STATUSES = frozenset(("running", "waiting", "interrupted", "damaged"))
"""The statuses of runs without a terminal record."""
RESUMABLE_STATUSES: tuple[StoredStatus, ...] = ("waiting", "interrupted")
"""The statuses of runs that a process can take over."""
WaitKind: TypeAlias = Literal["approval", "settlement", "deferral", "sub-agent"]
_CALL_WAITS: dict[CallStatus, WaitKind] = {
    "asking": "approval",
    "lost": "settlement",
    "deferred": "deferral",
    "asleep": "sub-agent",
}
MAX_INTEGER = 2**63 - 1
MAX_TIME = 253_370_764_800_000
"""The year 9999. These are the largest numbers in the index; a damaged journal can contain larger ones."""


class WaitReason(Struct, frozen=True):
    """What a run waits for."""

    kind: WaitKind
    subject: str
    """The id of a call, `input`, `output`, or `deliver:` and the name of a sink."""
    tool: str | None = None
    until: int | None = None
    """The end of a deferral, in milliseconds since 1970. None: it has no time."""


class RunSummary(Struct, frozen=True, array_like=True):
    """A run of a store: its status, what it spent, and what it waits for."""

    run: str
    agent: str
    status: StoredStatus
    started: int
    """Milliseconds since 1970."""
    seq: int
    """The number of records."""
    code: str | None = None
    """Why the run failed, or cannot be read."""
    session: str | None = None
    ended: int | None = None
    """Milliseconds since 1970. None: the run is not finished."""
    cost: int = 0
    """Micro-dollars, including sub-agents."""
    tokens: int = 0
    turns: int = 0
    parent: str | None = None
    """The run that started this one as its sub-agent."""
    waits_for: tuple[WaitReason, ...] = ()


class _Amounts(Struct, gc=False):
    tokens: int | None = None
    cost: int | None = None


class _Coded(Struct, gc=False):
    code: str = ""


class _Reply(Struct, gc=False):
    usage: Usage | None = None


class _Parent(Struct, gc=False):
    run: str


class _Fact(Struct, gc=False):
    """The fields of all facts that a summary needs."""

    type: str
    agent: str = ""
    session: str | None = None
    parent: _Parent | None = None
    effect: str = ""
    turn: int = 0
    purpose: str = "answer"
    reserved: int = 0
    cost: int = 0
    reply: _Reply | None = None
    call: str = ""
    spent: _Amounts | None = None
    share: _Amounts | None = None
    how: str = ""
    status: str = ""
    fault: _Coded | None = None


class _Line(Struct, gc=False):
    at: int
    seq: int
    fact: _Fact


class _Kind(Struct):
    type: str


class _KindLine(Struct):
    fact: _Kind


_decoder = msgspec.json.Decoder(_Line)
_kind_decoder = msgspec.json.Decoder(_KindLine)
_NOTHING = _Line(0, 0, _Fact(""))


def summarize(
    run: str, data: bytes, checked_records: Callable[[], Iterable[Record]], read_blob: FactBlobReader = no_blobs
) -> RunSummary | None:
    """The summary of a run, from the bytes of its journal. None: it has no complete record. `checked_records` raises
    StorageError; it is called for an unfinished run."""
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
        return None
    try:
        if b'"fact":{"blob":"' in whole:
            whole = b"\n".join(inline_fact(line, read_blob) for line in whole.split(b"\n"))
        lines = _decode(whole)
    except _UNREADABLE:
        return RunSummary(run, "", "damaged", 0, whole.count(b"\n"), "journal.damaged")
    started, last = lines[0].fact, lines[-1]
    meter = _SpendSum()
    for line in lines:
        meter.add(line.fact)
    summary = RunSummary(
        run=run,
        agent=started.agent,
        status="interrupted",
        started=_limit_time(lines[0].at),
        seq=len(lines),
        session=started.session,
        cost=_limit(meter.cost),
        tokens=_limit(meter.tokens),
        turns=_limit(meter.turns),
        parent=None if started.parent is None else started.parent.run,
    )
    if last.fact.type == "run_stopped":
        return _finished(summary, last)
    return _unfinished(summary, checked_records)


_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


def _decode(whole: bytes) -> list[_Line]:
    try:
        lines = _decoder.decode_lines(whole)
    except _UNREADABLE:
        lines = [_decode_line(line) for line in whole.split(b"\n")[:-1]]
    if len(lines) != whole.count(b"\n") or lines[0].fact.type != "run_started":  # empty lines are not decoded
        raise msgspec.DecodeError("it is not a journal")
    return lines


def _decode_line(line: bytes) -> _Line:
    """A line of a kind that a later release added can have fields of other types. It changes no sum."""
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        if _kind_decoder.decode(line).fact.type in FACT_KINDS:
            raise
        return _NOTHING


def _limit(number: int) -> int:
    return max(0, min(number, MAX_INTEGER))


def _limit_time(milliseconds: int) -> int:
    return max(0, min(milliseconds, MAX_TIME))


def _limit_until(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else _limit_time(milliseconds)


class _SpendSum:
    """What a run spent. It counts like `SpendMeter` in `core/evolve.py`, from the few fields that this takes."""

    def __init__(self) -> None:
        self.cost = 0
        self.tokens = 0
        self.turns = 0
        self._asking: _Fact | None = None
        self._shares: dict[str, _Amounts] = {}

    def add(self, fact: _Fact) -> None:
        match fact.type:
            case "model_asked":
                self._asking = fact
                if fact.purpose == "answer":
                    self.turns = fact.turn
            case "model_replied":
                reserved = 0 if self._asking is None else self._asking.reserved
                self.tokens += charged_tokens(fact.reply.usage if fact.reply else None, reserved)
                self.cost += fact.cost
                self._asking = None
            case "model_failed":
                if fact.fault is not None and fact.fault.code in MAYBE_CHARGED:
                    self._charge_reserved()
                self._asking = None
            case "work_lost":
                if self._asking is not None and self._asking.effect == fact.effect:
                    self._charge_reserved()
            case "run_ending" | "run_stopped":
                self._charge_reserved()
            case "child_started" if fact.share is not None:
                self._shares[fact.call] = fact.share
            case "tool_finished":
                self._charge(fact.spent)
            case "call_cancelled":
                self._charge(self._shares.get(fact.call))
            case "call_settled" if fact.how == "result":
                self._charge(self._shares.get(fact.call))

    def _charge_reserved(self) -> None:
        if self._asking is not None:
            self.tokens += self._asking.reserved
            self.cost += self._asking.cost
            self._asking = None

    def _charge(self, amounts: _Amounts | None) -> None:
        if amounts is not None:
            self.tokens += amounts.tokens or 0
            self.cost += amounts.cost or 0


def _finished(summary: RunSummary, last: _Line) -> RunSummary:
    code = None if last.fact.fault is None else last.fact.fault.code
    status: StoredStatus = "cancelled" if code == "cancelled" else "failed" if code else "completed"
    return replace(summary, status=status, code=code, ended=_limit_time(last.at))


def _unfinished(summary: RunSummary, checked_records: Callable[[], Iterable[Record]]) -> RunSummary:
    try:
        state = fold(checked_records())
    except StorageError as error:
        # A run of a later release is not damaged, but only that release can continue it.
        status: StoredStatus = "interrupted" if error.code == "recovery.failed" else "damaged"
        return replace(summary, status=status, code=error.code)
    waits = () if pending_effects(state) or state.cancelled else tuple(_waits(state))
    return replace(summary, status="waiting", waits_for=waits) if waits else summary


def _waits(state: State) -> Iterator[WaitReason]:
    gate = state.gate
    if gate.question is not None and gate.answer is None:
        yield WaitReason("approval", gate.subject)
    elif gate.ruling == "defer":
        yield WaitReason("deferral", gate.subject, until=_limit_until(gate.until))
    for call in state.calls:
        kind = _CALL_WAITS.get(call.status)
        if kind == "deferral" and call.gate.question is not None:
            yield WaitReason("approval", call.id, call.tool)
        elif kind is not None and (kind != "approval" or call.gate.question is not None):
            yield WaitReason(kind, call.id, call.tool, _limit_until(call.gate.until))
