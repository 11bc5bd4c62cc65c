"""Facts of single calls, and of the batch that a reply asks for."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.facts_base import Decision, Fault, Observation, Share
from agentrun.core.messages import VOLATILE, Content


class CallRefused(Decision, frozen=True, tag="call_refused"):
    """The call will not run; the model reads why."""

    call: str
    code: str
    told: str
    """What the model reads."""
    fields: dict[str, Any] = {}  # noqa: RUF012  # msgspec copies it


class CallCancelled(Decision, frozen=True, tag="call_cancelled"):
    """The call is not waited for any more, whether it was started or not."""

    call: str
    told: str
    """What the model reads, if it reads on."""
    by: str | None = None
    """The call that made it unnecessary. Null: the run ended."""


class ToolStarted(Decision, frozen=True, tag="tool_started"):
    """The call is about to run. Written before it does."""

    call: str
    tool: str
    key: Annotated[str, VOLATILE]
    """Idempotency key: the same when the call is run again."""


class ChildStarted(Decision, frozen=True, tag="child_started"):
    """A sub-agent is about to run, or to go on."""

    call: str
    tool: str
    run: Annotated[str, VOLATILE]
    """The child's run."""
    share: Share
    """Carved out of this run's budget for it."""


class Spent(Struct, frozen=True, forbid_unknown_fields=True):
    """What a child used of its share."""

    tokens: int = 0
    cost: int = 0
    tool_calls: int = 0
    runs: int | UnsetType = UNSET
    """Runs that were started below it. Absent: none."""


class ToolFinished(Observation, frozen=True, tag="tool_finished"):
    """The call gave a result, or failed."""

    call: str
    parts: tuple[Content, ...]
    """What the model reads."""
    fault: Fault | None = None
    blob: Annotated[str | None, VOLATILE] = None
    """Hash of the whole text, when the model reads only a part of it. On a tape the text has no sensitive values."""
    spent: Annotated[Spent | None, VOLATILE] = None
    """What a child used. Its own journal says what for; after a crash it is more."""


class ChildSuspended(Observation, frozen=True, tag="child_suspended"):
    """The sub-agent waits for somebody outside."""

    call: str
    waits_for: tuple[str, ...]


class CallSettled(Observation, frozen=True, tag="call_settled"):
    """Somebody decided what is to be made of a call whose outcome is not known."""

    call: str
    how: Literal["retry", "result", "stop"]
    by: str
    parts: tuple[Content, ...] = ()
    """With `result`: what the model reads."""


class ResultsGiven(Decision, frozen=True, tag="results_given"):
    """All calls of a reply have their results; the model reads them in call order."""

    turn: int
    ended_by: str | None = None
    """The terminal call whose result is the answer."""


OneCall: TypeAlias = (
    CallRefused | CallCancelled | ToolStarted | ChildStarted | ToolFinished | ChildSuspended | CallSettled
)
"""Facts of one call."""
CallFact: TypeAlias = OneCall | ResultsGiven
