"""Differences of two requests in tools, settings, earlier messages and plain values, in words.

Rule 1  Secrets are masked before anything is cut, so that no part of a key is shown.
Rule 2  A long text is shown from just before the difference, and never as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from agentrun.canonical_json import NOT_JSON, json_or_text, read_json, same_json
from agentrun.cassette.parsed_request import ParsedRequest, RequestMessage, RequestPart
from agentrun.secret import mask, names_credential
from agentrun.spec.problems import escape_invisible
from agentrun.spec.safe_text import common_prefix_length, join_words, json_text
from agentrun.wire import HttpCall

DifferenceKind: TypeAlias = Literal[
    "instructions", "input", "tool", "setting", "history", "argument", "question", "delivery", "request", "absent"
]
MAX_LISTED = 5
"""Differences of one kind that are listed."""
_MAX_COUNTED = 1000
MAX_EXCERPT = 100
_BEFORE = 15


class RequestDifference(Struct, frozen=True):
    """One difference from the cassette. Possible secrets are masked in all fields."""

    kind: DifferenceKind
    place: str
    """The part that differs: `instructions line 4`, `tool refund`, `temperature`."""
    words: str
    was: str | None = None
    """In a prompt: the recorded line, cut around the first character that differs. Null: the line is new."""
    now: str | None = None
    line: int | None = None
    """In a prompt: the line number, from 1; for a removed line, in the recorded prompt."""
    template: str | None = None
    template_line: int | None = None
    because: str | None = None
    """What changed that line, if it is known."""
    brief: str | None = None
    """In an earlier message: only the change, as `the result of refund changed: refunded 20 → 25`."""

    def sentence(self) -> str:
        """The whole difference in one line, safe for a terminal."""
        because = f", because {self.because}" if self.because else ""
        return escape_invisible(f"{self.words}{self.origin()}{because}")

    def origin(self) -> str:
        if self.template is None:
            return ""
        return f", from {self.template}" + (f" line {self.template_line}" if self.template_line else "")

    def fields(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


def cap_differences(kind: DifferenceKind, every: Iterable[RequestDifference], what: str) -> Iterator[RequestDifference]:
    """The first differences, and how many more there are."""
    counted = list(islice(every, _MAX_COUNTED))
    yield from counted[:MAX_LISTED]
    if len(counted) > MAX_LISTED:
        more = f"{'at least ' if len(counted) == _MAX_COUNTED else ''}{len(counted) - MAX_LISTED}"
        yield RequestDifference(kind, "", f"and {more} more {what}")


def compare_tools(was: ParsedRequest, now: ParsedRequest) -> Iterator[RequestDifference]:
    for name in sorted(was.tools.keys() | now.tools.keys()):
        place = f"tool {name}"
        if name not in now.tools:
            yield RequestDifference("tool", place, f"{place} was removed")
        elif name not in was.tools:
            yield RequestDifference("tool", place, f"{place} was added")
        else:
            for change in compare_values(was.tools[name], now.tools[name], whole_lists=True):
                yield RequestDifference("tool", place, f"{place}: {_describe_tool_change(change)}")
    if was.tools.keys() == now.tools.keys() and list(was.tools) != list(now.tools):
        yield RequestDifference("tool", "tools", "the order of the tools changed")


def compare_settings(was: ParsedRequest, now: ParsedRequest) -> Iterator[RequestDifference]:
    """If the formats differ, their settings have different names, so only common settings are compared."""
    one, two = was.settings, now.settings
    if was.format != now.format:
        words = f"the request is for {now.format}, but the cassette has one for {was.format}"
        yield RequestDifference("setting", "format", words)
        both = [key for key in one if key in two]
        one, two = {key: one[key] for key in both}, {key: two[key] for key in both}
    for change in compare_values(one, two):
        yield RequestDifference("setting", change.path, change.sentence())


def compare_history(was: ParsedRequest, now: ParsedRequest, start: int = 0) -> Iterator[RequestDifference]:
    """The first message that differs. Later differences follow from it. `start`: messages that are not compared."""
    equal = count_equal_messages(was, now, start)
    if equal < min(len(was.messages), len(now.messages)):
        number = equal + 1
        for words, brief in _compare_messages(number, was.messages[equal], now.messages[equal]):
            yield RequestDifference("history", f"message {number}", words, brief=brief)
    elif len(was.messages) != len(now.messages):
        words = f"the conversation has {len(now.messages)} messages, but the cassette has {len(was.messages)}"
        yield RequestDifference("history", "messages", words)


def count_equal_messages(was: ParsedRequest, now: ParsedRequest, start: int = 0) -> int:
    """How many messages are equal before the first that differs. `start`: messages that are not compared."""
    both = range(start, min(len(was.messages), len(now.messages)))
    return next((at for at in both if not _is_equal_message(was.messages[at], now.messages[at])), max(start, both.stop))


def request_distance(was: ParsedRequest, now: ParsedRequest) -> int:
    """An estimate of the number of differences. Cheap, because it is computed for every candidate."""
    one, two = set(was.instructions.split("\n")), set(now.instructions.split("\n"))
    settings = was.settings.keys() | now.settings.keys()
    tools = was.tools.keys() | now.tools.keys()
    return (
        max(len(one - two), len(two - one), was.instructions != now.instructions)
        + sum(not same_json(was.settings.get(key), now.settings.get(key)) for key in settings)
        + sum(not same_json(was.tools.get(name), now.tools.get(name)) for name in tools)
        + sum(not _is_equal_message(*pair) for pair in zip(was.messages, now.messages, strict=False))
        + abs(len(was.messages) - len(now.messages))
    )


def _describe_tool_change(change: ValueChange) -> str:
    match change.change, change.was, change.now:
        case "added", _, _:
            return f"{change.path} was added"
        case "removed", _, _:
            return f"{change.path} was removed"
        case "changed", list(was), list(now):
            lost = [json_text(item).strip('"') for item in was if item not in now]
            gained = [json_text(item).strip('"') for item in now if item not in was]
            words = [f"lost {join_words(lost)}" if lost else "", f"gained {join_words(gained)}" if gained else ""]
            return f"{change.path} {join_words([word for word in words if word]) or 'has a different order'}"
    return change.sentence()


def _compare_messages(number: int, was: RequestMessage, now: RequestMessage) -> Iterator[tuple[str, str | None]]:
    """A sentence, and its brief form."""
    place = f"message {number}"
    if was.role != now.role:
        yield f"{place} is from the {now.role}, but the cassette has one from the {was.role}", None
        return
    place = f"{place} ({now.role})"
    for one, two in zip(was.parts, now.parts, strict=False):
        if not _is_equal_part(one, two):
            one, two = _parse_results(one, two)
            yield f"{place}: {_describe_part_change(one, two)}", _brief(now.role, one, two)
            return
    yield f"{place} has {len(now.parts)} parts, but the cassette has {len(was.parts)}", None


def _parse_results(was: RequestPart, now: RequestPart) -> tuple[RequestPart, RequestPart]:
    """If two results are texts with JSON in them, parse them."""
    if was.kind == now.kind == "result" and isinstance(was.value, str) and isinstance(now.value, str):
        one, two = json_or_text(was.value), json_or_text(now.value)
        if type(one) is type(two) and isinstance(one, dict | list) and not same_json(one, two):
            return replace(was, value=one), replace(now, value=two)
    return was, now


def _describe_part_change(was: RequestPart, now: RequestPart) -> str:
    if (was.kind, was.name) != (now.kind, now.name):
        return f"it is {_describe_part(now)}, but the cassette has {_describe_part(was)}"
    match now.kind:
        case "text":
            return change_sentence("the text", was.value, now.value)
        case "other":
            return next(change.sentence("it") for change in compare_values(was.value, now.value))
        case "call" | "result":
            label = f"the {now.kind} of {now.name}" if now.name else f"the {now.kind}"
            change = next(compare_values(was.value, now.value))
            return f"{label}: {change.sentence()}" if change.path else change.sentence(label)


def _brief(role: str, was: RequestPart, now: RequestPart) -> str | None:
    if (was.kind, was.name) != (now.kind, now.name) or now.kind == "other":
        return None
    if now.kind == "text":
        who = "the model's reply" if role == "assistant" else "the message"
        return f"{who} changed: {change_arrow('', was.value, now.value)}"
    fields = ", ".join(change.brief() for change in islice(compare_values(was.value, now.value), MAX_LISTED))
    return f"the {now.kind} of {now.name or 'a tool'} changed: {fields}"


def _describe_part(part: RequestPart) -> str:
    if part.kind == "other":
        return "another kind of content"
    return f"a {part.kind} of {part.name}" if part.name else f"a {part.kind}"


def _is_equal_message(one: RequestMessage, two: RequestMessage) -> bool:
    return one.role == two.role and len(one.parts) == len(two.parts) and all(map(_is_equal_part, one.parts, two.parts))


def _is_equal_part(one: RequestPart, two: RequestPart) -> bool:
    return (one.kind, one.name) == (two.kind, two.name) and same_json(one.value, two.value)


class ValueChange(Struct, frozen=True):
    path: str
    """Dotted, with `[n]` for an item; empty for the values themselves."""
    change: Literal["added", "removed", "changed", "length"]
    was: Any = None
    now: Any = None

    def sentence(self, place: str = "the body") -> str:
        path = self.path or place
        match self.change:
            case "added":
                return f"{path} is new: {json_text(self.now, path)}"
            case "removed":
                return f"{path} is missing, but the cassette has {json_text(self.was, path)}"
            case "length":
                return f"{path} has {self.now} items, but the cassette has {self.was}"
        return change_sentence(path, self.was, self.now)

    def brief(self) -> str:
        """`amount 20 → 25`."""
        if self.change in ("added", "removed"):
            return f"{self.path} is {'new' if self.change == 'added' else 'gone'}"
        what = "has items: " if self.change == "length" else ""
        return f"{self.path} {what}{change_arrow(self.path, self.was, self.now)}".lstrip()


def compare_values(was: Any, now: Any, path: str = "", *, whole_lists: bool = False) -> Iterator[ValueChange]:
    """All differences of two values. With `whole_lists`, a list of scalars is compared as one value."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            place = f"{path}.{key}" if path else key
            if key not in now:
                yield ValueChange(place, "removed", was=was[key])
            elif key not in was:
                yield ValueChange(place, "added", now=now[key])
            else:
                yield from compare_values(was[key], now[key], place, whole_lists=whole_lists)
    elif isinstance(was, list) and isinstance(now, list) and not (whole_lists and _flat(was) and _flat(now)):
        for index, (one, two) in enumerate(zip(was, now, strict=False)):
            yield from compare_values(one, two, f"{path}[{index}]", whole_lists=whole_lists)
        if len(was) != len(now):
            yield ValueChange(path, "length", len(was), len(now))
    elif not same_json(was, now):
        yield ValueChange(path, "changed", was, now)


