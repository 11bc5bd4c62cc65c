"""Answers as values of a Python type: a pydantic model, or any type that pydantic supports.

Rule 1  The JSON Schema of the type is the output schema of the run: providers with structured output get it, and the
        answer is checked against it and repaired.
Rule 2  Validators that are not part of the schema run at the end and raise `output.invalid`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from agentrun.canonical_json import pretty_json, sorted_json
from agentrun.compiler.json_schemas import check_schema, resolve_references
from agentrun.core.outcome import Outcome
from agentrun.errors import OutputError, PackageError
from agentrun.spec.problems import DocumentError, Source
from agentrun.spec.yaml_parser import parse_yaml_document

_T = TypeVar("_T")

MAX_OUTPUT_TYPE_ERRORS = 10


class TypedOutcome(Outcome, Generic[_T], frozen=True, kw_only=True):
    """The outcome of a finished run whose answer has a Python type."""

    output: _T | UnsetType = UNSET
    """The answer. Unset if the run failed."""


class OutputType(Generic[_T]):
    def __init__(self, kind: type[_T]) -> None:
        """Raises `package.invalid` if the schema of the type cannot be used."""
        from pydantic import PydanticUserError, TypeAdapter  # late: it takes half a second

        try:
            self._adapter: TypeAdapter[_T] = TypeAdapter(kind)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise _unusable_type_error(kind, str(error).splitlines()[0]) from None
        self._kind = kind
        self.schema = _plain_schema(kind, schema)

    def convert_outcome(self, outcome: Outcome) -> TypedOutcome[_T]:
        from pydantic import ValidationError  # late: it takes half a second

        fields = asdict(outcome)
        if outcome.output is UNSET:
            return TypedOutcome(**fields)
        try:
            return TypedOutcome(**{**fields, "output": self._adapter.validate_json(sorted_json(outcome.output))})
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_OUTPUT_TYPE_ERRORS]
            errors = [f"/{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in found]
            message = f"the answer matches the schema of {_type_name(self._kind)}, but not its validators: {errors[0]}"
            raise OutputError("output.invalid", message, fields={"errors": errors, "run": outcome.run}) from None


def _plain_schema(kind: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without references and without keywords that only pydantic uses."""
    try:
        node = parse_yaml_document(Source(Path("/schema"), "schema", pretty_json(_without_discriminators(schema))))
    except DocumentError as error:
        raise _unusable_type_error(kind, error.problems[0].message) from None
    if found := check_schema(node):
        raise _unusable_type_error(kind, found[0].message, found[0].hint)
    return {"title": _type_name(kind), **resolve_references(node)}


def _without_discriminators(schema: Any) -> Any:
    match schema:
        case dict():
            return {key: _without_discriminators(inner) for key, inner in schema.items() if key != "discriminator"}
        case list():
            return [_without_discriminators(inner) for inner in schema]
    return schema


def _unusable_type_error(kind: Any, why: str, hint: str | None = None) -> PackageError:
    fields = {"pointer": "/output/schema", "type": _type_name(kind)}
    message = f"{_type_name(kind)} cannot be used as output: {why}"
    return PackageError("package.invalid", message, hint=hint, fields=fields)


def _type_name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)
