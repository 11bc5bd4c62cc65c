"""Sessions in process: lists of runs, and what the next run knows of the ones before.

Rule 1  One run at a time: a session whose latest run is not over is busy, and that is said at once.
Rule 2  What a run carries over is read from the journals of the runs before it.
Rule 3  Each run counts its calls from the start, so in later runs an id says which run it is of: r1.c1.0.
Rule 4  A run that summed up its history stands for all runs before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from agentrun.canonical_json import text_hash
from agentrun.core.evolve import fold
from agentrun.core.facts import ContextCompacted, EarlierRuns, Record, RunStarted
from agentrun.core.messages import Assistant, Message, Text, ToolCall, ToolResult, words
from agentrun.core.outcome import answer_of
from agentrun.core.package import SessionSettings as Carrying
from agentrun.core.state import State
from agentrun.errors import RequestError


class Session:
    """One session. A run without one has its own."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.runs: list[str] = []
        self._seen: set[str] = set()

    def has_seen(self, text: str) -> bool:
        return text_hash(text.strip()) in self._seen

    def remember(self, text: str) -> None:
        self._seen.add(text_hash(text.strip()))


def restore_session(name: str | None, journals: Mapping[str, Sequence[Record]]) -> Session:
    """A session with runs that it had before, maybe in other processes."""
    session = Session(name)
    for run, records in journals.items():
        session.runs.append(run)
        started = records[0].fact
        if isinstance(started, RunStarted) and started.input is not None:
            session.remember(words(started.input.parts))
    return session


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def create(self, name: str) -> Session:
        """A new session. ValueError: there is one of that name."""
        if name in self._sessions:
            raise ValueError(f"there is a session {name!r} already")
        self._sessions[name] = Session(name)
        return self._sessions[name]

    def find(self, name: str | None, is_over: Callable[[str], bool]) -> Session:
        """The session for a new run. Raises `session.not_found`, `session.busy`."""
        if name is None:
            return Session()
        if name not in self._sessions:
            raise RequestError("session.not_found", f"there is no session {name!r}", fields={"session": name})
        session = self._sessions[name]
        if session.runs and not is_over(session.runs[-1]):
            fields = {"session": name, "run": session.runs[-1]}
            raise RequestError("session.busy", f"a run of the session {name!r} is not over", fields=fields)
        return session


def earlier_runs(runs: Sequence[str], carrying: Carrying, read: Callable[[str], Iterable[Record]]) -> EarlierRuns:
    """What the next run of a session knows."""
    if not runs:
        return EarlierRuns()
    carried = runs[-carrying.max_runs :] if carrying.max_runs else runs
    last = fold(read(runs[-1]))
    return EarlierRuns(
        runs=last.started.earlier.runs + 1,
        turns=last.started.earlier.turns + last.turns,
        messages=() if carrying.history == "none" else _carried_messages(carried, carrying, read),
        texts=last.detector.texts.totals(),
        batches=last.detector.batches.totals(),
        grants=last.grants,
    )


def _carried_messages(
    runs: Sequence[str], carrying: Carrying, read: Callable[[str], Iterable[Record]]
) -> tuple[Message, ...]:
    messages: list[Message] = []
    for run in reversed(runs):
        records = tuple(read(run))
        state = fold(records)
        if carrying.history == "answers":
            messages[:0] = _question_and_answer(state)
            continue
        summed_up = any(isinstance(record.fact, ContextCompacted) for record in records)
        messages[:0] = _conversation(state, whole=summed_up)
        if summed_up:
            break
    return tuple(messages)


def _question_and_answer(state: State) -> list[Message]:
    """What a completed run was asked and what it answered."""
    if state.stopped is None or state.stopped.status != "completed":
        return []
    asked = [] if state.started.input is None else [state.started.input]
    return [*asked, Assistant((Text(answer_of(state)),))]


def _conversation(state: State, *, whole: bool) -> list[Message]:
    """What was said in a run: since its own input, or all that it knew."""
    messages = list(state.conversation.transcript.since(0 if whole else len(state.started.earlier.messages)))
    if state.stopped is not None and state.stopped.status == "completed" and state.ending.ended_by is None:
        messages.append(_final_message(state))
    return [_with_run_number(state.started.earlier.runs + 1, message) for message in messages]


def _final_message(state: State) -> Message:
    """The answer as it was given: rules and hooks may have changed it."""
    assert state.replies.latest is not None
    answer = answer_of(state)
    return state.replies.latest.message if state.replies.latest.message.text == answer else Assistant((Text(answer),))


def _with_run_number(run: int, message: Message) -> Message:
    match message:
        case ToolResult(call=call):
            return replace(message, call=_call_id_in_run(run, call))
        case Assistant(parts=parts) if message.calls:
            renamed = (
                replace(part, id=_call_id_in_run(run, part.id)) if isinstance(part, ToolCall) else part
                for part in parts
            )
            return Assistant(tuple(renamed))
    return message


def _call_id_in_run(run: int, call: str) -> str:
    """The id of a call in later runs; one that was carried before has it already."""
    return call if call.startswith("r") else f"r{run}.{call}"
