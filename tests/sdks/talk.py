"""Run a conversation with a provider through its official client. Run in a venv that has the clients.

python talk.py PROVIDER whole|stream URL

It asks, runs the calls that come back, sends their results, and prints what it learned as JSON.
"""

import json
import sys
from typing import Any

INSTRUCTIONS = "You help with two orders."
QUESTION = "Where are they?"
NAME, ABOUT = "lookup_order", "Finds an order."
ARGS = {"type": "object", "properties": {"id": {"type": "string"}, "full": {"type": "boolean"}}, "required": ["id"]}
STATES = {"1042": "shipped", "1043": "lost"}


class Conversation:
    """What was said."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str | None] = []
        self.calls: list[Any] = []
        self.usage: list[list[int | None]] = []
        self.finish: list[str] = []

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        self.calls.append([name, arguments])
        return STATES[arguments["id"]]


def chat(url: str, stream: bool) -> Conversation:
    from openai import OpenAI

    client, talk = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), Conversation()
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": QUESTION}]
    function = {"name": NAME, "description": ABOUT, "parameters": ARGS}
    asked: dict[str, Any] = {"model": "m-1", "tools": [{"type": "function", "function": function}]}
    while True:
        if stream:
            options = {"include_usage": True}
            with client.chat.completions.stream(**asked, messages=messages, stream_options=options) as events:
                for _ in events:
                    pass
                reply = events.get_final_completion()
        else:
            reply = client.chat.completions.create(**asked, messages=messages)
        message, usage = reply.choices[0].message, reply.usage
        talk.texts.append(message.content)
        talk.thoughts.append(message.to_dict().get("reasoning_content"))
        talk.finish.append(reply.choices[0].finish_reason)
        details = usage.completion_tokens_details.reasoning_tokens
        cached = usage.prompt_tokens_details.cached_tokens
        talk.usage.append([usage.prompt_tokens, usage.completion_tokens, cached, details])
        if not message.tool_calls:
            return talk
        messages.append(message.to_dict())
        for call in message.tool_calls:
            result = talk.run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def responses(url: str, stream: bool) -> Conversation:
    from openai import OpenAI

    client, talk = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), Conversation()
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    tool = {"type": "function", "name": NAME, "description": ABOUT, "parameters": ARGS, "strict": False}
    asked: dict[str, Any] = {
        "model": "m-1",
        "instructions": INSTRUCTIONS,
        "tools": [tool],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    while True:
        if stream:
            with client.responses.stream(**asked, input=items) as events:
                for _ in events:
                    pass
                reply = events.get_final_response()
        else:
            reply = client.responses.create(**asked, input=items)
        thoughts = [part.text for item in reply.output if item.type == "reasoning" for part in item.summary]
        usage = reply.usage
        talk.texts.append(reply.output_text)
        talk.thoughts.append("".join(thoughts) or None)
        talk.finish.append(reply.status)
        cached, thought = usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens
        talk.usage.append([usage.input_tokens, usage.output_tokens, cached, thought])
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return talk
        items += [item.to_dict() for item in reply.output]
        for call in calls:
            result = talk.run(call.name, json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def messages(url: str, stream: bool) -> Conversation:
    from anthropic import Anthropic

    client, talk = Anthropic(base_url=url, api_key="none", max_retries=0), Conversation()
    said: list[Any] = [{"role": "user", "content": QUESTION}]
    tool = {"name": NAME, "description": ABOUT, "input_schema": ARGS}
    asked: dict[str, Any] = {"model": "m-1", "max_tokens": 500, "system": INSTRUCTIONS, "tools": [tool]}
    while True:
        if stream:
            with client.messages.stream(**asked, messages=said) as events:
                for _ in events:
                    pass
                reply = events.get_final_message()
        else:
            reply = client.messages.create(**asked, messages=said)
        usage = reply.usage
        talk.texts.append("".join(block.text for block in reply.content if block.type == "text"))
        talk.thoughts.append("".join(block.thinking for block in reply.content if block.type == "thinking") or None)
        talk.finish.append(reply.stop_reason)
        cached, thought = usage.cache_read_input_tokens, usage.output_tokens_details.thinking_tokens
        talk.usage.append([usage.input_tokens + cached, usage.output_tokens, cached, thought])
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return talk
        said.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": talk.run(call.name, call.input)}
            for call in calls
        ]
        said.append({"role": "user", "content": results})


def gemini(url: str, stream: bool) -> Conversation:
    from google import genai
    from google.genai import types

    client, talk = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url)), Conversation()
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]
    function = types.FunctionDeclaration(name=NAME, description=ABOUT, parameters_json_schema=ARGS)
    config = types.GenerateContentConfig(
        system_instruction=INSTRUCTIONS,
        tools=[types.Tool(function_declarations=[function])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    while True:
        if stream:
            pieces = [*client.models.generate_content_stream(model="m-1", contents=contents, config=config)]
        else:
            pieces = [client.models.generate_content(model="m-1", contents=contents, config=config)]
        parts = [part for piece in pieces for part in piece.candidates[0].content.parts]
        usage = pieces[-1].usage_metadata
        talk.texts.append("".join(part.text for part in parts if part.text and not part.thought))
        talk.thoughts.append("".join(part.text for part in parts if part.thought) or None)
        talk.finish.append(pieces[-1].candidates[0].finish_reason.value)
        thought, cached = usage.thoughts_token_count, usage.cached_content_token_count
        talk.usage.append([usage.prompt_token_count, usage.candidates_token_count + thought, cached, thought])
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            return talk
        contents.append(types.Content(role="model", parts=parts))
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"output": talk.run(call.name, call.args)}
                )
            )
            for call in calls
        ]
        contents.append(types.Content(role="user", parts=results))


TALKS = {"openai": chat, "openai-responses": responses, "anthropic": messages, "gemini": gemini}

if __name__ == "__main__":
    _, provider, how, url = sys.argv
    sys.stdout.write(json.dumps(vars(TALKS[provider](url, how == "stream"))))
