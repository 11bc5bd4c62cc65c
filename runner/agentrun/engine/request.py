"""Requests for runs, and the status of a run.

A rejected input creates no run and no message.
"""

from __future__ import annotations

from mimetypes import guess_type
from os import PathLike
from pathlib import Path
from secrets import token_hex
from types import NoneType
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.canonical_json import data_hash, fingerprint
from agentrun.compiler.package_file import PackageFile
from agentrun.core.effects import RunChild
from agentrun.core.facts import Parent
from agentrun.core.messages import File, Image, Message
from agentrun.core.outcome import Outcome
from agentrun.engine.argument_checks import check_data, check_name, check_names, check_run_id, check_text, check_type
from agentrun.engine.ports import Blobs
from agentrun.errors import RequestError

RunStatus: TypeAlias = Literal["admitted", "processing", "suspended", "completed", "failed"]
"""admitted: the run is in its journal but not started. processing: it is active. suspended: it waits for an answer from
outside, or its process is gone. completed, failed: it is finished."""


class Request(Struct, frozen=True, kw_only=True):
    """A request for one run. Raises TypeError and ValueError for fields that no run can have."""

    agent: str
    """The name of the agent. The package must have the same name."""
    package: PackageFile | str | None = None
    """The package, or the fingerprint of a package of the runtime. Null: the runtime's resolver or its default package
    has it."""
    message: str | None = None
    """The user message. Null: the input of the package."""
    goes_on: bool = False
    """Without a message: continue the existing conversation."""
    params: dict[str, Any] = {}
    """The values of the template variables."""
    attachments: tuple[Image | File | Attachment, ...] = ()
    """Images and files of the message. The bytes are in the `Attachment`, otherwise in the content port."""
    run: str | None = None
    """The run id. Null: the runtime creates one."""
    seed: str | None = None
    """The seed of the retry jitter. Null: the run id."""
    parent: Parent | None = None
    """The tool call of the parent run. Null: the run has no parent."""
    session: str | None = None
    """The name of an existing session."""
    any_agent: bool = False
    """Whether the agent may continue a session in which only other agents have runs. It reads their conversation."""
    history: tuple[Message, ...] = ()
    """An earlier conversation that is not in the session."""
    output: dict[str, Any] | None = None
    """JSON Schema of the answer. It replaces a schema of the package only if both have the same id."""

    def __post_init__(self) -> None:
        check_text("agent", self.agent)
        check_type("package", self.package, (PackageFile, str, NoneType), "a package or its fingerprint")
        for name in ("goes_on", "any_agent"):
            check_type(name, getattr(self, name), bool, "a bool")
        for name in ("message", "seed"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        if self.run is not None:
            check_run_id(self.run)
        if self.session is not None:
            check_name("session", self.session)
        check_names("params", self.params)
        check_names("output", {} if self.output is None else self.output)
        check_data("parent", self.parent, Parent | None, "a Parent")
        check_type("history", self.history, tuple, "a tuple of messages")
        check_data("history", self.history, tuple[Message, ...], "a tuple of messages")
        check_type("attachments", self.attachments, tuple, "a tuple of images and files")
        parts = tuple(each.part if isinstance(each, Attachment) else each for each in self.attachments)
        check_data("attachments", parts, tuple[Image | File, ...], "a tuple of images and files")
        for each in self.attachments:
            if isinstance(each, Attachment):
                check_type("attachments", each.data, bytes, "images and files with their bytes")


def child_request(effect: RunChild) -> Request:
    return Request(
        agent=effect.package.name,
        package=fingerprint(effect.package),
        message=effect.message,
        params=effect.params,
        run=effect.run,
        parent=effect.parent,
        seed=effect.seed,
    )


MAX_ATTACHMENT = 20 * 1024 * 1024
"""Bytes of one image or file."""


class Attachment(Struct, frozen=True):
    """An image or a file of a message, with its bytes."""

    part: Image | File
    data: bytes

    @classmethod
    def from_path(cls, path: str | PathLike[str]) -> Attachment:
        """Read a file. Raises OSError, and ValueError if it is too large."""
        with open(path, "rb") as file:
            data = file.read(MAX_ATTACHMENT + 1)
        return cls.from_bytes(data, Path(path).name)

    @classmethod
    def from_bytes(cls, data: bytes, name: str, media_type: str | None = None) -> Attachment:
        """An image or a file. Without a `media_type`, the name says which. Raises ValueError if it is too large."""
        if len(data) > MAX_ATTACHMENT:
            raise ValueError(f"{name} is larger than {MAX_ATTACHMENT // 1024 // 1024} MiB")
        kind = media_type or guess_type(name)[0] or "application/octet-stream"
        if kind.startswith("image/"):
            return cls(Image(kind, data_hash(data), len(data)), data)
        return cls(File(name.encode(errors="replace").decode(), kind, data_hash(data), len(data)), data)


def store_attachments(blobs: Blobs, attachments: tuple[Image | File | Attachment, ...]) -> tuple[Image | File, ...]:
    for attachment in attachments:
        if isinstance(attachment, Attachment):
            blobs.put(attachment.data)
    return tuple(each.part if isinstance(each, Attachment) else each for each in attachments)


RunSource: TypeAlias = Literal["host", "parent", "cassette"]
"""Where a run comes from. host: a program or a person started it. parent: another run started it as its sub-agent.
cassette: it is replayed."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """What is known about a run at one moment."""

    run: str
    agent: str
    status: RunStatus
    session: str | None
    source: RunSource
    package: str
    """The name of the package."""
    fingerprint: str
    """The fingerprint of the package that the run uses now."""
    route: str
    """The route that is asked next or was asked last, as provider/model."""
    model: str
    """The model of the route."""
    cancel_requested: bool
    seq: int
    turns: int
    tokens: int
    cost: int
    """Micro-dollars."""
    tool_calls: int
    outcome: Outcome | None
    """Null if the run is not finished."""


def new_run_id() -> str:
    return f"run-{token_hex(8)}"


def wrong_state_error(run: str, expected: str, actual: str) -> RequestError:
    message = f"the run {run} is {actual}, but it must be {expected} for this"
    return RequestError("run.invalid_state", message, fields={"run": run, "expected": expected, "actual": actual})
