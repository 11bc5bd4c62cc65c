"""Messages to the process that works on a run: `.agentrun/runs/<run>/inbox/<time>-<number>.json`.

Rule 1  A message is a fact from outside: an answer, a settlement, a cancellation or a text for the model. It is for the
        run or one of its sub-agents; an answer is also bound to the hash of its question.
Rule 2  A message is a file of its own, which appears whole. The names of the files keep the order of the messages.
Rule 3  The process that works on the run records the fact and then removes the file. The name of the message is in the
        fact, so a message that a killed process left behind is not recorded twice.
Rule 4  What is no message is removed, or ignored if it has another name. Nothing here is followed, executed or trusted
        to be small, and nothing here stops a run.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.core.facts import ApprovalAnswered, CallSettled, CancelRequested, Fact, MessageQueued
from agentrun.core.messages import Text
from agentrun.errors import StorageError
from agentrun.files import ProjectTree
from agentrun.store.run_ids import is_run_id, root_run

MAX_MESSAGE_BYTES = 2 * 1024 * 1024
MAX_MESSAGES_AT_ONCE = 100
"""Messages that are read at once. The others are read when these are recorded."""
OutsideFact: TypeAlias = ApprovalAnswered | CallSettled | CancelRequested | MessageQueued
_ANSWERS = ("approved", "approved_for_session", "denied")
"""The answers of a person. The others are for the process that works on the run."""
_NAME = re.compile(r"([0-9]{19})-[0-9a-f]{16}\.json")


class _Contents(Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    fact: OutsideFact


class InboxMessage(Struct, frozen=True):
    id: str
    run: str
    """The run that the fact is for: that of the inbox, or a sub-agent of it."""
    fact: OutsideFact
    """It contains the id of the message."""

    @property
    def age(self) -> float:
        """Seconds since it was left."""
        return (time.time_ns() - int(self.id.partition("-")[0])) / 1e9


class Inbox:
    def __init__(self, tree: ProjectTree, directory: Path, run: str) -> None:
        """`run`: the run that a user started. Its sub-agents have no inbox of their own."""
        self.run = run
        self._tree = tree
        self._directory = directory
        self._ignored: set[str] = set()
        """The names of what cannot be removed."""

    def leave(self, run: str, fact: OutsideFact) -> InboxMessage:
        """Leave a message for a run. Raises `storage.failed`."""
        id = f"{time.time_ns():019d}-{secrets.token_hex(8)}"
        self._tree.create(self._path(id), msgspec.json.encode(_Contents(run, fact)))
        return InboxMessage(id, run, _with_id(fact, id))

    def messages(self) -> list[InboxMessage]:
        """The messages in their order. Raises `storage.failed` if the directory cannot be read."""
        names = [name for name in self._tree.names(self._directory) if _NAME.fullmatch(name)]
        waiting = [name for name in names if name not in self._ignored][:MAX_MESSAGES_AT_ONCE]
        return [message for name in waiting if (message := self._read(name)) is not None]

    def __contains__(self, id: object) -> bool:
        return os.path.lexists(self._path(str(id)))

    def remove(self, id: str) -> None:
        """Remove a message, if it is still there."""
        try:
            self._tree.remove(self._path(id))
        except StorageError:
            if id in self:
                self._ignored.add(self._path(id).name)

    def _read(self, name: str) -> InboxMessage | None:
        """None: it is no message, and was removed; or its sender has just withdrawn it."""
        id = name.removesuffix(".json")
        with suppress(StorageError, msgspec.MsgspecError, ValueError, RecursionError):
            data = self._tree.read(self._directory / name, MAX_MESSAGE_BYTES + 1, only_own=True)
            if data is None:
                return None
            if len(data) <= MAX_MESSAGE_BYTES:
                contents = msgspec.json.decode(data, type=_Contents)
                if is_run_id(contents.run) and root_run(contents.run) == self.run and _is_from_person(contents.fact):
                    return InboxMessage(id, contents.run, _with_id(contents.fact, id))
        self.remove(id)
        return None

    def _path(self, id: str) -> Path:
        return self._directory / f"{id}.json"


def _is_from_person(fact: OutsideFact) -> bool:
    match fact:
        case ApprovalAnswered():
            return fact.answer in _ANSWERS and fact.message_id is UNSET
        case MessageQueued():
            return fact.id == "" and len(fact.message.parts) == 1 and isinstance(fact.message.parts[0], Text)
        case _:
            return fact.message_id is UNSET


def _with_id(fact: OutsideFact, id: str) -> OutsideFact:
    return replace(fact, id=id) if isinstance(fact, MessageQueued) else replace(fact, message_id=id)


def message_id(fact: Fact) -> str | None:
    """The message that brought a fact. None: it came in no message."""
    if isinstance(fact, MessageQueued):
        return fact.id
    found: Any = fact.message_id if isinstance(fact, get_args(OutsideFact)) else None
    return found or None


def has_recorded(facts: Iterable[Fact], message: InboxMessage) -> bool:
    return any(message_id(fact) == message.id for fact in facts)
