"""Facts from outside for a run that another process may be working on.

Rule 1  The process that works on a run looks for messages every `LOOK_INTERVAL` seconds and takes them in their order.
        A fact for a run, or for a sub-agent that is working, goes to its crew. A sub-agent that is asleep gets it in
        its journal, and continues when its parent would be suspended.
Rule 2  A message is removed when its fact is in the journal, or was refused. So a sender that finds its message gone
        knows from the journal what became of it.
Rule 3  A sender leaves its message first. If no process works on the run, the sender takes its own message, after those
        before it. It leaves the others to their senders, as long as these are waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Self

from agentrun.compiler.package_file import PackageFile
from agentrun.core.decide import asked_questions
from agentrun.core.evolve import fold
from agentrun.core.facts import (
    ApprovalAnswered,
    CallSettled,
    CancelRequested,
    Fact,
    MessageQueued,
)
from agentrun.core.messages import text_of
from agentrun.core.outcome import Outcome, Question
from agentrun.core.package import Package
from agentrun.core.state import State, find_call
from agentrun.core.transitions import is_acceptable
from agentrun.engine.answers import package_of_run, refuse_answer, refuse_settlement, settle_call
from agentrun.engine.begin import admit, refuse_duplicate_input, refuse_stand_ins
from agentrun.engine.driver import RunLog, drive_with_children, open_run_log
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.request import wrong_state_error
from agentrun.engine.sessions import restore_session, stored_session
from agentrun.engine.world import World, world_of_run
from agentrun.errors import AgentrunError, RequestError
from agentrun.redactor import Redactor
from agentrun.store.files import FileStore
from agentrun.store.inbox import Inbox, InboxMessage, OutsideFact, has_recorded
from agentrun.store.sessions import check_runs

LOOK_INTERVAL = 0.03
MAX_SENDER_WAIT = 5.0
"""Seconds that a sender waits until its message is recorded."""
SENDER_INTERVAL = 0.02


def refuse_outside_fact(
    fact: OutsideFact, package: Package, state: State, posted: Sequence[Fact], read: Callable[[], Iterable[Fact]]
) -> None:
    """Raise `run.invalid_state` or `input.rejected` if a fact cannot be recorded. `posted`, `read`: as for
    `refuse_answer`."""
    match fact:
        case ApprovalAnswered():
            asked = [each for each in asked_questions(package, state) if each.question == fact.question]
            other = Question(fact.subject, fact.question, fact.subject, None, (), None)
            refuse_answer(asked[0] if asked else other, fact, state, posted, read)
        case CallSettled():
            refuse_settlement(fact, state, posted)
        case MessageQueued():
            admit(package, text_of(fact.message.parts), state.started.params)
            _refuse_late(fact, state)
        case CancelRequested():
            _refuse_late(fact, state)


def _refuse_in_recording(run: str, fact: OutsideFact, *, is_cut: bool = False) -> None:
    """A replay could not repeat what is not on the cassette. A run that is cancelled is not recorded, and a result that
    a person gives for a call that was cut off is recorded when the run is resumed."""
    if not isinstance(fact, CancelRequested) and not (is_cut and isinstance(fact, CallSettled)):
        message = f"the run {run} is being recorded, and its cassette would not contain this"
        hint = "answer at the terminal of the recording, or in advance with --approve"
        if is_cut:
            hint = f"continue the recording with `agentrun resume {run}`, and answer there"
        fields = {"run": run, "expected": "live", "actual": "recorded"}
        raise RequestError("run.invalid_state", message, hint=hint, fields=fields)


def _refuse_late(fact: OutsideFact, state: State) -> None:
    if not is_acceptable(state, fact):
        run = state.started.run
        raise wrong_state_error(run, "unfinished", state.stopped.status if state.stopped else "ending")


async def drive_and_take_messages(world: World, inbox: Inbox, package: PackageFile, log: RunLog) -> Outcome:
    """Drive a run, and take the messages of other processes to it and to its sub-agents."""
    async with MessageTaker(world, inbox, package.agent, log) as taker:
        while True:
            ending = await drive_with_children(world, package.agent, log)
            if ending.status != "suspended" or not taker.take_rest():
                return ending
            log.take_over(package.fingerprint)  # wakes the sub-agents


async def wait_for_message(world: World, inbox: Inbox, package: PackageFile, log: RunLog) -> None:
    """Wait until a message of another process has made a suspended run ready to continue."""
    taker = MessageTaker(world, inbox, package.agent, log)
    while not taker.take_rest():  # noqa: ASYNC110  # another process sets no event
        await asyncio.sleep(LOOK_INTERVAL)
    log.take_over(package.fingerprint)  # wakes the sub-agents


class MessageTaker:
    """Takes the messages to a run while this process works on it."""

    def __init__(self, world: World, inbox: Inbox, package: Package, log: RunLog) -> None:
        self._world = world
        self._inbox = inbox
        self._package = package
        self._log = log
        self._posted: dict[str, InboxMessage] = {}
        """Messages whose facts a crew has, by their id."""
        self._has_news = False
        """Whether a run that has no crew got a fact."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._take_until_cancelled(), name="inbox")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._take()

    async def _take_until_cancelled(self) -> None:
        while True:
            self._take()
            await asyncio.sleep(LOOK_INTERVAL)

    def take_rest(self) -> bool:
        """Take what came before the run would be suspended. Whether the run can continue."""
        self._take(is_suspended=True)
        has_news, self._has_news = self._has_news, False
        return has_news

    def _take(self, *, is_suspended: bool = False) -> None:
        crews = self._world.crews
        self._posted = {id: each for id, each in self._posted.items() if each.fact in crews.posted(each.run)}
        with suppress(AgentrunError):  # a message never stops a run
            for message in self._inbox.messages():
                if message.id not in self._posted:
                    self._take_message(message, is_suspended)

    def _take_message(self, message: InboxMessage, is_suspended: bool) -> None:
        run, crews, journals = message.run, self._world.crews, self._world.journals
        is_root = run == self._world.run
        if is_root and run not in crews and self._log.state.stopped is None and not is_suspended:
            return  # the run has not begun to work, or will be suspended
        if run not in journals:
            self._inbox.remove(message.id)
            return
        package = self._package if is_root else package_of_run(journals, run)
        records = tuple(journals.records(run))
        facts = tuple(record.fact for record in records)
        if has_recorded(facts, message):
            self._inbox.remove(message.id)
            return
        try:
            if self._world.is_recorded:
                _refuse_in_recording(self._world.run, message.fact)
            refuse_outside_fact(message.fact, package, fold(records), crews.posted(run), lambda: facts)
        except RequestError:
            if not crews.posted(run):  # otherwise the sender could not read the reason in the journal yet
                self._inbox.remove(message.id)
            return
        if run in crews:
            crews.post(run, message.fact)
            self._posted[message.id] = message
            return
        (self._log if is_root else open_run_log(world_of_run(self._world, run))).commit(message.fact)
        self._has_news = True
        self._inbox.remove(message.id)


