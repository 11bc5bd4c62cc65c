"""In what two requests differ in meaning: tools, settings, and what was said before.

Prompts have a file of their own, `prompt.py`, because their lines come from templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from agentrun.canon import json_or_text, same
from agentrun.cassette.asked import Asked, Part, Said
from agentrun.cassette.values import Change, arrow, changes, sentence
from agentrun.spec.problems import visible
from agentrun.spec.text import join_words, json_text

Kind: TypeAlias = Literal[
    "instructions", "input", "tool", "setting", "history", "argument", "question", "delivery", "request", "absent"
]
MAX_LISTED = 5
"""Differences of one kind that are told."""
_MAX_COUNTED = 1000


class Difference(Struct, frozen=True):
    """One thing that is not as it was recorded. What may be a secret is masked in all of it."""

    kind: Kind
    place: str
    """What differs: `instructions line 4`, `tool refund`, `temperature`."""
    words: str
    """A sentence."""
    was: str | None = None
    """Of a prompt: the recorded line, cut around the first character that differs. Null: there was none."""
    now: str | None = None
    line: int | None = None
    """Of a prompt: its line, from 1; of one that is gone, in the recorded prompt."""
    template: str | None = None
    """The file that the line came from."""
    template_line: int | None = None
    because: str | None = None
    """What changed that line, if that can be told."""
    brief: str | None = None
    """Of what was said or done before: the change itself, as `the result of refund changed: refunded 20 → 25`."""

    def sentence(self) -> str:
        """All of it in one line, fit for a terminal."""
        because = f", because {self.because}" if self.because else ""
        return visible(f"{self.words}{self.origin()}{because}")

    def origin(self) -> str:
        if self.template is None:
            return ""
        return f", from {self.template}" + (f" line {self.template_line}" if self.template_line else "")

    def fields(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


def capped(kind: Kind, found: Iterable[Difference], what: str) -> Iterator[Difference]:
    """The first differences, and how many more there are."""
    counted = list(islice(found, _MAX_COUNTED))
    yield from counted[:MAX_LISTED]
    if len(counted) > MAX_LISTED:
        more = f"{'at least ' if len(counted) == _MAX_COUNTED else ''}{len(counted) - MAX_LISTED}"
        yield Difference(kind, "", f"and {more} more {what}")


def of_tools(was: Asked, now: Asked) -> Iterator[Difference]:
    for name in sorted(was.tools.keys() | now.tools.keys()):
        place = f"tool {name}"
        if name not in now.tools:
            yield Difference("tool", place, f"{place} was removed")
        elif name not in was.tools:
            yield Difference("tool", place, f"{place} was added")
        else:
            found = changes(was.tools[name], now.tools[name], whole_lists=True)
            yield from (Difference("tool", place, f"{place}: {_field(change)}") for change in found)
    if was.tools.keys() == now.tools.keys() and list(was.tools) != list(now.tools):
        yield Difference("tool", "tools", "the order of the tools changed")


def of_settings(was: Asked, now: Asked) -> Iterator[Difference]:
    """Settings of two formats have different names, so only what both have is compared then."""
    one, two = was.settings, now.settings
    if was.format != now.format:
        yield Difference("setting", "format", f"the request is for {now.format}, recorded was one for {was.format}")
        both = [key for key in one if key in two]
        one, two = {key: one[key] for key in both}, {key: two[key] for key in both}
    for change in changes(one, two):
        yield Difference("setting", change.path, change.words())


def of_history(was: Asked, now: Asked, start: int = 0) -> Iterator[Difference]:
    """The first message that differs. What comes after it follows from it."""
    pairs = list(zip(was.messages, now.messages, strict=False))
    number = next((n for n, (one, two) in enumerate(pairs[start:], start + 1) if not _equal(one, two)), None)
    if number is not None:
        one, two = pairs[number - 1]
        for words, brief in _said(number, one, two):
            yield Difference("history", f"message {number}", words, brief=brief)
    elif len(was.messages) != len(now.messages):
        words = f"the conversation has {len(now.messages)} messages, recorded were {len(was.messages)}"
        yield Difference("history", "messages", words)


def distance(was: Asked, now: Asked) -> int:
    """About how many differences there are. Cheap, because it is asked for every candidate."""
    one, two = set(was.instructions.split("\n")), set(now.instructions.split("\n"))
    settings = was.settings.keys() | now.settings.keys()
    tools = was.tools.keys() | now.tools.keys()
    return (
        max(len(one - two), len(two - one), was.instructions != now.instructions)
        + sum(not same(was.settings.get(key), now.settings.get(key)) for key in settings)
        + sum(not same(was.tools.get(name), now.tools.get(name)) for name in tools)
        + sum(not _equal(*pair) for pair in zip(was.messages, now.messages, strict=False))
        + abs(len(was.messages) - len(now.messages))
    )


def _field(change: Change) -> str:
    match change.change, change.was, change.now:
        case "added", _, _:
            return f"{change.path} was added"
        case "removed", _, _:
            return f"{change.path} was removed"
        case "changed", list(was), list(now):
            lost = [json_text(item).strip('"') for item in was if item not in now]
            gained = [json_text(item).strip('"') for item in now if item not in was]
            words = [f"lost {join_words(lost)}" if lost else "", f"gained {join_words(gained)}" if gained else ""]
            return f"{change.path} {join_words([word for word in words if word]) or 'has another order'}"
    return change.words()


def _said(number: int, was: Said, now: Said) -> Iterator[tuple[str, str | None]]:
    """A sentence, and the change in brief."""
    place = f"message {number}"
    if was.role != now.role:
        yield f"{place} is from the {now.role}, recorded was one from the {was.role}", None
        return
    place = f"{place} ({now.role})"
    for one, two in zip(was.parts, now.parts, strict=False):
        if not _equal_parts(one, two):
            one, two = _read(one, two)
            yield f"{place}: {_part(one, two)}", _brief(now.role, one, two)
            return
    yield f"{place} has {len(now.parts)} parts, recorded were {len(was.parts)}", None


def _read(was: Part, now: Part) -> tuple[Part, Part]:
    """Two results that are JSON in a text, as what the texts say."""
    if was.kind == now.kind == "result" and isinstance(was.value, str) and isinstance(now.value, str):
        one, two = json_or_text(was.value), json_or_text(now.value)
        if type(one) is type(two) and isinstance(one, dict | list) and not same(one, two):
            return replace(was, value=one), replace(now, value=two)
    return was, now


def _part(was: Part, now: Part) -> str:
    if (was.kind, was.name) != (now.kind, now.name):
        return f"it is {_named(now)}, recorded was {_named(was)}"
    match now.kind:
        case "text":
            return sentence("the text", was.value, now.value)
        case "other":
            return next(change.words("it") for change in changes(was.value, now.value))
        case "call" | "result":
            label = f"the {now.kind} of {now.name}" if now.name else f"the {now.kind}"
            change = next(changes(was.value, now.value))
            return f"{label}: {change.words()}" if change.path else change.words(label)


def _brief(role: str, was: Part, now: Part) -> str | None:
    if (was.kind, was.name) != (now.kind, now.name) or now.kind == "other":
        return None
    if now.kind == "text":
        who = "the model's reply" if role == "assistant" else "the message"
        return f"{who} changed: {arrow('', was.value, now.value)}"
    found = list(islice(changes(was.value, now.value), MAX_LISTED))
    fields = ", ".join(change.brief() for change in found)
    return f"the {now.kind} of {now.name or 'a tool'} changed: {fields}"


def _named(part: Part) -> str:
    match part.kind:
        case "text":
            return "a text"
        case "other":
            return "something else"
        case _:
            return f"a {part.kind} of {part.name}" if part.name else f"a {part.kind}"


def _equal(one: Said, two: Said) -> bool:
    return one.role == two.role and len(one.parts) == len(two.parts) and all(map(_equal_parts, one.parts, two.parts))


def _equal_parts(one: Part, two: Part) -> bool:
    return (one.kind, one.name) == (two.kind, two.name) and same(one.value, two.value)
