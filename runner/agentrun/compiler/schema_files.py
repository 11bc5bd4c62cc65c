"""All JSON Schemas that agentrun ships, generated from the models: of documents, packages and journal records.

Rule 1  The models are the source. `schemas/*.schema.json` is generated and checked in; a test compares them.
Rule 2  Alternatives are if/then on the kind or the JSON type, never anyOf or oneOf. An error then names the branch
        that the author meant, and an editor completes the right keys.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec

from agentrun.compiler.package_file import PackageFile
from agentrun.core.fact_blob import FactBlob
from agentrun.core.facts import Record
from agentrun.spec.schema_check import child_values
from agentrun.spec.v1.agent import SHARED_KEYS, Agent, BudgetsFile, PolicyFile, ToolsFile
from agentrun.spec.v1.assertions import NEGATION_PREFIX
from agentrun.spec.v1.cases import CasesFile
from agentrun.spec.v1.field_types import DIALECT_URL, FileRef
from agentrun.spec.v1.provider import ProviderFile

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
    "waits_for": "What the run waits for.",
    "why": "Why the message is added.",
}
SchemaDict = dict[str, Any]

DOCUMENT_MODELS: dict[str, type[msgspec.Struct]] = {
    "agent": Agent,
    "tools": ToolsFile,
    "policy": PolicyFile,
    "budgets": BudgetsFile,
    "cases": CasesFile,
    "provider": ProviderFile,
}
SCHEMA_NAMES = (*DOCUMENT_MODELS, "package", "journal")

SHARED_PART_NAMES = {key: f"{key.title()}Part" for key in SHARED_KEYS}

KEYS_NOT_IN_PROFILES = ("agentrun", "name", "profiles")


@cache
def schema_text(name: str) -> str:
    if name in DOCUMENT_MODELS:
        schema = document_schema(name)
    elif name == "package":
        schema = assemble_schema("agentrun package", PackageFile.__name__, struct_schemas((PackageFile,)))
    else:
        described = struct_schemas((Record, FactBlob), JOURNAL_FIELD_DESCRIPTIONS)
        _allow_fact_blobs(described)
        schema = assemble_schema("agentrun journal, one line", Record.__name__, described)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def document_schema(name: str) -> SchemaDict:
    model = DOCUMENT_MODELS[name]
    defs = struct_schemas((model,))
    if name == "agent":
        _allow_sharing(defs)
        _describe_profiles(defs)
    if name == "cases":
        _allow_negation(defs)
    defs["FileRef"] = struct_schemas((FileRef,))["FileRef"]
    defs["JsonSchema"] = _inline_or_file({"type": "object"})
    return assemble_schema(f"agentrun {name}", model.__name__, defs)


def _allow_fact_blobs(defs: SchemaDict) -> None:
    """A large fact is in a blob, and its line only refers to it."""
    fact = defs[Record.__name__]["properties"]["fact"]
    description = fact.pop("description")
    reference = {"$ref": f"#/$defs/{FactBlob.__name__}"}
    inline = dict(fact)
    fact.clear()
    fact |= {"description": description, "if": {"required": ["blob", "size"]}, "then": reference, "else": inline}


def assemble_schema(title: str, root: str, defs: SchemaDict) -> SchemaDict:
    top = defs.pop(root)
    return {"$schema": DIALECT_URL, **top, "title": title, "$defs": _reachable_definitions(top, defs)}


def struct_schemas(models: Iterable[type], words: Mapping[str, str] | None = None) -> SchemaDict:
    """Return the schemas of structs and of everything they contain. `words`: descriptions of fields without a
    docstring, by `Struct.field` or by `field`."""
    models = tuple(models)
    _, components = msgspec.json.schema_components(models, ref_template="#/$defs/{name}")
    known = {struct.__name__: struct for struct in _reachable_structs(models)}
    for name, component in components.items():
        properties, texts, words = component["properties"], field_descriptions(known[name]), words or {}
        component.pop("title", None)
        if not component.get("required"):
            component.pop("required", None)
        for field in msgspec.structs.fields(known[name]):
            key = field.encode_name
            text = texts.get(field.name) or words.get(f"{name}.{field.name}") or words[field.name]
            if field.default_factory is not msgspec.NODEFAULT:  # msgspec adds only those of `list` and `dict`
                properties[key]["default"] = msgspec.to_builtins(field.default_factory())
            properties[key] = {"description": text, **_replace_any_of(properties[key])}
        if tag := known[name].__struct_config__.tag_field:
            properties[tag] = {"description": component["description"], **_replace_any_of(properties[tag])}
    return components


def _reachable_structs(models: Iterable[type]) -> Iterable[type[msgspec.Struct]]:
    seen: dict[type[msgspec.Struct], None] = {}

    def visit(info: msgspec.inspect.Type) -> None:
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in seen:
                return
            seen[info.cls] = None
            for item in info.fields:
                visit(item.type)
        for slot in ("type", "types", "item_type", "item_types", "key_type", "value_type"):
            inner = getattr(info, slot, None)
            for one in inner if isinstance(inner, tuple) else (inner,):
                if isinstance(one, msgspec.inspect.Type):
                    visit(one)

    for model in models:
        visit(msgspec.inspect.type_info(model))
    return seen


def field_descriptions(struct: type) -> dict[str, str]:
    texts: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if not issubclass(cls, msgspec.Struct) or not cls.__struct_fields__:
            continue
        for field, text in pairwise(_class_bodies(cls.__module__)[cls.__name__]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                assert isinstance(text.value, ast.Constant)
                texts[field.target.id] = inspect.cleandoc(str(text.value.value))
    return texts


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def _replace_any_of(schema: SchemaDict) -> SchemaDict:
    below = ("items", "additionalProperties", "propertyNames")
    schema = {
        key: _replace_any_of(value) if key in below and isinstance(value, dict) else value
        for key, value in schema.items()
    }
    branches = [_replace_any_of(branch) for branch in schema.pop("anyOf", ())]
    if mapping := schema.pop("discriminator", None):
        return {**schema, **_by_kind(mapping["propertyName"], mapping["mapping"])}
    return {**schema, **_by_type(branches)} if branches else schema


def _by_kind(tag: str, mapping: dict[str, str]) -> SchemaDict:
    return {
        "type": "object",
        "required": [tag],
        "properties": {tag: {"description": f"The kind: {', '.join(mapping)}.", "enum": list(mapping)}},
        "allOf": [
            {"if": {"required": [tag], "properties": {tag: {"const": kind}}}, "then": {"$ref": ref}}
            for kind, ref in mapping.items()
        ],
    }


def _by_type(branches: list[SchemaDict]) -> SchemaDict:
    """Merge alternatives of different JSON types. Keywords of a plain branch apply only to its own type."""
    merged: SchemaDict = {"type": []}
    choices = []
    for branch in branches:
        kind = branch.get("type") or ("object" if "$ref" in branch else "string")
        merged["type"].append(kind)
        if "$ref" in branch or "enum" in branch:
            choices.append({"if": {"type": kind}, "then": branch})
        else:
            merged.update({key: value for key, value in branch.items() if key != "type"})
    return {**merged, **({"allOf": choices} if choices else {})}


def _inline_or_file(inline: SchemaDict) -> SchemaDict:
    named = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string"}}}
    return {"if": named, "then": {"$ref": "#/$defs/FileRef"}, "else": inline}


def _allow_sharing(defs: SchemaDict) -> None:
    """Allow tools, policy and budgets to be inline, `{file: …}`, or a list of both."""
    properties = defs["Agent"]["properties"]
    for key, part in SHARED_PART_NAMES.items():
        inline = properties[key]
        text, default = inline.pop("description"), inline.pop("default", None)
        defs[part] = _inline_or_file(inline)
        ref = {"$ref": f"#/$defs/{part}"}
        properties[key] = {
            "description": text,
            "type": ["object", "array"],
            "default": default,
            "if": {"type": "array"},
            "then": {"minItems": 1, "maxItems": 64, "items": {"type": "object", **ref}},
            "else": ref,
        }


def _describe_profiles(defs: SchemaDict) -> None:
    """Check only the keys of a profile, which may contain parts of anything. The merged document is checked later."""
    properties = defs["Agent"]["properties"]
    allowed = [key for key in properties if key not in KEYS_NOT_IN_PROFILES]
    keys = {key: {"description": properties[key]["description"]} for key in allowed}
    defs["Profile"] = {"type": "object", "properties": keys, "additionalProperties": False}
    properties["profiles"]["additionalProperties"] = {"$ref": "#/$defs/Profile"}


def _allow_negation(defs: SchemaDict) -> None:
    """Allow the prefix `not-` for every assertion type, and remove `negated`, which is not a key that users write."""
    for component in defs.values():
        properties = component["properties"]
        if properties.pop("negated", None) is not None:
            properties["type"]["enum"] += [f"{NEGATION_PREFIX}{kind}" for kind in properties["type"]["enum"]]
        if "assert" not in properties:
            continue
        alternatives = properties["assert"]["items"]
        kind = alternatives["properties"]["type"]
        kind["enum"] += [f"{NEGATION_PREFIX}{each}" for each in kind["enum"]]
        kind["description"] = "The type of the assertion. With the prefix not-, it passes when it would otherwise fail."
        for choice in alternatives["allOf"]:
            word = choice["if"]["properties"]["type"].pop("const")
            choice["if"]["properties"]["type"]["enum"] = [word, f"{NEGATION_PREFIX}{word}"]


def _reachable_definitions(top: SchemaDict, defs: SchemaDict) -> SchemaDict:
    found: dict[str, SchemaDict] = {}

    def visit(value: Any) -> None:
        name = str(value.get("$ref", "")).removeprefix("#/$defs/") if isinstance(value, dict) else ""
        if name in defs and name not in found:
            found[name] = defs[name]
            visit(defs[name])
        for inner in child_values(value):
            visit(inner)

    visit(top)
    return dict(sorted(found.items()))
