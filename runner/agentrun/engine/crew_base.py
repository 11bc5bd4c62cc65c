"""What every crew does, however its work is carried out.

Rule 1  Effects take up the width; questions to people do not.
Rule 2  Each question is asked once. One that is no longer open is dropped, and asked again if it comes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Generic, TypeVar

from agentrun.core.effects import Effect
from agentrun.core.facts import Fact
from agentrun.core.outcome import Question
from agentrun.engine.ports import Consult, Work

Task = TypeVar("Task")


class BaseCrew(ABC, Generic[Task]):
    """`Task` is what work becomes when it is begun."""

    def __init__(self, perform: Work, width: int, consult: Consult | None) -> None:
        self._perform = perform
        self._width = width
        self._consult = consult
        self._effects: dict[str, Task] = {}
        self._questions: dict[str, Task] = {}
        self._asked: set[str] = set()
        self._posted: deque[Fact] = deque()

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
        self._keep(self._questions, wanted)
        for key, question in wanted.items():
            if key not in self._asked:
                self._asked.add(key)
                self._questions[key] = self._begin(key, self._consult(question))

    def post(self, fact: Fact) -> None:
        """Bring in a fact from outside."""
        self._posted.append(fact)

    def arrived(self) -> Sequence[Fact]:
        return tuple(self._posted.popleft() for _ in range(len(self._posted)))

    def keep(self, effects: Iterable[str]) -> None:
        self._keep(self._effects, set(effects))

    def _keep(self, tasks: dict[str, Task], kept: Iterable[str]) -> None:
        for key in [key for key in tasks if key not in kept]:
            self._stop(tasks.pop(key))

    def _stop_all(self) -> None:
        self._keep(self._effects, ())
        self._keep(self._questions, ())

    @abstractmethod
    def _begin(self, key: str, work: Coroutine[Any, Any, Fact]) -> Task: ...

    @abstractmethod
    def _stop(self, task: Task) -> None: ...
