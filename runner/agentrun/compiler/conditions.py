"""Checks of CEL conditions: they compile, read existing fields and cannot take too long. Also CEL in assertions.

Rule 1  A mistake is reported at its token. Errors that follow from a syntax error are not reported.
Rule 2  CEL stops after 10,000 iterations of all, exists, map and filter, but does not limit the work of one iteration.
        So a condition with these is short, and the patterns of `matches` must be literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from cel_expr_python import cel

from agentrun.compiler.patterns import pattern_problems_at
from agentrun.core import condition
from agentrun.core.condition import FailedEvaluation, evaluate_condition
from agentrun.spec.problems import Problem, SourcePlace, did_you_mean, quote_text
from agentrun.spec.tree import ScalarNode

MAX_LOOP_CONDITION = 500

_LITERAL_OR_COMMENT = re.compile(
    r"""([rRbB]{0,2}(?:("{3}|'{3})(?:\\.|(?!\2).)*+\2|(["'])(?:\\.|(?!\3)[^\\\n])*+\3))|//[^\n]*""", re.DOTALL
)
FILL = "\0"
"""What strings are replaced by before an expression is searched."""
_VARIABLE = r"(?<![\w.])(args|params|spend|calls|session)\s*+"
_field = re.compile(_VARIABLE + r"\.\s*+([A-Za-z_]\w*+)(?!\s*\()")
_key = re.compile(_VARIABLE + rf"\[\s*+({FILL}+)\s*+\]")
_loop = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(")
_matches = re.compile(r"\bmatches\s*\(")
_pattern = re.compile(rf"(?:.*,)?\s*({FILL}+)\s*", re.DOTALL)
TYPE_DESCRIPTIONS = {
    "int": "a whole number",
    "uint": "a whole number",
    "double": "a decimal number",
    "string": "text",
    "bool": "true or false",
    "dyn": "anything",
    "null_type": "null",
    "null": "null",
    "list": "a list",
    "map": "a mapping",
    "google.protobuf.Timestamp": "a time",
    "google.protobuf.Duration": "a duration",
    "timestamp": "a time",
    "duration": "a duration",
}
_FUNCTIONS = (
    *("has", "size", "matches", "startsWith", "endsWith", "contains", "int", "double", "string", "bool", "type"),
    *("all", "exists", "exists_one", "map", "filter", "duration", "timestamp"),
    *("getFullYear", "getMonth", "getDate", "getDayOfWeek", "getHours", "getMinutes", "getSeconds"),
)
_WORD_HINTS = {"and": "use && for and", "or": "use || for or", "not": "use ! for not", "is": "use == to compare"}
_OTHER_NAMES = {"True": "true", "False": "false", "None": "null", "nil": "null", "undefined": "null"}
_SWAPPED_SIGNS = {"=<": "<=", "=>": ">=", "=!": "!="}
CompileError: TypeAlias = tuple[int, int, str]
"""Line, column and message of an error that CEL reports."""
_error = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED_NAME = re.compile(r"undeclared reference to '([\w.]+)'")
_overload = re.compile(r"found no matching overload for '(.+?)' applied to '\((.*)\)'")
_input = re.compile(r"Syntax error: (?:mismatched|extraneous) input '(.*?)' expecting")
_unread = re.compile(r"Syntax error: token recognition error at: '(.*)'")
_STEP_TYPE = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
_ASSERTION_TYPES = {
    "output": cel.Type.STRING,
    "json": cel.Type.DYN,
    "params": _STEP_TYPE,
    "calls": cel.Type.List(_STEP_TYPE),
    "rulings": cel.Type.List(_STEP_TYPE),
    "approvals": cel.Type.List(_STEP_TYPE),
    "spend": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
    "outcome": cel.Type.STRING,
}
_ASSERTION_ENVIRONMENT = cel.NewEnv(variables=_ASSERTION_TYPES)
ASSERTION_VARIABLES: dict[str, tuple[str, ...] | None] = dict.fromkeys(_ASSERTION_TYPES)


def without_literals(text: str) -> str:
    """Replace strings and comments by filler of the same length."""
    return _LITERAL_OR_COMMENT.sub(lambda found: (FILL if found[1] else " ") * len(found[0]), text)


def literal_text(literal: str) -> str | None:
    """Return the text of a string literal; None if it has escapes."""
    quotes = literal.lstrip("rRbB")
    raw = "r" in literal[: len(literal) - len(quotes)].lower()
    size = 3 if quotes[:3] in ('"""', "'''") and len(quotes) >= 6 else 1
    inner = quotes[size:-size]
    return inner if raw or "\\" not in inner else None


def check_condition(
    node: ScalarNode,
    fields: Mapping[str, Collection[str] | None],
    compiled: Callable[[str], Any] = condition.compile_condition,
    variables: Collection[str] = condition.CONDITION_VARIABLES,
) -> list[Problem]:
    """Return the problems of one expression. `fields`: the variables it may read → their known fields (None: any).

    `compiled`, `variables`: the language, if it is not that of conditions in a spec."""
    bare = without_literals(node.text)
    if _loop.search(bare) and len(node.text) > MAX_LOOP_CONDITION:
        message = f"a condition with all, exists, map or filter can have at most {MAX_LOOP_CONDITION} characters"
        return [Problem(node.place, "spec.condition", message, "split it into several rules")]
    try:
        kind = compiled(node.text).return_type().name()
    except RuntimeError as error:
        return _compiler_problems(node, bare, variables, str(error))
    problems = [*_field_problems(node, fields), *_pattern_problems(node, bare)]
    if not problems and kind not in ("BOOL", "DYN"):
        message = f"a condition must be true or false, but this is {TYPE_DESCRIPTIONS.get(kind.lower(), kind.lower())}"
        problems.append(Problem(node.place, "spec.condition", message, "compare it with something"))
    return problems


def cheap_constant_value(text: str) -> bool | None:
    """Return the value of a condition without variables, loops and patterns, else None."""
    bare = without_literals(text)
    return None if _loop.search(bare) or _matches.search(bare) else condition.constant_condition(text)


def field_references(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the fields that an expression reads: variable, field, offset of the field."""
    bare = without_literals(text)
    for match in _key.finditer(bare):
        content = literal_text(text[match.start(2) : match.end(2)])
        if content is not None:
            yield match[1], content, text.index(content, match.start(2))
    for match in _field.finditer(bare):
        yield match[1], match[2], match.start(2)


def patterns_in_condition(text: str) -> Iterator[tuple[str | None, int, int]]:
    """Yield the patterns of `matches` with offset and width; None if a pattern is not a literal."""
    bare = without_literals(text)
    closing = _closing(bare)
    for call in _matches.finditer(bare):
        found = _pattern.fullmatch(bare, call.end(), closing.get(call.end() - 1, call.end()))
        if found is None:
            yield None, call.start(), len("matches")
        else:
            literal = text[found.start(1) : found.end(1)]
            pattern = literal_text(literal) or literal[1:-1].replace("\\\\", "\\")
            yield pattern, found.start(1), len(literal)


def _closing(bare: str) -> dict[int, int]:
    """Return the offset of the closing parenthesis for each opening one."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for at, char in enumerate(bare):
        if char == "(":
            opened.append(at)
        elif char == ")" and opened:
            found[opened.pop()] = at
    return found


def _pattern_problems(node: ScalarNode, bare: str) -> Iterator[Problem]:
    for pattern, offset, width in patterns_in_condition(node.text) if "matches" in bare else ():
        place = node.place_at(offset, width)
        if pattern is None:
            message = "the pattern of matches must be a literal text"
            yield Problem(place, "spec.condition", message, "write one matches('…') for each pattern")
        else:
            yield from pattern_problems_at(pattern, place)


def _field_problems(node: ScalarNode, fields: Mapping[str, Collection[str] | None]) -> Iterator[Problem]:
    kinds = {"args": ("argument", "arg"), "params": ("param", "param"), "calls": ("tool", "tool")}
    for variable, field, offset in field_references(node.text):
        place = node.place_at(offset, len(field))
        if variable not in fields:
            message = f"{variable} is not available at this stage"
            yield Problem(place, "spec.condition", message, f"available here: {', '.join(fields)}")
            continue
        known = fields[variable]
        if known is None or field in known:
            continue
        code, message = "spec.condition", f"{variable} has no field {quote_text(field)}"
        if variable in kinds:
            noun, ending = kinds[variable]
            code, message = f"spec.unknown_{ending}", f"{noun} {quote_text(field)} is not declared"
        yield Problem(place, code, message, near_or_known_hint(field, known))


def near_or_known_hint(name: str, known: Collection[str]) -> str:
    names = sorted(known)
    more = "" if len(names) <= 20 else f" and {len(names) - 20} more"
    return did_you_mean(name, known) or f"known: {', '.join(names[:20]) or 'none'}{more}"


def _compiler_problems(node: ScalarNode, bare: str, variables: Collection[str], text: str) -> list[Problem]:
    if "recursion" in text:
        message = "the condition is nested deeper than 32 levels"
        return [Problem(node.place, "spec.condition", message, "split it into several rules")]
    placed = compile_errors(text)
    if not placed:
        return [Problem(node.place, "spec.condition", "this is not a valid CEL expression")]
    syntax = [error for error in placed if error[2].startswith("Syntax error")]
    explained = (_explain(node, bare, variables, *error) for error in syntax[:1] or placed)
    return [Problem(place, "spec.condition", message, hint) for place, message, hint in explained]


def _explain(
    node: ScalarNode, bare: str, variables: Collection[str], line: int, column: int, error: str
) -> tuple[SourcePlace, str, str | None]:
    at = sum(len(text) + 1 for text in bare.split("\n")[: line - 1]) + column - 1
    place = node.place_at_line(line, column)
    if found := _UNDECLARED_NAME.match(error):
        return _undeclared_name(node, bare, variables, at, found[1].partition(".")[0])
    if overload := overload_error(error):
        return place, *_no_overload(*overload)
    if found := _input.match(error):
        if found[1] == "<EOF>":
            return place, "the condition is incomplete", None
        last = bare[:at].split()[-1:]
        hint = _WORD_HINTS.get(found[1]) or (_WORD_HINTS.get(last[0]) if last else None)
        return node.place_at_line(line, column, len(found[1])), f"unexpected {quote_text(found[1])}", hint
    if found := _unread.match(error):
        if (sign := found[1][:2]) in _SWAPPED_SIGNS:
            hint = f"did you mean {_SWAPPED_SIGNS[sign]}?"
            return node.place_at_line(line, column, len(sign)), f"unexpected {quote_text(sign)}", hint
        return place, *_unreadable(found[1])
    hint = "for special characters write 'the.name' in calls" if error.startswith("has()") else None
    return place, error[:200].replace(" (in container '')", ""), hint


def _undeclared_name(
    node: ScalarNode, bare: str, variables: Collection[str], at: int, name: str
) -> tuple[SourcePlace, str, str | None]:
    """CEL reports the place after the name; report the name itself."""
    before = bare[: at + len(name)]
    word = [*re.finditer(rf"(?<![\w.]){name}\b", before)] or [*re.finditer(rf"\b{name}\b", before)]
    place = node.place_at(word[-1].start() if word else at, len(name))
    is_call = bare[:at].rstrip().endswith(name) and bare[at : at + 1] == "("
    if is_call and name in _FUNCTIONS:
        return place, f"{name} cannot be called like this", None
    if is_call:
        hint = did_you_mean(name, _FUNCTIONS) or f"functions: {', '.join(_FUNCTIONS)}"
        return place, f"there is no function {quote_text(name)}", hint
    if name in _OTHER_NAMES:
        return place, f"unknown name {quote_text(name)}", f"write {_OTHER_NAMES[name]}"
    hint = did_you_mean(name, variables) or f"variables: {', '.join(variables)}"
    return place, f"unknown variable {quote_text(name)}", hint


def compile_errors(text: str) -> list[CompileError]:
    """Return the errors in a message of CEL that have a place."""
    errors = [(int(line), int(column), message) for line, column, message in _error.findall(text)]
    return sorted(error for error in errors if error[0] > 0)


def overload_error(error: str) -> tuple[str, list[str]] | None:
    """Return the function and the types of an error about arguments that a function does not take."""
    found = _overload.match(error)
    return (found[1], _split_types(found[2])) if found else None


def _split_types(text: str) -> list[str]:
    """Split `int, map(string, dyn)` into its two types."""
    types: list[str] = []
    depth = 0
    for part in text.split(", "):
        types[-1:] = [f"{types[-1]}, {part}"] if depth else [*types[-1:], part]
        depth += part.count("(") - part.count(")")
    return types


def operator_sign(function: str) -> str:
    """Return `<=` for the function `_<=_`."""
    return {"_?_:_": "? :", "_[_]": "[ ]"}.get(function, function.strip("_").replace("@", ""))


def _no_overload(function: str, types: list[str]) -> tuple[str, str | None]:
    sign = operator_sign(function)
    kinds = " and ".join(TYPE_DESCRIPTIONS.get(kind.partition("(")[0], kind) for kind in types)
    hint = None
    if set(types) == {"int", "double"}:
        hint = "convert one of them with double(…), or use a whole number"
    elif set(types) == {"google.protobuf.Timestamp", "string"}:
        hint = "write a time as timestamp('2026-12-24T08:00:00Z')"
    elif set(types) == {"google.protobuf.Timestamp", "int"}:
        hint = "write a duration as duration('2h'), or compare now.getHours()"
    return f"{sign} does not work on {kinds}", hint


def _unreadable(found: str) -> tuple[str, str | None]:
    if found.startswith(("'", '"')):
        return "the quote opened here is not closed", "close it"
    hint = {"=": "use == to compare", "&": "write &&", "|": "write ||"}.get(found[:1])
    return f"unexpected {quote_text(found.strip()[:1])}", hint


ASSERTION_VARIABLES["spend"] = ("tokens", "cost", "turns", "time")
"""The variables, with their fields if these are fixed. cost is in micro-dollars, time in milliseconds."""


class UndecidedExpression(Exception):
    """Why an expression is neither true nor false."""


@lru_cache(maxsize=4096)
def compile_assertion_expression(expression: str) -> Any:
    """Compile an expression. Raises RuntimeError with positions if it is invalid."""
    return _ASSERTION_ENVIRONMENT.compile(expression)


def evaluate_assertion_expression(expression: str, variables: dict[str, Any]) -> bool:
    """Evaluate an expression. Raises `UndecidedExpression` if it fails or is neither true nor false."""
    value = evaluate_condition(expression, variables, compile_assertion_expression)
    if isinstance(value, FailedEvaluation):
        raise UndecidedExpression(value.reason)
    return value
