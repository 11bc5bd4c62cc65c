"""Looks at one recording for everything that can be wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.answered import exchanges
from agentrun.cassette.audit import Finding, Kind
from agentrun.cassette.leaks import leaks
from agentrun.cassette.shown import listed
from agentrun.cassette.tape import Cassette
from agentrun.cli.cassette_age import DAY, days
from agentrun.cli.cassette_replay import Loaded, Packages, Played, played, unused_by_all
from agentrun.cli.cassette_shelf import Filed, Owner
from agentrun.redact import Redactor
from agentrun.spec.text import plural, short

_MOST_NUMBERS = 10


class Look(Struct, frozen=True):
    """What an audit knows besides the recordings."""

    packages: Packages
    known: Redactor
    """Credentials of the environment."""
    now: int
    max_age: int | None


def findings(found: Loaded, look: Look) -> Iterator[Finding]:
    """All findings of one recording."""
    filed, tape = found.filed, found.tape
    if tape is None:
        yield _damaged(found)
    if not found.players:
        yield _orphan(found)
    if tape is None:
        return
    yield from _secrets(filed, tape, look)
    if found.players:
        yield from _replayed(filed, found.players, tape, look)
    yield from _models(filed, tape)
    yield from _old(filed, tape, look)
    if found.is_foreign:
        yield _found(
            filed,
            "foreign",
            "something else recorded it: it does not say of which package",
            "nothing, if that is meant; a recording of agentrun can be checked for being stale",
        )


def _found(filed: Filed, kind: Kind, message: str, fix: str, line: int = 1) -> Finding:
    return Finding(file=filed.shown, line=max(1, line), kind=kind, message=message, fix=fix)


def _damaged(found: Loaded) -> Finding:
    error = found.error
    assert error is not None
    reason, line = error.fields.get("reason"), error.fields.get("line", 1)
    message = f"this is not a cassette: {short(reason)}" if isinstance(reason, str) else short(error.message)
    return _found(found.filed, "damaged", message, "restore the file, or record it again", line)


def _orphan(found: Loaded) -> Finding:
    filed = found.filed
    where = f"{filed.project.cassettes}/<spec>/<case>.yaml"
    if not filed.is_in_place:
        return _found(filed, "orphan", "no case plays it: it is in no place of one", f"recordings are {where}")
    if filed.doubt:
        message = f"no case that can be read plays it, but {filed.doubt} cannot be read"
        return _found(filed, "orphan", message, f"agentrun validate {quote(filed.doubt)}")
    fix = "name a case for it" if found.is_foreign or found.tape is None else "agentrun cassette prune removes it"
    return _found(filed, "orphan", "no case plays it", fix)


def _secrets(filed: Filed, tape: Cassette, look: Look) -> Iterator[Finding]:
    for leak in leaks(tape, look.known):
        place = f"{leak.where} of interaction {leak.number}" if leak.number else leak.where
        what = f"the value of {leak.what}" if leak.what.isupper() else f"a credential ({leak.what})"
        fix = "put it out of use, then record again; `replay.redact` keeps values of your own off the tape"
        yield _found(filed, "secret", f"{short(what)} stands in {place}", fix, leak.line)


def _replayed(filed: Filed, owners: tuple[Owner, ...], tape: Cassette, look: Look) -> Iterator[Finding]:
    """What the cases that play it show; the first is the one that makes it."""
    again = owners[0].again
    changed = None if "fingerprint" not in tape.metadata else look.packages.changed(owners[0], tape.metadata)
    all_ = [played(look.packages, owner, tape) for owner in owners]
    first = all_[0]
    for owner, came in zip(owners, all_, strict=True):
        if came.is_miss:
            yield _miss(filed, came, "its case" if owner is owners[0] else f"case {owner.case.name}", owner.again)
    if first.code == "cassette.damaged":
        yield _found(filed, "damaged", short(first.fault or "", 300), f"{again} --record all")
    elif not any(came.is_miss for came in all_) and (unused := unused_by_all(all_)):
        yield _unused(filed, tape, replace(first, unused=unused), again)
    if changed is not None:
        keeps = "record it again" if first.is_miss else "nothing, while it replays; recording it again makes it fresh"
        yield _found(filed, "stale", short(changed, 300), f"{keeps}: {again} --record new")


def _miss(filed: Filed, came: Played, whose: str, again: str) -> Finding:
    fields = came.fields
    if came.code == "not_started":
        return _found(filed, "miss", f"{whose} cannot be replayed: {short(came.fault or '', 300)}", again)
    because = f"; {fields['cause']}" if fields.get("cause") else ""
    message = short(f"{whose} no longer replays: {fields.get('difference')}{because}", 400)
    return _found(filed, "miss", message, str(fields.get("accept") or f"{again} --record new"), fields.get("line") or 1)


def _unused(filed: Filed, tape: Cassette, came: Played, again: str) -> Finding:
    first = tape.interactions[came.unused[0] - 1]
    total = plural(len(tape.interactions), "interaction")
    if came.code is not None:
        message = f"{len(came.unused)} of {total} not played: the run now ends with {came.code} ({came.fault})"
        return _found(filed, "unused", short(message, 300), again, first.line)
    message = f"{len(came.unused)} of {total} not played by its case: {numbers(came.unused)}"
    return _found(filed, "unused", message, "agentrun cassette prune removes them", first.line)


def numbers(which: tuple[int, ...]) -> str:
    """`2, 3 and 5`; of many the first."""
    named = [str(number) for number in which[:_MOST_NUMBERS]]
    return listed(named if len(which) <= _MOST_NUMBERS else [*named, f"{len(which) - _MOST_NUMBERS} more"])


def _models(filed: Filed, tape: Cassette) -> Iterator[Finding]:
    told = set()
    for exchange in exchanges(tape):
        pair = exchange.asked, exchange.answered
        if exchange.differs and pair not in told:
            told.add(pair)
            message = f"{short(exchange.asked, 60)} was asked, {short(str(exchange.answered), 60)} answered"
            fix = "name the model that you mean, or see where the request went"
            yield _found(filed, "model", f"{message} (interaction {exchange.number})", fix, exchange.line)


def _old(filed: Filed, tape: Cassette, look: Look) -> Iterator[Finding]:
    age = days(tape.recorded_at, look.now)
    if look.max_age is not None and age is not None and look.now - tape.recorded_at > look.max_age:
        limit = f"{look.max_age / DAY:g} days"
        message = f"it is {plural(age, 'day')} old, which is more than {limit}"
        yield _found(filed, "old", message, "record it again: is the answer still the same?")
