"""Every JSON Schema that ships: of the documents people write, of packages, and of the records of a journal."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import Record
from agentrun.spec.model_schemas import DOCUMENT_MODELS, SchemaDict, assemble_schema, document_schema, struct_schemas

SCHEMA_NAMES = (*DOCUMENT_MODELS, "package", "journal")


def schema_text(name: str) -> str:
    """A schema as its file holds it."""
    schema = document_schema(name) if name in DOCUMENT_MODELS else _OTHER_SCHEMAS[name]()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _package_schema() -> SchemaDict:
    return assemble_schema("agentrun package", PackageFile.__name__, struct_schemas((PackageFile,)))


def _journal_schema() -> SchemaDict:
    return assemble_schema(
        "agentrun journal, one line", Record.__name__, struct_schemas((Record,), JOURNAL_FIELD_DESCRIPTIONS)
    )


_OTHER_SCHEMAS = {"package": _package_schema, "journal": _journal_schema}


# --- what the fields of facts mean, where a name says the same in every fact: said once here ------------------


JOURNAL_FIELD_DESCRIPTIONS: Mapping[str, str] = {
    "agent": "Name of the agent.",
    "answer": "What was answered.",
    "attempt": "Which request of the turn, from 1.",
    "by": "Who said so.",
    "call": "Id of the call.",
    "code": "The code of the problem.",
    "cost": "Micro-dollars.",
    "earlier": "What the run knows of the runs before it in its session.",
    "effect": "Id of the effect.",
    "errors": "How the answer breaks its contract.",
    "fact": "What happened.",
    "fault": "What went wrong.",
    "fields": "The evidence.",
    "finish": "Why the reply ended.",
    "hook": "Id of the hook.",
    "how": "Run the call again, take this result, or stop the run.",
    "id": "Id of the message.",
    "index": "Place of the message in the conversation, from 0.",
    "label": "Why the answer may not be all that was asked for. Null: it is.",
    "media_type": "What kind of content it is: image/png.",
    "message": "What is said.",
    "messages": "What the model is told.",
    "name": "Name of the file.",
    "parent": "The run that this one is a child of. Null: it is nobody's.",
    "parts": "What is said, piece by piece.",
    "point": "Where in the run the hook is asked.",
    "purpose": "What the model is asked for: the next step, or a summary.",
    "question": "Hash of the question that is answered.",
    "reason": "Why, in words.",
    "reply": "What the model answered.",
    "rules": "Ids of the rules that led to it.",
    "RunStarted.rules": "Version of the rules that decisions are made by.",
    "ruling": "What the policy says.",
    "run": "Id of the run.",
    "runs": "How many runs there were.",
    "sink": "Name of the sink.",
    "source": "The route that failed: provider/model.",
    "stage": "What the policy was asked about.",
    "status": "How the run ended.",
    "stop": "How the run is to end.",
    "subject": "What wants to pass: a call's id, or input, request, reply, output, stop, a delivery.",
    "summary": "What stands in their place.",
    "target": "The route that is asked from here on: provider/model.",
    "text": "What is said.",
    "tokens": "Input and output tokens.",
    "tool": "Name of the tool.",
    "tool_calls": "Calls that run.",
    "turn": "The turn, from 1.",
    "turns": "How many turns there were.",
    "value": "Arguments of a call, or a text.",
    "waits_for": "What is waited for.",
    "why": "Why the model is told something.",
}
