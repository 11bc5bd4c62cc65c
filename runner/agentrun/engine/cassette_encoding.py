"""Exchanges that are not HTTP, encoded as HTTP for a cassette.

    CALL tool://refund        {"amount": 20, "order_id": "1042"}                       → the result
    CALL approval://refund    {"reason": …, "rules": ["big-refunds"], "value": {…}}    → {"answer": "approved", "by": …}
    CALL hook://check         {"point": "before_tool", "target": …, "value": …}        → {"answer": "continue"}
    CALL sink://report        {"text": …}                                              → {}

Rule 1  A request contains only what the answer depends on: no ids and no keys, so that the same call in another turn
        is the same request. An approval is valid for exactly its question.
        Defaults that were filled in are left out, so that a request does not change when a parameter gets a default.
Rule 2  A result that is a single text is written as text. Everything else is JSON. A truncated text is written with the
        part that the model read, and the full text.
Rule 3  A cassette may have been edited. A reply that cannot be decoded means that the cassette is damaged.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, convert, to_builtins
from msgspec.structs import replace

from agentrun.canonical_json import pretty_json, sorted_json
from agentrun.cassette.interactions import Interaction, PackedCall
from agentrun.core.effects import Deliver, RunTool, ToolReturn
from agentrun.core.facts import ApprovalAnswer, HookAnswer
from agentrun.core.fault import Fault
from agentrun.core.messages import File, Image, Text
from agentrun.core.outcome import Question
from agentrun.engine.hooks import HookQuestion
from agentrun.engine.ports import Blobs
from agentrun.errors import ERROR_CODES, CassetteError
from agentrun.wire import HttpCall, HttpReply

_T = TypeVar("_T")

CALL_METHOD = "CALL"
_JSON = (("content-type", "application/json"),)
_TEXT = (("content-type", "text/plain"),)


class _Result(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool result, with the blobs that its parts name."""

    returned: ToolReturn
    blobs: dict[str, bytes] = {}
    whole: str | None = None
    """The full text, if the parts are truncated."""


class _Approval(Struct, frozen=True, forbid_unknown_fields=True):
    answer: ApprovalAnswer
    by: str


class _Delivery(Struct, frozen=True, forbid_unknown_fields=True):
    fault: Fault | None = None


def encode_tool_call(effect: RunTool) -> HttpCall:
    arguments = _without_defaults(effect.arguments, effect.arguments_without_defaults)
    return _encode_call("tool", effect.name, arguments, effect.id)


def encode_question(question: Question) -> HttpCall:
    value = _without_defaults(question.value, question.value_without_defaults)
    body = {"reason": question.reason, "rules": question.rules, "value": value}
    return _encode_call("approval", question.target, body, question.question)


def approval_target(call: HttpCall | PackedCall) -> str | None:
    """The tool, sink or stage of an approval question. None: the call is none."""
    scheme, _, target = call.url.partition("://")
    return target if scheme == "approval" else None


def encode_hook_question(hook: str, question: HookQuestion) -> HttpCall:
    value = _without_defaults(question.value, question.value_without_defaults)
    body = {"point": question.point, "target": question.target, "value": value}
    return _encode_call("hook", hook, body, question.effect)


def encode_delivery(delivery: Deliver) -> HttpCall:
    output = {} if delivery.output is UNSET else {"output": delivery.output}
    return _encode_call("sink", delivery.name, {"text": delivery.text, **output}, delivery.id)


def _without_defaults(value: Any, arguments: dict[str, Any] | None) -> Any:
    return value if arguments is None else arguments


def _encode_call(scheme: str, name: str, body: Any, effect: str) -> HttpCall:
    return HttpCall(CALL_METHOD, f"{scheme}://{name}", _JSON, sorted_json(body), effect=effect)


def encode_tool_result(returned: ToolReturn, blobs: Blobs) -> HttpReply:
    match returned:
        case ToolReturn((Text(text),), None, None):
            return HttpReply(200, _TEXT, text.encode("utf-8", "replace"))
    contents = {
        part.blob: b64encode(blobs.get(part.blob)).decode() for part in returned.parts if isinstance(part, Image | File)
    }
    body = {"returned": to_builtins(replace(returned, whole=None))} | ({"blobs": contents} if contents else {})
    if returned.whole is not None:
        body["whole"] = blobs.get(returned.whole).decode()
    return HttpReply(200 if returned.fault is None else 500, _JSON, pretty_json(body).encode())


def decode_tool_result(reply: HttpReply, blobs: Blobs) -> ToolReturn:
    if reply.headers == _TEXT:
        return ToolReturn((Text(reply.body.decode("utf-8", "replace")),))
    result = _decode_reply(reply, _Result)
    for blob, data in result.blobs.items():
        if blobs.put(data) != blob:
            raise _damaged_cassette_error("a blob does not match its hash")
    _refuse_foreign_fault(result.returned.fault, ("tool.", "host."))
    whole = None if result.whole is None else blobs.put(result.whole.encode("utf-8", "replace"))
    return replace(result.returned, whole=whole)


def encode_answer(answer: tuple[ApprovalAnswer, str]) -> HttpReply:
    return _json_reply({"answer": answer[0], "by": answer[1]})


def decode_answer(reply: HttpReply) -> tuple[ApprovalAnswer, str]:
    approval = _decode_reply(reply, _Approval)
    return approval.answer, approval.by


def recorded_answer(interaction: Interaction) -> ApprovalAnswer | None:
    if interaction.failure is not None or interaction.stopped:
        return None
    try:
        return decode_answer(interaction.reply)[0]
    except CassetteError:  # changed by hand
        return None


def encode_hook_answer(answer: HookAnswer) -> HttpReply:
    return _json_reply(to_builtins(answer))


def decode_hook_answer(reply: HttpReply) -> HookAnswer:
    answer: HookAnswer = _decode_reply(reply, HookAnswer)  # type: ignore[arg-type]  # a union is no type to mypy
    return answer


def encode_delivery_fault(fault: Fault | None) -> HttpReply:
    return _json_reply({} if fault is None else {"fault": to_builtins(fault)})


def decode_delivery_fault(reply: HttpReply) -> Fault | None:
    fault = _decode_reply(reply, _Delivery).fault
    _refuse_foreign_fault(fault, ("delivery.",))
    return fault


def _refuse_foreign_fault(fault: Fault | None, kinds: tuple[str, ...]) -> None:
    """Refuse a fault that this port cannot have: an edited cassette must not fake a failure of agentrun."""
    if fault is not None and (fault.code not in ERROR_CODES or not fault.code.startswith(kinds)):
        raise _damaged_cassette_error("a fault has a code that is not possible here")


def _json_reply(body: Any) -> HttpReply:
    return HttpReply(200, _JSON, pretty_json(body).encode())


def _decode_reply(reply: HttpReply, kind: type[_T]) -> _T:
    try:
        return convert(msgspec.json.decode(reply.body), kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        raise _damaged_cassette_error("a reply cannot be decoded") from None


def _damaged_cassette_error(why: str) -> CassetteError:
    message = f"the cassette is damaged, perhaps because it was edited: {why}"
    return CassetteError(
        "cassette.damaged", message, hint="restore the file or record it again", fields={"reason": why}
    )
