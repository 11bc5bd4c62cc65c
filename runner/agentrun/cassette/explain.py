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

from agentrun.canon import NOT_JSON, read_json
from agentrun.cassette.asked import Asked, asked
from agentrun.cassette.cause import likely
from agentrun.cassette.difference import Difference, Kind, capped, distance, of_history, of_settings, of_tools
from agentrun.cassette.here import Here, Overruled, Template
from agentrun.cassette.prompt import of_prompt
from agentrun.cassette.tape import Interaction
from agentrun.cassette.values import changes, differences
from agentrun.secret import mask
from agentrun.spec.problems import visible
from agentrun.wire import HttpCall

__all__ = ["Difference", "Explanation", "Here", "Template", "differences", "explain"]

MAX_CANDIDATES = 50
_MAX_COUNTED = 100
_MAX_WORDS = 400
_MAX_NAME = 200
HEAD = "the cassette has no reply to this request"
AGAIN = "it was recorded, but not this many times"
ALL_PLAYED = "every recorded interaction was played already"
EMPTY = "there is nothing on it"

# Of what is not HTTP: what differs, how it is named before a path, and what is not there.
_FORMS: dict[str, tuple[Kind, str, str]] = {
    "tool": ("argument", "the call of {}: ", "call of {}"),
    "approval": ("question", "the question about {} changed: ", "question about {}"),
    "hook": ("question", "the question to the hook {} changed: ", "question to the hook {}"),
    "sink": ("delivery", "the delivery to {} changed: ", "delivery to {}"),
}


class Explanation(Struct, frozen=True):
    """The story of a miss."""

    nearest: int | None
    """The number, from 1, of the recorded interaction that is most like the request."""
    line: int
    """Where it stands in its file. 0: there is none, or that is not known."""
    differences: tuple[Difference, ...]
    """At least one."""
    cause: str | None
    accept: str | None
    """The command that records this anew."""
    path: str = ""
    """Which run asked, as in a recording."""

    def message(self) -> str:
        """One sentence."""
        return f"{HEAD}: {self.differences[0].sentence()}"

    def fields(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "nearest": self.nearest,
            "line": self.line,
            "difference": self.differences[0].sentence(),
            "differences": [difference.fields() for difference in self.differences],
            "cause": self.cause,
            "accept": self.accept,
        }

    def lines(self) -> list[str]:
        """The whole story for a terminal."""
        who = f" of the sub-agent of call {visible(self.path)}" if self.path else ""
        where = f", on line {self.line} of the cassette" if self.line else ""
        near = "" if self.nearest is None else f"; the nearest is interaction {self.nearest}{where}"
        return [
            HEAD + who + near,
            *(line for difference in self.differences for line in _told(difference)),
            *([f"likely cause: {visible(self.cause)}"] if self.cause else []),
            *([f"to accept it: {visible(self.accept)}"] if self.accept else []),
        ]


def explain(
    call: HttpCall,
    candidates: Sequence[tuple[int, Interaction]],
    metadata: Mapping[str, Any],
    here: Here | None,
    *,
    path: str = "",
    played: bool = False,
    empty: bool = False,
    overruled: Overruled | None = None,
) -> Explanation:
    """Why a request is on no tape.

    `candidates`: the interactions that were not played yet, of the run that asks, in order. `played`: the request is
    on the tape, but was played already. `empty`: nothing is on the tape. `overruled`: a recorded answer that did not
    count, which is the likely cause. The metadata tells of the run itself, so a sub-agent's lines have no reason.
    """
    because = None if overruled is None else overruled.why
    if overruled is not None and overruled.fix is not None and here is not None:
        because, here = f"{overruled.why}: {overruled.fix}", replace(here, accept=None)
    if played or not candidates:
        found = (Difference("absent", "", AGAIN if played else EMPTY if empty else ALL_PLAYED),)
        return _explained(None, 0, found, because, here, path)
    if path:
        metadata = {key: value for key, value in metadata.items() if key == "sections"}
    now = asked(call)
    best = _nearest(call, now, candidates)
    if best is None:
        cause = because or likely(metadata, here, ())
        return _explained(
            None, 0, (Difference("absent", "", f"the tape holds no further {named(call)}"),), cause, here, path
        )
    number, interaction = best
    was = asked(interaction.call) if now is not None else None
    told = tuple(_differences(interaction.call, was, call, now, metadata, here))
    cause = because or likely(metadata, here, {difference.kind for difference in told})
    return _explained(number, interaction.line, told, cause, here, path)


def _explained(
    number: int | None,
    line: int,
    told: tuple[Difference, ...],
    cause: str | None,
    here: Here | None,
    path: str,
) -> Explanation:
    accept = None
    if here is not None and here.accept is not None:
        accept = f"{here.accept} --record {'all' if here.whole else 'new'}"  # new: no tool that fits runs again
    return Explanation(number, line, tuple(map(_tidy, told)), cause, accept, path)


