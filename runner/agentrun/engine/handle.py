"""A run in somebody's hands.

Rule 1  In an event loop a run goes on by itself. Without one, whoever waits for it does its work.
Rule 2  What comes from outside while the run is worked on is posted to it; otherwise it is written at once.
Rule 3  The outcome is read from the journal. A handle whose run has another owner cannot write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import (
    ApprovalAnswer,
    ApprovalAnswered,
    CallSettled,
    CancelRequested,
    Fact,
    MessageQueued,
    RunStopped,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Content, user_message
from agentrun.core.outcome import Ending, Outcome, Parked, Question, outcome_of
from agentrun.core.state import State
from agentrun.core.transitions import is_acceptable
from agentrun.engine.begin import admit, refuse_changed_package, refuse_duplicate_input
from agentrun.engine.clock import StepClock
from agentrun.engine.driver import RunLog, drive_with_children
from agentrun.engine.events import Cursor, Subscription
from agentrun.engine.request import RunStatus, wrong_state_error
from agentrun.engine.sessions import Session
from agentrun.engine.world import World
from agentrun.errors import PackageError, RequestError

CallSettlement: TypeAlias = Literal["retry", "result", "stop"]
"""What is made of a call whose outcome is not known: it runs again, this is its result, or the run stops."""


PARK_GRACE_MS = 10_000
"""Milliseconds that what is under way may still take when a run is parked."""


class RunHandle:
    """One run: wait for it, look at it, tell it something."""

    def __init__(
        self,
        package: PackageFile,
        log: RunLog,
        world: World,
        session: Session,
        subscribe: Callable[[Cursor | None], Subscription],
    ) -> None:
        self.run = log.state.started.run
        self.agent = log.state.started.agent
        self._package = package
        self._log = log
        self._world = world
        self.session = session
        self._subscribe = subscribe
        self._task: Any = None
        self._ended: Ending | None = None
        self._error: Exception | None = None
        """What ended the work on the run, but not the run: it can be resumed."""
        self._cancelled = self.state.cancelled is not None
        self._inputs = self.state.seq
        """No input has had this number: every one before was a record."""

    @property
    def state(self) -> State:
        return self._log.state

    @property
    def is_worked_on(self) -> bool:
        return self.run in self._world.crews

    @property
    def status(self) -> RunStatus:
        if self.state.stopped is not None:
            return self.state.stopped.status
        if self.is_worked_on:
            return "processing"
        return "admitted" if self.state.seq == 1 else "suspended"

    @property
    def outcome(self) -> Outcome | None:
        """How it ended. None: it did not, yet."""
        return outcome_of(self.state) if self.state.stopped is not None else None

    async def wait(self) -> Ending:
        """The outcome, what the run waits for, or where it was parked. Who stops waiting does not stop the run."""
        if self.outcome is not None:
            return self.outcome
        if self._error is not None:
            raise self._error
        if isinstance(self._ended, Parked):
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

    def begin(self) -> None:
        """Go on with the run, if there is an event loop to do it. One that is parked goes on when it is resumed."""
        if not isinstance(self._ended, Parked) and (self._task is None or self._task.done()):
            self._task = self._spawn()

    async def _work(self) -> None:
        if self.is_worked_on:
            raise wrong_state_error(self.run, "suspended", "processing")
        try:
            self._ended = await self._drive()
        except Exception as error:  # noqa: BLE001  # who waits hears of it
            self._error = error
        finally:
            self._world.crews.clear()

    async def _drive(self) -> Ending:
        agent = self._package.agent
        try:
            refuse_changed_package(self._package)
        except PackageError as error:
            self._log.commit(RunStopped("failed", Fault(error.code, error.message, error.fields)))
        return await drive_with_children(self._world, agent, self._log)

    def _spawn(self) -> Any:
        """The work as a task of the running event loop. None: there is no loop, and it was not begun."""
        if isinstance(self._world.clock, StepClock):
            return None
        import asyncio  # late: a clock moved by hand needs no event loop

        try:
            return asyncio.get_running_loop().create_task(self._work())
        except RuntimeError:
            return None

    # --- what comes from outside ---------------------------------------------------------------------------------

    def cancel(self, by: str = "caller") -> None:
        """End the run: what it waits for is given up, and its children are cancelled too. Again: nothing more."""
        if not self._cancelled:
            self._cancelled = self.post(CancelRequested(by))

    def park(self, grace: int = PARK_GRACE_MS) -> None:
        """Leave the run as it is: nothing more is started, and what is under way may end within so many milliseconds.
        Whoever waits gets a `Parked`, and the run can be resumed. Nothing happens to a run that is not worked on."""
        if self.is_worked_on:
            self._world.crews.park(grace)

    def send(self, text: str) -> None:
        """Tell the model something when it stops. Raises `input.rejected`, `run.invalid_state`."""
        started, agent = self.state.started, self._package.agent
        self._inputs += 1
        input_id = f"{self.run}.{self._inputs}"
        try:
            admit(agent, text, started.params)
        except RequestError as error:
            error.fields["input_id"] = input_id
            raise
        refuse_duplicate_input(agent, self.session, text, input_id)
        if not self.post(MessageQueued(input_id, user_message(text))):
            raise wrong_state_error(self.run, "unfinished", self.status)
        self.session.remember(text)

    def answer(self, question: Question, answer: ApprovalAnswer, by: str) -> bool:
        """Answer what a person is asked. The first answer wins; False: this one came too late."""
        return self.post(ApprovalAnswered(question.subject, question.question, answer, by))

    def settle(self, call: str, how: CallSettlement, by: str, parts: tuple[Content, ...] = ()) -> bool:
        """Say what is to be made of a call whose outcome is not known. False: it is known."""
        return self.post(CallSettled(call, how, by, parts))

    def post(self, fact: Fact) -> bool:
        """Bring in a fact. False: it does not matter any more."""
        if not is_acceptable(self.state, fact):
            return False
        if self.is_worked_on:
            self._world.crews.post(self.run, fact)
        else:
            self._log.commit(fact)
            self.begin()
        return True

    def post_to_child(self, run: str, fact: Fact) -> bool:
        """Bring in a fact for a child that is worked on now. False: it is not."""
        if not self._world.crews.is_busy(run):
            return False
        self._world.crews.post(run, fact)
        return True

    def events(self, cursor: Cursor | None = None) -> Subscription:
        """The run's events, from its first record or from a cursor of an earlier event."""
        return self._subscribe(cursor or Cursor(f"run:{self.run}", 0))
