"""Decode replies and streams of Gemini.

Rule 1  The signature of a text or call is stored right before it. Thoughts and parts of unknown types are stored
        unchanged. Texts without signatures are joined.
Rule 2  A blocked prompt or answer is a refusal of the model, not a fault of the provider.
Rule 3  The time to wait is in the details of an error; the header takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Reply, ReplyPart, Text, ToolCall, Usage
from agentrun.core.model_texts import PROVIDER_BLOCKED
from agentrun.providers import faults
from agentrun.providers.codec import ReplyOrFault, TokenCount
from agentrun.providers.sse import SseReply, can_decode
from agentrun.providers.wire_names import tools_by_wire_name
from agentrun.wire import HttpReply

_DELAY = re.compile(r"(\d{1,9})(\.\d+)?s")
_any = msgspec.json.Decoder()
_FILTERS = (
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
)
_FINISH: dict[str | None, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(_FILTERS, "content_filter"),
}


class GeminiError(Struct):
    code: int = 500
    message: str | None = None
    details: Any = None


class _Body(Struct):
    error: GeminiError


_body: msgspec.json.Decoder[_Body | list[_Body]] = msgspec.json.Decoder(_Body | list[_Body])


def _read_error(body: bytes) -> GeminiError | None:
    try:
        decoded = _body.decode(body)
    except faults.DECODE_ERRORS:
        return None
    first = decoded if isinstance(decoded, _Body) else next(iter(decoded), None)
    return first.error if first else None


def _code(status: int, error: GeminiError) -> str | None:
    text = error.message or ""
    too_long = "token count" in text and "exceeds the maximum number of tokens" in text
    return "provider.context_overflow" if status == 400 and too_long else None


def _with_delay(fault: Fault, error: GeminiError) -> Fault:
    if fault.code != "provider.rate_limited" or fault.fields.get("retry_after") is not None:
        return fault
    return replace(fault, fields={**fault.fields, "retry_after": _delay(error.details)})


def _delay(details: Any) -> int | None:
    """The seconds of a `google.rpc.RetryInfo`, rounded up: 38.2 s are 39."""
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith("/google.rpc.RetryInfo"):
            match = _DELAY.fullmatch(str(detail.get("retryDelay")))
            part = 1 if match and (match[2] or "").strip(".0") else 0
            return min(int(match[1]) + part, faults.MAX_RETRY_AFTER) if match else None
    return None


class _Call(Struct):
    name: str
    args: Raw = Raw(b"{}")
    id: str | None = None


class _Piece(Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _Call | None = None


class _Content(Struct):
    parts: list[Raw] | None = None


class _Candidate(Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    index: int = 0


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Tokens(Struct, rename="camel"):
    prompt_token_count: TokenCount | None = None
    cached_content_token_count: TokenCount | None = None
    candidates_token_count: TokenCount | None = None
    thoughts_token_count: TokenCount | None = None
    tool_use_prompt_token_count: TokenCount | None = None
    total_token_count: TokenCount | None = None


class GeminiResponse(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Tokens | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: GeminiError | None = None


_response = msgspec.json.Decoder(GeminiResponse)
_piece = msgspec.json.Decoder(_Piece)


def read_gemini_reply(reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
    if reply.status != 200:
        error = _read_error(reply.body)
        if error is None:
            return faults.status_fault(reply)
        return _with_delay(faults.status_fault(reply, error.message or "", _code(reply.status, error)), error)
    answer = GeminiReplyBuilder(request)
    try:
        response = _response.decode(reply.body)
    except faults.DECODE_ERRORS as problem:
        return faults.unreadable_fault(problem, len(reply.body))
    answer.add(response)
    return answer.result()


class GeminiReplyBuilder:
    def __init__(self, request: ModelRequest) -> None:
        self._route = route_name(request.route)
        self._names: Mapping[str, str] = tools_by_wire_name(request)
        self.fault: Fault | None = None
        self._parts: list[ReplyPart] = []
        self._text: list[str] = []  # without signatures, since the last other part
        self._calls = 0
        self._finish: str | None = None
        self._blocked: str | None = None
        self._usage: _Tokens | None = None
        self._model: str | None = None
        self._id: str | None = None

    @property
    def is_whole(self) -> bool:
        return self._finish is not None or self._blocked is not None

    def add(self, response: GeminiResponse) -> list[str]:
        if response.error is not None:
            error = response.error
            code = _code(error.code, error) or faults.code_of_status(error.code)
            self.fault = _with_delay(faults.inner_fault(error.message, code, error.code), error)
            return []
        self._usage = response.usage_metadata or self._usage
        self._model = response.model_version or self._model
        self._id = response.response_id or self._id
        if response.prompt_feedback is not None:
            self._blocked = response.prompt_feedback.block_reason or self._blocked
        match response.candidates or []:
            case []:
                return []
            case [_Candidate(index=0) as candidate]:
                return self._add(candidate)
        self.fault = faults.decode_fault("there is more than one answer", {"pointer": "/candidates"})
        return []

    def _add(self, candidate: _Candidate) -> list[str]:
        pieces = (candidate.content and candidate.content.parts) or ()
        if pieces or candidate.finish_reason:
            self._finish = candidate.finish_reason
        texts = []
        for place, raw in enumerate(pieces):
            try:
                texts.append(self._take(raw))
            except faults.DECODE_ERRORS as error:
                self.fault = faults.unreadable_part_fault(error, f"/candidates/0/content/parts/{place}")
                return []
        return [text for text in texts if text]

    def result(self) -> ReplyOrFault:
        if self.fault is not None:
            return self.fault
        self._close_text()
        parts: list[ReplyPart] = list(self._parts)
        finish = _FINISH.get(self._finish, "unknown")
        if all(isinstance(part, Reasoning) for part in parts):
            reason = self._blocked or (self._finish if finish == "content_filter" else None)
            if reason is None:
                return faults.empty_fault(self._finish)
            parts, finish = [Refusal(PROVIDER_BLOCKED.format(reason))], "content_filter"
        if finish == "stop" and self._calls:
            finish = "tool_calls"
        return Reply(Assistant(tuple(parts)), finish, _usage(self._usage), self._model, self._id)

    def _take(self, raw: Raw) -> str:
        piece = _piece.decode(raw)
        signature = piece.thought_signature
        if piece.function_call is not None:
            self._sign(signature)
            self._call(piece.function_call)
        elif piece.text is None or piece.thought or (signature and not piece.text):
            self._close_text()
            self._parts.append(Reasoning(bytes(raw).decode(), self._route))
        elif signature:
            self._sign(signature)
            self._parts.append(Text(piece.text))
            return piece.text
        else:
            self._text.append(piece.text)
            return piece.text
        return ""

    def _sign(self, signature: str | None) -> None:
        self._close_text()
        if signature:
            self._parts.append(Reasoning(sorted_json({"thoughtSignature": signature}).decode(), self._route))

    def _call(self, call: _Call) -> None:
        arguments = bytes(call.args).decode()
        name = self._names.get(call.name, call.name)
        self._parts.append(ToolCall(str(self._calls), name, "{}" if arguments == "null" else arguments, call.id))
        self._calls += 1

    def _close_text(self) -> None:
        if text := "".join(self._text):
            self._parts.append(Text(text))
        self._text.clear()


def _usage(tokens: _Tokens | None) -> Usage | None:
    """Gemini counts thoughts separately from the answer, and omits counts of 0."""
    if tokens is None:
        return None
    prompt, answer, thoughts = tokens.prompt_token_count, tokens.candidates_token_count, tokens.thoughts_token_count
    if prompt is not None:
        prompt += tokens.tool_use_prompt_token_count or 0
    if answer is None and prompt is not None and tokens.total_token_count is not None:
        answer = max(tokens.total_token_count - prompt - (thoughts or 0), 0)
    return Usage(
        input=prompt,
        output=None if answer is None else answer + (thoughts or 0),
        cached=tokens.cached_content_token_count,
        reasoning=thoughts,
    )


class GeminiStream(SseReply[GeminiResponse]):
    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request, _response)
        self._answer = GeminiReplyBuilder(request)

    def _take(self, event: GeminiResponse) -> list[str]:
        texts = self._answer.add(event)
        self._result = self._answer.fault
        return texts

    def _without_last_event(self) -> ReplyOrFault:
        return self._answer.result() if self._answer.is_whole else faults.unended_fault()

    def _is_complete(self, data: str) -> bool:
        return can_decode(_any, data)
