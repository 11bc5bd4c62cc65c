"""What happened: the only things a journal holds, and all that state is made of.

Rule 1  Facts are past tense, frozen and closed. Every `match` over them ends in `assert_never`.
Rule 2  A fact is a decision (made by `decide`; an audit makes it again and compares) or an observation
        (came from outside; an audit takes it as given). Its base class says which.
Rule 3  A fact holds what is needed to understand it later, texts included: new wording in the code must not
        change what an old journal means. It never repeats the history before it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.messages import VOLATILE, Reply, User

RULES = 1
"""The version of the rules in `decide`. A journal says under which version its decisions were made."""

Status: TypeAlias = Literal["completed", "failed"]
Label: TypeAlias = Literal["budget.turns", "filtered", "refused", "truncated", "unknown_finish"]
"""What a reader of a completed run must know: why the answer may not be all that was asked for."""


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """What went wrong, as data. The code decides retry class and exit code (`errors.CODES`)."""

    code: str
    message: str
    fields: dict[str, Any] = {}
    """The evidence."""
    hint: str | None = None
    """What the reader can do."""


class Observation(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """A fact that came from outside."""


class Decision(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """A fact that `decide` made."""


class RunStarted(Observation, frozen=True, tag="run_started"):
    """The run was accepted."""

    run: Annotated[str, VOLATILE]
    package: Annotated[str, VOLATILE]
    """Fingerprint of the package."""
    replayed: Annotated[bool, VOLATILE]
    """Whether the world is a cassette."""
    agent: str
    rules: int
    params: dict[str, Any]
    """The values of the templates' variables, defaults included."""
    instructions: str
    """The system prompt, rendered."""
    input: User


class ModelAsked(Decision, frozen=True, tag="model_asked"):
    """A request is about to be sent. Written before it is."""

    effect: str
    turn: int
    attempt: int
    route: str
    """provider/model."""
    reserved: int
    """Tokens reserved for it."""


class ModelReplied(Observation, frozen=True, tag="model_replied"):
    """The model answered."""

    effect: str
    turn: int
    attempt: int
    reply: Reply


class ModelFailed(Observation, frozen=True, tag="model_failed"):
    """The request gave no answer."""

    effect: str
    turn: int
    attempt: int
    fault: Fault


class OutputRefused(Decision, frozen=True, tag="output_refused"):
    """The answer breaks its contract, and the model is asked to repair it."""

    turn: int
    """The turn whose answer it was."""
    errors: tuple[str, ...]
    repair: User
    """What the model is told."""


class RunStopped(Decision, frozen=True, tag="run_stopped"):
    """The end: exactly one in every finished run."""

    status: Status
    fault: Fault | None = None
    """Why it failed."""
    label: Label | None = None
    output: Any | UnsetType = UNSET
    """The parsed answer, for an agent with an output contract that is kept."""


Fact: TypeAlias = RunStarted | ModelAsked | ModelReplied | ModelFailed | OutputRefused | RunStopped


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a journal: a fact and its place."""

    seq: int
    """From 1, without gaps."""
    at: int
    """When it was written, in milliseconds since 1970. Order never comes from it."""
    epoch: int
    """Which owner of the run wrote it."""
    prev: str
    """Hash of the line before."""
    fact: Fact
