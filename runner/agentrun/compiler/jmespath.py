"""What a JMESPath expression picks out of a JSON document.

Rule 1  What cannot be parsed, or names a function that there is not, is found before a run.
Rule 2  No expression makes more of a document than so many times its size, and none works longer than a limit allows:
        `[@,@]|[@,@]|…` is short, and the document that it makes is not.
Rule 3  The document comes from a stranger: whatever is in it, the worst is an expression that picks nothing.

Importing the library takes a while: only who has an expression does.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any
from warnings import catch_warnings, simplefilter

from agentrun.spec.problems import did_you_mean, quote_text

MAX_RESULT_GROWTH = 128
"""How many times as large as the document something that is made of it may be."""
MAX_JMESPATH_STEPS = 1_000_000
_CHAINED_NODES = ("subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection")


class UnusableJmespath(Exception):
    """Why an expression cannot be used, and where in it."""

    def __init__(self, message: str, offset: int = 0, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


def check_jmespath_syntax(expression: str) -> None:
    """Raises `UnusableJmespath` for an expression that no document can be picked from."""
    _parse_expression(expression)


def evaluate_jmespath(expression: str, document: Any) -> Any:
    """What an expression picks. Raises `UnusableJmespath` when it does not fit the document, or is too much work."""
    from jmespath import Options  # late: only who has an expression needs it
    from jmespath.exceptions import JMESPathError  # late: the same
    from jmespath.functions import Functions  # late: the same
    from jmespath.visitor import TreeInterpreter  # late: the same

    left = MAX_JMESPATH_STEPS

    def use(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise UnusableJmespath("it takes too much work to pick the result out of the reply")

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

    parsed = _parse_expression(expression)
    try:
        return Interpreter(Options(custom_functions=Metered())).visit(parsed, document)
    except JMESPathError as error:
        raise UnusableJmespath(f"the reply is not one that the expression fits: {type(error).__name__}") from None
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError):
        raise UnusableJmespath("the reply is not one that the expression fits") from None


def _parse_expression(expression: str) -> Mapping[str, Any]:
    from jmespath import compile as read  # late: only who has an expression needs it
    from jmespath.exceptions import JMESPathError, ParseError  # late: the same

    try:
        with catch_warnings():
            simplefilter("error")  # the library still reads some texts that are none, and warns
            tree: Mapping[str, Any] = read(expression).parsed
        times = _growth(tree)
    except ParseError as error:
        raise UnusableJmespath("this is not a JMESPath expression", error.lex_position) from None
    except (JMESPathError, ValueError, RecursionError, Warning):
        raise UnusableJmespath("this is not a JMESPath expression") from None
    if times > MAX_RESULT_GROWTH:
        raise UnusableJmespath(f"what it picks may be {MAX_RESULT_GROWTH} times as large as the reply, or more")
    return tree


def _growth(node: Mapping[str, Any]) -> int:
    """How many times as large as its document something that is made of it may be, at most."""
    kind = node["type"]
    parts = [_growth(child) for child in node["children"] if isinstance(child, dict)]
    if kind == "function_expression":
        _refuse_unknown(node["value"])
        has_expression = any(child["type"] == "expref" for child in node["children"])
        return prod(parts) if has_expression else 2 * sum(parts)  # a text in JSON may have an escape for each letter
    return max(1, prod(parts) if kind in _CHAINED_NODES else sum(parts))


def _refuse_unknown(function: str) -> None:
    from jmespath.functions import Functions  # late: only who has an expression needs it

    known = Functions.FUNCTION_TABLE
    if function not in known:
        raise UnusableJmespath(f"JMESPath has no function {quote_text(function)}", hint=did_you_mean(function, known))
