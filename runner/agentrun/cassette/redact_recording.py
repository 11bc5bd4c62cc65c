"""Redact the interactions of a long run: each message once, although every request repeats it.

Rule 1  A request that continues an earlier one is redacted with its new items and the `CONTEXT` items before them,
        because a value may be split between messages that follow each other.
Rule 2  Everything else is done by `redact_cassette`, and the result is the same as with whole requests.
Rule 3  A value that is found later is replaced in what was appended before: at once if a search of the log finds it,
        and in any case when the recording ends or is cut, because a value may be split.
Rule 4  If a rule counts items (`messages.3.content`), or the result does not fit together, the whole request is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from agentrun.cassette.interactions import Cassette, Interaction, PackedCall
from agentrun.cassette.json_body import JsonBody, SharedList, Value
from agentrun.cassette.leaks import CONTEXT, find_leaked_values, is_split
from agentrun.cassette.redaction import MIN_VALUE_LENGTH, RunRedaction, find_redacted_values, redact_cassette
from agentrun.core.package import RedactionRule
from agentrun.redactor import Redactor
from agentrun.wire import HttpCall, HttpReply

if TYPE_CHECKING:
    from agentrun.cassette.recording_log import RecordingLog

_NO_CALL = HttpCall("", "", (), b"")
_MARK = b"[redacted:"


def redact_recording(
    redaction: RunRedaction,
    rules: Sequence[RedactionRule],
    interactions: Sequence[Interaction],
    metadata: Mapping[str, Any],
) -> Cassette:
    """The cassette as it is written. Raises `storage.failed` if a secret could not be redacted."""
    if has_positions(rules):
        return redact_cassette(redaction, interactions, metadata)
    short = [replace(each, request=each.short_call(CONTEXT)) for each in interactions]
    clean = redact_cassette(redaction, short, metadata)
    restored, bodies = [], dict[int, JsonBody]()
    for before, reduced, after in zip(interactions, short, clean.interactions, strict=True):
        restored.append(_restore(redaction, before, reduced, after, bodies))
    return replace(clean, interactions=tuple(restored))


class RecordingRedaction:
    """Redacts the interactions of a recording, one at a time and in the order in which they end."""

    def __init__(self, redaction: RunRedaction, rules: Sequence[RedactionRule] = ()) -> None:
        self.redaction = redaction
        self._rules = rules
        self._bodies: dict[tuple[str, str], tuple[JsonBody, JsonBody]] = {}
        """The last request of each path and address, and its redacted form."""
        self._searched = 0
        """How many of the values that were found are not in the log, not even split."""

    def redact(self, interaction: Interaction, log: RecordingLog, number: int) -> Interaction:
        """The interaction as it is recorded. What it reveals is also redacted in the log, in which it is not yet.
        `number`: its own. Raises `storage.failed` if a secret could not be redacted."""
        before = self.redaction.learned_count
        clean = self._redact(interaction, log, number)
        if log.is_empty:
            self._searched = self.redaction.learned_count
        elif (new := self.redaction.learned(before)) and log.contains(Redactor(new, shortest=MIN_VALUE_LENGTH)):
            self.redact_earlier(log)
        return clean

    def redact_earlier(self, log: RecordingLog) -> bool:
        """Redact all that is in the log, if a value was found since. Returns whether that was necessary. Raises
        `storage.failed`."""
        if self._searched == self.redaction.learned_count:
            return False
        logged = log.read()
        known = RunRedaction((), self.redaction.redactor)  # the rules would select what is redacted already
        clean = redact_recording(known, (), [each.interaction for each in logged], {})
        log.rewrite(replace(each, interaction=one) for each, one in zip(logged, clean.interactions, strict=True))
        self._bodies.clear()  # they may have the value
        self._searched = self.redaction.learned_count
        return True

    def learn(self, documents: Iterable[bytes]) -> None:
        """Find values in the texts of a run that is resumed."""
        texts = tuple(Interaction(_NO_CALL, HttpReply(200, (), each)) for each in documents)
        self.redaction.learn(find_redacted_values(texts, self._rules))
        self.redaction.learn(find_leaked_values(Cassette(texts, {}, 0)))

    def _redact(self, interaction: Interaction, log: RecordingLog, number: int) -> Interaction:
        request = interaction.request
        if isinstance(request, HttpCall) or has_positions(self._rules):
            return redact_cassette(self.redaction, [interaction], {}, number).interactions[0]
        key = interaction.path, request.url
        known = self._bodies.get(key)
        if known is None:
            self._learn_placeholders(log.last_body(*key), request.json)
        context = 0 if known is not None and not self._is_split(request.json) else CONTEXT
        reduced = replace(interaction, request=interaction.short_call(context))
        after = redact_cassette(self.redaction, [reduced], {}, number).interactions[0]
        bodies = {} if known is None else {id(known[0]): known[1]}
        clean = _restore(self.redaction, interaction, reduced, after, bodies, context)
        if isinstance(clean.request, PackedCall):
            self._bodies[key] = request.json, clean.request.json
        return clean

    def _is_split(self, body: JsonBody) -> bool:
        """Whether the context has to be redacted with the new items."""
        short = body.shortened(CONTEXT)
        items = () if short is None else short[2].list_of(short[0])[:]
        return short is None or is_split(list(map(msgspec.json.decode, items)), self.redaction.redactor)

    def _learn_placeholders(self, earlier: JsonBody | None, body: JsonBody) -> None:
        """A run that is resumed repeats its messages. The log says which values in them were redacted."""
        for name, old in {} if earlier is None else earlier.fields.items():
            new = body.fields.get(name)
            if isinstance(old, SharedList) and isinstance(new, SharedList):
                for was, now in zip(old[:], new[:], strict=False):
                    if _MARK in was and was != now:
                        self.redaction.learn_placeholders(replace(_NO_CALL, body=was), replace(_NO_CALL, body=now))


def has_positions(rules: Sequence[RedactionRule]) -> bool:
    """Whether a rule counts items."""
    return any(step.isdigit() for rule in rules for step in (rule.path or "").split("."))


def _restore(
    redaction: RunRedaction,
    before: Interaction,
    reduced: Interaction,
    after: Interaction,
    bodies: dict[int, JsonBody],
    context: int = CONTEXT,
) -> Interaction:
    """The redacted interaction with its whole request. `bodies`: the redacted bodies, by the id of the original."""
    request, call = before.request, after.call
    if not isinstance(request, PackedCall):
        return after
    is_unchanged = call.body == reduced.call.body
    body = _whole_body(request.json, call.body, bodies, context, is_unchanged=is_unchanged)
    if body is None:
        (after,) = redact_cassette(redaction, [before], {}).interactions
        body = JsonBody.parse(after.call.body)
        if body is None:
            return after
    bodies[id(request.json)] = body
    return replace(after, request=PackedCall(call.method, call.url, call.headers, body))


def _whole_body(
    original: JsonBody, clean: bytes, bodies: Mapping[int, JsonBody], context: int, *, is_unchanged: bool
) -> JsonBody | None:
    """None: the whole request must be redacted."""
    short = original.shortened(context)
    if short is None:
        return original if is_unchanged else JsonBody.parse(clean)
    name, gone, _ = short
    assert original.base is not None, "it was shortened"
    base, parsed = bodies.get(id(original.base)), JsonBody.parse(clean)
    if base is original.base and is_unchanged:
        return original
    items = None if parsed is None else parsed.fields.get(name)
    old = None if base is None else base.fields.get(name)
    whole = original.fields[name]
    if base is None or parsed is None or not all(isinstance(each, SharedList) for each in (items, old, whole)):
        return None
    return _joined(base, parsed, name, gone, original, context)


def _joined(base: JsonBody, parsed: JsonBody, name: str, gone: int, original: JsonBody, size: int) -> JsonBody | None:
    """`size`: how many items before the new ones were redacted with them."""
    items, old, whole = parsed.fields[name], base.fields[name], original.fields[name]
    assert isinstance(items, SharedList)
    assert isinstance(old, SharedList)
    assert isinstance(whole, SharedList)
    if items.length != whole.length - gone or old.length != gone + size:
        return None
    context = _context(whole[gone : gone + size], old[gone:], items[:size])
    if context is None:
        return None
    is_continued = context == old[gone:]
    new = old.continued(items[size:]) if is_continued else SharedList(old[:gone] + context + items[size:])
    changes: dict[str, Value] = {
        each: value for each, value in parsed.fields.items() if each != name and value != base.fields.get(each)
    }
    removed = [each for each in base.fields if each not in original.fields]
    return base.derive({**changes, name: new}, removed, name if is_continued else None)


def _context(original: list[bytes], before: list[bytes], now: list[bytes]) -> list[bytes] | None:
    """The items before the new ones, as redacted in the earlier request and in this one. None: both changed one."""
    context = []
    for raw, old, new in zip(original, before, now, strict=True):
        if raw not in (old, new) and old != new:
            return None
        context.append(old if new == raw else new)
    return context
