"""One line of text for each interaction of a cassette, and for the cassette as a whole.

The contents are untrusted: secrets are masked, control characters escaped and lengths cut, in this order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from agentrun.canonical_json import NOT_JSON, json_or_text, pretty_json, read_json, sorted_json
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.providers.codec import PROVIDER_HOMES
from agentrun.report.formatting import format_count, preview_text
from agentrun.spec.problems import escape_invisible
from agentrun.spec.safe_text import json_text, masked_lines, plural, short_text, truncate_text

if TYPE_CHECKING:
    from agentrun.cassette.interactions import Interaction
    from agentrun.cassette.parsed_interaction import ModelExchange, ParsedCassette, ParsedInteraction
    from agentrun.cassette.parsed_request import RequestPart


_COUNTED = ("model", "tool", "http")
_NAME = 60
_ARGUMENTS = 160
MAX_CONTENT_LENGTH = 100_000
_LONGEST_LINE = 2000
_MARGIN = 20_000
"""Secrets are searched for beyond what is shown: half a key would not be recognised as one."""
_MAX_VALUES = 20
_MAX_HISTORY = 100
_MAX_DEPTH = 8


class InteractionText(Struct, frozen=True):
    request: str
    outcome: str


def count_kinds(interactions: Sequence[ParsedInteraction]) -> dict[str, int]:
    kinds = [each.kind for each in interactions]
    found: dict[str, int] = {kind: sum(each == kind for each in kinds) for kind in _COUNTED}
    return {**found, "other": len(kinds) - sum(found.values())}


def kinds_text(counts: dict[str, int]) -> str:
    """`3 model, 2 tool`: the counts that are not 0."""
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def age_text(days: int | None) -> str:
    if days is None:
        return "age unknown"
    return "today" if days == 0 else plural(days, "day")


def describe_interaction(parsed: ParsedInteraction) -> InteractionText:
    interaction, exchange = parsed.recorded, parsed.exchange
    if exchange is not None:
        outcome = _outcome(interaction, lambda _: _describe_reply(interaction, exchange))
        return InteractionText(_describe_request(exchange), outcome)
    if parsed.kind == "http":
        call = interaction.call
        size = f", {format_count(len(call.body))}B" if call.body else ""
        request = f"{short_text(call.method, _NAME)} {short_text(call.url)}{size}"
        return InteractionText(request, _outcome(interaction, _plain))
    describe_call, describe_result = _CALLS[parsed.kind]
    name = short_text(interaction.request.url.partition("://")[2], _NAME)
    try:
        request = describe_call(name, read_json(interaction.call.body))
    except NOT_JSON:
        request = f"{parsed.kind} {name}"
    return InteractionText(request, _outcome(interaction, describe_result))


def _outcome(interaction: Interaction, describe_reply: Callable[[Interaction], str]) -> str:
    if interaction.failure is not None:
        came = len(interaction.reply.body)
        after = f", after {format_count(came)}B of a reply" if came else ""
        return f"failed{after}: {short_text(interaction.failure.message)} ({interaction.failure.code})"
    if interaction.stopped:
        return "cancelled before a reply came"
    return describe_reply(interaction)


def _describe_request(exchange: ModelExchange) -> str:
    request, address = exchange.request, exchange.address
    host = address.partition("://")[2].partition("/")[0] or address
    is_home = address.startswith(PROVIDER_HOMES[exchange.provider].address)
    at = "" if is_home else f" at {short_text(host, _NAME)}"
    tools = f", {plural(len(request.tools), 'tool')}" if request.tools else ""
    messages = plural(len(request.messages), "message")
    return f"model {exchange.provider} {short_text(exchange.model, _NAME)}{at}, {messages}{tools}"


def _describe_reply(interaction: Interaction, exchange: ModelExchange) -> str:
    reply = exchange.reply
    if isinstance(reply, Fault):
        return _refusal(interaction, reply)
    message = reply.message
    verb = "refuses" if message.refused else "text"
    found = [f"{verb} “{preview_text(message.text)}”"] if message.text.strip() else []
    if message.calls:
        calls = (_call_text(call.tool, json_or_text(call.arguments)) for call in message.calls[:8])
        found.append("calls " + ", ".join(calls))
        if len(message.calls) > 8:
            found.append(f"and {len(message.calls) - 8} more")
    if reply.finish in ("length", "content_filter"):
        found.append({"length": "cut off at the token limit", "content_filter": "cut off by a filter"}[reply.finish])
    found = found or ["nothing"]
    if reply.usage is not None and reply.usage.input is not None and reply.usage.output is not None:
        found.append(f"{reply.usage.input} in, {reply.usage.output} out tokens")
    return "; ".join(found)


def _refusal(interaction: Interaction, fault: Fault) -> str:
    status = str(interaction.reply.status) if interaction.reply.status != HTTPStatus.OK else "unreadable"
    again = [value for name, value in interaction.reply.headers if name == "retry-after"]
    wait = f", retry-after {short_text(again[0], _NAME)}" if again else ""
    why = fault.message.removeprefix(f"the provider answered {status}: ")
    return f"{status}{wait}: {short_text(why)} ({fault.code})"


def _approval(name: str, question: Any) -> str:
    if not isinstance(question, dict):
        return f"approval of {name}"
    value, reason = question.get("value"), question.get("reason")
    subject = _call_text(name, value) if isinstance(value, dict) else name
    return f"approval of {subject}" + (f" because “{short_text(reason)}”" if isinstance(reason, str) else "")


def _hook(name: str, question: Any) -> str:
    if not isinstance(question, dict):
        return f"hook {name}"
    point, target = (short_text(str(question.get(key)), _NAME) for key in ("point", "target"))
    return f"hook {name}, {point} of {target}"


def _sink(name: str, delivery: Any) -> str:
    text = delivery.get("text") if isinstance(delivery, dict) else None
    return f"delivery to {name}" + (f" of “{preview_text(text)}”" if isinstance(text, str) else "")


def _result(interaction: Interaction) -> str:
    returned = _field(interaction, "returned")
    if not isinstance(returned, dict):
        return _plain(interaction)
    parts = returned.get("parts")
    texts = [_part(part) for part in (parts if isinstance(parts, list) else [])[:8] if isinstance(part, dict)]
    return "; ".join([*_fault(returned), *texts]) or "nothing"


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return preview_text(part["text"])
    size = f", {format_count(part['size'])}B" if isinstance(part.get("size"), int) else ""
    return f"[{short_text(str(part.get('name') or part.get('media_type')), _NAME)}{size}]"


def _answer(interaction: Interaction) -> str:
    answer, by = _field(interaction, "answer"), _field(interaction, "by")
    if answer is None:
        return _plain(interaction)
    return f"{short_text(str(answer), _NAME)} by {short_text(str(by), _NAME)}"


def _hook_answer(interaction: Interaction) -> str:
    answer = _field(interaction, "answer")
    if not isinstance(answer, str):
        return _plain(interaction)
    fault = _fault({"fault": _field(interaction, "fault")})
    texts = (_field(interaction, key) for key in ("reason", "text"))
    more = [f"“{preview_text(text)}”" for text in texts if isinstance(text, str)]
    if (value := _field(interaction, "value")) is not None:
        more.append(escape_invisible(json_text(value)))
    return fault[0] if fault else " ".join([short_text(answer, _NAME), *more])


def _delivery(interaction: Interaction) -> str:
    fault = _field(interaction, "fault")
    return _fault({"fault": fault})[0] if fault else "delivered"


def _fault(data: dict[str, Any]) -> list[str]:
    fault = data.get("fault")
    if not isinstance(fault, dict):
        return []
    return [f"failed: {short_text(str(fault.get('message')))} ({short_text(str(fault.get('code')), _NAME)})"]


_CALLS: dict[str, tuple[Callable[[str, Any], str], Callable[[Interaction], str]]] = {
    "tool": (lambda name, arguments: f"tool {_call_text(name, arguments)}", _result),
    "approval": (_approval, _answer),
    "hook": (_hook, _hook_answer),
    "sink": (_sink, _delivery),
}


def _plain(interaction: Interaction) -> str:
    reply = interaction.reply
    text = preview_text(reply.body.decode("utf-8", "replace"))
    return text if reply.status == HTTPStatus.OK else f"{reply.status}: {text}"


def _call_text(name: str, arguments: Any) -> str:
    """`refund(amount=20, order_id="1042")`."""
    listed = json_text(arguments)
    if isinstance(arguments, dict):
        listed = ", ".join(f"{short_text(key, _NAME)}={json_text(value, key)}" for key, value in arguments.items())
    return f"{short_text(name, _NAME)}({truncate_text(escape_invisible(listed), _ARGUMENTS)})"


def _field(interaction: Interaction, key: str) -> Any:
    data = json_or_text(interaction.reply.body)
    return data.get(key) if isinstance(data, dict) else None


def head_lines(path: str, cassette: ParsedCassette, days: int | None) -> Iterator[str]:
    """The file, its metadata, and an empty line. `days`: its age."""
    about = cassette.metadata
    kinds = kinds_text(count_kinds(cassette.interactions))
    total = plural(len(cassette.interactions), "interaction")
    yield f"{short_text(path, 300)}: {total}" + (f" ({kinds})" if kinds else "")
    if "case" in about:
        profile = f", profile {short_text(str(about['profile']), 60)}" if about.get("profile") else ""
        yield f"  case {short_text(str(about['case']), 60)} of {short_text(str(about.get('spec')))}{profile}"
    if about.get("params"):
        yield f"  params {_json(about['params'])}"
    ago = age_text(days) if days == 0 else f"{age_text(days)} ago"
    when = "at an unknown time" if days is None else f"{short_text(str(about['recorded_at']), 60)} ({ago})"
    by = f" by agentrun {short_text(str(about['agentrun']), 60)}" if "agentrun" in about else ""
    yield f"  recorded {when}{by}"
    for key, words in (("where", "from"), ("note", "note:"), ("fingerprint", "fingerprint")):
        values = about.get(key, [])
        for value in (values if isinstance(values, list) else [values])[:_MAX_VALUES]:
            yield f"  {words} {short_text(str(value), 200)}"
    history = about.get("history")
    for entry in (history if isinstance(history, list) else [])[:_MAX_HISTORY]:
        yield f"  changed {_json(entry)}"
    yield ""


def _json(value: Any) -> str:
    return short_text(json.dumps(value, ensure_ascii=False, default=str), 200)


def interaction_lines(parsed: ParsedInteraction, width: int) -> Iterator[str]:
    """The request and its outcome, indented by the depth of the sub-agent. `width`: digits of the longest number."""
    interaction, text = parsed.recorded, describe_interaction(parsed)
    indent = "  " * min(_MAX_DEPTH, interaction.path.count("c"))  # `c2.0.c1.0`: a sub-agent of a sub-agent
    path = f"in {short_text(interaction.path, 60)}: " if interaction.path else ""
    yield f"{indent}{parsed.number:>{width}}  line {interaction.line}{_time(interaction)}: {path}{text.request}"
    yield f"{indent}{' ' * width}  → {text.outcome}"


def _time(interaction: Interaction) -> str:
    if interaction.start is None:
        return ""
    took = "" if interaction.end is None else f" for {(interaction.end - interaction.start) / 1000:.3f}s"
    return f", at {interaction.start / 1000:.3f}s{took}"


def content_lines(parsed: ParsedInteraction) -> Iterator[str]:
    yield from request_lines(parsed)
    yield from reply_lines(parsed)


def request_lines(parsed: ParsedInteraction, kept: int = 0) -> Iterator[str]:
    """`kept`: how many of the first messages are left out, with everything that is not a message."""
    interaction, exchange = parsed.recorded, parsed.exchange
    yield f"request: {short_text(interaction.request.method, 20)} {short_text(interaction.request.url, 300)}"
    yield from () if kept else _header_lines(interaction.request.headers)
    if exchange is None:
        yield from _text_lines(_body_text(interaction.call.body))
    else:
        yield from _message_lines(exchange, kept) if kept else _request_lines(exchange)


def reply_lines(parsed: ParsedInteraction) -> Iterator[str]:
    interaction, exchange = parsed.recorded, parsed.exchange
    yield f"reply: {interaction.reply.status}"
    yield from _header_lines(interaction.reply.headers)
    if interaction.failure is not None:
        yield from _text_lines(f"failed: {interaction.failure.message} ({interaction.failure.code})")
    if exchange is not None and isinstance(exchange.reply, Reply):
        yield from _reply_lines(exchange.reply)
    else:
        yield from _text_lines(_body_text(interaction.reply.body))


def _header_lines(headers: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, value in headers:
        yield from _text_lines(f"{name}: {value}")


def _request_lines(exchange: ModelExchange) -> Iterator[str]:
    request = exchange.request
    yield from _section_lines("instructions", request.instructions)
    yield from _message_lines(exchange, 0)
    for name, tool in request.tools.items():
        yield from _section_lines(f"tool {name}", pretty_json(tool))
    yield from _section_lines("settings", pretty_json(exchange.settings))


def _message_lines(exchange: ModelExchange, kept: int) -> Iterator[str]:
    for message in exchange.request.messages[kept:]:
        yield f"  {short_text(message.role, 60)}:"
        for part in message.parts:
            yield from _text_lines(_message_part_text(part), 4)


def _message_part_text(part: RequestPart) -> str:
    if part.kind == "text":
        return str(part.value)
    value = part.value if isinstance(part.value, str) else sorted_json(part.value).decode()
    return {"call": f"calls {part.name} ", "result": f"{part.name or 'a tool'} returned "}.get(part.kind, "") + value


def _reply_lines(reply: Reply) -> Iterator[str]:
    yield from _text_lines(reply.message.text)
    for call in reply.message.calls:
        yield from _text_lines(f"calls {call.tool} {call.arguments}")
    usage = reply.usage
    if usage is not None:
        yield f"  {usage.input} in, {usage.output} out tokens; model {short_text(str(reply.model), 60)}; {reply.finish}"


def _section_lines(what: str, text: str) -> Iterator[str]:
    if text.strip():
        yield f"  {short_text(what)}:"
        yield from _text_lines(text, 4)


def _text_lines(text: str, indent: int = 2) -> Iterator[str]:
    text = text.rstrip("\n")
    more = len(text) - MAX_CONTENT_LENGTH
    masked = "\n".join(masked_lines(text[: MAX_CONTENT_LENGTH + _MARGIN]))[:MAX_CONTENT_LENGTH]
    for line in masked.split("\n") if text.strip() else ():
        shown = escape_invisible(line.rstrip("\r")[:_LONGEST_LINE])
        yield f"{' ' * indent}{shown}".rstrip()
    if more > 0:
        yield f"{' ' * indent}… and {plural(more, 'more character')}"


def _body_text(body: bytes) -> str:
    try:
        return pretty_json(read_json(body))
    except NOT_JSON:
        return body.decode("utf-8", "replace")
