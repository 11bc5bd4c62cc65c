"""What can be removed from recordings, and removing it.

Rule 1  What goes is what no replay plays, and only when that is sure: the case replays to its end, every document that
        could name a recording could be read, and agentrun recorded it.
Rule 2  A shorter recording is played before it is written: it gives the same answer, and nothing of it is unused.
Rule 3  A file is changed under the lock of whoever records it, and only if it is still the one that was looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canon import text_hash
from agentrun.cassette.events import read
from agentrun.cassette.file import dump, load, save
from agentrun.cassette.match import Key, key_of
from agentrun.cassette.reader import cassette
from agentrun.cassette.shown import listed
from agentrun.cassette.tape import Cassette, Interaction
from agentrun.cli.cassette_findings import numbers
from agentrun.cli.cassette_replay import Loaded, Packages, loaded, played, unused_by_all
from agentrun.cli.cassette_shelf import Filed, Owner, shelved
from agentrun.errors import StorageError
from agentrun.files import TEMPORARY, ProjectTree
from agentrun.spec.text import plural, short
from agentrun.store.lock import cassette_lock, locked


class Step(Struct, frozen=True):
    """What is done with one file."""

    filed: Filed
    action: Literal["remove", "rewrite", "keep"]
    why: str
    tape: Cassette | None = None
    """The recording as it was looked at."""
    unused: tuple[int, ...] = ()


def plans(paths: Sequence[Path], packages: Packages) -> list[Step]:
    """What would be done. Files with which nothing is to be done are left out."""
    steps = [_step(loaded(filed), packages) for filed in shelved(paths)]
    left = [
        Step(filed, "remove", "a write that did not end left it")
        for filed in shelved(paths, left_over=True)
        if filed.is_in_place
    ]
    return [step for step in steps if step is not None] + left


def _step(found: Loaded, packages: Packages) -> Step | None:
    filed, tape, owners = found.filed, found.tape, found.players
    if tape is None:
        return Step(filed, "keep", "it is damaged; restore it or record it again")
    if not owners:
        reason = _why_kept(found)
        action: Literal["keep", "remove"] = "keep" if reason else "remove"
        return Step(filed, action, f"no case plays it{f', but {reason}' if reason else ''}", tape)
    came = [played(packages, owner, tape) for owner in owners]
    unused = unused_by_all(came)
    failed = next((each for each in came if each.is_miss or (unused and each.code is not None)), None)
    if failed is not None:
        rest = "what it does not play follows from that"
        return Step(filed, "keep", f"its replay ends with {failed.code}, and {rest}: {short(failed.fault or '')}", tape)
    if not unused:
        return None
    total = plural(len(tape.interactions), "interaction")
    whose = "its case does" if len(owners) == 1 else "its cases do"
    which = f"{len(unused)} of {total}, which {whose} not play: {numbers(unused)}"
    if filed.path.is_symlink():
        return Step(filed, "keep", f"{which}; but it is a link", tape)
    if len(filed.specs) > 1:
        others = listed(filed.specs)
        return Step(filed, "keep", f"{which}; but {others} have one name, and each may play it", tape)
    if not _stays_equal(packages, owners, tape, unused, [each.answer for each in came]):
        return Step(filed, "keep", f"{which}; but the rest would not stay as it is", tape)
    return Step(filed, "rewrite", f"without {which}", tape, unused)


def _why_kept(found: Loaded) -> str | None:
    filed = found.filed
    if not filed.is_in_place:
        return f"it is not below {filed.project.cassettes}/"
    if filed.doubt:
        return f"{filed.doubt} cannot be read and may name one"
    if found.is_foreign:
        return "something else recorded it"
    return None


def _stays_equal(
    packages: Packages, owners: Sequence[Owner], tape: Cassette, unused: tuple[int, ...], answers: list[str | None]
) -> bool:
    text = pruned(tape, unused, "")
    again = cassette(read(text), text_hash(text.encode()))
    if _bare(again.interactions) != _bare(_left(tape, unused)) or _but_history(again) != _but_history(tape):
        return False
    came = [played(packages, owner, again) for owner in owners]
    codes = [each.code for each in came if each.code is not None]
    return not codes and not unused_by_all(came) and [each.answer for each in came] == answers


def pruned(tape: Cassette, unused: tuple[int, ...], at: str) -> str:
    """The text of a recording without some of its interactions."""
    before = tape.metadata.get("history")
    history = [*(before if isinstance(before, list) else []), {"at": at, "pruned": len(unused)}]
    return dump(_left(tape, unused), _plain({**tape.metadata, "history": history}))


def carry_out(step: Step, at: str) -> None:
    """Do it. Raises `storage.failed`."""
    filed = step.filed
    project, tree = filed.project, _tree(filed)
    name = TEMPORARY.fullmatch(filed.path.name)
    recording = filed.path.with_name(name[1]) if name else filed.path
    with locked(project, cassette_lock(project, recording), f"another process is recording {recording.name}"):
        if step.tape is not None and load(filed.path, project.cassette_limit).hash != step.tape.hash:
            message = f"{filed.shown} was changed meanwhile; it is kept"
            raise StorageError("storage.failed", message, fields={"path": "cassette", "errno": None})
        if step.action == "rewrite" and step.tape is not None:
            save(tree, filed.path, pruned(step.tape, step.unused, at), project.cassette_limit)
        else:
            tree.remove(filed.path)


def _tree(filed: Filed) -> ProjectTree:
    """A cassette may be named that is not among those of the project."""
    return filed.project.cassette_tree if filed.is_in_place else filed.project.source_tree("cassette")


def _left(tape: Cassette, unused: tuple[int, ...]) -> tuple[Interaction, ...]:
    return tuple(each for number, each in enumerate(tape.interactions, 1) if number not in set(unused))


def _bare(interactions: tuple[Interaction, ...]) -> list[tuple[Key, Interaction]]:
    """Without the lines in the file, and with requests by their meaning: their JSON is written anew."""
    return [(key_of(each.call), replace(each, line=0, call=replace(each.call, body=b""))) for each in interactions]


def _but_history(tape: Cassette) -> dict[str, Any]:
    return {key: value for key, value in tape.metadata.items() if key != "history"}


def _plain(value: Any) -> Any:
    """Plain mappings of those that know their line."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
