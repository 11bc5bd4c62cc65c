"""Calls as assertions describe them: tools that exist, ends that there are, comparisons that can be made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from agentrun.compiler.case_names import Names
from agentrun.compiler.conditions import known_names
from agentrun.compiler.patterns import problems_of
from agentrun.core.names import matches
from agentrun.errors import CODES, TOOL_RESULTS
from agentrun.spec.problems import Place, Problem, did_you_mean, quoted
from agentrun.spec.tree import Mapping, place_of
from agentrun.spec.v1.comparisons import COMPARISONS, TYPES, is_comparison
from agentrun.spec.wording import kind_of

Path = list[str | int]

OUTCOMES = ("completed", "suspended", *(code for code in CODES if code != "spec"))
"""How a run can end."""
STATUSES = ("ok", "open", *TOOL_RESULTS, *(code for code in CODES if code.startswith("tool.")))
"""How a call can end, or not."""
_NOT_RUN = ("unknown", "hidden", "invalid_arguments", "missing_field", "invalid_call")


def check_tool(
    root: Mapping, path: Path, target: str, names: Names | None, status: object = UNSET
) -> Iterator[Problem]:
    """A tool that the agent has. What is said to have been refused as unknown need not exist."""
    if names is None or names.has_tool(target) or (isinstance(status, str) and matches(status, "tool.unknown")):
        return
    hint = did_you_mean(target, names.tools) or known_names(names.tools)
    what = f"{quoted(target)} matches no tool" if "*" in target else f"tool {quoted(target)} is not declared"
    yield Problem(place_of(root, path), "spec.unknown_tool", what, hint)


def check_word(root: Mapping, path: Path, written: object, known: tuple[str, ...], what: str) -> Iterator[Problem]:
    """A code, or a pattern of one."""
    if not isinstance(written, str) or any(matches(written, each) for each in known):
        return
    hint = (
        did_you_mean(written, known)
        or f"for example {', '.join(known[:2])}, {known[-1]}, {known[-1].partition('.')[0]}.*"
    )
    yield Problem(place_of(root, path), "spec.wrong_value", f"{quoted(written)} is no {what}", hint)


def check_step(
    root: Mapping, path: Path, key: str, names: Names | None, tool: str, args: object, status: object
) -> Iterator[Problem]:
    """A call: its tool, its end, its arguments. `key`: where its tool is named."""
    yield from check_tool(root, [*path, key] if key else path, tool, names, status)
    yield from check_word(root, [*path, "status"], status, STATUSES, "status of a call")
    if isinstance(args, dict):
        known = None if names is None or _may_be_wrong(status) else names.args_of(tool)
        for name, value in args.items():
            if known is not None and name not in known and not (is_comparison(value) and "present" in value):
                message = f"tool {quoted(tool)} has no argument {quoted(name)}"
                hint = did_you_mean(name, known) or known_names(known)
                yield Problem(place_of(root, [*path, "args", name], key=True), "spec.claim", message, hint)
            yield from _value(root, [*path, "args", name], value)


def _may_be_wrong(status: object) -> bool:
    """Whether a call that ended so may have had arguments that its tool does not have."""
    return isinstance(status, str) and any(matches(status, f"tool.{each}") for each in _NOT_RUN)


def _value(root: Mapping, path: Path, value: Any) -> Iterator[Problem]:
    if is_comparison(value):
        for word, operand in value.items():
            yield from _operand(root, [*path, word], word, operand)
        if value.get("present") is False and len(value) > 1:
            message = "what is not there cannot be compared"
            yield Problem(place_of(root, path), "spec.claim", message, "keep `present: false`, or the comparison")
    elif isinstance(value, dict):
        words = [word for word in value if word in COMPARISONS]
        for word in words:
            others = ", ".join(quoted(each) for each in value if each not in COMPARISONS)
            place = place_of(root, [*path, word], key=True)
            hint = f"comparisons: {', '.join(COMPARISONS)}; keys that are called so are written under `equals`"
            yield Problem(place, "spec.claim", f"{quoted(word)} is a comparison, but {others} beside it is none", hint)
            return
        for name, inner in value.items():
            yield from _value(root, [*path, name], inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _value(root, [*path, index], inner)


def _operand(root: Mapping, path: Path, word: str, operand: Any) -> Iterator[Problem]:
    def wrong(wanted: str, example: str) -> Problem:
        message = f"{quoted(word)} compares with {wanted}, not with {kind_of(operand)}"
        return Problem(place_of(root, path), "spec.claim", message, f"for example {{{word}: {example}}}")

    match word:
        case "gt" | "gte" | "lt" | "lte":
            if isinstance(operand, bool) or not isinstance(operand, int | float | str):
                yield wrong("a number, or a text", "5")
        case "icontains" | "starts-with":
            if not isinstance(operand, str):
                yield wrong("a text", "late")
        case "regex":
            yield from (
                problems_of(operand, place_of(root, path)) if isinstance(operand, str) else [wrong("a text", '"^A"')]
            )
        case "in":
            if not isinstance(operand, list) or not operand:
                yield wrong("a list of values", "[a, b]")
        case "present":
            if not isinstance(operand, bool):
                yield wrong("true or false", "true")
        case "type":
            yield from _type(place_of(root, path), operand)


def _type(place: Place, operand: Any) -> Iterator[Problem]:
    if operand not in TYPES:
        hint = did_you_mean(operand, TYPES) if isinstance(operand, str) else None
        shown = quoted(operand) if isinstance(operand, str) else kind_of(operand)
        yield Problem(place, "spec.claim", f"{shown} is no type", hint or f"types: {', '.join(TYPES)}")
