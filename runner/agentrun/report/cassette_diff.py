"""How two cassettes differ: interactions are aligned, requests and replies are compared by their meaning.

Rule 1  When an interaction was recorded, how long it took and in which pieces it came makes no difference.
Rule 2  Every request to a model repeats the prompt, the tools and the earlier messages. A difference in them is
        reported once, and not at all if it follows from a reply or a result that is already reported.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from agentrun.canonical_json import json_or_text
from agentrun.core.messages import Reply
from agentrun.providers.request_encoding import wire_name
from agentrun.report.cassette_text import describe_interaction
from agentrun.report.change import ChangeKind, ChangePlace, ChangeStatus, RunChange
from agentrun.report.fact_diff import compare_data, compare_reply, compare_text
from agentrun.report.journal_diff import compare_calls
from agentrun.report.journal_spend import compare_spend, sum_spend
from agentrun.report.journal_tree import CallNode, parse_calls
from agentrun.report.value_diff import align_lists, compare_fields
from agentrun.spec.safe_text import short_text

if TYPE_CHECKING:  # `report` and `cassette` are in one layer, so only types are imported
    from agentrun.cassette.parsed_interaction import ModelExchange, ParsedCassette, ParsedInteraction

_COMPARED_METADATA = ("spec", "case", "profile", "params", "agentrun", "note")
_CAUSES: tuple[ChangeKind, ...] = ("reply", "result", "call", "argument", "finish", "approval", "hook")
"""After a change of these kinds the messages of later requests differ too."""
_RESULTS: dict[str, tuple[ChangeKind, str]] = {
    "tool": ("result", "the result of {}"),
    "approval": ("approval", "the answer about {}"),
    "hook": ("hook", "the answer of the hook {}"),
    "sink": ("delivery", "the delivery to {}"),
    "http": ("result", "the reply of {}"),
}

_PLACE = ChangePlace()
"""A cassette is one place: `compare_cassettes` adds the number of the interaction."""


def compare_cassettes(before: ParsedCassette, after: ParsedCassette) -> tuple[RunChange, ...]:
    found = list(_metadata(before.metadata, after.metadata))
    reported: set[str] = set()
    tools, histories = _tool_names(before, after), _Histories()
    for was, now in _pairs(before, after):
        known = now or was
        assert known is not None
        path = known.recorded.path
        label = f"interaction {known.number}{f' (in {short_text(path, 60)})' if path else ''}"
        has_cause = any(each.kind in _CAUSES for each in found)
        for change in _interaction(was, now, tools, None if has_cause else histories):
            if change.text not in reported:
                reported.add(change.text)
                found.append(replace(change, text=f"{label}: {change.text}", path=path))
    return (*found, *compare_spend(sum_spend(_replies(before)), sum_spend(_replies(after))))


def _pairs(
    before: ParsedCassette, after: ParsedCassette
) -> Iterator[tuple[ParsedInteraction | None, ParsedInteraction | None]]:
    """Interactions side by side. Two of different kinds count as one that is gone and one that is new."""
    keys = _exact_key, _outcome_key, _request_key, _kind_key
    for was, now in align_lists(before.interactions, after.interactions, *keys):
        if was is not None and now is not None and _kind_key(was) != _kind_key(now):
            yield was, None
            yield None, now
        else:
            yield was, now


def _metadata(before: dict[str, Any], after: dict[str, Any]) -> Iterator[RunChange]:
    one, two = before.get("sections"), after.get("sections")
    if isinstance(one, dict) and isinstance(two, dict):
        for name in [*one, *(name for name in two if name not in one)]:
            if one.get(name) != two.get(name):
                words = f"the section {short_text(str(name), 60)} of the spec changed"
                yield _PLACE.make_change("metadata", words)
    elif before.get("fingerprint") != after.get("fingerprint"):
        yield _PLACE.make_change("metadata", "the spec changed: the fingerprints differ")
    was, now = ({key: each[key] for key in _COMPARED_METADATA if key in each} for each in (before, after))
    for field in compare_fields(was, now):
        yield _PLACE.field_change("metadata", field)


def _exact_key(parsed: ParsedInteraction) -> Hashable:
    return *_outcome_key(parsed), parsed.body_hash


def _outcome_key(parsed: ParsedInteraction) -> tuple[Hashable, ...]:
    """A request that failed and was sent again is recorded twice. The outcome distinguishes the two."""
    interaction = parsed.recorded
    return *_request_key(parsed), interaction.failure is None and interaction.reply.status < HTTPStatus.BAD_REQUEST


def _request_key(parsed: ParsedInteraction) -> tuple[str, ...]:
    interaction = parsed.recorded
    return interaction.path, interaction.request.method.upper(), interaction.request.url


def _kind_key(parsed: ParsedInteraction) -> Hashable:
    """Calls that are not HTTP are of one kind only if their names are the same: two tools are two kinds."""
    name = "" if parsed.kind in ("model", "http") else parsed.recorded.request.url
    return parsed.recorded.path, parsed.kind, name


def _tool_names(*cassettes: ParsedCassette) -> dict[str, str]:
    """The tools that were called, by their names on the wire, so that a call has one name everywhere."""
    urls = {each.recorded.request.url for cassette in cassettes for each in cassette.interactions}
    tools = [url.removeprefix("tool://") for url in sorted(urls) if url.startswith("tool://")]
    return {wire_name(tool): tool for tool in tools}


def _interaction(
    was: ParsedInteraction | None, now: ParsedInteraction | None, tools: dict[str, str], histories: _Histories | None
) -> Iterator[RunChange]:
    """`histories`: None if a change is known after which the histories differ."""
    if was is None or now is None:
        known = now or was
        assert known is not None
        text, how = describe_interaction(known), _new_or_gone(is_new=was is None)
        kind: ChangeKind = "call" if known.kind == "tool" else "request"
        yield _PLACE.make_change(kind, f"it is {how}: {text.request} → {text.outcome}", how)
    elif was.exchange is not None and now.exchange is not None:
        if was.body_hash != now.body_hash or _request_key(was) != _request_key(now):
            yield from _questions(was.exchange, now.exchange)
            if histories is not None:
                changes = histories.changes(now.recorded.path, was.exchange, now.exchange)
                yield from (_PLACE.make_change("history", change) for change in changes)
        yield from _answers(was, now, tools)
    else:
        yield from _requests(was, now)
        yield from _results(was, now)


def _new_or_gone(*, is_new: bool) -> ChangeStatus:
    return "new" if is_new else "gone"


class _Histories:
    """Compares the earlier messages of requests. What both repeat from the requests before is not compared again."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[ModelExchange, ModelExchange, int]] = {}
        """The last pair of each run, and how many of its messages are equal."""

    def changes(self, path: str, before: ModelExchange, after: ModelExchange) -> Iterator[str]:
        equal = 0
        if path in self._last:
            was, now, count = self._last[path]
            one, two = was.request.messages, now.request.messages
            if before.request.messages.continues(one) and after.request.messages.continues(two):
                equal = max(0, min(count, len(one) - 1, len(two) - 1))  # the last message may have more parts now
        equal = before.equal_messages(after, equal)
        self._last[path] = before, after, equal
        return before.history_changes(after, equal)


