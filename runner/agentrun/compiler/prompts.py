"""The texts a package gives for one run: params completed, templates rendered once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from agentrun.compiler.template import TemplateStopped, render
from agentrun.core.package import Package
from agentrun.errors import RequestError
from agentrun.spec.problems import did_you_mean, quoted


def complete_params(package: Package, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all params: the given ones, checked, and the defaults of the others."""
    for name in given:
        if name not in package.params:
            hint = did_you_mean(name, package.params) or f"params: {', '.join(package.params) or 'none'}"
            raise _rejected(name, f"param {quoted(name)} is not declared", hint)
    values: dict[str, Any] = {}
    for name, schema in package.params.items():
        if name not in given and "default" not in schema:
            raise _rejected(name, f"param {quoted(name)} has no default and was not given", f"--param {name}=…")
        values[name] = given.get(name, schema.get("default"))
        validator = jsonschema_rs.Draft202012Validator(
            schema, offline=True, mask="the value", pattern_options=jsonschema_rs.RegexOptions()
        )
        for error in validator.iter_errors(values[name]):
            raise _rejected(name, f"param {quoted(name)} breaks its schema: {error.message[:200]}")
    return values


def _rejected(name: str, message: str, hint: str | None = None) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": "params", "param": name})


def rendered_instructions(package: Package, values: Mapping[str, Any]) -> str:
    """The system prompt."""
    return "\n\n".join(_rendered(part, values, "instructions") for part in package.instructions)


def rendered_input(package: Package, values: Mapping[str, Any]) -> str | None:
    """The default message, if the package has one."""
    return None if package.input is None else _rendered(package.input, values, "input")


def _rendered(source: str, values: Mapping[str, Any], what: str) -> str:
    try:
        return render(source, values)
    except TemplateStopped as stopped:
        where = f"{what}, line {stopped.line}"
        raise RequestError(
            "input.rejected", f"{where}: {stopped.message}", fields={"reason": "template", "place": where}
        ) from None
