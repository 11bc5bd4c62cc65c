"""The handle of a run.

In an event loop a run continues on its own. Without one, the run does its work inside `wait`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentrun.compiler.package_file import PackageFile
from agentrun.core import facts
from agentrun.core.fault import fault_of
from agentrun.core.messages import Content, user_message
from agentrun.core.outcome import Outcome, Question, outcome_of, parked_outcome
from agentrun.core.state import State
from agentrun.core.trajectory import RunTrail
from agentrun.core.transitions import is_acceptable
from agentrun.engine.answers import CallSettlement, make_answer, make_settlement, refuse_answer, refuse_settlement
from agentrun.engine.argument_checks import check_author, check_grace, check_text
from agentrun.engine.begin import admit, refuse_changed_package, refuse_duplicate_input
from agentrun.engine.clock import StepClock
from agentrun.engine.driver import RunLog, drive_with_children
from agentrun.engine.event_bus import Subscription
from agentrun.engine.events import Cursor, run_scope
from agentrun.engine.request import RunStatus, wrong_state_error
from agentrun.engine.sessions import Session
from agentrun.engine.world import World
from agentrun.errors import PackageError, RequestError

if TYPE_CHECKING:
    from agentrun.store.inbox import Inbox

PARK_GRACE_MS = 10_000
"""Milliseconds that running effects may still take when a run is parked."""


class RunHandle:
    """One run: wait for it, read its state, send it messages and answers."""

    def __init__(
        self,
        package: PackageFile,
        log: RunLog,
        world: World,
        session: Session,
        subscribe: Callable[[Cursor | None], Subscription],
        wake: Callable[[str], None] = lambda run: None,
    ) -> None:
        """`wake`: called when the run is not worked on any more."""
        self.run = log.state.started.run
        self.agent = log.state.started.agent
        self._package = package
        self._log = log
        self._world = world
        self.session = session
        self._subscribe = subscribe
        self._wake = wake
        self._task: Any = None
        self._listener: Any = None
        """Takes the messages of other processes to a suspended run of a store."""
        self._ended: Outcome | None = None
        self._error: Exception | None = None
        """The error that interrupted the run. The run is not finished and can be resumed."""
        self._cancelled = self.state.cancelled is not None
        self._inputs = self.state.seq
        """The number of the last input. Earlier inputs are records, so no earlier number is higher than `seq`."""

    @property
    def state(self) -> State:
        """What the records of the run add up to."""
        return self._log.state

    @property
    def is_worked_on(self) -> bool:
        """Whether this runtime works on the run now."""
        return self.run in self._world.crews

    @property
    def status(self) -> RunStatus:
        """`admitted`, `processing`, `suspended`, or how the run ended: `completed` or `failed`."""
        if self.state.stopped is not None:
            return self.state.stopped.status
        if self.is_worked_on:
            return "processing"
        return "admitted" if self.state.seq == 1 else "suspended"

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, or None if the run is not finished."""
        return self._with_trail(outcome_of(self.state)) if self.state.stopped is not None else None

    @property
    def pause(self) -> Outcome | None:
        """Why the run does not continue on its own. None: it does, or it is finished."""
        if self.is_active or self.outcome is not None:
            return None
        if self._ended is not None and not self._ended.is_finished:
            return self._ended
        return parked_outcome(self.state)

    def _with_trail(self, outcome: Outcome) -> Outcome:
        return outcome.with_trail(RunTrail(self.run, self._world.journals.records))

    async def wait(self) -> Outcome:
        """Wait until the run is finished, suspended or parked. Cancelling the wait does not stop the run."""
        if (outcome := self.outcome) is not None:
            return outcome
        if self._error is not None:
            raise self._error
        if self._ended is not None and self._is_parked:
            return self._ended
        self.begin()
        if self._task is None:
            await self._work()
        else:
            from asyncio import shield  # late: only a run in an event loop needs it

            await shield(self._task)
        if self._error is not None:
            raise self._error
        assert self._ended is not None
        return self._ended

    @property
    def _is_parked(self) -> bool:
        return self._ended is not None and self._ended.status == "parked"

    @property
    def _is_suspended(self) -> bool:
        return self._ended is not None and self._ended.status == "suspended"

    def begin(self) -> None:
        """Continue the run if there is an event loop. A parked run continues only after `resume`."""
        if not self._is_parked and (self._task is None or self._task.done()):
            self._task = None
            if not isinstance(self._world.clock, StepClock):
                import asyncio  # late: a step clock needs no event loop

                with suppress(RuntimeError):  # there is no event loop
                    self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        if self.is_worked_on:
            raise wrong_state_error(self.run, "suspended", "processing")
        self.stop_listening()
        try:
            self._ended = self._with_trail(await self._drive())
        except Exception as error:  # noqa: BLE001  # `wait` raises it
            self._error = error
        finally:
            self._world.crews.clear()
        if self._is_suspended and self._world.inbox is not None:
            from asyncio import get_running_loop  # late: as above

            self._listener = get_running_loop().create_task(self._listen(self._world.inbox))
        self._wake(self.run)

    async def _listen(self, inbox: Inbox) -> None:
        from agentrun.engine.inbox import wait_for_message  # late: only a stored run needs it

        try:
            await wait_for_message(self._world, inbox, self._package, self._log)
        except Exception as error:  # noqa: BLE001  # `wait` raises it
            self._error = error
        else:
            self.begin()

    def stop_listening(self) -> None:
        """Take no messages of other processes any more, until the run is worked on again."""
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None

    async def _drive(self) -> Outcome:
        try:
            refuse_changed_package(self._package)
        except PackageError as error:
            self._log.commit(facts.RunStopped("failed", fault_of(error)))
        if self._world.inbox is None:
            return await drive_with_children(self._world, self._package.agent, self._log)
        from agentrun.engine.inbox import drive_and_take_messages  # late: only a stored run needs it

        return await drive_and_take_messages(self._world, self._world.inbox, self._package, self._log)

    # --- input from outside --------------------------------------------------------------------------------------

    def cancel(self, by: str = "caller") -> None:
        """Cancel the run, its running effects and its sub-agents. A second call does nothing."""
        check_author(by)
        if not self._cancelled:
            self._cancelled = self.post(facts.CancelRequested(by))

    def park(self, grace: int = PARK_GRACE_MS) -> None:
        """Park the run: no new effects are started, and running effects may end within `grace` milliseconds. The
        outcome has the status `parked`, and the run can be resumed. If the run is finished or suspended, this does
        nothing."""
        check_grace(grace)
        if self.is_active:
            self._world.crews.park(grace)

    @property
    def is_active(self) -> bool:
        """Whether the run is worked on, or is about to be."""
        if self.is_worked_on or (self._task is not None and not self._task.done()):
            return True
        return self._ended is None and self._error is None and self.outcome is None

    def send(self, text: str) -> None:
        """Queue a user message for the model's next stop. Raises `input.rejected`, `run.invalid_state`."""
        check_text("text", text)
        started, agent = self.state.started, self._package.agent
        self._inputs += 1
        input_id = f"{self.run}.{self._inputs}"
        try:
            admit(agent, text, started.params)
        except RequestError as error:
            error.fields["input_id"] = input_id
            raise
        refuse_duplicate_input(agent, self.session, text, input_id)
        if not self.post(facts.MessageQueued(input_id, user_message(text))):
            raise wrong_state_error(self.run, "unfinished", self.status)
        self.session.remember(text)

    def answer(self, question: Question, answer: facts.ApprovalAnswer, by: str) -> None:
        """Answer an approval question. The first answer counts. Raises `run.invalid_state` if the question is closed,
        stale or altered."""
        fact = make_answer(question, answer, by)
        refuse_answer(question, fact, self.state, self.posted(self.run), self._log.facts)
        self.post(fact)

    def settle(self, call: str, how: CallSettlement, by: str, parts: tuple[Content, ...] = ()) -> None:
        """Decide about a call with an unknown outcome. Raises `run.invalid_state` if its outcome is known."""
        fact = make_settlement(call, how, by, parts)
        refuse_settlement(fact, self.state, self.posted(self.run))
        self.post(fact)

    def posted(self, run: str) -> tuple[facts.Fact, ...]:
        """Facts from outside that the run, or a sub-agent of it, has not recorded yet."""
        return self._world.crews.posted(run)

    def post(self, fact: facts.Fact) -> bool:
        """Add a fact from outside. False: it is too late for this fact."""
        if not is_acceptable(self.state, fact):
            return False
        if self.is_worked_on:
            self._world.crews.post(self.run, fact)
        else:
            self._log.commit(fact)
            self.begin()
        return True

    def post_to_child(self, run: str, fact: facts.Fact) -> bool:
        """Add a fact to an active sub-agent. False: the sub-agent is not active."""
        if not self._world.crews.is_busy(run):
            return False
        self._world.crews.post(run, fact)
        return True

    def events(self, cursor: Cursor | None = None) -> Subscription:
        """The run's events, from its first record or from a cursor of an earlier event."""
        return self._subscribe(cursor or Cursor(run_scope(self.run).name))
