"""All JSON Schemas that agentrun ships: of documents, packages and journal records."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import Record
from agentrun.spec.model_schemas import DOCUMENT_MODELS, assemble_schema, document_schema, struct_schemas

SCHEMA_NAMES = (*DOCUMENT_MODELS, "package", "journal")
# Descriptions of fields that have the same meaning in every fact.
JOURNAL_FIELD_DESCRIPTIONS: Mapping[str, str] = {
    "agent": "The name of the agent.",
    "answer": "The answer.",
    "attempt": "The number of the request within the turn, from 1.",
    "by": "Who made the decision.",
    "call": "The id of the call.",
    "code": "The error code.",
    "cost": "The cost in micro-dollars.",
    "earlier": "The history from earlier runs of the session.",
    "effect": "The id of the effect.",
    "errors": "Why the answer does not match the output schema.",
    "fact": "The kind of fact.",
    "fault": "The error.",
    "fields": "Details of the error.",
    "finish": "Why the reply ended.",
    "hook": "The id of the hook.",
    "how": "Run the call again, use this result, or stop the run.",
    "id": "The id of the message.",
    "index": "The position of the message in the conversation, from 0.",
    "label": "Why the answer may be incomplete. Null: it is complete.",
    "media_type": "The media type, such as image/png.",
    "message": "The message.",
    "messages": "The messages for the model.",
    "name": "The name of the file.",
    "parent": "The parent run. Null: it is not a sub-agent.",
    "parts": "The parts of the message.",
    "point": "The point of the run at which the hook is called.",
    "purpose": "What the model is asked for: the next step, or a summary.",
    "question": "The hash of the question that is answered.",
    "reason": "The reason.",
    "reply": "The reply of the model.",
    "rules": "The ids of the rules that led to it.",
    "RunStarted.rules": "The version of the decision rules.",
    "ruling": "The ruling of the policy.",
    "run": "The id of the run.",
    "runs": "The number of runs.",
    "sink": "The name of the sink.",
    "source": "The route that failed: provider/model.",
    "stage": "The stage at which the policy was evaluated.",
    "status": "How the run ended.",
    "stop": "How the run will end.",
    "subject": "What the ruling is about: the id of a call, or input, request, reply, output, stop, or a delivery.",
    "summary": "The summary that replaces them.",
    "target": "The route used from now on: provider/model.",
    "text": "The text.",
    "tokens": "Input and output tokens.",
    "tool": "The name of the tool.",
    "tool_calls": "The number of executed tool calls.",
    "turn": "The number of the turn, from 1.",
    "turns": "The number of turns.",
    "value": "The arguments of a call, or a text.",
    "waits_for": "What the run waits for.",
    "why": "Why the message is added.",
}


def schema_text(name: str) -> str:
    if name in DOCUMENT_MODELS:
        schema = document_schema(name)
    elif name == "package":
        schema = assemble_schema("agentrun package", PackageFile.__name__, struct_schemas((PackageFile,)))
    else:
        described = struct_schemas((Record,), JOURNAL_FIELD_DESCRIPTIONS)
        schema = assemble_schema("agentrun journal, one line", Record.__name__, described)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
