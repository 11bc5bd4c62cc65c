"""Explain a miss: the nearest recorded interaction, the differences, the likely cause and the command to run next.

Rule 1  This code runs only after a miss, so it may be slow. Its work is limited for any size of cassette and bodies.
Rule 2  The nearest interaction has the same address, or else the same kind; then it has the fewest differences; then it
        comes first. A tool call is never compared with a model request.
Rule 3  There is always a difference to show: if two requests mean the same, their bodies are compared path by path.
Rule 4  Possible secrets are masked in everything that is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import NOT_JSON, map_json, read_json, sorted_json
from agentrun.cassette import former_texts as former
from agentrun.cassette import request_diff as diff
from agentrun.cassette.interactions import Interaction
from agentrun.cassette.match import match_key
from agentrun.cassette.miss_context import MissContext, OverruledAnswer, likely_cause
from agentrun.cassette.parsed_request import ParsedRequest, parse_request
from agentrun.cassette.prompt_diff import compare_prompts
from agentrun.cassette.request_diff import DifferenceKind, RequestDifference
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible
from agentrun.wire import HttpCall

MAX_CANDIDATES = 50
_MAX_COUNTED = 100
_MAX_WORDS = 400
_MAX_NAME = 200
MISS_MESSAGE = "the cassette has no reply to this request"
PLAYED_TOO_OFTEN = "the request was recorded, but fewer times than the run sends it"
ALL_PLAYED = "every recorded interaction was already played"
CASSETTE_EMPTY = "the cassette is empty"

# Interactions that are not HTTP: the kind of a difference, its label, and the name of the interaction.
_FORMS: dict[str, tuple[DifferenceKind, str, str]] = {
    "tool": ("argument", "the call of {}: ", "call of {}"),
    "approval": ("question", "the question about {} changed: ", "question about {}"),
    "hook": ("question", "the request to the hook {} changed: ", "request to the hook {}"),
    "sink": ("delivery", "the delivery to {} changed: ", "delivery to {}"),
}


class MissExplanation(Struct, frozen=True):
    nearest: int | None
    """The number, from 1, of the recorded interaction that is most like the request."""
    line: int
    """Its line in the cassette file. 0: unknown."""
    differences: tuple[RequestDifference, ...]
    """At least one."""
    cause: str | None
    record_command: str | None
    path: str = ""
    """The run that sent the request, as in `Interaction.path`."""

    def message(self) -> str:
        return f"{MISS_MESSAGE}: {self.differences[0].sentence()}"

    def fields(self) -> dict[str, Any]:
        return {
            "nearest": self.nearest,
            "line": self.line,
            "difference": self.differences[0].sentence(),
            "differences": [difference.fields() for difference in self.differences],
            "cause": self.cause,
            "accept": self.record_command,
        }

    def lines(self) -> list[str]:
        who = f" of the sub-agent of call {escape_invisible(self.path)}" if self.path else ""
        where = f", on line {self.line} of the cassette" if self.line else ""
        near = "" if self.nearest is None else f"; the nearest is interaction {self.nearest}{where}"
        return [
            MISS_MESSAGE + who + near,
            *(line for difference in self.differences for line in _difference_lines(difference)),
            *([f"likely cause: {escape_invisible(self.cause)}"] if self.cause else []),
            *([f"to accept it: {escape_invisible(self.record_command)}"] if self.record_command else []),
        ]


def explain_miss(
    call: HttpCall,
    candidates: Sequence[tuple[int, Interaction]],
    metadata: Mapping[str, Any],
    context: MissContext | None,
    *,
    path: str = "",
    played: bool = False,
    empty: bool = False,
    overruled: OverruledAnswer | None = None,
) -> MissExplanation:
    """Explain why the cassette has no reply to a request.

    `candidates`: the unplayed interactions of the run that sent the request, in order. `played`: the request is on the
    cassette but was already played. `empty`: the cassette has no interactions. `overruled`: a recorded answer that was
    not used, which is the likely cause. The metadata describes the top run, so a sub-agent's lines get no reason.
    """
    because = None if overruled is None else overruled.why
    if overruled is not None and overruled.fix is not None and context is not None:
        because, context = f"{overruled.why}: {overruled.fix}", replace(context, record_command=None)
    nearest, line = None, 0
    if played or not candidates:
        words = PLAYED_TOO_OFTEN if played else CASSETTE_EMPTY if empty else ALL_PLAYED
        differences = [RequestDifference("absent", "", words)]
    else:
        if path:
            metadata = {key: value for key, value in metadata.items() if key == "sections"}
        now = _SentRequest(call, parse_request(call))
        differences = [RequestDifference("absent", "", f"the cassette has no further {describe_call(call)}")]
        if best := _nearest(now, candidates):
            nearest, interaction, was = best
            line, differences = interaction.line, _differences(was, now, metadata, context)
            because = because or _former_cause(was.call, call)
        because = because or likely_cause(metadata, context, {difference.kind for difference in differences})
    accept = None
    if context is not None and context.record_command is not None:
        # `new` does not run the tools again whose calls match.
        accept = f"{context.record_command} --record {'all' if context.needs_full_recording else 'new'}"
    return MissExplanation(nearest, line, tuple(map(_mask_and_cut, differences)), because, accept, path)


def _former_cause(recorded: HttpCall, call: HttpCall) -> str | None:
    """Why two requests differ only in what an older version of agentrun wrote differently."""
    texts_changed = f"this text of agentrun changed in version {former.TEXTS_CHANGED_IN}, and nothing else differs"
    try:
        was, now = read_json(recorded.body), read_json(call.body)
        for change, cause in (
            (former.update_texts, texts_changed),
            (former.update_json_words, former.PRINTED_AS_JSON),
            (former.without_empty_lines, former.TAGS_WITHOUT_LINES),
        ):
            # A text of agentrun itself must be equal as it is; what templates print is compared without its form.
            body = sorted_json(now if change is former.update_texts else map_json(now, text=change))
            changed = replace(recorded, body=sorted_json(map_json(was, text=change)))
            if match_key(changed) == match_key(replace(call, body=body)) and match_key(recorded) != match_key(call):
                return cause
    except (*NOT_JSON, RecursionError):
        pass
    return None


def _mask_and_cut(difference: RequestDifference) -> RequestDifference:
    """Names and keys are data too: they may contain a secret or be very long."""
    place, words = mask(difference.place)[:_MAX_WORDS], mask(difference.words)
    brief = None if difference.brief is None else mask(difference.brief)[:_MAX_WORDS]
    words = words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "…"
    return replace(difference, place=place, words=words, brief=brief)


class _SentRequest(NamedTuple):
    call: HttpCall
    parsed: ParsedRequest | None
    """None: it is not a request to a model."""


def _nearest(
    now: _SentRequest, candidates: Sequence[tuple[int, Interaction]]
) -> tuple[int, Interaction, _SentRequest] | None:
    """The most similar candidate of the same kind, among those for the same address, or else among all."""
    best: tuple[tuple[int, int], int, Interaction, _SentRequest] | None = None
    same = [pair for pair in candidates if pair[1].call.url == now.call.url]
    for number, interaction in (same or candidates)[:MAX_CANDIDATES]:
        was = _SentRequest(interaction.call, parse_request(interaction.call))
        distance = _address_distance(was, now)
        if distance is None:
            continue
        count = _count(was, now)
        if best is None or (distance, count) < best[0]:
            best = (distance, count), number, interaction, was
    return best and best[1:]


def _count(was: _SentRequest, now: _SentRequest) -> int:
    try:
        if was.parsed is not None and now.parsed is not None:
            return diff.request_distance(was.parsed, now.parsed)
        return sum(1 for _ in islice(diff.describe_differences(was.call, now.call), _MAX_COUNTED))
    except RecursionError:  # the body can be parsed, but is nested too deeply to compare
        return _MAX_COUNTED


def _address_distance(was: _SentRequest, now: _SentRequest) -> int | None:
    """0: the same address. None: not comparable."""
    if was.call.url == now.call.url:
        return 0
    if _is_call(was.call) or _is_call(now.call) or (was.parsed is None) != (now.parsed is None):
        return None
    if was.parsed is not None and now.parsed is not None:
        return 1 if was.parsed.format == now.parsed.format else 3
    return 1 if was.call.url.split("/")[:3] == now.call.url.split("/")[:3] else 2


def _differences(
    was: _SentRequest, now: _SentRequest, metadata: Mapping[str, Any], context: MissContext | None
) -> list[RequestDifference]:
    differences: list[RequestDifference] = []
    try:
        if was.parsed is not None and now.parsed is not None:
            differences = list(_compare_model_requests(was.parsed, now.parsed, metadata, context))
        if _is_call(now.call):
            differences = list(_compare_calls(was.call, now.call))
        if not differences:
            plain = (RequestDifference("request", "", words) for words in diff.describe_differences(was.call, now.call))
            differences = list(diff.cap_differences("request", plain, "differences"))
    except RecursionError:
        differences = [RequestDifference("request", "", "the body differs, but is nested too deeply to say where")]
    return differences or [RequestDifference("request", "", "the bytes of the request differ, but not its values")]


def _compare_model_requests(
    was: ParsedRequest, now: ParsedRequest, metadata: Mapping[str, Any], context: MissContext | None
) -> Iterator[RequestDifference]:
    yield from compare_prompts("instructions", was.instructions, now.instructions, metadata, context)
    start = 0
    if was.messages and now.messages and was.messages[0].role == now.messages[0].role == "user":
        one, two = was.messages[0].text, now.messages[0].text
        if one is not None and two is not None:
            start = 1
            yield from compare_prompts("input", one, two, metadata, context)
    yield from diff.cap_differences("tool", diff.compare_tools(was, now), "differences in tools")
    yield from diff.cap_differences("setting", diff.compare_settings(was, now), "settings")
    yield from diff.compare_history(was, now, start)


def _compare_calls(recorded: HttpCall, call: HttpCall) -> Iterator[RequestDifference]:
    scheme, _, name = call.url.partition("://")
    kind, label, _ = _FORMS[scheme]
    label = label.format(name)
    try:
        differences = (
            RequestDifference(kind, change.path, label + change.sentence("it"), brief=label + change.brief())
            for change in diff.compare_values(read_json(recorded.body), read_json(call.body))
        )
        yield from diff.cap_differences(kind, differences, "differences")
    except NOT_JSON:
        return


def _is_call(call: HttpCall) -> bool:
    return call.method.upper() == "CALL" and call.url.partition("://")[0] in _FORMS


def describe_call(call: HttpCall) -> str:
    if _is_call(call):
        scheme, _, name = call.url.partition("://")
        return _FORMS[scheme][2].format(mask(name)[:_MAX_NAME])
    if parse_request(call) is not None:
        return "request to a model"
    return f"request like {call.method} {mask(call.url)[:_MAX_NAME]}"


def _difference_lines(difference: RequestDifference) -> Iterator[str]:
    """One difference in a few lines. For prompts, both texts below each other."""
    if difference.was is None and difference.now is None:
        yield f"  {difference.sentence()}"
        return
    yield escape_invisible(f"  {difference.place}{difference.origin()}:")
    for label, text in (("recorded:", difference.was), ("now:", difference.now)):
        yield escape_invisible(f"    {label:<9} {'(nothing)' if text is None else text}").rstrip()
    if difference.was == difference.now:
        yield "    they differ in a value that is masked because it may be a secret"
    if difference.because:
        yield escape_invisible(f"    because {difference.because}")