def send_fact(store: FileStore, run: str, fact: OutsideFact, redactor: Redactor, *, only_unowned: bool = False) -> bool:
    """Record a fact from outside in a run. If no process works on the run, this one records it and has locked the run
    from then on: True. Otherwise the other process records it: False. Raises `run.invalid_state` and `input.rejected`
    if the fact is refused, and `session.busy` if the other process does not take it in time, or with `only_unowned` if
    there is one."""
    fact = redactor.redact_struct(fact)
    _refuse_fact(store, run, fact)
    if only_unowned:
        store.lock(run)
    inbox = store.inbox(run)
    message, deadline = inbox.leave(run, fact), time.monotonic() + MAX_SENDER_WAIT
    try:
        while time.monotonic() < deadline:
            if store.try_lock(run):
                if _record_in_turn(store, message, redactor):
                    return True
                store.unlock(run)
                deadline = time.monotonic() + MAX_SENDER_WAIT  # no process works on it: an earlier sender may be gone
            elif message.id not in inbox:
                _refuse_unrecorded(store, message)
                return False
            elif only_unowned:  # a process began to work on the run, while other senders came first
                store.lock(run)
            time.sleep(SENDER_INTERVAL)
    except BaseException:
        inbox.remove(message.id)
        raise
    error = f"the process that works on the run {run} did not take the message within {MAX_SENDER_WAIT:.0f} seconds"
    hint = f"it is recorded when that process continues; if it is stuck, end it, and then: agentrun resume {run}"
    raise RequestError("session.busy", error, hint=hint, fields={"session": store.session_of(run), "run": run})


