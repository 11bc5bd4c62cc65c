"""Every JSON Schema that ships: of the documents people write, of packages, and of the records of a journal."""

from __future__ import annotations

import json

from agentrun.compiler.fingerprint import PackageFile
from agentrun.compiler.journal_words import WORDS
from agentrun.core.facts import Record
from agentrun.spec.schema import DOCUMENTS, Schema, assemble, document_schema, struct_schemas

NAMES = (*DOCUMENTS, "package", "journal")


def schema_text(name: str) -> str:
    """A schema as its file holds it."""
    schema = document_schema(name) if name in DOCUMENTS else _MADE[name]()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _package_schema() -> Schema:
    return assemble("agentrun package", PackageFile.__name__, struct_schemas((PackageFile,)))


def _journal_schema() -> Schema:
    return assemble("agentrun journal, one line", Record.__name__, struct_schemas((Record,), WORDS))


_MADE = {"package": _package_schema, "journal": _journal_schema}
