"""Answers as values of a Python type: a pydantic model, or any type that pydantic supports.

Rule 1  The JSON Schema of the type is the output schema of the run: providers with structured output get it, and the
        answer is checked against it and repaired.
Rule 2  Validators that are not part of the schema run at the end. If one fails, the outcome is a failed one, with the
        code `output.invalid`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from agentrun.canonical_json import pretty_json, sorted_json
from agentrun.compiler.json_schemas import check_schema, resolve_references
from agentrun.core.fault import Fault
from agentrun.core.outcome import Outcome
from agentrun.errors import PackageError
from agentrun.spec.problems import DocumentError, Source
from agentrun.spec.yaml_parser import parse_yaml_document

_T = TypeVar("_T")

MAX_OUTPUT_TYPE_ERRORS = 10


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

    def convert_outcome(self, outcome: Outcome) -> Outcome[_T]:
        """The outcome with a value of the type. If a validator refuses the answer, the outcome is a failed one."""
        if not outcome.ok:
            return outcome
        from pydantic import ValidationError  # late: it takes half a second

        try:
            value = self._adapter.validate_json(sorted_json(outcome.output))
            return replace(outcome, output=value).with_trail_of(outcome)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_OUTPUT_TYPE_ERRORS]
            errors = [f"/{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in found]
            message = f"the answer matches the schema of {_type_name(self._kind)}, but not its validators: {errors[0]}"
            fault = Fault("output.invalid", message, {"errors": errors, "run": outcome.run})
            return replace(outcome, status="failed", answer=None, output=None, fault=fault).with_trail_of(outcome)


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
