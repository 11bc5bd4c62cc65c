"""How two recordings differ: their interactions aligned, requests by what they mean, replies by what they say.

Rule 1  When something was recorded, how long it took and in what pieces it came is no difference.
Rule 2  Every request to a model repeats the prompt, the tools and all that was said before: what is different in them
        is told once, and what follows from a reply or a result that is told already is not told at all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec.structs import replace

from agentrun.canon import NOT_JSON, compact, read_json
from agentrun.cassette.answered import answered
from agentrun.cassette.asked import Asked, asked
from agentrun.cassette.difference import of_history
from agentrun.cassette.tape import Cassette, Interaction
from agentrun.cli.cassette_words import kind_of, words_of
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Reply
from agentrun.providers.names import wire_name
from agentrun.report.align import aligned
from agentrun.report.change import Change, Kind, Place
from agentrun.report.changes_calls import calls_compared
from agentrun.report.changes_facts import of_fields, of_reply, of_text
from agentrun.report.changes_run import nested
from agentrun.report.changes_spend import spending, spent
from agentrun.report.fields import fields
from agentrun.report.steps import Call, calls_of
from agentrun.spec.text import short

_SAYS = ("spec", "case", "profile", "params", "agentrun", "note")
_FOLLOWED: tuple[Kind, ...] = ("reply", "result", "call", "argument", "finish", "approval", "hook")
_NAMES: dict[str, tuple[Kind, str]] = {
    "tool": ("result", "the result of {}"),
    "approval": ("approval", "the answer about {}"),
    "hook": ("hook", "the answer of the hook {}"),
    "sink": ("delivery", "the delivery to {}"),
    "http": ("result", "the reply of {}"),
}


def tapes_compared(before: Cassette, after: Cassette) -> tuple[Change, ...]:
    """Everything in which two recordings differ."""
    found = list(_metadata(before.metadata, after.metadata))
    told: set[str] = set()
    names = _names(before, after)
    numbers = {id(each): n for tape in (before, after) for n, each in enumerate(tape.interactions, 1)}
    for was, now in _pairs(before, after):
        known = now or was
        assert known is not None
        within = f" (in {short(known.path, 60)})" if known.path else ""
        label = f"interaction {numbers[id(known)]}{within}"
        for change in _interaction(was, now, names, followed=any(each.kind in _FOLLOWED for each in found)):
            if change.text not in told:
                told.add(change.text)
                found.append(replace(change, text=f"{label}: {change.text}", path=known.path))
    return (*found, *spending(spent(_replies(before)), spent(_replies(after))))


def _pairs(before: Cassette, after: Cassette) -> Iterator[tuple[Interaction | None, Interaction | None]]:
    """Interactions side by side. Two that have nothing to do with each other are gone and new."""
    for was, now in aligned(before.interactions, after.interactions, _exact, _as_well, _alike, _of_kind):
        if was is not None and now is not None and _of_kind(was) != _of_kind(now):
            yield was, None
            yield None, now
        else:
            yield was, now


def _metadata(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    one, two = before.get("sections"), after.get("sections")
    if isinstance(one, dict) and isinstance(two, dict):
        for name in [*one, *(name for name in two if name not in one)]:
            if one.get(name) != two.get(name):
                yield Place().told("metadata", f"the section {short(str(name), 60)} of the spec changed")
    elif before.get("fingerprint") != after.get("fingerprint"):
        yield Place().told("metadata", "the spec changed: the fingerprints differ")
    said, says = ({key: each[key] for key in _SAYS if key in each} for each in (before, after))
    for field in fields(said, says):
        yield Place().of_field("metadata", field)


def _exact(interaction: Interaction) -> Hashable:
    return *_as_well(interaction), compact(_body(interaction.call.body))


def _as_well(interaction: Interaction) -> tuple[Hashable, ...]:
    """A request that failed and was sent again is there twice: what came of it tells the two apart."""
    return *_alike(interaction), interaction.failure is None and interaction.reply.status < HTTPStatus.BAD_REQUEST


def _alike(interaction: Interaction) -> tuple[str, ...]:
    return interaction.path, interaction.call.method.upper(), interaction.call.url


def _of_kind(interaction: Interaction) -> Hashable:
    """Of what is no HTTP the name counts too: two tools are not one."""
    kind = kind_of(interaction)
    return interaction.path, kind, "" if kind in ("model", "http") else interaction.call.url


def _body(data: bytes) -> Any:
    try:
        return read_json(data)
    except NOT_JSON:
        return data.decode("utf-8", "replace")


def _names(*tapes: Cassette) -> dict[str, str]:
    """The tools that were called, by their names on the wire: so a call is the same one wherever it is told."""
    urls = {each.call.url for tape in tapes for each in tape.interactions if each.call.url.startswith("tool://")}
    tools = [url.removeprefix("tool://") for url in sorted(urls)]
    return {wire_name(tool): tool for tool in tools}


def _interaction(
    was: Interaction | None, now: Interaction | None, names: dict[str, str], *, followed: bool
) -> Iterator[Change]:
    place = Place()
    if was is None or now is None:
        known = now or was
        assert known is not None
        words, how = words_of(known), "new" if was is None else "gone"
        text = f"it is {how}: {words.asked} → {words.answered}"
        yield place.told("call" if words.kind == "tool" else "request", text, "new" if was is None else "gone")
        return
    one, two = asked(was.call), asked(now.call)
    if one is not None and two is not None:
        yield from _questions(place, one, two, followed=followed)
        yield from _answers(place, was, one, now, two, names)
        return
    yield from _requests(place, was, now)
    yield from _results(place, was, now)


def _questions(place: Place, was: Asked, now: Asked, *, followed: bool) -> Iterator[Change]:
    yield from of_text(place, "instructions", "instructions", was.instructions, now.instructions)
    for name in sorted(was.tools.keys() | now.tools.keys()):
        if name not in was.tools or name not in now.tools:
            how = "new" if name in now.tools else "gone"
            yield place.told("tools", f"the tool {short(name, 60)} is {how}", "new" if how == "new" else "gone")
        else:
            yield from of_fields(place, "tools", f"the tool {short(name, 60)}", was.tools[name], now.tools[name])
    for field in fields(was.settings, now.settings):
        yield place.of_field("setting", field)
    if not followed:
        for difference in of_history(was, now):
            yield place.told("history", difference.brief or difference.sentence())


def _answers(
    place: Place, was: Interaction, question: Asked, now: Interaction, asks: Asked, names: dict[str, str]
) -> Iterator[Change]:
    one, two = answered(was, question), answered(now, asks)
    if isinstance(one, Fault) or isinstance(two, Fault) or was.failure or now.failure:
        before, after = words_of(was).answered, words_of(now).answered
        if before != after:
            yield place.told("fault", f"what came of it: {before} → {after}", before=before, after=after)
        return
    yield from of_reply(place, "reply", "the reply", one.message.text, two.message.text)
    yield from calls_compared(place, _calls(one, names), _calls(two, names), nested)
    rest: tuple[tuple[Kind, str, Any, Any], ...] = (
        ("finish", "the reply ends with", one.finish, two.finish),
        ("model", "the model that answered", one.model, two.model),
    )
    for kind, name, before, after in rest:
        if before != after:
            yield place.changed(kind, name, before, after)


def _calls(reply: Reply, names: dict[str, str]) -> list[Call]:
    calls = calls_of([msgspec.to_builtins(part) for part in reply.message.parts])
    return [replace(call, tool=names.get(call.tool, call.tool)) for call in calls]


def _requests(place: Place, was: Interaction, now: Interaction) -> Iterator[Change]:
    kind: Kind = "argument" if kind_of(now) == "tool" else "request"
    if was.call.method.upper() != now.call.method.upper():
        yield place.changed(kind, "the method", was.call.method, now.call.method)
    if was.call.url != now.call.url:
        yield place.changed(kind, "the address", was.call.url, now.call.url)
    yield from of_fields(place, kind, f"the call of {_name(now)}", _body(was.call.body), _body(now.call.body))


def _results(place: Place, was: Interaction, now: Interaction) -> Iterator[Change]:
    kind, name = _NAMES.get(kind_of(now), _NAMES["http"])
    if was.failure or now.failure or was.stopped != now.stopped:
        before, after = words_of(was).answered, words_of(now).answered
        if before != after:
            yield place.told("fault", f"what came of it: {before} → {after}", before=before, after=after)
        return
    if was.reply.status != now.reply.status:
        yield place.changed(kind, "the status", was.reply.status, now.reply.status)
    one, two = (each.reply.body.decode("utf-8", "replace") for each in (was, now))
    yield from of_reply(place, kind, f"{name.format(_name(now))} changed", one, two)


def _name(interaction: Interaction) -> str:
    scheme, _, name = interaction.call.url.partition("://")
    return short(name if scheme in _NAMES else interaction.call.url, 120)


def _replies(tape: Cassette) -> list[Any]:
    """The replies of models as facts, for what they cost."""
    found = []
    for turn, interaction in enumerate(tape.interactions, 1):
        question = asked(interaction.call)
        reply = None if question is None or interaction.failure else answered(interaction, question)
        if isinstance(reply, Reply):
            found.append({"model_replied": {"turn": turn, "reply": msgspec.to_builtins(reply)}})
    return found
