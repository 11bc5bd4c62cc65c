"""Sessions in memory: lists of runs, and the history that the next run gets.

Rule 1  A session has one run at a time.
Rule 2  Every run numbers its calls from the start, so in later runs the id of a call contains its run: r1.c1.0.
Rule 3  If a run compacted its history, the runs before it are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.canonical_json import text_hash
from agentrun.core.evolve import fold
from agentrun.core.facts import ContextCompacted, EarlierRuns, Record, RunStarted
from agentrun.core.messages import Assistant, Message, Text, ToolCall, ToolResult, text_of
from agentrun.core.outcome import answer_of
from agentrun.core.package import Package, SessionSettings
from agentrun.core.state import State
from agentrun.engine.argument_checks import check_name
from agentrun.errors import RequestError


class Session:
    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.runs: list[str] = []
        self._seen: set[str] = set()

    def has_seen(self, text: str) -> bool:
        return text_hash(text.strip()) in self._seen

    def remember(self, text: str) -> None:
        self._seen.add(text_hash(text.strip()))

    def add(self, started: RunStarted) -> None:
        self.runs.append(started.run)
        if started.input is not None:
            self.remember(text_of(started.input.parts))


def restore_session(name: str | None, journals: Mapping[str, Sequence[Record]]) -> Session:
    session = Session(name)
    for records in journals.values():
        started = records[0].fact
        assert isinstance(started, RunStarted), "a journal begins with run_started"
        session.add(started)
    return session


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def create(self, name: str) -> Session:
        check_name("name", name)
        if name in self._sessions:
            raise ValueError(f"a session with the name {name!r} already exists")
        self._sessions[name] = Session(name)
        return self._sessions[name]

    def find(self, name: str | None, is_over: Callable[[str], bool]) -> Session:
        if name is None:
            return Session()
        if name not in self._sessions:
            message, hint = f"there is no session {name!r}", "create it with runtime.sessions.create"
            raise RequestError("session.not_found", message, hint=hint, fields={"session": name})
        session = self._sessions[name]
        if session.runs and not is_over(session.runs[-1]):
            fields = {"session": name, "run": session.runs[-1]}
            raise RequestError("session.busy", f"another run of the session {name!r} is not finished", fields=fields)
        return session


def earlier_runs(runs: Sequence[str], package: Package, read: Callable[[str], Iterable[Record]]) -> EarlierRuns:
    if not runs:
        return EarlierRuns()
    settings, guards = package.session, package.guards
    compares_session = guards.batch_scope == "session" and guards.batch_compare == "results"
    recent = runs[-settings.max_runs :] if settings.max_runs else runs
    last = fold(read(runs[-1]))
    return EarlierRuns(
        runs=last.started.earlier.runs + 1,
        turns=last.started.earlier.turns + last.turns,
        messages=() if settings.history == "none" else _history(recent, settings, read),
        texts=last.detector.texts.totals(),
        batches=last.detector.batches.totals(),
        grants=last.grants,
        result_batches=last.detector.result_batches.totals() if compares_session else UNSET,
    )


def _history(
    runs: Sequence[str], settings: SessionSettings, read: Callable[[str], Iterable[Record]]
) -> tuple[Message, ...]:
    messages: list[Message] = []
    for run in reversed(runs):
        records = tuple(read(run))
        state = fold(records)
        if settings.history == "answers":
            messages[:0] = _question_and_answer(state)
            continue
        compacted = any(isinstance(record.fact, ContextCompacted) for record in records)
        messages[:0] = _conversation(state, whole=compacted)
        if compacted:
            break
    return tuple(messages)


def _question_and_answer(state: State) -> list[Message]:
    if state.stopped is None or state.stopped.status != "completed":
        return []
    asked = [] if state.started.input is None else [state.started.input]
    return [*asked, Assistant((Text(answer_of(state)),))]


def _conversation(state: State, *, whole: bool) -> list[Message]:
    """The messages of a run since its own input, or with `whole` all messages that it knew."""
    messages = list(state.conversation.transcript.since(0 if whole else len(state.started.earlier.messages)))
    if state.stopped is not None and state.stopped.status == "completed" and state.ending.ended_by is None:
        answer, last = answer_of(state), state.reply.message  # rules and hooks may have changed the answer
        messages.append(last if last.text == answer else Assistant((Text(answer),)))
    return [_with_run_number(state.started.earlier.runs + 1, message) for message in messages]


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
    """The id of a call in later runs. The id of a call from an earlier run already contains its run."""
    return call if call.startswith("r") else f"r{run}.{call}"
