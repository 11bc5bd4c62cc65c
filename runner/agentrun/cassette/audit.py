"""Audit a cassette: find secrets, misses, unused interactions and everything else that can be wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

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
"""From the worst to what is only worth knowing."""
FAILING_KINDS: tuple[FindingKind, ...] = ("damaged", "secret", "miss", "unused")
"""The kinds that fail an audit by default."""
CassetteState: TypeAlias = Literal["fresh", "stale", "orphan", "foreign", "damaged"]


class AuditFinding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with one cassette."""

    file: str
    line: int = 1
    kind: FindingKind
    message: str
    fix: str

    def as_json(self, *, fails: bool) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.line,
            "kind": self.kind,
            "message": self.message,
            "fix": self.fix,
            "fails": fails,
        }


class AuditContext(Struct, frozen=True):
    """The inputs of an audit besides the cassettes."""

    replays: CaseReplays
    secrets: Redactor
    """Credentials of the environment."""
    now: int
    """Milliseconds since 1970."""
    max_age: int | None
    """Milliseconds. Null: no cassette is too old."""


def cassette_state(loaded: LoadedCassette, replays: CaseReplays) -> tuple[CassetteState, str | None]:
    """Return the state of a cassette, and the reason if there is one. Nothing is replayed."""
    if loaded.cassette is None:
        return "damaged", None if loaded.error is None else short_text(loaded.error.message, 300)
    if not loaded.owners:
        return "orphan", f"{loaded.file.unreadable} cannot be read" if loaded.file.unreadable else None
    if loaded.is_foreign:
        return "foreign", None
    change = describe_change(replays, loaded.owners[0], loaded.cassette.metadata)
    return ("fresh", None) if change is None else ("stale", short_text(change, 300))


def audit_cassette(loaded: LoadedCassette, context: AuditContext) -> Iterator[AuditFinding]:
    """Find everything that is wrong with one cassette. Its cases are replayed."""
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
        yield _finding(
            file,
            "foreign",
            "something else recorded it: it does not say of which package",
            "nothing, if that is meant; a recording of agentrun can be checked for being stale",
        )


def _finding(file: CassetteFile, kind: FindingKind, message: str, fix: str, line: int = 1) -> AuditFinding:
    return AuditFinding(file=file.label, line=max(1, line), kind=kind, message=message, fix=fix)


def _damaged_finding(loaded: LoadedCassette) -> AuditFinding:
    error = loaded.error
    assert error is not None
    reason, line = error.fields.get("reason"), error.fields.get("line", 1)
    message = f"this is not a cassette: {short_text(reason)}" if isinstance(reason, str) else short_text(error.message)
    return _finding(loaded.file, "damaged", message, "restore the file, or record it again", line)


def _orphan_finding(loaded: LoadedCassette) -> AuditFinding:
    file = loaded.file
    place = f"{file.project.cassettes}/<spec>/<case>.yaml"
    if not file.is_in_place:
        return _finding(file, "orphan", "no case plays it: it is in no place of one", f"recordings are {place}")
    if file.unreadable:
        message = f"no case that can be read plays it, but {file.unreadable} cannot be read"
        return _finding(file, "orphan", message, f"agentrun validate {quote(file.unreadable)}")
    keep = loaded.is_foreign or loaded.cassette is None
    fix = "name a case for it" if keep else "agentrun cassette prune removes it"
    return _finding(file, "orphan", "no case plays it", fix)


def _secret_findings(file: CassetteFile, cassette: Cassette, context: AuditContext) -> Iterator[AuditFinding]:
    for leak in find_leaks(cassette, context.secrets):
        place = f"{leak.where} of interaction {leak.number}" if leak.number else leak.where
        what = f"the value of {leak.what}" if leak.what.isupper() else f"a credential ({leak.what})"
        fix = "put it out of use, then record again; `replay.redact` keeps values of your own off the tape"
        yield _finding(file, "secret", f"{short_text(what)} stands in {place}", fix, leak.line)


def _replay_findings(
    file: CassetteFile, owners: tuple[Owner, ...], cassette: Cassette, context: AuditContext
) -> Iterator[AuditFinding]:
    """Replay all cases of a cassette. The first of them is the one that records it."""
    command = owners[0].command
    change = None
    if "fingerprint" in cassette.metadata:
        change = describe_change(context.replays, owners[0], cassette.metadata)
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
        advice = "record it again" if first.is_miss else "nothing, while it replays; recording it again makes it fresh"
        yield _finding(file, "stale", short_text(change, 300), f"{advice}: {command} --record new")


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
        end = f"the run now ends with {result.code} ({result.message})"
        message = f"{len(result.unused)} of {total} not played: {end}"
        return _finding(file, "unused", short_text(message, 300), command, first.line)
    message = f"{len(result.unused)} of {total} not played by its case: {join_numbers(result.unused)}"
    return _finding(file, "unused", message, "agentrun cassette prune removes them", first.line)


def _model_findings(file: CassetteFile, cassette: Cassette) -> Iterator[AuditFinding]:
    seen = set()
    for exchange in compare_models(cassette):
        pair = exchange.requested, exchange.answered
        if exchange.differs and pair not in seen:
            seen.add(pair)
            message = (
                f"{short_text(exchange.requested, 60)} was asked, {short_text(str(exchange.answered), 60)} answered"
            )
            fix = "name the model that you mean, or see where the request went"
            yield _finding(file, "model", f"{message} (interaction {exchange.number})", fix, exchange.line)


def _age_findings(file: CassetteFile, cassette: Cassette, context: AuditContext) -> Iterator[AuditFinding]:
    age, limit = cassette.days_old(context.now), context.max_age
    if limit is not None and age is not None and context.now - cassette.recorded_at > limit:
        message = f"it is {plural(age, 'day')} old, which is more than {limit / DAY_MS:g} days"
        yield _finding(file, "old", message, "record it again: is the answer still the same?")
