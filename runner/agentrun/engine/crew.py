"""A crew performs the effects of a run and asks the approver: the base class, and the crew for a step clock.

Rule 1  Effects count against the width; questions do not.
Rule 2  Each question is asked once. A question that is no longer open is dropped, and asked again if it comes back.
Rule 3  A `StepCrew` advances one coroutine at a time, if it is ready. The work that was started first goes first,
        unless `order` chooses another, so that tests can try any order of completion.
Rule 4  If all work sleeps, the crew sleeps until the first wakes up. So the crew of a sub-agent sleeps in its parent's.
Rule 5  Work that is stopped is closed immediately, and its exceptions are ignored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from agentrun.core.effects import Effect
from agentrun.core.facts import Fact
from agentrun.core.outcome import Question
from agentrun.engine.clock import Sleep, StepClock, step
from agentrun.engine.ports import AskPerson, PerformEffect
from agentrun.errors import InternalError

TaskT = TypeVar("TaskT")

CompletionOrder: TypeAlias = Callable[[Sequence[str]], int]
"""Chooses one of several ready effects: gets their ids and returns an index."""

MAX_PARALLEL_EFFECTS = 8
"""Of a run. Equal in a replay: if a call stops the others, the recorded times decide which of them were running."""


class BaseCrew(ABC, Generic[TaskT]):
    def __init__(self, perform: PerformEffect, width: int, consult: AskPerson | None) -> None:
        self._perform = perform
        self._width = width
        self._consult = consult
        self._effects: dict[str, TaskT] = {}
        self._questions: dict[str, TaskT] = {}
        self._asked: set[str] = set()
        self._posted: deque[Fact] = deque()
        self._parks_at: int | None = None

    @property
    def free(self) -> int:
        return self._width - len(self._effects)

    @property
    def busy(self) -> bool:
        return bool(self._effects or self._questions or self._posted)

    def start(self, effect: Effect) -> None:
        self._effects[effect.id] = self._begin(effect.id, self._perform(effect))

    def consult(self, questions: Sequence[Question]) -> None:
        if self._consult is None:
            return
        wanted = {question.question: question for question in questions}
        for key in self._questions.keys() - wanted.keys():
            self._asked.discard(key)
        self._keep_only(self._questions, wanted)
        for key, question in wanted.items():
            if key not in self._asked:
                self._asked.add(key)
                self._questions[key] = self._begin(key, self._consult(question))

    def post(self, fact: Fact) -> None:
        self._posted.append(fact)

    @property
    def parks_at(self) -> int | None:
        return self._parks_at

    def park(self, until: int) -> None:
        self._parks_at = until

    @property
    def posted(self) -> Sequence[Fact]:
        return tuple(self._posted)

    def take_posted(self) -> Sequence[Fact]:
        return tuple(self._posted.popleft() for _ in range(len(self._posted)))

    def keep_only(self, effects: Iterable[str]) -> None:
        self._keep_only(self._effects, set(effects))

    def _keep_only(self, tasks: dict[str, TaskT], kept: Iterable[str]) -> None:
        for key in [key for key in tasks if key not in kept]:
            self._stop(tasks.pop(key))

    def _stop_all(self) -> None:
        self._keep_only(self._effects, ())
        self._keep_only(self._questions, ())

    @abstractmethod
    def _begin(self, key: str, work: Coroutine[Any, Any, Fact | None]) -> TaskT: ...

    @abstractmethod
    def _stop(self, task: TaskT) -> None: ...


class _Task(Struct):
    """Started work, and when it wakes up. Like an asyncio task, it has its own context."""

    work: Coroutine[Any, Any, Fact | None]
    context: Context = field(default_factory=copy_context)
    wakes: int = 0


class StepCrew(BaseCrew[_Task]):
    def __init__(
        self,
        perform: PerformEffect,
        *,
        width: int,
        clock: StepClock,
        consult: AskPerson | None = None,
        order: CompletionOrder | None = None,
    ) -> None:
        super().__init__(perform, width, consult)
        self._clock = clock
        self._order = order or (lambda ready: 0)

    async def next_fact(self, deadline: int | None) -> Fact | None:
        was_parking = self._parks_at is not None
        while not self._posted:
            if self._parks_at is not None and not (was_parking and self.busy):
                return None
            now = self._clock.now()
            tasks = {**self._effects, **self._questions}
            ready = [key for key, task in tasks.items() if task.wakes <= now]
            if ready:
                fact = self._advance(ready[self._order(ready)])
                if fact is not None or (deadline is None and not self.busy):
                    return fact
            elif deadline is not None and deadline <= now:
                return None
            else:
                wakes = [task.wakes for task in tasks.values()] + ([] if deadline is None else [deadline])
                if not wakes:
                    raise InternalError("internal", "the run waits, but no effect is running")
                await self._clock.sleep_until(min(wakes))
        return self._posted.popleft()

    async def close(self) -> None:
        self._stop_all()

    def _begin(self, key: str, work: Coroutine[Any, Any, Fact | None]) -> _Task:  # noqa: ARG002  # others name their tasks
        return _Task(work)

    def _stop(self, task: _Task) -> None:
        with suppress(Exception):
            task.context.run(task.work.close)

    def _advance(self, key: str) -> Fact | None:
        tasks = self._effects if key in self._effects else self._questions
        task = tasks[key]
        try:
            now = task.context.run(step, task.work)
        except BaseException:
            del tasks[key]
            raise
        if isinstance(now, Sleep):
            task.wakes = now.until
            return None
        del tasks[key]
        return now.value
