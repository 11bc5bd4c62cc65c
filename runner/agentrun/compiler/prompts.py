"""The params and prompts of one run.

Params must be declared in the package. Defaults are filled in. Values are never converted or shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agentrun.compiler.json_schemas import first_error
from agentrun.compiler.spec_reader import Spec
from agentrun.compiler.template import TemplateRenderError, render_template
from agentrun.core.package import Package
from agentrun.errors import RequestError
from agentrun.spec.problems import SourcePlace, did_you_mean, quote_text
from agentrun.spec.tree import ScalarNode, node_at


def complete_params(package: Package, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all params: the given ones, checked, and the defaults of the others."""
    declared = package.params
    unknown = sorted(given.keys() - declared.keys())
    missing = sorted(name for name in declared if name not in given and "default" not in declared[name])
    wrong = {
        name: error
        for name in sorted(given.keys() & declared.keys())
        if (error := first_error(declared[name], given[name]) or _infinity_error(given[name]))
    }
    if unknown or missing or wrong:
        words = [
            *(f"this agent has no param {quote_text(name)}" for name in unknown),
            *(f"the param {quote_text(name)} is missing" for name in missing),
            *(f"the param {quote_text(name)} is invalid: {error}" for name, error in wrong.items()),
        ]
        hint = None
        if unknown:
            names = ", ".join(sorted(declared)) or "none"
            hint = did_you_mean(unknown[0], declared) or f"params of this agent: {names}"
        elif missing:
            hint = f"set it, for example with --param {missing[0]}=VALUE"
        raise RequestError(
            "input.rejected",
            "; ".join(words),
            hint=hint,
            fields={"reason": "params", "unknown": unknown, "missing": missing, "wrong": sorted(wrong)},
        )
    return {name: given[name] if name in given else declared[name]["default"] for name in sorted(declared)}


def _infinity_error(value: Any) -> str | None:
    """A schema without a type accepts infinite numbers, but JSON has none."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return "the value is not JSON"
    return None


def render_instructions(package: Package, values: Mapping[str, Any]) -> str:
    parts = enumerate(package.instructions)
    return "\n\n".join(render_prompt(part, values, "instructions", index) for index, part in parts)


def render_input(package: Package, values: Mapping[str, Any]) -> str | None:
    return None if package.input is None else render_prompt(package.input, values, "input")


def render_prompt(source: str, values: Mapping[str, Any], what: str, part: int = 0) -> str:
    """`what`, `part`: the key of the prompt, and its place in a list of texts."""
    try:
        return render_template(source, values)
    except TemplateRenderError as stopped:
        place = f"{what}, {f'file {quote_text(stopped.file)}, ' if stopped.file else ''}line {stopped.line}"
        fields = {"reason": "template", "prompt": what, "part": part, "problem": stopped.message}
        fields |= {"file": stopped.file, "line": stopped.line, "column": stopped.column}
        raise RequestError("input.rejected", f"{place}: {stopped.message}", fields=fields) from None


@contextmanager
def locate_render_errors(spec: Spec) -> Iterator[None]:
    """Name the file, line and column of a prompt that cannot be rendered. A package does not know its files."""
    try:
        yield
    except RequestError as error:
        fields = error.fields
        if fields.get("reason") != "template":
            raise
        path = fields["prompt"].split(".")
        node = node_at(spec.root, [*path, fields["part"]]) or node_at(spec.root, path)
        if not isinstance(node, ScalarNode):
            raise
        place = node.place_at_line(fields["line"], fields["column"])
        if fields["file"]:
            place = SourcePlace(spec.templates[fields["file"]], fields["line"], fields["column"])
        message = f"{place.source.display_name}:{place.line}:{place.column}: {fields['problem']}"
        raise RequestError(error.code, message, hint=error.hint, fields=fields) from None
