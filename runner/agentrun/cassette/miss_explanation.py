"""Why a request is not on the tape, in words: the nearest recording, what differs in meaning, why, and what to do.

Rule 1  Only on a miss, so it may take its time; but it is bounded, however long the tape and large the bodies are.
Rule 2  A recording is nearest that is for the same address, then one of the same kind; then the fewest differences
        count, then the order. A tool call is never compared with a request to a model.
Rule 3  Two requests that mean the same are compared path by path: there is always a difference to tell.
Rule 4  What may be a secret is masked in everything that is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import NOT_JSON, read_json
from agentrun.cassette.interactions import Interaction
from agentrun.cassette.miss_context import MissContext, OverruledAnswer, Template, likely_cause
from agentrun.cassette.parsed_request import ParsedRequest, parse_request
from agentrun.cassette.prompt_diff import compare_prompts
from agentrun.cassette.request_diff import (
    DifferenceKind,
    RequestDifference,
    cap_differences,
    compare_history,
    compare_settings,
    compare_tools,
    compare_values,
    describe_differences,
    request_distance,
)
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible
from agentrun.wire import HttpCall

__all__ = ["MissContext", "MissExplanation", "RequestDifference", "Template", "describe_differences", "explain_miss"]

MAX_CANDIDATES = 50
_MAX_COUNTED = 100
_MAX_WORDS = 400
_MAX_NAME = 200
MISS_MESSAGE = "the cassette has no reply to this request"
PLAYED_TOO_OFTEN = "it was recorded, but not this many times"
ALL_PLAYED = "every recorded interaction was played already"
CASSETTE_EMPTY = "there is nothing on it"

# Of what is not HTTP: what differs, how it is named before a path, and what is not there.
_FORMS: dict[str, tuple[DifferenceKind, str, str]] = {
    "tool": ("argument", "the call of {}: ", "call of {}"),
    "approval": ("question", "the question about {} changed: ", "question about {}"),
    "hook": ("question", "the question to the hook {} changed: ", "question to the hook {}"),
    "sink": ("delivery", "the delivery to {} changed: ", "delivery to {}"),
}


class MissExplanation(Struct, frozen=True):
    """The story of a miss."""

    nearest: int | None
    """The number, from 1, of the recorded interaction that is most like the request."""
    line: int
    """Where it stands in its file. 0: there is none, or that is not known."""
    differences: tuple[RequestDifference, ...]
    """At least one."""
    cause: str | None
    record_command: str | None
    """The command that records this anew."""
    path: str = ""
    """Which run asked, as in a recording."""

    def message(self) -> str:
        """One sentence."""
        return f"{MISS_MESSAGE}: {self.differences[0].sentence()}"

    def fields(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "nearest": self.nearest,
            "line": self.line,
            "difference": self.differences[0].sentence(),
            "differences": [difference.fields() for difference in self.differences],
            "cause": self.cause,
            "accept": self.record_command,
        }

    def lines(self) -> list[str]:
        """The whole story for a terminal."""
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
    here: MissContext | None,
    *,
    path: str = "",
    played: bool = False,
    empty: bool = False,
    overruled: OverruledAnswer | None = None,
) -> MissExplanation:
    """Why a request is on no tape.

    `candidates`: the interactions that were not played yet, of the run that asks, in order. `played`: the request is
    on the tape, but was played already. `empty`: nothing is on the tape. `overruled`: a recorded answer that did not
    count, which is the likely cause. The metadata tells of the run itself, so a sub-agent's lines have no reason.
    """
    because = None if overruled is None else overruled.why
    if overruled is not None and overruled.fix is not None and here is not None:
        because, here = f"{overruled.why}: {overruled.fix}", replace(here, record_command=None)
    if played or not candidates:
        found = (
            RequestDifference("absent", "", PLAYED_TOO_OFTEN if played else CASSETTE_EMPTY if empty else ALL_PLAYED),
        )
        return _make_explanation(None, 0, found, because, here, path)
    if path:
        metadata = {key: value for key, value in metadata.items() if key == "sections"}
    now = parse_request(call)
    best = _nearest(call, now, candidates)
    if best is None:
        cause = because or likely_cause(metadata, here, ())
        return _make_explanation(
            None,
            0,
            (RequestDifference("absent", "", f"the tape holds no further {describe_call(call)}"),),
            cause,
            here,
            path,
        )
    number, interaction = best
    was = parse_request(interaction.call) if now is not None else None
    told = tuple(_differences(interaction.call, was, call, now, metadata, here))
    cause = because or likely_cause(metadata, here, {difference.kind for difference in told})
    return _make_explanation(number, interaction.line, told, cause, here, path)


def _make_explanation(
    number: int | None,
    line: int,
    told: tuple[RequestDifference, ...],
    cause: str | None,
    here: MissContext | None,
    path: str,
) -> MissExplanation:
    accept = None
    if here is not None and here.record_command is not None:
        # new: no tool that fits runs again
        accept = f"{here.record_command} --record {'all' if here.needs_full_recording else 'new'}"
    return MissExplanation(number, line, tuple(map(_mask_and_cut, told)), cause, accept, path)


def _mask_and_cut(difference: RequestDifference) -> RequestDifference:
    """Names and keys are data too: one may be a secret, or a megabyte long."""
    place, words = mask(difference.place)[:_MAX_WORDS], mask(difference.words)
    brief = None if difference.brief is None else mask(difference.brief)[:_MAX_WORDS]
    words = words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "…"
    return replace(difference, place=place, words=words, brief=brief)


def _nearest(
    call: HttpCall, now: ParsedRequest | None, candidates: Sequence[tuple[int, Interaction]]
) -> tuple[int, Interaction] | None:
    """The most similar candidate of the same kind."""
    best: tuple[tuple[int, int], int, Interaction] | None = None
    for number, interaction in _select_candidates(call, candidates):
        was = parse_request(interaction.call) if now is not None else None
        far = _address_distance(call, now, interaction.call, was)
        if far is None:
            continue
        count = _count(interaction.call, was, call, now)
        if best is None or (far, count) < best[0]:
            best = (far, count), number, interaction
    return best and best[1:]


def _count(recorded: HttpCall, was: ParsedRequest | None, call: HttpCall, now: ParsedRequest | None) -> int:
    try:
        if now is not None and was is not None:
            return request_distance(was, now)
        return sum(1 for _ in islice(describe_differences(recorded, call), _MAX_COUNTED))
    except RecursionError:  # a body as deep as can be read is too deep to be walked
        return _MAX_COUNTED


def _select_candidates(
    call: HttpCall, candidates: Sequence[tuple[int, Interaction]]
) -> Iterable[tuple[int, Interaction]]:
    """At most so many, those for the same address first."""
    same = [pair for pair in candidates if pair[1].call.url == call.url]
    return (same or list(candidates))[:MAX_CANDIDATES]


def _address_distance(
    call: HttpCall, now: ParsedRequest | None, recorded: HttpCall, was: ParsedRequest | None
) -> int | None:
    """0: the same address. None: not to be compared."""
    if call.url == recorded.url:
        return 0
    if _is_call(call) or _is_call(recorded) or (now is None) != (parse_request(recorded) is None):
        return None
    if now is not None and was is not None:
        return 1 if now.format == was.format else 3
    return 1 if call.url.split("/")[:3] == recorded.url.split("/")[:3] else 2


def _differences(
    recorded: HttpCall,
    was: ParsedRequest | None,
    call: HttpCall,
    now: ParsedRequest | None,
    metadata: Mapping[str, Any],
    here: MissContext | None,
) -> list[RequestDifference]:
    try:
        found = list(_compare_model_requests(was, now, metadata, here)) if was is not None and now is not None else []
        if _is_call(call):
            found = list(_compare_calls(recorded, call))
        if not found:
            plain = (RequestDifference("request", "", words) for words in describe_differences(recorded, call))
            found = list(cap_differences("request", plain, "differences"))
    except RecursionError:
        found = [RequestDifference("request", "", "the body differs, and is nested too deeply to say where")]
    return found or [RequestDifference("request", "", "it differs in nothing that can be told")]


def _compare_model_requests(
    was: ParsedRequest, now: ParsedRequest, metadata: Mapping[str, Any], here: MissContext | None
) -> Iterator[RequestDifference]:
    templates = () if here is None else here.instructions
    yield from compare_prompts("instructions", was.instructions, now.instructions, templates, metadata, here)
    start = 0
    if was.messages and now.messages and was.messages[0].role == now.messages[0].role == "user":
        one, two = was.messages[0].text, now.messages[0].text
        if one is not None and two is not None:
            start = 1
            templates = () if here is None or here.input is None else (here.input,)
            yield from compare_prompts("input", one, two, templates, metadata, here)
    yield from cap_differences("tool", compare_tools(was, now), "differences of tools")
    yield from cap_differences("setting", compare_settings(was, now), "settings")
    yield from compare_history(was, now, start)


def _compare_calls(recorded: HttpCall, call: HttpCall) -> Iterator[RequestDifference]:
    """What is not HTTP: the values by their paths."""
    scheme, _, name = call.url.partition("://")
    kind, label, _ = _FORMS[scheme]
    try:
        found = compare_values(read_json(recorded.body), read_json(call.body))
        told = (
            RequestDifference(
                kind, change.path, label.format(name) + change.sentence("it"), brief=label.format(name) + change.brief()
            )
            for change in found
        )
        yield from cap_differences(kind, told, "differences")
    except NOT_JSON:
        return


def _is_call(call: HttpCall) -> bool:
    return call.method.upper() == "CALL" and call.url.partition("://")[0] in _FORMS


def describe_call(call: HttpCall) -> str:
    """What a request is: `question about refund`."""
    if _is_call(call):
        scheme, _, name = call.url.partition("://")
        return _FORMS[scheme][2].format(mask(name)[:_MAX_NAME])
    if parse_request(call) is not None:
        return "request to a model"
    return f"request like {call.method} {mask(call.url)[:_MAX_NAME]}"


def _difference_lines(difference: RequestDifference) -> Iterator[str]:
    """One difference in a few lines: prompts with both texts, one below the other."""
    if difference.was is None and difference.now is None:
        yield f"  {difference.sentence()}"
        return
    yield escape_invisible(f"  {difference.place}{difference.origin()}:")
    for label, text in (("recorded:", difference.was), ("now:", difference.now)):
        yield escape_invisible(f"    {label:<9} {'(nothing)' if text is None else text}").rstrip()
    if difference.was == difference.now:
        yield "    they differ in what may be a secret"
    if difference.because:
        yield escape_invisible(f"    because {difference.because}")
