"""Answers as values of a type: a model of pydantic, or anything that pydantic can describe and read.

Rule 1  The schema of the type is the run's output contract: providers that can keep one are given it, what comes is
        judged by it, and repaired.
Rule 2  What a type asks for beyond its schema (validators of its own) is asked at the end: `output.invalid` is raised.
Rule 3  A failed run has no output, of whatever type.
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
    """The result of a finished run whose answer is a value of a type."""

    output: _T | UnsetType = UNSET
    """The answer. Unset: the run failed."""


class OutputType(Generic[_T]):
    """A type as an output contract."""

    def __init__(self, kind: type[_T]) -> None:
        """Raises `package.invalid` for a type whose schema cannot be used."""
        from pydantic import TypeAdapter  # late: it takes half a second
        from pydantic.errors import PydanticUserError  # late: as above

        try:
            self._adapter: TypeAdapter[_T] = TypeAdapter(kind)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise _unusable_type_error(kind, str(error).splitlines()[0]) from None
        self._kind = kind
        self.schema = _plain_schema(kind, schema)

    def convert_outcome(self, outcome: Outcome) -> TypedOutcome[_T]:
        """The outcome with its output as a value of the type. Raises `output.invalid`."""
        from pydantic import ValidationError  # late: it takes half a second

        fields = asdict(outcome)
        if outcome.output is UNSET:
            return TypedOutcome(**fields)
        try:
            return TypedOutcome(**{**fields, "output": self._adapter.validate_json(sorted_json(outcome.output))})
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_OUTPUT_TYPE_ERRORS]
            errors = [f"/{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in found]
            message = f"the answer keeps the schema of {_type_name(self._kind)}, but is none: {errors[0]}"
            raise OutputError("output.invalid", message, fields={"errors": errors, "run": outcome.run}) from None


def _plain_schema(kind: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without references and without what only pydantic reads."""
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
    return PackageError("package.invalid", f"{_type_name(kind)} cannot be an output: {why}", hint=hint, fields=fields)


def _type_name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)