def describe_differences(recorded: HttpCall, call: HttpCall) -> Iterator[str]:
    if recorded.method.upper() != call.method.upper():
        yield f"the method is {call.method}, but the cassette has {recorded.method}"
    if recorded.url != call.url:
        yield change_sentence("the address", recorded.url, call.url)
    try:
        was, now = read_json(recorded.body), read_json(call.body)
    except NOT_JSON:
        if recorded.body != call.body:
            yield "the body differs and is not JSON"
        return
    for change in compare_values(was, now):
        yield change.sentence()


def _flat(items: list[Any]) -> bool:
    return not any(isinstance(item, dict | list) for item in items)


def change_sentence(place: str, was: Any, now: Any) -> str:
    """`amount is 25, but the cassette has 20`."""
    one, two = _texts(place, was, now)
    return f"{place} is {two}, but the cassette has {one}"


def change_arrow(place: str, was: Any, now: Any) -> str:
    """`20 → 25`."""
    return " → ".join(_texts(place, was, now))


def excerpts(was: str, now: str) -> tuple[str, str]:
    """Cut two lines to where they differ. They must be masked already."""
    start = max(0, common_prefix_length(was, now) - _BEFORE) if max(len(was), len(now)) > MAX_EXCERPT else 0
    return _excerpt(was, start), _excerpt(now, start)


def _texts(place: str, was: Any, now: Any) -> tuple[str, str]:
    if not (isinstance(was, str) and isinstance(now, str)) or names_credential(place):
        return json_text(was, place), json_text(now, place)
    was, now = mask(was), mask(now)
    start = max(0, common_prefix_length(was, now) - _BEFORE)
    lead = "…" if start else ""
    return json_text(was[start:], "", lead), json_text(now[start:], "", lead)


def _excerpt(line: str, start: int) -> str:
    cut = line[start : start + MAX_EXCERPT]
    return ("…" if start else "") + cut + ("…" if len(line) > start + MAX_EXCERPT else "")
