"""One interaction with all its texts.

Rule 1  A text is masked as a whole, then cut, and then its lines are made visible one by one.
Rule 2  What the codecs understand is shown as people said it; anything else as it stands on the tape.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.canon import NOT_JSON, compact, pretty, read_json
from agentrun.cassette.answered import answered
from agentrun.cassette.asked import ADDRESS, Asked, Part, asked
from agentrun.cassette.tape import Interaction
from agentrun.core.messages import Reply
from agentrun.spec.problems import visible
from agentrun.spec.text import masked_lines, plural, short

LONGEST = 100_000
"""Characters of one text that are shown."""
_LONGEST_LINE = 2000
_MARGIN = 20_000
"""Secrets are looked for beyond what is shown: half a key is masked by nobody."""


def whole_lines(interaction: Interaction) -> Iterator[str]:
    """The request, then the reply."""
    question = asked(interaction.call)
    yield f"request: {short(interaction.call.method, 20)} {short(interaction.call.url, 300)}"
    yield from _headers(interaction.call.headers)
    yield from _asked(question) if question is not None else _text(_readable(interaction.call.body))
    yield f"reply: {interaction.reply.status}"
    yield from _headers(interaction.reply.headers)
    if interaction.failure is not None:
        yield from _text(f"failed: {interaction.failure.message} ({interaction.failure.code})")
    reply = None if question is None else answered(interaction, question)
    if isinstance(reply, Reply):
        yield from _replied(reply)
    else:
        yield from _text(_readable(interaction.reply.body))


def _headers(headers: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, value in headers:
        yield from _text(f"{name}: {value}")


def _asked(question: Asked) -> Iterator[str]:
    yield from _said("instructions", question.instructions)
    for message in question.messages:
        yield f"  {short(message.role, 60)}:"
        for part in message.parts:
            yield from _text(_part(part), 4)
    for name, tool in question.tools.items():
        yield from _said(f"tool {name}", pretty(tool))
    settings = {name: value for name, value in question.settings.items() if name != ADDRESS}
    yield from _said("settings", pretty(settings))


def _part(part: Part) -> str:
    if part.kind == "text":
        return str(part.value)
    value = part.value if isinstance(part.value, str) else compact(part.value).decode()
    return {"call": f"calls {part.name} ", "result": f"{part.name or 'a tool'} gave "}.get(part.kind, "") + value


def _replied(reply: Reply) -> Iterator[str]:
    yield from _text(reply.message.text)
    for call in reply.message.calls:
        yield from _text(f"calls {call.tool} {call.arguments}")
    usage = reply.usage
    if usage is not None:
        yield f"  {usage.input} in, {usage.output} out tokens; model {short(str(reply.model), 60)}; {reply.finish}"


def _said(what: str, text: str) -> Iterator[str]:
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


def _readable(body: bytes) -> str:
    try:
        return pretty(read_json(body))
    except NOT_JSON:
        return body.decode("utf-8", "replace")
