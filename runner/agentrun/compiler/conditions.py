"""CEL conditions in a spec: do they compile, and do they read what exists?"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from agentrun.core import condition
from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.spec.tree import Scalar

_ERROR = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_STRINGS = re.compile(r"""r?("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")
_FIELDS = re.compile(r"(?<![\w.])(args|params|spend|calls|session)\s*\.\s*([A-Za-z_]\w*)(?!\s*\()")
_KEYS = re.compile(r"""(?<![\w.])(args|params|spend|calls|session)\s*\[\s*(['"])([^'"\\]*)\2\s*\]""")


def check_condition(node: Scalar, fields: Mapping[str, Collection[str] | None]) -> list[Problem]:
    """Problems of one expression. `fields`: the variables it may read → their known fields (None: any)."""
    try:
        kind = condition.compiled(node.text).return_type().name()
    except RuntimeError as error:
        return list(_compile_problems(node, str(error)))
    problems = list(_field_problems(node, fields))
    if not problems and kind not in ("BOOL", "DYN"):
        message = f"a condition must be true or false; this is {kind.lower()}"
        problems.append(Problem(node.place, "spec.condition", message))
    return problems


def _compile_problems(node: Scalar, text: str) -> Iterator[Problem]:
    found = _ERROR.findall(text)
    for line, column, message in found:
        message = message.replace(" (in container '')", "")
        place = node.place_in(int(line), int(column))
        name = re.match(r"undeclared reference to '(\w+)'", message)
        hint = None
        if name:
            place = node.place_in(int(line), int(column), len(name[1]))
            hint = did_you_mean(name[1], condition.VARIABLES) or f"conditions read {', '.join(condition.VARIABLES)}"
        yield Problem(place, "spec.condition", message[:300], hint)
    if not found:
        yield Problem(node.place, "spec.condition", "not a CEL expression")


def reads(text: str) -> Iterator[tuple[str, str, int]]:
    """The fields an expression reads: variable, field, offset of the field."""
    for match in _KEYS.finditer(text):
        yield match[1], match[3], match.start(3)
    bare = _STRINGS.sub(lambda match: " " * len(match[0]), text)
    for match in _FIELDS.finditer(bare):
        yield match[1], match[2], match.start(2)


def _field_problems(node: Scalar, fields: Mapping[str, Collection[str] | None]) -> Iterator[Problem]:
    what = {"args": "argument", "params": "param", "calls": "tool"}
    for variable, field, offset in reads(node.text):
        place = node.place_at(offset, len(field))
        if variable not in fields:
            message = f"{variable} is not there at this stage"
            yield Problem(place, "spec.condition", message, f"here a condition reads {', '.join(fields)}")
            continue
        known = fields[variable]
        if known is None or field in known:
            continue
        names = ", ".join(sorted(known)) or "none"
        hint = did_you_mean(field, known) or f"known: {names}"
        kind = what.get(variable, "field")
        code = {"argument": "spec.unknown_arg", "param": "spec.unknown_param", "tool": "spec.unknown_tool"}
        message = f"{kind} {quoted(field)} is not declared" if kind != "field" else f"{variable} has no {quoted(field)}"
        yield Problem(place, code.get(kind, "spec.condition"), message, hint)
