"""A web application with FastAPI: one session for each user, and answers that arrive word by word.

uvicorn web_app:app
"""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, HTTPException
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import agentrun

SPEC = Path(__file__).with_name("support.yaml")
User = Annotated[str, PathParameter(pattern="^[a-z0-9]{1,40}$")]

app = FastAPI()


class Message(BaseModel):
    text: str


class Answer(BaseModel):
    text: str
    cost_in_micro_dollars: int


@app.post("/users/{user}/messages")
async def send(user: User, message: Message) -> Answer:
    """The whole answer at once."""
    try:
        outcome = await agentrun.arun(SPEC, message.text, session=user, session_start="create")
        outcome.raise_for_status()
    except agentrun.AgentrunError as error:
        raise HTTPException(409 if error.code == "session.busy" else 502, error.as_json()) from None
    return Answer(text=outcome.text, cost_in_micro_dollars=outcome.cost)


@app.post("/users/{user}/stream")
async def stream(user: User, message: Message) -> StreamingResponse:
    """The answer as server-sent events. If the browser closes the connection, the run is cancelled."""
    return StreamingResponse(_events(user, message.text), media_type="text/event-stream")


async def _events(user: str, message: str) -> AsyncIterator[str]:
    run = agentrun.astream(SPEC, message, session=user, session_start="create")
    async with aclosing(run) as events:
        async for event in events:
            match event:
                case agentrun.TextDelta(text=text):
                    yield _event("text", text)
                case agentrun.CallRequested(tool=tool, args=args):
                    yield _event("call", {"tool": tool, "args": args})
                case agentrun.RunEnded(outcome=outcome):
                    yield _event("end", outcome.status)


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
