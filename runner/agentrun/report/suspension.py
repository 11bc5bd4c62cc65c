"""What a suspended or parked run waits for, what is known about it, and the commands that continue it.

Rule 1  A call whose outcome is not known is described by what its journal has: the tool, the arguments and the time.
Rule 2  Calls of sub-agents are named with the run of the sub-agent, because that run is settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from agentrun.canonical_json import sorted_json
from agentrun.core.evolve import fold
from agentrun.core.facts import Record, ToolStarted
from agentrun.core.outcome import Outcome
from agentrun.core.state import CallState, State, pending_effects
from agentrun.report.formatting import format_time
from agentrun.report.render_facts import MAX_SHOWN_ARGUMENTS, MAX_SHOWN_NAME, lost_work_label, subject_label, until_text
from agentrun.spec.safe_text import join_words, short_text


def resume_command(run: str) -> str:
    return f"agentrun resume {run}"


def parked_lines(parked: Outcome, records: Sequence[Record]) -> Iterator[str]:
    """The last line is the command that continues the run."""
    state = fold(records)
    running = [lost_work_label(state, effect) for effect in pending_effects(state)]
    still = f" while {join_words(running)} {'was' if len(running) == 1 else 'were'} running" if running else ""
    yield f"parked after record {parked.seq}{still}; the run is not finished, continue it with:"
    yield resume_command(parked.run)


def suspension_lines(run: str, journals: Mapping[str, Sequence[Record]], *, is_resumable: bool) -> Iterator[str]:
    """`journals`: of the run and its sub-agents. `is_resumable`: whether the run can be resumed."""
    states = {name: fold(records) for name, records in journals.items()}
    lost = [(name, call) for name, state in states.items() for call in state.calls if call.status == "lost"]
    waits = [text for name, state in states.items() for text in _waits(state, "" if name == run else f" of {name}")]
    asked = [(name, subject) for name, state in states.items() for subject in _asked_subjects(state)]
    for text in waits:
        yield f"suspended: the run waits for {text}"
    if asked and is_resumable:
        yield "  → agentrun approvals    show exactly what would happen"
    for name, subject in asked if is_resumable else ():
        yield f"  → agentrun approve {name} {quote(subject)}"
        yield f"  → agentrun deny {name} {quote(subject)} --reason TEXT"
    for name, call in lost:
        yield f"suspended: it is not known whether {_label(call)}{'' if name == run else f' of {name}'} took effect"
        yield f"  it was started {_started(journals[name], call)}; no result of it is known"
        if is_resumable:
            settle = f"agentrun settle {name} {call.id}"
            yield "  find out what happened, and then:"
            yield f"  → {settle} --retry          run it again"
            yield f"  → {settle} --result TEXT    do not run it: TEXT is its result"
            yield f"  → {settle} --stop           do not run it: end the run"
        else:
            yield "  → find out what happened before you run it again"
    if len(waits) > len(asked) and is_resumable:
        yield f"  → {resume_command(run)}"


def _asked_subjects(state: State) -> Iterator[str]:
    if state.gate.question is not None and state.gate.answer is None:
        yield state.gate.subject
    for call in state.calls:
        if call.status in ("asking", "deferred") and call.gate.question is not None:
            yield call.id


def _waits(state: State, whose: str) -> Iterator[str]:
    gates = [(state.gate, subject_label(state, state.gate.subject))] if state.gate.ruling in ("ask", "defer") else []
    gates += [(call.gate, _label(call)) for call in state.calls if call.status in ("asking", "deferred")]
    for gate, label in gates:
        if gate.ruling == "defer" and not gate.person:
            yield f"{label}{whose}, which a rule deferred{until_text(gate)}"
        elif gate.question is not None and gate.answer is None:
            yield f"an approval of {label}{whose}{', which a rule deferred' if gate.ruling == 'defer' else ''}"


def _label(call: CallState) -> str:
    return f"{short_text(call.tool, MAX_SHOWN_NAME)} ({call.id})"


def _started(records: Sequence[Record], call: CallState) -> str:
    times = [record.at for record in records if isinstance(record.fact, ToolStarted) and record.fact.call == call.id]
    arguments = short_text(sorted_json(call.all_arguments or {}).decode(), MAX_SHOWN_ARGUMENTS)
    return f"at {format_time(times[-1])} with {arguments}" if times else f"with {arguments}"
