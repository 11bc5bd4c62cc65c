"""Redact the interactions of a long run: each message once, although every request repeats it.

Rule 1  A request that continues an earlier one is redacted with its new items and the `CONTEXT` items before them,
        because a value may be split between messages that follow each other.
Rule 2  Everything else is done by `redact_cassette`, and the result is the same as with whole requests.
Rule 3  If a rule counts items (`messages.3.content`), or the result does not fit together, the whole request is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from agentrun.cassette.interactions import Cassette, Interaction, PackedCall
from agentrun.cassette.json_body import JsonBody, SharedList, Value
from agentrun.cassette.leaks import CONTEXT
from agentrun.cassette.redaction import RunRedaction, redact_cassette
from agentrun.core.package import RedactionRule


def redact_recording(
    redaction: RunRedaction,
    rules: Sequence[RedactionRule],
    interactions: Sequence[Interaction],
    metadata: Mapping[str, Any],
) -> Cassette:
    """The cassette as it is written. Raises `storage.failed` if a secret could not be redacted."""
    if any(step.isdigit() for rule in rules for step in (rule.path or "").split(".")):
        return redact_cassette(redaction, interactions, metadata)
    short = [replace(each, request=each.short_call(CONTEXT)) for each in interactions]
    clean = redact_cassette(redaction, short, metadata)
    restored, bodies = [], dict[int, JsonBody]()
    for before, reduced, after in zip(interactions, short, clean.interactions, strict=True):
        restored.append(_restore(redaction, before, reduced, after, bodies))
    return replace(clean, interactions=tuple(restored))


def _restore(
    redaction: RunRedaction, before: Interaction, reduced: Interaction, after: Interaction, bodies: dict[int, JsonBody]
) -> Interaction:
    """The redacted interaction with its whole request. `bodies`: the redacted bodies, by the id of the original."""
    request, call = before.request, after.call
    if not isinstance(request, PackedCall):
        return after
    is_unchanged = call.body == reduced.call.body
    body = _whole_body(request.json, call.body, bodies, is_unchanged=is_unchanged)
    if body is None:
        (after,) = redact_cassette(redaction, [before], {}).interactions
        body = JsonBody.parse(after.call.body)
        if body is None:
            return after
    bodies[id(request.json)] = body
    return replace(after, request=PackedCall(call.method, call.url, call.headers, body))


def _whole_body(
    original: JsonBody, clean: bytes, bodies: Mapping[int, JsonBody], *, is_unchanged: bool
) -> JsonBody | None:
    """None: the whole request must be redacted."""
    short = original.shortened(CONTEXT)
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
    return _joined(base, parsed, name, gone, original)


def _joined(base: JsonBody, parsed: JsonBody, name: str, gone: int, original: JsonBody) -> JsonBody | None:
    items, old, whole = parsed.fields[name], base.fields[name], original.fields[name]
    assert isinstance(items, SharedList)
    assert isinstance(old, SharedList)
    assert isinstance(whole, SharedList)
    if items.length != whole.length - gone or old.length != gone + CONTEXT:
        return None
    context = _context(whole[gone : gone + CONTEXT], old[gone:], items[:CONTEXT])
    if context is None:
        return None
    is_continued = context == old[gone:]
    new = old.continued(items[CONTEXT:]) if is_continued else SharedList(old[:gone] + context + items[CONTEXT:])
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
