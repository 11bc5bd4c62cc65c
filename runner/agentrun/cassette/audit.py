"""Audit cassettes: find secrets, misses, unused interactions and other problems."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from agentrun.cassette.interactions import DAY_MS, Cassette
from agentrun.cassette.leaks import find_leaks
from agentrun.cassette.parsed_interaction import compare_models
from agentrun.cassette.selection import (
    CaseReplays,
    CassetteFile,
    LoadedCassette,
    Owner,
    ReplayResult,
    describe_change,
    find_unused,
)
from agentrun.redactor import Redactor
from agentrun.spec.safe_text import join_numbers, plural, short_text

FindingKind: TypeAlias = Literal["damaged", "secret", "miss", "unused", "stale", "orphan", "model", "old", "foreign"]
FINDING_KINDS: tuple[FindingKind, ...] = get_args(FindingKind)
"""From the most to the least serious."""
FAILING_KINDS: tuple[FindingKind, ...] = ("damaged", "secret", "miss", "unused")
"""The kinds that fail an audit by default."""
CassetteState: TypeAlias = Literal["fresh", "stale", "orphan", "foreign", "damaged"]


class AuditFinding(Struct, frozen=True, kw_only=True):
    file: str
    line: int = 1
    kind: FindingKind
    message: str
    fix: str

    def as_json(self, *, fails: bool) -> dict[str, Any]:
        return {**asdict(self), "fails": fails}


class AuditContext(Struct, frozen=True):
    replays: CaseReplays
    secrets: Redactor
    """Knows the credentials of the environment."""
    now: int
    """Milliseconds since 1970."""
    max_age: int | None
    """Milliseconds. Null: no cassette is too old."""


def cassette_state(loaded: LoadedCassette, replays: CaseReplays) -> tuple[CassetteState, str | None]:
    """The state of a cassette, and the reason if there is one. Does not replay anything."""
    if loaded.cassette is None:
        return "damaged", None if loaded.error is None else short_text(loaded.error.message, 300)
    if not loaded.owners:
        return "orphan", f"{loaded.file.unreadable} cannot be read" if loaded.file.unreadable else None
    if loaded.is_foreign:
        return "foreign", None
    change = describe_change(replays, loaded.owners[0], loaded.cassette.metadata)
    return ("fresh", None) if change is None else ("stale", short_text(change, 300))


def audit_cassette(loaded: LoadedCassette, context: AuditContext) -> Iterator[AuditFinding]:
    """Find all problems of one cassette. Replays its cases."""
    file, cassette = loaded.file, loaded.cassette
    if cassette is None:
        yield _damaged_finding(loaded)
    if not loaded.owners:
        yield _orphan_finding(loaded)
    if cassette is None:
        return
    yield from _secret_findings(file, cassette, context)
    if loaded.owners:
        yield from _replay_findings(file, loaded.owners, cassette, context)
    yield from _model_findings(file, cassette)
    yield from _age_findings(file, cassette, context)
    if loaded.is_foreign:
        message = "another program recorded it, so agentrun cannot check whether it is out of date"
        yield _finding(file, "foreign", message, "none needed; record it with agentrun to enable the check")


def _finding(file: CassetteFile, kind: FindingKind, message: str, fix: str, line: int = 1) -> AuditFinding:
    return AuditFinding(file=file.label, line=max(1, line), kind=kind, message=message, fix=fix)


def _damaged_finding(loaded: LoadedCassette) -> AuditFinding:
    error = loaded.error
    assert error is not None
    reason, line = error.fields.get("reason"), error.fields.get("line", 1)
    message = f"this is not a cassette: {short_text(reason)}" if isinstance(reason, str) else short_text(error.message)
    return _finding(loaded.file, "damaged", message, "restore the file or record it again", line)


def _orphan_finding(loaded: LoadedCassette) -> AuditFinding:
    file = loaded.file
    place = f"{file.project.cassettes}/<spec>/<case>.yaml"
    if not file.is_in_place:
        message = "no case uses it because it is not in the folder of cassettes"
        return _finding(file, "orphan", message, f"move it to {place}")
    if file.unreadable:
        message = f"no case uses it, but {file.unreadable} cannot be read and may have one"
        return _finding(file, "orphan", message, f"agentrun validate {quote(file.unreadable)}")
    keep = loaded.is_foreign or loaded.cassette is None
    fix = "add a case that uses it, or remove it" if keep else "agentrun cassette prune removes it"
    return _finding(file, "orphan", "no case uses it", fix)


def _secret_findings(file: CassetteFile, cassette: Cassette, context: AuditContext) -> Iterator[AuditFinding]:
    for leak in find_leaks(cassette, context.secrets):
        place = f"interaction {leak.number}, {leak.place}" if leak.number else f"the {leak.place}"
        what = f"the value of {leak.what}" if leak.what.isupper() else f"a credential ({leak.what})"
        fix = "revoke it, then record again; use `replay.redact` to keep other values out of cassettes"
        yield _finding(file, "secret", f"{short_text(what)} is in {place}", fix, leak.line)


def _replay_findings(
    file: CassetteFile, owners: tuple[Owner, ...], cassette: Cassette, context: AuditContext
) -> Iterator[AuditFinding]:
    """Replay all cases of a cassette. The first one records it."""
    command, metadata = owners[0].command, cassette.metadata
    change = describe_change(context.replays, owners[0], metadata) if "fingerprint" in metadata else None
    results = [context.replays.replay(owner, cassette) for owner in owners]
    first = results[0]
    for owner, result in zip(owners, results, strict=True):
        if result.is_miss:
            case = "its case" if owner is owners[0] else f"case {owner.case.name}"
            yield _miss_finding(file, result, case, owner.command)
    if first.code == "cassette.damaged":
        yield _finding(file, "damaged", short_text(first.message or "", 300), f"{command} --record all")
    elif not any(result.is_miss for result in results) and (unused := find_unused(results)):
        yield _unused_finding(file, cassette, replace(first, unused=unused), command)
    if change is not None:
        advice = "" if first.is_miss else "none needed while it replays; to update it: "
        yield _finding(file, "stale", short_text(change, 300), f"{advice}{command} --record new")


def _miss_finding(file: CassetteFile, result: ReplayResult, case: str, command: str) -> AuditFinding:
    fields = result.fields
    if result.code == "not_started":
        return _finding(file, "miss", f"{case} cannot be replayed: {short_text(result.message or '', 300)}", command)
    because = f"; {fields['cause']}" if fields.get("cause") else ""
    message = short_text(f"{case} no longer replays: {fields.get('difference')}{because}", 400)
    fix = str(fields.get("accept") or f"{command} --record new")
    return _finding(file, "miss", message, fix, fields.get("line") or 1)


def _unused_finding(file: CassetteFile, cassette: Cassette, result: ReplayResult, command: str) -> AuditFinding:
    first = cassette.interactions[result.unused[0] - 1]
    total = plural(len(cassette.interactions), "interaction")
    if result.code is not None:
        end = f"it now ends with {result.code} ({result.message})"
        message = f"the run does not play {len(result.unused)} of {total} because {end}"
        return _finding(file, "unused", short_text(message, 300), command, first.line)
    message = f"its case does not play {len(result.unused)} of {total}: {join_numbers(result.unused)}"
    return _finding(file, "unused", message, "agentrun cassette prune removes them", first.line)


def _model_findings(file: CassetteFile, cassette: Cassette) -> Iterator[AuditFinding]:
    seen = set()
    for exchange in compare_models(cassette):
        pair = exchange.requested, exchange.answered
        if exchange.differs and pair not in seen:
            seen.add(pair)
            requested, answered = short_text(exchange.requested, 60), short_text(str(exchange.answered), 60)
            message = f"{requested} was requested, but {answered} answered (interaction {exchange.number})"
            fix = "check the model name and the address that the request was sent to"
            yield _finding(file, "model", message, fix, exchange.line)


def _age_findings(file: CassetteFile, cassette: Cassette, context: AuditContext) -> Iterator[AuditFinding]:
    age, limit = cassette.days_old(context.now), context.max_age
    if limit is not None and age is not None and context.now - cassette.recorded_at > limit:
        message = f"it is {plural(age, 'day')} old; the limit is {limit / DAY_MS:g} days"
        yield _finding(file, "old", message, "record it again to see whether the model still answers the same")
