"""Check our requests against the types of the official clients. Run in a venv that has the clients.

Standard input has a JSON array of [provider, body]. What is printed is a JSON array: null, or what is wrong.
"""

import json
import sys
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

original_iterable = typing.Iterable
typing.Iterable = list  # type: ignore[misc]  # what is only iterable is not validated before it is iterated
from anthropic.types import message_create_params as anthropic  # noqa: E402  # its types are made of the line above
from anthropic.types.beta import message_create_params as beta  # noqa: E402  # as above
from google.genai import types  # noqa: E402  # as above
from openai.types.chat import completion_create_params as chat  # noqa: E402  # as above
from openai.types.responses import response_create_params as responses  # noqa: E402  # as above

typing.Iterable = original_iterable  # type: ignore[misc]  # the oracle needs it whole

SAMPLING = ("temperature", "top_p", "top_k")
"""Anthropic's API has them in the version that we ask for, of 2023, and its client's, of 2026, has them no more."""

STREAMED = {
    "openai": chat.CompletionCreateParamsStreaming,
    "openai-responses": responses.ResponseCreateParamsStreaming,
    "anthropic": anthropic.MessageCreateParamsStreaming,
    "anthropic, beta": beta.MessageCreateParamsStreaming,
}
REQUEST_TYPES = {
    "openai": chat.CompletionCreateParamsNonStreaming,
    "openai-responses": responses.ResponseCreateParamsNonStreaming,
    "anthropic": anthropic.MessageCreateParamsNonStreaming,
    "anthropic, beta": beta.MessageCreateParamsNonStreaming,
}
GEMINI: dict[str, Any] = {
    "contents": list[types.Content],
    "systemInstruction": types.Content,
    "tools": list[types.Tool],
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
    "labels": dict[str, str],
}
"""There is no type for a whole request, only for its parts."""


@cache
def adapter(provider: str, streamed: bool) -> TypeAdapter[Any]:
    """In a list: the settings of an adapter hold for what is inside, not for the type itself."""
    kind = (STREAMED if streamed else REQUEST_TYPES)[provider]
    return TypeAdapter(list[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]  # made at run time


def validation_error(provider: str, body: dict[str, Any]) -> str | None:
    try:
        if provider == "gemini":
            for key, value in body.items():
                TypeAdapter(GEMINI[key]).validate_json(json.dumps(value))
        else:
            if provider == "anthropic":
                body = {key: value for key, value in body.items() if key not in SAMPLING}
                provider += (
                    ", beta" if "block_binding" in body.get("thinking", ()) else ""
                )  # as the request's header says
            adapter(provider, body.get("stream") is True).validate_json(json.dumps([body]))
    except ValidationError as error:
        return "\n".join(lines(error))
    except KeyError as error:
        return f"the field {error} is not known"
    return None


def lines(error: ValidationError) -> Iterator[str]:
    for one in error.errors(include_url=False, include_context=False)[:20]:
        yield f"{'.'.join(map(str, one['loc']))}: {one['msg']}: {str(one['input'])[:200]}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps([validation_error(provider, body) for provider, body in json.load(sys.stdin)]))
