"""Sessions in memory: lists of runs, and the history that the next run gets.

Rule 1  A session has one run at a time. A run that is not finished comes first.
Rule 2  Only an agent that already has a run in the session continues it, unless the request says otherwise.
Rule 3  Every run numbers its calls from the start, so in later runs the id of a call contains its run: r1.c1.0.
Rule 4  If a run compacted its history, the runs before it are not read. If the last run had the same package, only that
        run is read: its first record has the history before it. So a message costs as much as its request, however
        many runs there are.
Rule 5  A fork has the history of another session, but its own approvals and its own inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.evolve import fold
from agentrun.core.facts import ContextCompacted, EarlierRuns, MessageOrigin, Record, RunStarted, RunStopped
from agentrun.core.messages import Assistant, Message, Text, ToolCall, ToolResult, message_hash, text_of
from agentrun.core.outcome import answer_of
from agentrun.core.package import Package, SessionSettings
from agentrun.core.state import State, pending_effects
from agentrun.engine.argument_checks import check_name
from agentrun.engine.request import Request
from agentrun.errors import RequestError, session_duplicate_error
from agentrun.spec.problems import did_you_mean
from agentrun.spec.safe_text import join_words

if TYPE_CHECKING:
    from agentrun.store.files import FileStore
    from agentrun.store.sessions import SessionRun


class Session:
    def __init__(self, name: str | None = None, read: Callable[[str], Sequence[Record]] | None = None) -> None:
        """`read`: the journal of one of its runs. None: that of the world of the next run."""
        self.name = name
        self.read = read
        self.runs: list[str] = []
        self.unfinished: str | None = None
        """The first run that was not finished when the session was restored."""
        self.agents: set[str] = set()
        self._seen: set[str] = set()

    def has_seen(self, text: str) -> bool:
        return message_hash(text) in self._seen

    def remember(self, text: str) -> None:
        self._seen.add(message_hash(text))

    def add(self, started: RunStarted) -> None:
        message = None if started.input is None else message_hash(text_of(started.input.parts))
        self.add_run(started.run, started.agent, message if self.is_home_of(started) else None)

    def add_run(self, run: str, agent: str, message: str | None) -> None:
        """`message`: the hash of its input, if the run was started in this session."""
        self.runs.append(run)
        self.agents.add(agent)
        if message is not None:
            self._seen.add(message)

    def is_home_of(self, started: RunStarted) -> bool:
        """Whether a run was started in this session, and not in the one that it was forked from."""
        return self.name is None or self.name == started.session


def restore_session(name: str | None, journals: Mapping[str, Sequence[Record]]) -> Session:
    session = Session(name, journals.__getitem__)
    for records in journals.values():
        started = records[0].fact
        assert isinstance(started, RunStarted), "a journal begins with run_started"
        session.add(started)
    return session


def stored_session(store: FileStore, name: str, runs: Iterable[SessionRun]) -> Session:
    session = Session(name, lru_cache(1)(store.records))
    for each in runs:
        session.add_run(each.run, each.agent, each.message if each.session == name else None)
        if not each.is_finished:
            session.unfinished = session.unfinished or each.run
    return session


class Sessions:
    """The sessions of a runtime: those that were created here, and those of its store."""

    def __init__(self, store: FileStore | None = None) -> None:
        self._sessions: dict[str, Session] = {}
        self._store = store

    def create(self, name: str) -> Session:
        """Begin a session. Raises `session.duplicate`."""
        check_name("name", name)
        if name in self:
            raise session_duplicate_error(name)
        self._sessions[name] = Session(name)
        return self._sessions[name]

    def __contains__(self, name: str) -> bool:
        return name in self._sessions or self._is_stored(name)

    def _is_stored(self, name: str) -> bool:
        return self._store is not None and name in self._store.sessions

    def find(self, name: str | None) -> Session:
        """A session of a store is locked and read again, because other processes may have continued it. Raises
        `session.not_found`, `session.busy`, and the errors of a damaged journal."""
        if name is None:
            return Session()
        if self._store is not None and self._is_stored(name):
            from agentrun.store.sessions import open_session  # late: only with a store

            return stored_session(self._store, name, open_session(self._store, name, "continue"))
        if name not in self._sessions:
            known = [*self._sessions, *([] if self._store is None else self._store.sessions.names())]
            hint = did_you_mean(name, known) or "create it with runtime.sessions.create"
            fields = {"session": name}
            raise RequestError("session.not_found", f"there is no session {name!r}", hint=hint, fields=fields)
        return self._sessions[name]

    def leave(self, name: str | None) -> None:
        """Release the lock of a stored session if no run of this process holds it: its next run was refused."""
        if name is not None and self._store is not None:
            self._store.sessions.unlock_idle(name)


def refuse_continuation(session: Session, request: Request, last: Sequence[Record]) -> None:
    """Raises `session.unfinished` and `run.invalid_continuation`. `last`: the journal of the last run, or of one
    that is not finished."""
    if session.name is None:
        return
    if not isinstance(last[-1].fact, RunStopped):
        raise unfinished_error(session.name, last)
    if request.agent not in session.agents and not request.any_agent:
        agents = ", ".join(sorted(session.agents))
        message = f"the session {session.name} is a conversation with {agents}, not with {request.agent}"
        hint = "begin another session, or add --any-agent (in Python: any_agent=True): the agent then reads all of it"
        fields = {"session": session.name, "expected": agents, "actual": request.agent}
        raise RequestError("run.invalid_continuation", message, hint=hint, fields=fields)


def unfinished_error(session: str, records: Iterable[Record]) -> RequestError:
    """`session.unfinished`: what the next message of a session says about a run that is not finished."""
    state = fold(records)
    run, gates = (
        state.started.run,
        {call.id: call.gate for call in state.calls if call.status in ("asking", "deferred")},
    )
    gates |= {state.gate.subject: state.gate} if state.gate.ruling in ("ask", "defer") else {}
    asked = [subject for subject, gate in gates.items() if gate.question is not None and gate.answer is None]
    cut = [call.id for call in state.calls if call.status in ("started", "lost")]
    asleep = [call.id for call in state.calls if call.status == "asleep"]
    hint = f"agentrun resume {run}"
    if cut:
        text = f"was cut in {_labels(state, cut)}: resume or settle it"
        hint += f", or agentrun settle {run} {cut[0]}"
    elif pending_effects(state):
        text = "was cut in a request, a hook or a delivery: resume it"
    elif asked:
        text = f"waits for an approval of {_labels(state, asked)}: answer it"
        hint = f"agentrun approve {run} {asked[0]}, or agentrun deny {run} {asked[0]}"
    elif gates:
        text = f"waits, because a rule deferred {_labels(state, gates)}: resume it"
    elif asleep:
        text = f"waits for the sub-agent {_labels(state, asleep)}: resume it"
    else:
        text = "was interrupted: resume it"
    fields = {"session": session, "run": run, "calls": cut or asked}
    return RequestError("session.unfinished", f"run {run} of this session {text}", hint=hint, fields=fields)


def _labels(state: State, subjects: Iterable[str]) -> str:
    tools = {call.id: call.tool for call in state.calls}
    return join_words([f"`{tools[each]}` ({each})" if each in tools else f"its {each}" for each in subjects])


def earlier_runs(
    session: Session, package: Package, read: Callable[[str], Iterable[Record]], fingerprint: str | None = None
) -> EarlierRuns:
    """`fingerprint`: that of the package. None: every run of the history is read."""
    runs = session.runs
    if not runs:
        return EarlierRuns()
    settings, guards = package.session, package.guards
    compares_session = guards.batch_scope == "session" and guards.batch_compare == "results"
    recent = runs[-settings.max_runs :] if settings.max_runs else runs
    last = fold(read(runs[-1]))
    known = _known_history(last.started, runs) if last.started.package == fingerprint else None
    history = [] if settings.history == "none" else _history(recent, settings, read, known)
    return EarlierRuns(
        runs=last.started.earlier.runs + 1,
        turns=last.started.earlier.turns + last.turns,
        messages=tuple(message for _, messages in history for message in messages),
        texts=last.detector.texts.totals(),
        batches=last.detector.batches.totals(),
        grants=last.grants if session.is_home_of(last.started) else (),
        result_batches=last.detector.result_batches.totals() if compares_session else UNSET,
        origins=UNSET
        if session.name is None
        else tuple(MessageOrigin(run, len(messages)) for run, messages in history if messages),
    )


def _known_history(started: RunStarted, runs: Sequence[str]) -> dict[str, Sequence[Message]] | None:
    """The messages of each earlier run, as a run of the same package got them. None: they are not known, or one of the
    runs was removed since."""
    earlier = started.earlier
    if earlier.origins is UNSET or not {each.run for each in earlier.origins} <= {*runs}:
        return None
    ends = tuple(accumulate(each.messages for each in earlier.origins))
    return {
        each.run: earlier.messages[end - each.messages : end] for each, end in zip(earlier.origins, ends, strict=True)
    }


def _history(
    runs: Sequence[str],
    settings: SessionSettings,
    read: Callable[[str], Iterable[Record]],
    known: Mapping[str, Sequence[Message]] | None,
) -> list[tuple[str, Sequence[Message]]]:
    """The messages of each run. `known`: those of the runs before the last one; None: they are read."""
    history: list[tuple[str, Sequence[Message]]] = []
    for run in reversed(runs):
        records = tuple(read(run))
        if settings.history == "answers":
            history.insert(0, (run, _question_and_answer(fold(records))))
        else:
            history.insert(0, (run, added_messages(records)))
            if _is_compacted(records):
                break
        if known is not None:
            return [*((each, known[each]) for each in runs if each in known), *history]
    return history


def added_messages(records: Sequence[Record]) -> list[Message]:
    """The messages that a run adds to the history of its session. If it compacted the history: all messages since."""
    return _conversation(fold(records), whole=_is_compacted(records))


def _is_compacted(records: Sequence[Record]) -> bool:
    return any(isinstance(record.fact, ContextCompacted) for record in records)


def _question_and_answer(state: State) -> list[Message]:
    if state.stopped is None or state.stopped.status != "completed":
        return []
    asked = [] if state.started.input is None else [state.started.input]
    return [*asked, Assistant((Text(answer_of(state)),))]


def _conversation(state: State, *, whole: bool) -> list[Message]:
    """The messages of a run since its own input, or with `whole` all messages that it knew."""
    messages = list(state.conversation.transcript.since(0 if whole else len(state.started.earlier.messages)))
    if state.stopped is not None and state.stopped.status == "completed" and state.ending.ended_by is None:
        answer, last = answer_of(state), state.replies.latest  # rules and hooks may have changed the answer
        if last is not None and last.message.text == answer:
            messages.append(last.message)
        else:
            messages.append(Assistant((Text(answer),)))
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
