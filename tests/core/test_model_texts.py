"""The texts that a model reads are the ones in the golden file."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agentrun.core import model_texts as texts
from agentrun.spec.v1.budgets import CompactionSpec, GuardsSpec

GOLDEN = Path(__file__).parents[1] / "golden" / "model_texts.txt"
CHANGED_MESSAGE = """\
The texts that a model reads have changed: changing a line here invalidates recorded cassettes.
If that is intended: change the line in tests/golden/model_texts.txt too, add the former wording to
runner/agentrun/cassette/former_texts.py, run `make cassettes` and read the diff."""

# Arguments of each function, more than one list where the text depends on them.
EXAMPLES: dict[str, list[tuple[Any, ...]]] = {
    "answer_invalid": [(1, "it is not valid JSON"), (2, "/queue: the value is not a string")],
    "binary_body": [(12_345, "image/png"), (1, None)],
    "budget_used_up": [("turn", 1, 0, 1), ("token", 900, 200, 1000), ("tool call", 1, -1, 0), ("ms", 0, 0, 60_000)],
    "child_failed_text": [("budget.turns", "the budget of 3 turns is used up"), ("provider.timeout", "not shown")],
    "command_failed": [(2, None), (None, "SIGKILL"), (None, None)],
    "context_too_large": [(9000, 8000)],
    "denied_by_policy": [
        (("big-refunds",), "refund", "more than 100", False),
        (("a", "b"), "refund", None, False),
        ((), "refund", None, False),
        (("stop",), "refund", None, True),
    ],
    "exit_status": [(2, None), (None, "SIGKILL"), (None, None)],
    "http_status": [(404,), (302, "https://shop.example/login")],
    "invalid_arguments": [("refund", "amount", "the value is not a number"), ("refund", "", "more is not allowed")],
    "mcp_attachment": [("image", "image/png", 12_345), ("resource file:///a", None, 1)],
    "mcp_exited": [(1, None), (None, 9), (None, None)],
    "message_too_long": [(2000, 1000)],
    "not_approved": [
        *((answer, "refund") for answer in ("denied", "timed_out", "cancelled", "unavailable")),
        ("denied", "refund", "Not today."),
    ],
    "output_omitted": [(12_345,), (1,)],
    "parallel_calls": [(5, 3)],
    "repair": [(("/queue: the value is not a string", texts.MORE_ERRORS),)],
    "repeated_batch": [(3, 2)],
    "repeated_call": [("search", 3), ("search", 1)],
    "repeated_cycle": [(("search", "read"), 3)],
    "repeated_text": [(6, 5)],
    "result_expression_failed": [("JMESPathTypeError",), (None,)],
    "schema_error": [("/queue", "the value is not a string"), ("", '"urgent" is a required property')],
    "stopped_without_call": [(1,), (2,)],
    "summaries_failed": [(1,), (3,)],
    "too_many_calls": [(5, 3)],
    "unknown_action": [("ticket", ["open", "close"])],
    "unknown_tool": [("serch", ["read", "search"]), ("serch", []), ("serch", [f"t{n}" for n in range(102)])],
    "with_code": [("tool.timeout", texts.TIMED_OUT.format(5000))],
    "wrap_up": [(1,), (2,)],
}


def _call(function: Callable[..., str], arguments: tuple[Any, ...]) -> str:
    named = [name for name, each in inspect.signature(function).parameters.items() if each.kind is each.KEYWORD_ONLY]
    count = len(arguments) - len(named)
    return function(*arguments[:count], **dict(zip(named, arguments[count:], strict=True)))


def _lines() -> Iterator[str]:
    for name, value in vars(texts).items():
        if isinstance(value, str) and name.isupper():
            yield f"{name}: {value!r}"
        elif inspect.isfunction(value) and not name.startswith("_"):
            yield from (f"{name}: {_call(value, arguments)!r}" for arguments in EXAMPLES[name])
    yield f"guards.nudge: {GuardsSpec().nudge!r}"
    yield f"context.compaction.prompt: {CompactionSpec().prompt!r}"


def test_every_function_has_an_example() -> None:
    functions = {name for name, value in vars(texts).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert functions == EXAMPLES.keys()


def test_model_texts_match_the_golden_file() -> None:
    written = "".join(f"{line}\n" for line in _lines())
    assert written == GOLDEN.read_text(encoding="utf-8"), CHANGED_MESSAGE
