"""The texts a package gives for one run: params completed, templates rendered once.

Rule 1  Params are what the package declares: no other names, defaults written out, no value coerced or shown.
Rule 2  Values are data: text in them is never read as a template.
"""

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
    declared = package.params
    unknown = sorted(given.keys() - declared.keys())
    missing = sorted(name for name in declared if name not in given and "default" not in declared[name])
    wrong = {
        name: error for name in sorted(given.keys() & declared.keys()) if (error := _error(declared[name], given[name]))
    }
    if unknown or missing or wrong:
        words = [
            *(f"{quoted(name)} is not a param of this agent" for name in unknown),
            *(f"{quoted(name)} is missing" for name in missing),
            *(f"{quoted(name)}: {error}" for name, error in wrong.items()),
        ]
        near = did_you_mean(unknown[0], declared) if unknown else None
        raise RequestError(
            "input.rejected",
            "; ".join(words),
            hint=near or f"its params: {', '.join(sorted(declared)) or 'none'}",
            fields={"reason": "params", "unknown": unknown, "missing": missing, "wrong": sorted(wrong)},
        )
    return {name: given[name] if name in given else declared[name]["default"] for name in sorted(declared)}


def _error(schema: dict[str, Any], value: Any) -> str | None:
    validator = jsonschema_rs.Draft202012Validator(
        schema, offline=True, mask="the value", pattern_options=jsonschema_rs.RegexOptions()
    )
    try:
        return next((error.message for error in validator.iter_errors(value)), None)
    except ValueError:  # not JSON: a set, a date, NaN
        return "the value is no JSON"


def rendered_instructions(package: Package, values: Mapping[str, Any]) -> str:
    """The system prompt."""
    return "\n\n".join(rendered(part, values, "instructions") for part in package.instructions)


def rendered_input(package: Package, values: Mapping[str, Any]) -> str | None:
    """The default message, if the package has one."""
    return None if package.input is None else rendered(package.input, values, "input")


def rendered(source: str, values: Mapping[str, Any], what: str) -> str:
    try:
        return render(source, values)
    except TemplateStopped as stopped:
        place = f"{what}, line {stopped.line}"
        raise RequestError(
            "input.rejected", f"{place}: {stopped.message}", fields={"reason": "template", "line": stopped.line}
        ) from None
