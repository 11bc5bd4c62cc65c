"""A request in no provider's words, and whether its history holds together.

Rule 1  What stands between two things that others said is one turn of the model, in however many pieces it comes.
Rule 2  As with real providers, every call has its result before anything else is said, and every result its call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")


class BadRequest(Exception):
    """A request that a real provider would refuse."""


class Others(Struct, frozen=True):
    """What a user says."""

    text: str


class Model(Struct, frozen=True):
    """What the model said, or a piece of it."""

    calls: tuple[str, ...] = ()
    """The ids of the calls it asked for."""
    thoughts: tuple[str, ...] = ()
    """The signatures of what it thought."""


class Result(Struct, frozen=True):
    """What a call gave."""

    call: str
    text: str


Step = Others | Model | Result


class Asked(Struct, frozen=True, kw_only=True):
    """One request."""

    model: str
    stream: bool
    instructions: str
    tools: tuple[str, ...]
    steps: tuple[Step, ...]
    reports_usage: bool = True
    """Whether usage is to be reported: a stream of OpenAI chat does it only when asked."""
    shows_thoughts: bool = True
    """Whether what was thought is to be given in a form that can be sent back."""

    @property
    def turns(self) -> int:
        """How often the model spoke."""
        return sum(isinstance(step, Model) for step in self.steps)

    @property
    def thoughts(self) -> tuple[str, ...]:
        return tuple(one for step in self.steps if isinstance(step, Model) for one in step.thoughts)

    @property
    def news(self) -> str:
        """All that was said since the model's last turn."""
        return "\n".join(step.text for step in self._since_last() if not isinstance(step, Model))

    @property
    def results(self) -> tuple[str, ...]:
        """The results of the last turn's calls, in the order of the calls."""
        since = self._since_last()
        texts = [step for step in since if isinstance(step, Result)]
        order = since[0].calls if since and isinstance(since[0], Model) else ()
        return tuple(_take(texts, call) for call in order)

    def _since_last(self) -> tuple[Step, ...]:
        last = max((index for index, step in enumerate(self.steps) if isinstance(step, Model)), default=0)
        return self.steps[last:]


def _take(results: list[Result], call: str) -> str:
    found = next(result for result in results if result.call == call)
    results.remove(found)
    return found.text


def joined(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The same with each turn of the model in one piece. Raises BadRequest when calls and results do not fit."""
    whole: list[Step] = []
    for step in steps:
        last = whole[-1] if whole else None
        if isinstance(step, Model) and isinstance(last, Model):
            whole[-1] = replace(last, calls=last.calls + step.calls, thoughts=last.thoughts + step.thoughts)
        else:
            whole.append(step)
    _refuse_loose(whole)
    return tuple(whole)


def _refuse_loose(steps: list[Step]) -> None:
    open_calls: list[str] = []
    for step in [*steps, Others("")]:
        match step:
            case Result(call) if call in open_calls:
                open_calls.remove(call)
            case Result(call):
                raise BadRequest(f"there is a result for {call!r}, but no such call before it")
            case _ if open_calls:
                raise BadRequest(f"there is no result for {', '.join(open_calls)}")
            case Model(calls):
                open_calls = list(calls)


def decoded(body: bytes, kind: type[T]) -> T:
    """A body as the fields of it that count here. Raises BadRequest with the place of what is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not a request: {error}") from None


def text_of(content: Any) -> str:
    """All words in some content: a text, or parts of which some have texts."""
    match content:
        case str():
            return content
        case list():
            return "".join(map(text_of, content))
        case {"text": str(text)}:
            return text
        case _:
            return ""
