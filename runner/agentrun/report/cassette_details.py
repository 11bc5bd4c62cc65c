"""A cassette as lines of text: its metadata, then its interactions, each in two lines or with all of its content.

Rule 1  A text is masked as a whole, then cut, and then its control characters are escaped line by line.
Rule 2  A request or reply that the codecs can read is shown as a conversation; any other as it was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from agentrun.canon import NOT_JSON, compact, pretty, read_json
from agentrun.core.messages import Reply
from agentrun.report.cassette_text import age_text, count_kinds, describe, kinds_text
from agentrun.spec.problems import visible
from agentrun.spec.text import masked_lines, plural, short

if TYPE_CHECKING:  # `cassette` is a neighbour: only its types are known here
    from agentrun.cassette.asked import Part
    from agentrun.cassette.parsed import ModelExchange, ParsedCassette, ParsedInteraction
    from agentrun.cassette.tape import Interaction

LONGEST = 100_000
"""Characters of one text that are shown."""
_LONGEST_LINE = 2000
_MARGIN = 20_000
"""Secrets are searched for beyond what is shown: half a key would not be recognised as one."""
_MAX_VALUES = 20
_MAX_HISTORY = 100
_MAX_DEPTH = 8


def head_lines(path: str, cassette: ParsedCassette, days: int | None) -> Iterator[str]:
    """The file, its metadata, and an empty line. `days`: its age."""
    about = cassette.metadata
    kinds = kinds_text(count_kinds(cassette.interactions))
    total = plural(len(cassette.interactions), "interaction")
    yield f"{short(path, 300)}: {total}" + (f" ({kinds})" if kinds else "")
    if "case" in about:
        profile = f", profile {short(str(about['profile']), 60)}" if about.get("profile") else ""
        yield f"  case {short(str(about['case']), 60)} of {short(str(about.get('spec')))}{profile}"
    if about.get("params"):
        yield f"  params {_json(about['params'])}"
    ago = age_text(days) if days == 0 else f"{age_text(days)} ago"
    when = "at a time that it does not say" if days is None else f"{short(str(about['recorded_at']), 60)} ({ago})"
    by = f" by agentrun {short(str(about['agentrun']), 60)}" if "agentrun" in about else ""
    yield f"  recorded {when}{by}"
    for key, words in (("where", "from"), ("note", "note:"), ("fingerprint", "fingerprint")):
        values = about.get(key, [])
        for value in (values if isinstance(values, list) else [values])[:_MAX_VALUES]:
            yield f"  {words} {short(str(value), 200)}"
    history = about.get("history")
    for entry in (history if isinstance(history, list) else [])[:_MAX_HISTORY]:
        yield f"  changed {_json(entry)}"
    yield ""


def _json(value: Any) -> str:
    return short(json.dumps(value, ensure_ascii=False, default=str), 200)


def interaction_lines(parsed: ParsedInteraction, width: int) -> Iterator[str]:
    """The request and its outcome, indented by the depth of the sub-agent. `width`: digits of the longest number."""
    interaction, text = parsed.recorded, describe(parsed)
    indent = "  " * _depth(interaction.path)
    path = f"in {short(interaction.path, 60)}: " if interaction.path else ""
    yield f"{indent}{parsed.number:>{width}}  line {interaction.line}{_time(interaction)}: {path}{text.request}"
    yield f"{indent}{' ' * width}  → {text.outcome}"


def _time(interaction: Interaction) -> str:
    if interaction.start is None:
        return ""
    took = "" if interaction.end is None else f" for {(interaction.end - interaction.start) / 1000:.3f}s"
    return f", at {interaction.start / 1000:.3f}s{took}"


def _depth(path: str) -> int:
    """The depth of a sub-agent: `c2.0` is called by the run itself, `c2.0.c1.0` by that sub-agent."""
    return min(_MAX_DEPTH, path.count("c"))


def content_lines(parsed: ParsedInteraction) -> Iterator[str]:
    """All content of the request, then of the reply."""
    interaction, exchange = parsed.recorded, parsed.exchange
    yield f"request: {short(interaction.call.method, 20)} {short(interaction.call.url, 300)}"
    yield from _headers(interaction.call.headers)
    yield from _text(_body(interaction.call.body)) if exchange is None else _question(exchange)
    yield f"reply: {interaction.reply.status}"
    yield from _headers(interaction.reply.headers)
    if interaction.failure is not None:
        yield from _text(f"failed: {interaction.failure.message} ({interaction.failure.code})")
    if exchange is not None and isinstance(exchange.reply, Reply):
        yield from _reply(exchange.reply)
    else:
        yield from _text(_body(interaction.reply.body))


def _headers(headers: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, value in headers:
        yield from _text(f"{name}: {value}")


def _question(exchange: ModelExchange) -> Iterator[str]:
    request = exchange.request
    yield from _section("instructions", request.instructions)
    for message in request.messages:
        yield f"  {short(message.role, 60)}:"
        for part in message.parts:
            yield from _text(_part(part), 4)
    for name, tool in request.tools.items():
        yield from _section(f"tool {name}", pretty(tool))
    yield from _section("settings", pretty(exchange.settings))


def _part(part: Part) -> str:
    if part.kind == "text":
        return str(part.value)
    value = part.value if isinstance(part.value, str) else compact(part.value).decode()
    return {"call": f"calls {part.name} ", "result": f"{part.name or 'a tool'} gave "}.get(part.kind, "") + value


def _reply(reply: Reply) -> Iterator[str]:
    yield from _text(reply.message.text)
    for call in reply.message.calls:
        yield from _text(f"calls {call.tool} {call.arguments}")
    usage = reply.usage
    if usage is not None:
        yield f"  {usage.input} in, {usage.output} out tokens; model {short(str(reply.model), 60)}; {reply.finish}"


def _section(what: str, text: str) -> Iterator[str]:
    if text.strip():
        yield f"  {short(what)}:"
        yield from _text(text, 4)


def _text(text: str, indent: int = 2) -> Iterator[str]:
    text = text.rstrip("\n")
    more = len(text) - LONGEST
    masked = "\n".join(masked_lines(text[: LONGEST + _MARGIN]))[:LONGEST]
    for line in masked.split("\n") if text.strip() else ():
        shown = visible(line.rstrip("\r")[:_LONGEST_LINE])
        yield f"{' ' * indent}{shown}".rstrip()
    if more > 0:
        yield f"{' ' * indent}… and {plural(more, 'more character')}"


def _body(body: bytes) -> str:
    try:
        return pretty(read_json(body))
    except NOT_JSON:
        return body.decode("utf-8", "replace")