def refuse_repeated_message(store: FileStore, run: str, text: str) -> None:
    """Raise `input.rejected` if a message was already sent in the session of a run, and the agent does not allow it."""
    package, records = package_of_run(store, run), store.records(run)
    if not package.admission.dedupe:
        return
    name = store.session_of(run)
    if name is None:
        session = restore_session(None, {run: records})
    else:
        session = stored_session(store, name, check_runs(store, name, store.sessions.runs(name)))
    for record in records:
        if isinstance(record.fact, MessageQueued):
            session.remember(text_of(record.fact.message.parts))
    refuse_duplicate_input(package, session, text, f"{run}.{len(records) + 1}")


def _record_in_turn(store: FileStore, message: InboxMessage, redactor: Redactor) -> bool:
    """Record a message in a locked run, after those whose senders have gone. False: other senders come first."""
    inbox = store.inbox(message.run)
    earlier = [each for each in inbox.messages() if each.id < message.id]
    if any(abs(each.age) < MAX_SENDER_WAIT for each in earlier):
        return False
    for each in earlier:
        with suppress(AgentrunError):
            _record(store, each, redactor)
        inbox.remove(each.id)
    if message.id in inbox:
        _record(store, message, redactor)
        inbox.remove(message.id)
    else:
        _refuse_unrecorded(store, message)
    return True


def _record(store: FileStore, message: InboxMessage, redactor: Redactor) -> None:
    if has_recorded(_facts(store, message.run), message):
        return
    log = RunLog(store.open(message.run), SystemClock(), clean=redactor.redact_struct)
    if isinstance(message.fact, CallSettled):
        settle_call(log, message.fact)
        return
    package = package_of_run(store, message.run)
    refuse_outside_fact(message.fact, package, log.state, (), log.facts)
    log.commit(message.fact)


def _refuse_unrecorded(store: FileStore, message: InboxMessage) -> None:
    """Raise the reason why another process did not record a message that it took."""
    if not has_recorded(_facts(store, message.run), message):
        _refuse_fact(store, message.run, message.fact)
        raise wrong_state_error(message.run, "open", "ending")


def _refuse_fact(store: FileStore, run: str, fact: OutsideFact) -> None:
    state = fold(store.records(run))
    root, is_owned = store.inbox(run).run, store.is_locked(run)
    is_recorded = store.recording(root).exists()
    if is_recorded:
        _refuse_in_recording(root, fact, is_cut=not is_owned)
    if not is_owned and not isinstance(fact, CancelRequested):  # any run can be ended
        refuse_stand_ins(fold(store.records(root)).started, is_recorded=is_recorded)
    call = find_call(state, fact.call) if isinstance(fact, CallSettled) else None
    if is_owned or call is None or call.status != "started":  # otherwise it is lost: no process works on the run
        refuse_outside_fact(fact, package_of_run(store, run), state, (), partial(_facts, store, run))


def _facts(store: FileStore, run: str) -> tuple[Fact, ...]:
    return tuple(record.fact for record in store.records(run))