def _tidy(difference: Difference) -> Difference:
    """Names and keys are data too: one may be a secret, or a megabyte long."""
    place, words = mask(difference.place)[:_MAX_WORDS], mask(difference.words)
    brief = None if difference.brief is None else mask(difference.brief)[:_MAX_WORDS]
    words = words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "…"
    return replace(difference, place=place, words=words, brief=brief)


def _nearest(
    call: HttpCall, now: Asked | None, candidates: Sequence[tuple[int, Interaction]]
) -> tuple[int, Interaction] | None:
    """The most similar candidate of the same kind."""
    best: tuple[tuple[int, int], int, Interaction] | None = None
    for number, interaction in _worth_a_look(call, candidates):
        was = asked(interaction.call) if now is not None else None
        far = _strangeness(call, now, interaction.call, was)
        if far is None:
            continue
        count = _count(interaction.call, was, call, now)
        if best is None or (far, count) < best[0]:
            best = (far, count), number, interaction
    return best and best[1:]


def _count(recorded: HttpCall, was: Asked | None, call: HttpCall, now: Asked | None) -> int:
    try:
        if now is not None and was is not None:
            return distance(was, now)
        return sum(1 for _ in islice(differences(recorded, call), _MAX_COUNTED))
    except RecursionError:  # a body as deep as can be read is too deep to be walked
        return _MAX_COUNTED


def _worth_a_look(call: HttpCall, candidates: Sequence[tuple[int, Interaction]]) -> Iterable[tuple[int, Interaction]]:
    """At most so many, those for the same address first."""
    same = [pair for pair in candidates if pair[1].call.url == call.url]
    return (same or list(candidates))[:MAX_CANDIDATES]


def _strangeness(call: HttpCall, now: Asked | None, recorded: HttpCall, was: Asked | None) -> int | None:
    """0: the same address. None: not to be compared."""
    if call.url == recorded.url:
        return 0
    if _form(call) or _form(recorded) or (now is None) != (asked(recorded) is None):
        return None
    if now is not None and was is not None:
        return 1 if now.format == was.format else 3
    return 1 if call.url.split("/")[:3] == recorded.url.split("/")[:3] else 2


def _differences(
    recorded: HttpCall,
    was: Asked | None,
    call: HttpCall,
    now: Asked | None,
    metadata: Mapping[str, Any],
    here: Here | None,
) -> list[Difference]:
    try:
        found = list(_of_models(was, now, metadata, here)) if was is not None and now is not None else []
        if _form(call):
            found = list(_of_form(recorded, call))
        if not found:
            plain = (Difference("request", "", words) for words in differences(recorded, call))
            found = list(capped("request", plain, "differences"))
    except RecursionError:
        found = [Difference("request", "", "the body differs, and is nested too deeply to say where")]
    return found or [Difference("request", "", "it differs in nothing that can be told")]


def _of_models(was: Asked, now: Asked, metadata: Mapping[str, Any], here: Here | None) -> Iterator[Difference]:
    templates = () if here is None else here.instructions
    yield from of_prompt("instructions", was.instructions, now.instructions, templates, metadata, here)
    start = 0
    if was.messages and now.messages and was.messages[0].role == now.messages[0].role == "user":
        one, two = was.messages[0].text, now.messages[0].text
        if one is not None and two is not None:
            start = 1
            templates = () if here is None or here.input is None else (here.input,)
            yield from of_prompt("input", one, two, templates, metadata, here)
    yield from capped("tool", of_tools(was, now), "differences of tools")
    yield from capped("setting", of_settings(was, now), "settings")
    yield from of_history(was, now, start)


def _of_form(recorded: HttpCall, call: HttpCall) -> Iterator[Difference]:
    """What is not HTTP: the values by their paths."""
    scheme, _, name = call.url.partition("://")
    kind, label, _ = _FORMS[scheme]
    try:
        found = changes(read_json(recorded.body), read_json(call.body))
        told = (
            Difference(
                kind, change.path, label.format(name) + change.words("it"), brief=label.format(name) + change.brief()
            )
            for change in found
        )
        yield from capped(kind, told, "differences")
    except NOT_JSON:
        return


def _form(call: HttpCall) -> bool:
    return call.method.upper() == "CALL" and call.url.partition("://")[0] in _FORMS


def named(call: HttpCall) -> str:
    """What a request is: `question about refund`."""
    if _form(call):
        scheme, _, name = call.url.partition("://")
        return _FORMS[scheme][2].format(mask(name)[:_MAX_NAME])
    if asked(call) is not None:
        return "request to a model"
    return f"request like {call.method} {mask(call.url)[:_MAX_NAME]}"


def _told(difference: Difference) -> Iterator[str]:
    """One difference in a few lines: prompts with both texts, one below the other."""
    if difference.was is None and difference.now is None:
        yield f"  {difference.sentence()}"
        return
    yield visible(f"  {difference.place}{difference.origin()}:")
    for label, text in (("recorded:", difference.was), ("now:", difference.now)):
        yield visible(f"    {label:<9} {'(nothing)' if text is None else text}").rstrip()
    if difference.was == difference.now:
        yield "    they differ in what may be a secret"
    if difference.because:
        yield visible(f"    because {difference.because}")