def _questions(before: ModelExchange, after: ModelExchange) -> Iterator[RunChange]:
    was, now = before.request, after.request
    yield from compare_text(_PLACE, "instructions", "instructions", was.instructions, now.instructions)
    for name in sorted(was.tools.keys() | now.tools.keys()):
        if name not in was.tools or name not in now.tools:
            how = _new_or_gone(is_new=name in now.tools)
            yield _PLACE.make_change("tools", f"the tool {short_text(name, 60)} is {how}", how)
        else:
            title = f"the tool {short_text(name, 60)}"
            yield from compare_data(_PLACE, "tools", title, was.tools[name], now.tools[name])
    for field in compare_fields(was.settings, now.settings):
        yield _PLACE.field_change("setting", field)


def _answers(was: ParsedInteraction, now: ParsedInteraction, tools: dict[str, str]) -> Iterator[RunChange]:
    one, two = (each.exchange and each.exchange.reply for each in (was, now))
    if not isinstance(one, Reply) or not isinstance(two, Reply) or was.recorded.failure or now.recorded.failure:
        yield from _outcomes(was, now)
        return
    yield from compare_reply(_PLACE, "reply", "the reply", one.message.text, two.message.text)
    yield from compare_calls(_PLACE, _calls(one, tools), _calls(two, tools))
    if one.finish != two.finish:
        yield _PLACE.value_change("finish", "the finish reason", one.finish, two.finish)
    if one.model != two.model:
        yield _PLACE.value_change("model", "the model that answered", one.model, two.model)


def _outcomes(was: ParsedInteraction, now: ParsedInteraction) -> Iterator[RunChange]:
    before, after = describe_interaction(was).outcome, describe_interaction(now).outcome
    if before != after:
        yield _PLACE.make_change("fault", f"the outcome: {before} → {after}", before=before, after=after)


def _calls(reply: Reply, tools: dict[str, str]) -> list[CallNode]:
    calls = parse_calls([msgspec.to_builtins(part) for part in reply.message.parts])
    return [replace(call, tool=tools.get(call.tool, call.tool)) for call in calls]


def _requests(was: ParsedInteraction, now: ParsedInteraction) -> Iterator[RunChange]:
    kind: ChangeKind = "argument" if now.kind == "tool" else "request"
    if was.body_hash == now.body_hash and _request_key(was) == _request_key(now):
        return
    old, new = was.recorded.call, now.recorded.call
    if old.method.upper() != new.method.upper():
        yield _PLACE.value_change(kind, "the method", old.method, new.method)
    if old.url != new.url:
        yield _PLACE.value_change(kind, "the address", old.url, new.url)
    yield from compare_data(_PLACE, kind, f"the call of {_name(now)}", json_or_text(old.body), json_or_text(new.body))


def _results(was: ParsedInteraction, now: ParsedInteraction) -> Iterator[RunChange]:
    kind, name = _RESULTS.get(now.kind, _RESULTS["http"])
    before, after = was.recorded, now.recorded
    if before.failure or after.failure or before.stopped != after.stopped:
        yield from _outcomes(was, now)
        return
    if before.reply.status != after.reply.status:
        yield _PLACE.value_change(kind, "the status", before.reply.status, after.reply.status)
    one, two = (each.reply.body.decode("utf-8", "replace") for each in (before, after))
    yield from compare_reply(_PLACE, kind, f"{name.format(_name(now))} changed", one, two)


def _name(parsed: ParsedInteraction) -> str:
    url = parsed.recorded.request.url
    scheme, _, name = url.partition("://")
    return short_text(name if scheme in _RESULTS else url, 120)


def _replies(cassette: ParsedCassette) -> list[Any]:
    """The replies of models as facts, to sum up what they cost."""
    return [
        {"model_replied": {"turn": each.number, "reply": msgspec.to_builtins(each.exchange.reply)}}
        for each in cassette.interactions
        if each.exchange is not None and not each.recorded.failure and isinstance(each.exchange.reply, Reply)
    ]
