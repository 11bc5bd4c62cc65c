"""Check and evaluate JMESPath expressions.

Rule 1  The size of a result and the number of steps are limited: `[@,@]|[@,@]|…` is short, but its result is huge.
Rule 2  The document is not trusted. Whatever it contains, the worst case is an expression that selects nothing.

The library is imported late, because the import takes long and few specs have an expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any
from warnings import catch_warnings, simplefilter

from agentrun.core import model_texts as texts
from agentrun.spec.problems import Problem, did_you_mean, quote_text
from agentrun.spec.tree import ScalarNode

MAX_RESULT_GROWTH = 128
"""How many times larger than the document a result may be."""
MAX_JMESPATH_STEPS = 1_000_000
_CHAINED_NODES = ("subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection")


class UnusableJmespath(Exception):
    """Why an expression cannot be used, and at which offset."""

    def __init__(self, message: str, offset: int = 0, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


def jmespath_problems(node: ScalarNode, document: str) -> Iterator[Problem]:
    """Check an expression in a spec. `document`: what it is applied to, in words."""
    try:
        parse_jmespath(node.text)
    except UnusableJmespath as unusable:
        hint = unusable.hint or "for example items[*].name; put texts in single quotes"
        message = unusable.message.replace("the reply", document)
        yield Problem(node.place_at(unusable.offset, 1), "spec.jmespath", message, hint)


def evaluate_jmespath(expression: str, document: Any) -> Any:
    """Return what an expression selects. Raises `UnusableJmespath` if it fails or takes too long."""
    from jmespath import Options  # late: slow to import
    from jmespath.exceptions import JMESPathError  # late: as above
    from jmespath.functions import Functions  # late: as above
    from jmespath.visitor import TreeInterpreter  # late: as above

    left = MAX_JMESPATH_STEPS

    def use(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise UnusableJmespath(texts.RESULT_TOO_MUCH_WORK)

    class Metered(Functions):
        def call_function(self, function_name: str, resolved_args: Any) -> Any:
            sizes = [len(each) for each in resolved_args if isinstance(each, str | list | dict)]
            use(prod(sizes) if function_name == "join" else sum(sizes))
            return super().call_function(function_name, resolved_args)

    class Interpreter(TreeInterpreter):
        def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
            use(1)
            value = super().visit(node, *args, **kwargs)
            if type(value) is list:
                use(len(value) // 16)
            return value

    parsed = parse_jmespath(expression)
    try:
        return Interpreter(Options(custom_functions=Metered())).visit(parsed, document)
    except JMESPathError as error:
        raise UnusableJmespath(texts.result_expression_failed(type(error).__name__)) from None
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError):
        raise UnusableJmespath(texts.result_expression_failed(None)) from None


def parse_jmespath(expression: str) -> Mapping[str, Any]:
    """Return the syntax tree of an expression. Raises `UnusableJmespath`."""
    from jmespath import compile as read  # late: slow to import
    from jmespath.exceptions import JMESPathError, ParseError  # late: as above

    try:
        with catch_warnings():
            simplefilter("error")  # the library accepts some invalid expressions with a warning
            tree: Mapping[str, Any] = read(expression).parsed
        times = _growth(tree)
    except ParseError as error:
        raise UnusableJmespath("this is not a valid JMESPath expression", error.lex_position) from None
    except (JMESPathError, ValueError, RecursionError, Warning):
        raise UnusableJmespath("this is not a valid JMESPath expression") from None
    if times > MAX_RESULT_GROWTH:
        raise UnusableJmespath(f"the result may be more than {MAX_RESULT_GROWTH} times as large as the reply")
    return tree


def _growth(node: Mapping[str, Any]) -> int:
    kind = node["type"]
    parts = [_growth(child) for child in node["children"] if isinstance(child, dict)]
    if kind == "function_expression":
        _refuse_unknown(node["value"])
        has_expression = any(child["type"] == "expref" for child in node["children"])
        return prod(parts) if has_expression else 2 * sum(parts)  # in JSON each letter of a text may need an escape
    return max(1, prod(parts) if kind in _CHAINED_NODES else sum(parts))


def _refuse_unknown(function: str) -> None:
    from jmespath.functions import Functions  # late: slow to import

    known = Functions.FUNCTION_TABLE
    if function not in known:
        raise UnusableJmespath(f"JMESPath has no function {quote_text(function)}", hint=did_you_mean(function, known))
