"""Remove unused interactions and unused cassettes.

Rule 1  Only interactions that no replay plays are removed, and only if that is certain: the case replays to its end,
        every document that could name the cassette is readable, and agentrun recorded it.
Rule 2  A shortened cassette is replayed before it is written: the answer must be the same, and all of it played.
Rule 3  A file is changed under the lock of its recorder, and only if it did not change since the plan was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.file import load_cassette, parse_cassette_text, save_cassette
from agentrun.cassette.interactions import BodyHashes, Cassette, Interaction
from agentrun.cassette.selection import (
    CaseReplays,
    CassetteFile,
    CassetteLock,
    LoadedCassette,
    find_unused,
    load_selected,
    select_cassettes,
)
from agentrun.cassette.writer import dump_cassette
from agentrun.errors import StorageError
from agentrun.files import TEMPORARY_NAME
from agentrun.spec.safe_text import join_numbers, join_words, plural, short_text


class PruneStep(Struct, frozen=True):
    file: CassetteFile
    action: Literal["remove", "rewrite", "keep"]
    reason: str
    cassette: Cassette | None = None
    """The cassette when the step was planned."""
    unused: tuple[int, ...] = ()


def plan_prune(paths: Sequence[Path], replays: CaseReplays) -> list[PruneStep]:
    steps = [_plan_step(load_selected(file), replays) for file in select_cassettes(paths)]
    leftovers = [
        PruneStep(file, "remove", "it was left by an interrupted write")
        for file in select_cassettes(paths, leftovers=True)
        if file.is_in_place
    ]
    return [step for step in steps if step is not None] + leftovers


def _plan_step(loaded: LoadedCassette, replays: CaseReplays) -> PruneStep | None:
    file, cassette, owners = loaded.file, loaded.cassette, loaded.owners
    if cassette is None:
        return PruneStep(file, "keep", "it is damaged; restore it or record it again")
    if not owners:
        doubt = _reason_to_keep(loaded)
        action: Literal["keep", "remove"] = "keep" if doubt else "remove"
        return PruneStep(file, action, f"no case uses it{f', but {doubt}' if doubt else ''}", cassette)
    results = [replays.replay(owner, cassette) for owner in owners]
    unused = find_unused(results)
    failed = next((each for each in results if each.is_miss or (unused and each.code is not None)), None)
    if failed is not None:
        reason = f"its replay fails with {failed.code}: {short_text(failed.message or '')}"
        return PruneStep(file, "keep", reason, cassette)
    if not unused:
        return None
    total = plural(len(cassette.interactions), "interaction")
    subject = "its case does" if len(owners) == 1 else "its cases do"
    which = f"{len(unused)} of {total} that {subject} not play: {join_numbers(unused)}"
    if file.path.is_symlink():
        return PruneStep(file, "keep", f"{which}; but the file is a link", cassette)
    if len(file.specs) > 1:
        reason = f"{which}; but {join_words(file.specs)} have the same name, and each of them may play the cassette"
        return PruneStep(file, "keep", reason, cassette)
    if not _replays_the_same(replays, loaded, cassette, unused, [each.answer for each in results]):
        return PruneStep(file, "keep", f"{which}; but the replay would not be the same without them", cassette)
    return PruneStep(file, "rewrite", f"remove {which}", cassette, unused)


def _reason_to_keep(loaded: LoadedCassette) -> str | None:
    """Why a cassette without a case is kept. None: it can be removed."""
    file = loaded.file
    if not file.is_in_place:
        return f"it is not in {file.project.cassettes}/"
    if file.unreadable:
        return f"{file.unreadable} cannot be read and may have one"
    return "another program recorded it" if loaded.is_foreign else None


def _replays_the_same(
    replays: CaseReplays, loaded: LoadedCassette, cassette: Cassette, unused: tuple[int, ...], answers: list[str | None]
) -> bool:
    shorter = parse_cassette_text(_pruned_text(cassette, unused, ""))
    remaining = _without(cassette, unused)
    if _comparable(shorter.interactions) != _comparable(remaining) or _metadata(shorter) != _metadata(cassette):
        return False
    results = [replays.replay(owner, shorter) for owner in loaded.owners]
    failed = any(each.code is not None for each in results)
    return not failed and not find_unused(results) and [each.answer for each in results] == answers


def _pruned_text(cassette: Cassette, unused: tuple[int, ...], at: str) -> str:
    """The text of a cassette without the unused interactions, with an entry in its history."""
    before = cassette.metadata.get("history")
    history = [*(before if isinstance(before, list) else []), {"at": at, "pruned": len(unused)}]
    return dump_cassette(_without(cassette, unused), {**cassette.metadata, "history": history})


def apply_prune_step(step: PruneStep, at: str, lock: CassetteLock) -> None:
    """Remove or rewrite the file of a step. `at`: the time for its history. Raises `storage.failed`."""
    file, project, tree = step.file, step.file.project, step.file.tree
    name = TEMPORARY_NAME.fullmatch(file.path.name)
    with lock(project, file.path.with_name(name[1]) if name else file.path):
        if step.cassette is not None and load_cassette(file.path, project.cassette_limit).hash != step.cassette.hash:
            message = f"{file.label} was not pruned because it changed meanwhile; run the command again"
            raise StorageError("storage.failed", message, fields={"path": "cassette", "errno": None})
        if step.action == "rewrite" and step.cassette is not None:
            save_cassette(tree, file.path, _pruned_text(step.cassette, step.unused, at), project.cassette_limit)
        else:
            tree.remove(file.path)


def _without(cassette: Cassette, unused: tuple[int, ...]) -> tuple[Interaction, ...]:
    return tuple(each for number, each in enumerate(cassette.interactions, 1) if number not in set(unused))


def _comparable(interactions: tuple[Interaction, ...]) -> list[tuple[bytes, Interaction]]:
    """Interactions without their lines, and with the hashes of their requests, because JSON is formatted again."""
    hashes = BodyHashes()
    return [
        (hashes.of(each.request), replace(each, line=0, request=replace(each.short_call(0), body=b"")))
        for each in interactions
    ]


def _metadata(cassette: Cassette) -> dict[str, Any]:
    return {key: value for key, value in cassette.metadata.items() if key != "history"}
