"""What a caller asks for, and how far an input has come.

An input is submitted by `start` or `send`. It is rejected with an error that names it, or it is admitted: from then on
its run's status tells how far it is. A rejected input leaves no run and no message.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.canonical_json import fingerprint
from agentrun.compiler.package_file import PackageFile
from agentrun.core.effects import RunChild
from agentrun.core.facts import Parent
from agentrun.core.messages import File, Image, Message
from agentrun.core.outcome import Outcome
from agentrun.engine.ports import Blobs
from agentrun.errors import RequestError

RunStatus: TypeAlias = Literal["admitted", "processing", "suspended", "completed", "failed"]
"""admitted: the run is in its journal and nobody works on it yet. processing: somebody does. suspended: it waits for
somebody outside, or its owner is gone. completed, failed: it is over."""


class Request(Struct, frozen=True, kw_only=True):
    """One run, asked for."""

    agent: str
    """The agent's name. The package must be of that name."""
    package: PackageFile | str
    """The package, or the fingerprint of one that the runtime has."""
    message: str | None = None
    """What the user says. Null: the package's own input."""
    goes_on: bool = False
    """Without a message: go on with the conversation before as it is."""
    params: dict[str, Any] = {}
    """The values of the templates' variables."""
    attachments: tuple[Image | File | Attachment, ...] = ()
    """Pictures and files that go with the message, with their bytes. Without: the content port has them."""
    run: str | None = None
    """The run's id. Null: the runtime makes one."""
    seed: str | None = None
    """What jitter is made of. Null: the run's id."""
    parent: Parent | None = None
    """The call of another run that asks for it. Null: a user does."""
    session: str | None = None
    """The session it belongs to; it must exist."""
    history: tuple[Message, ...] = ()
    """A conversation that came before, when it was not in a session."""
    output: dict[str, Any] | None = None
    """JSON Schema of the answer. It is added to a package without one, and replaces one of the same id."""


def child_request(effect: RunChild) -> Request:
    """The run that a call of a sub-agent asks for."""
    return Request(
        agent=effect.package.name,
        package=fingerprint(effect.package),
        message=effect.message,
        params=effect.params,
        run=effect.run,
        parent=effect.parent,
        seed=effect.seed,
    )


class Attachment(Struct, frozen=True):
    """A picture or a file that goes with a message."""

    part: Image | File
    data: bytes


def store_attachments(blobs: Blobs, attachments: tuple[Image | File | Attachment, ...]) -> tuple[Image | File, ...]:
    """What a message names, after the bytes are where it can be found."""
    for attachment in attachments:
        if isinstance(attachment, Attachment):
            blobs.put(attachment.data)
    return tuple(each.part if isinstance(each, Attachment) else each for each in attachments)


class Snapshot(Struct, frozen=True, kw_only=True):
    """A run as its journal has it at a moment."""

    run: str
    agent: str
    status: RunStatus
    seq: int
    """Records so far."""
    turns: int
    tokens: int
    cost: int
    """Micro-dollars."""
    tool_calls: int
    outcome: Outcome | None
    """Null: it is not over."""


def rejected_input_error(
    reason: str, message: str, input_id: str, hint: str | None = None, **fields: Any
) -> RequestError:
    """The error of an input that is refused."""
    return RequestError("input.rejected", message, hint=hint, fields={"input_id": input_id, "reason": reason, **fields})


def new_run_id() -> str:
    """The id of a run in real time."""
    return f"run-{token_hex(8)}"


def run_not_found_error(run: str) -> RequestError:
    return RequestError("run.not_found", f"there is no run {run}", fields={"run": run})


def wrong_state_error(run: str, expected: str, actual: str) -> RequestError:
    message = f"the run {run} is {actual}; it would have to be {expected}"
    return RequestError("run.invalid_state", message, fields={"run": run, "expected": expected, "actual": actual})
