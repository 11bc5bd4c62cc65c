"""The inbox of a run: messages in their order, and what is no message."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.facts import ApprovalAnswered, CallSettled, CancelRequested, MessageQueued
from agentrun.core.messages import Text, user_message
from agentrun.errors import StorageError
from agentrun.files import ProjectTree
from agentrun.store.inbox import MAX_MESSAGE_BYTES, MAX_MESSAGES_AT_ONCE, Inbox, has_recorded, message_id

RUN = "run-1"
NAME = "1700000000000000000-0123456789abcdef.json"
ANSWER = {"type": "approval_answered", "subject": "c1.0", "question": "sha256:1", "answer": "approved", "by": "ada"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / RUN / "inbox"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def inbox(tmp_path: Path, folder: Path) -> Inbox:
    return Inbox(ProjectTree(tmp_path, "run", private=True), folder, RUN)


FACTS: list[Any] = [
    ApprovalAnswered("c1.0", "sha256:1", "approved", "ada"),
    ApprovalAnswered("c1.0", "sha256:1", "denied", "ada", "Not today."),
    CallSettled("c1.0", "result", "ada", (Text("done"),)),
    CancelRequested("ada"),
    MessageQueued("", user_message("Go on.")),
]


def test_messages_are_read_in_their_order_with_their_ids(inbox: Inbox, folder: Path) -> None:
    left = [inbox.leave(f"{RUN}.c1.0" if number % 2 else RUN, fact) for number, fact in enumerate(FACTS)]
    assert inbox.messages() == left
    assert [message_id(each.fact) for each in left] == [each.id for each in left]
    assert sorted(path.name for path in folder.iterdir()) == [f"{each.id}.json" for each in left]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert all(0 <= each.age < 600 for each in left)
    assert all(each.id in inbox for each in left)
    inbox.remove(left[0].id)
    inbox.remove(left[0].id)
    assert inbox.messages() == left[1:]
    assert has_recorded([each.fact for each in left], left[3])
    assert not has_recorded([*FACTS, left[2].fact], left[3]), "facts without a message, and of another one"


def contents(fact: Any = ANSWER, run: str = RUN, **more: Any) -> bytes:
    return json.dumps({"run": run, "fact": fact, **more}).encode()


def queued(*parts: Any, **changes: Any) -> bytes:
    fact = {"type": "message_queued", "id": "", "message": {"role": "user", "parts": list(parts)}, **changes}
    return contents(fact)


TEXT = {"kind": "text", "text": "Go on."}
HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"approve it",
    "not UTF-8": b'{"run": "\xff"}',
    "nested": b"[" * 100_000,
    "a list": b"[]",
    "no fact": b'{"run": "run-1"}',
    "an unknown kind": contents({"type": "run_stopped", "status": "completed"}),
    "an unknown field": contents({**ANSWER, "force": True}),
    "another field": contents(also=1),
    "a wrong type": contents({**ANSWER, "by": 1}),
    "an unknown answer": contents({**ANSWER, "answer": "yes"}),
    "an answer of a process": contents({**ANSWER, "answer": "timed_out"}),
    "an id of its own": contents({**ANSWER, "message_id": "1"}),
    "another run": contents(run="run-2"),
    "a sub-agent of another run": contents(run="run-2.c1.0"),
    "a path": contents(run="../run-1"),
    "a message with an id": queued(TEXT, id="1"),
    "a message without text": queued(),
    "a message with an image": queued({"kind": "image", "media_type": "image/png", "blob": "sha256:1", "size": 1}),
    "one byte too large": contents().ljust(MAX_MESSAGE_BYTES + 1),
    "too large": contents({**ANSWER, "by": "a" * MAX_MESSAGE_BYTES}),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_file_that_is_no_message_is_removed(inbox: Inbox, folder: Path, data: bytes) -> None:
    (folder / NAME).write_bytes(data)
    good = inbox.leave(RUN, FACTS[0])
    assert inbox.messages() == [good]
    assert not (folder / NAME).exists()


def test_largest_message_is_read(inbox: Inbox, folder: Path) -> None:
    rest = MAX_MESSAGE_BYTES - len(contents({**ANSWER, "by": ""}))
    (folder / NAME).write_bytes(contents({**ANSWER, "by": "a" * rest}))
    (message,) = inbox.messages()
    assert isinstance(message.fact, ApprovalAnswered)
    assert len(message.fact.by) == rest


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # the path of a socket is short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def _foreign(path: Path) -> None:
    path.write_bytes(contents())
    try:
        os.chown(path, 12345, -1)
    except PermissionError:
        pytest.skip("only root can give a file away")


def _writable(path: Path) -> None:
    path.write_bytes(contents())
    path.chmod(0o666)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(path.parents[3] / "secret.json"),
    "a broken link": lambda path: path.symlink_to("nowhere"),
    "a FIFO": os.mkfifo,
    "a socket": _socket,
    "a file of another user": _foreign,
    "a file that all users can write": _writable,
}


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
def test_special_file_is_removed_and_not_followed(
    inbox: Inbox, folder: Path, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes(contents())
    make(folder / NAME)
    assert inbox.messages() == []
    assert not os.path.lexists(folder / NAME)
    assert secret.read_bytes() == contents()


def test_directory_is_ignored(inbox: Inbox, folder: Path) -> None:
    (folder / NAME / "inner").mkdir(parents=True)
    good = inbox.leave(RUN, FACTS[0])
    assert [inbox.messages(), inbox.messages()] == [[good], [good]]
    assert (folder / NAME / "inner").is_dir()


@pytest.mark.parametrize(
    "name", ["readme.txt", ".hidden.json", f".{NAME}.0123456789abcdef.new", f"x{NAME}", "1-a.json"]
)
def test_other_names_are_left_alone(inbox: Inbox, folder: Path, name: str) -> None:
    (folder / name).write_bytes(contents())
    assert inbox.messages() == []
    assert (folder / name).exists()


def test_inbox_that_is_a_link_is_refused(inbox: Inbox, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / NAME).write_bytes(contents())
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere")
    for use in (inbox.messages, lambda: inbox.leave(RUN, FACTS[0])):
        with pytest.raises(StorageError, match="symbolic link"):
            use()
    assert (tmp_path / "elsewhere" / NAME).exists()


def test_many_messages_are_read_in_portions(inbox: Inbox) -> None:
    left = [inbox.leave(RUN, FACTS[3]) for _ in range(MAX_MESSAGES_AT_ONCE + 1)]
    assert inbox.messages() == left[:-1]
    inbox.remove(left[0].id)
    assert inbox.messages() == left[1:]
