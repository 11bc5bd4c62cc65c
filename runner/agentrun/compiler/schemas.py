"""Every JSON Schema that ships: of the documents people write, and of packages."""

from __future__ import annotations

import json

from agentrun.compiler.fingerprint import PackageFile
from agentrun.spec.schema import DOCUMENTS, assemble, document_schema, struct_schemas

NAMES = (*DOCUMENTS, "package")


def schema_text(name: str) -> str:
    """A schema as its file holds it."""
    schema = document_schema(name) if name in DOCUMENTS else _package_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _package_schema() -> dict[str, object]:
    return assemble("agentrun package", PackageFile.__name__, struct_schemas((PackageFile,)))
