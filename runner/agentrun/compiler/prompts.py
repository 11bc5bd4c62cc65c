"""The params and prompts of one run.

Rule 1  Params must be declared in the package. Defaults are filled in. Values are never converted or shown.
Rule 2  Values are data. Text in them is never interpreted as a template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrun.compiler.json_schemas import first_error
from agentrun.compiler.template import TemplateRenderError, render_template
from agentrun.core.package import Package
from agentrun.errors import RequestError
from agentrun.spec.problems import did_you_mean, quote_text


def complete_params(package: Package, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all params: the given ones, checked, and the defaults of the others."""
    declared = package.params
    unknown = sorted(given.keys() - declared.keys())
    missing = sorted(name for name in declared if name not in given and "default" not in declared[name])
    wrong = {
        name: error
        for name in sorted(given.keys() & declared.keys())
        if (error := first_error(declared[name], given[name]))
    }
    if unknown or missing or wrong:
        words = [
            *(f"this agent has no param {quote_text(name)}" for name in unknown),
            *(f"the param {quote_text(name)} is missing" for name in missing),
            *(f"the param {quote_text(name)} is invalid: {error}" for name, error in wrong.items()),
        ]
        near = did_you_mean(unknown[0], declared) if unknown else None
        raise RequestError(
            "input.rejected",
            "; ".join(words),
            hint=near or f"params of this agent: {', '.join(sorted(declared)) or 'none'}",
            fields={"reason": "params", "unknown": unknown, "missing": missing, "wrong": sorted(wrong)},
        )
    return {name: given[name] if name in given else declared[name]["default"] for name in sorted(declared)}


def render_instructions(package: Package, values: Mapping[str, Any]) -> str:
    """Render the system prompt."""
    return "\n\n".join(render_prompt(part, values, "instructions") for part in package.instructions)


def render_input(package: Package, values: Mapping[str, Any]) -> str | None:
    """Render the default message, if the package has one."""
    return None if package.input is None else render_prompt(package.input, values, "input")


def render_prompt(source: str, values: Mapping[str, Any], what: str) -> str:
    try:
        return render_template(source, values)
    except TemplateRenderError as stopped:
        place = f"{what}, line {stopped.line}"
        raise RequestError(
            "input.rejected", f"{place}: {stopped.message}", fields={"reason": "template", "line": stopped.line}
        ) from None
