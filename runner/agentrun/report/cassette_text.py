"""One line of text for each interaction of a cassette, and for the cassette as a whole.

Rule 1  The contents of a cassette are untrusted: secrets are masked, control characters escaped and lengths cut, in
        this order.
Rule 2  An interaction whose form is not known is described as any HTTP request: method, address, status and size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from agentrun.canon import NOT_JSON, json_or_text, read_json
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Reply
from agentrun.providers.registry import HOMES
from agentrun.report.amounts import magnitude
from agentrun.report.line import gist
from agentrun.spec.problems import visible
from agentrun.spec.text import json_text, plural, short

if TYPE_CHECKING:  # `cassette` is a neighbour: only its types are known here
    from agentrun.cassette.parsed import ModelExchange, ParsedInteraction
    from agentrun.cassette.tape import Interaction

_COUNTED = ("model", "tool", "http")
_NAME = 60
_ARGUMENTS = 160


class InteractionText(Struct, frozen=True):
    """One interaction in two lines."""

    request: str
    outcome: str


def count_kinds(interactions: Sequence[ParsedInteraction]) -> dict[str, int]:
    """Count requests to models, tool calls, requests of HTTP tools, and others."""
    kinds = [each.kind for each in interactions]
    found: dict[str, int] = {kind: sum(each == kind for each in kinds) for kind in _COUNTED}
    return {**found, "other": len(kinds) - sum(found.values())}


def kinds_text(counts: dict[str, int]) -> str:
    """`3 model, 2 tool`: the counts that are not 0."""
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def age_text(days: int | None) -> str:
    """The age of a cassette: `today`, `12 days`."""
    if days is None:
        return "age unknown"
    return "today" if days == 0 else plural(days, "day")


def describe(parsed: ParsedInteraction) -> InteractionText:
    """Describe the request and the outcome of an interaction."""
    interaction, exchange = parsed.recorded, parsed.exchange
    if exchange is not None:
        return InteractionText(_question(exchange), _outcome(interaction, lambda _: _reply(interaction, exchange)))
    if parsed.kind == "http":
        return InteractionText(_request(interaction), _outcome(interaction, _plain))
    describe_call, describe_result = _CALLS[parsed.kind]
    name = short(interaction.call.url.partition("://")[2], _NAME)
    try:
        request = describe_call(name, read_json(interaction.call.body))
    except NOT_JSON:
        request = f"{parsed.kind} {name}"
    return InteractionText(request, _outcome(interaction, describe_result))


def _outcome(interaction: Interaction, describe_reply: Callable[[Interaction], str]) -> str:
    """The reply, or the reason why there is none."""
    if interaction.failure is not None:
        came = len(interaction.reply.body)
        after = f", after {magnitude(came)}B of a reply" if came else ""
        return f"failed{after}: {short(interaction.failure.message)} ({interaction.failure.code})"
    if interaction.stopped:
        return "given up before it was answered"
    return describe_reply(interaction)


# --- models ------------------------------------------------------------------------------------------------------


def _question(exchange: ModelExchange) -> str:
    request, address = exchange.request, exchange.address
    at = "" if address.startswith(HOMES[exchange.provider].address) else f" at {short(_host(address), _NAME)}"
    tools = f", {plural(len(request.tools), 'tool')}" if request.tools else ""
    messages = plural(len(request.messages), "message")
    return f"model {exchange.provider} {short(exchange.model, _NAME)}{at}, {messages}{tools}"


def _reply(interaction: Interaction, exchange: ModelExchange) -> str:
    reply = exchange.reply
    if isinstance(reply, Fault):
        return _refusal(interaction, reply)
    said = reply.message
    verb = "refuses" if said.refused else "text"
    found = [f"{verb} “{gist(said.text)}”"] if said.text.strip() else []
    if said.calls:
        calls = (_call_text(call.tool, json_or_text(call.arguments)) for call in said.calls[:8])
        found.append("calls " + ", ".join(calls))
        if len(said.calls) > 8:
            found.append(f"and {len(said.calls) - 8} more")
    if reply.finish in ("length", "content_filter"):
        found.append({"length": "cut off at its longest", "content_filter": "cut off by a filter"}[reply.finish])
    return "; ".join([*(found or ["nothing"]), *_tokens(reply)])


def _tokens(reply: Reply) -> list[str]:
    usage = reply.usage
    if usage is None or usage.input is None or usage.output is None:
        return []
    return [f"{usage.input} in, {usage.output} out tokens"]


def _refusal(interaction: Interaction, fault: Fault) -> str:
    status = _status(interaction) if interaction.reply.status != HTTPStatus.OK else "unreadable"
    again = [value for name, value in interaction.reply.headers if name == "retry-after"]
    wait = f", retry-after {short(again[0], _NAME)}" if again else ""
    why = fault.message.removeprefix(f"the provider answered {status}: ")
    return f"{status}{wait}: {short(why)} ({fault.code})"


# --- calls that are not HTTP -------------------------------------------------------------------------------------


def _tool(name: str, arguments: Any) -> str:
    return f"tool {_call_text(name, arguments)}"


def _approval(name: str, question: Any) -> str:
    if not isinstance(question, dict):
        return f"approval of {name}"
    value, reason = question.get("value"), question.get("reason")
    subject = _call_text(name, value) if isinstance(value, dict) else name
    return f"approval of {subject}" + (f" because “{short(reason)}”" if isinstance(reason, str) else "")


def _hook(name: str, question: Any) -> str:
    if not isinstance(question, dict):
        return f"hook {name}"
    return f"hook {name}, {short(str(question.get('point')), _NAME)} of {short(str(question.get('target')), _NAME)}"


def _sink(name: str, delivery: Any) -> str:
    text = delivery.get("text") if isinstance(delivery, dict) else None
    return f"delivery to {name}" + (f" of “{gist(text)}”" if isinstance(text, str) else "")


def _result(interaction: Interaction) -> str:
    returned = _field(interaction, "returned")
    if not isinstance(returned, dict):
        return _plain(interaction)
    parts = returned.get("parts")
    texts = [_part(part) for part in (parts if isinstance(parts, list) else [])[:8] if isinstance(part, dict)]
    return "; ".join([*_fault(returned), *texts]) or "nothing"


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return gist(part["text"])
    size = f", {magnitude(part['size'])}B" if isinstance(part.get("size"), int) else ""
    return f"[{short(str(part.get('name') or part.get('media_type')), _NAME)}{size}]"


def _answer(interaction: Interaction) -> str:
    said, by = _field(interaction, "answer"), _field(interaction, "by")
    return _plain(interaction) if said is None else f"{short(str(said), _NAME)} by {short(str(by), _NAME)}"


def _hook_answer(interaction: Interaction) -> str:
    said = _field(interaction, "answer")
    if not isinstance(said, str):
        return _plain(interaction)
    fault = _fault({"fault": _field(interaction, "fault")})
    more = [f"“{gist(text)}”" for key in ("reason", "text") if isinstance(text := _field(interaction, key), str)]
    more += [visible(json_text(value)) for value in [_field(interaction, "value")] if value is not None]
    return fault[0] if fault else " ".join([short(said, _NAME), *more])


def _delivery(interaction: Interaction) -> str:
    fault = _field(interaction, "fault")
    return _fault({"fault": fault})[0] if fault else "delivered"


def _fault(data: dict[str, Any]) -> list[str]:
    fault = data.get("fault")
    if not isinstance(fault, dict):
        return []
    return [f"failed: {short(str(fault.get('message')))} ({short(str(fault.get('code')), _NAME)})"]


_CALLS: dict[str, tuple[Callable[[str, Any], str], Callable[[Interaction], str]]] = {
    "tool": (_tool, _result),
    "approval": (_approval, _answer),
    "hook": (_hook, _hook_answer),
    "sink": (_sink, _delivery),
}


# --- any request -------------------------------------------------------------------------------------------------


def _request(interaction: Interaction) -> str:
    size = f", {magnitude(len(interaction.call.body))}B" if interaction.call.body else ""
    return f"{short(interaction.call.method, _NAME)} {short(interaction.call.url)}{size}"


def _plain(interaction: Interaction) -> str:
    reply = interaction.reply
    text = gist(reply.body.decode("utf-8", "replace"))
    return text if reply.status == HTTPStatus.OK else f"{_status(interaction)}: {text}"


def _status(interaction: Interaction) -> str:
    return str(interaction.reply.status)


def _call_text(name: str, arguments: Any) -> str:
    """`refund(amount=20, order_id="1042")`."""
    if not isinstance(arguments, dict):
        return f"{short(name, _NAME)}({_cut(visible(json_text(arguments)))})"
    given = ", ".join(f"{short(key, _NAME)}={visible(json_text(value, key))}" for key, value in arguments.items())
    return f"{short(name, _NAME)}({_cut(given)})"


def _cut(text: str) -> str:
    return text if len(text) <= _ARGUMENTS else text[: _ARGUMENTS - 1] + "…"


def _field(interaction: Interaction, key: str) -> Any:
    try:
        data = read_json(interaction.reply.body)
    except NOT_JSON:
        return None
    return data.get(key) if isinstance(data, dict) else None


def _host(address: str) -> str:
    return address.partition("://")[2].partition("/")[0] or address
