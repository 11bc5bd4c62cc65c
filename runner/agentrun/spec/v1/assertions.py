"""What a case claims about a run.

Every type also exists with `not-` before it, which holds when the claim does not: `negated` is that prefix, and no key
that people write. A claim about something that did not happen (a call that was not made, an output that is no JSON) does
not hold, so its `not-` does. A claim that cannot be judged (an expression that fails) holds neither way.

A call counts whether it ran or not. Calls of sub-agents count only where a slash is written: `read/library.search`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.field_types import Condition, CountField, Duration, JsonSchemaField, Pattern, Reference
from agentrun.spec.v1.policy import TARGET_PATTERN, StageSpec, TargetGlob

RulingSpec: TypeAlias = Literal["allow", "modify", "ask", "defer", "deny", "interrupt"]
ApprovalAnswerSpec: TypeAlias = Literal[
    "approved", "approved_for_session", "denied", "timed_out", "cancelled", "unavailable"
]
NonEmptyText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=262_144)]
CountLimit: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
DollarLimit: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)] | Annotated[int, Meta(ge=0, le=1_000_000)]


class AssertionBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type"):
    """What claims of every type have in common."""

    negated: bool = False
    """Whether the claim must not hold."""


# --- the output -------------------------------------------------------------------------------------------------------


class Equals(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="equals"):
    """The answer is exactly this."""

    value: Any
    """A text, or for an answer in JSON any value."""


class Contains(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="contains"):
    """The answer contains this text."""

    value: NonEmptyText
    """The text itself."""


class ContainsAll(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="contains-all"):
    """The answer contains all of these texts."""

    value: Annotated[list[NonEmptyText], Meta(min_length=1)]
    """The texts, one by one."""


class ContainsAny(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="contains-any"):
    """The answer contains one of these texts."""

    value: Annotated[list[NonEmptyText], Meta(min_length=1)]
    """The texts, one by one."""


class IContains(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains"):
    """The answer contains this text, in upper or lower case."""

    value: NonEmptyText
    """The text itself."""


class IContainsAll(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains-all"):
    """The answer contains all of these texts, in upper or lower case."""

    value: Annotated[list[NonEmptyText], Meta(min_length=1)]
    """The texts, one by one."""


class IContainsAny(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains-any"):
    """The answer contains one of these texts, in upper or lower case."""

    value: Annotated[list[NonEmptyText], Meta(min_length=1)]
    """The texts, one by one."""


class Regex(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="regex"):
    """A part of the answer matches a regular expression."""

    value: Pattern
    """The expression, in RE2 syntax. ^ and $ tie it to the beginning and the end."""


class StartsWith(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="starts-with"):
    """The answer begins with this text."""

    value: NonEmptyText
    """The text itself."""


class IsJson(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="is-json"):
    """The answer is JSON."""

    value: JsonSchemaField | UnsetType = UNSET
    """A JSON Schema that it must also fit. Absent: any JSON will do."""


class JsonSchemaAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="json-schema"):
    """The answer is JSON that fits a schema."""

    value: JsonSchemaField
    """The JSON Schema."""


class JmespathAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="jmespath"):
    """A JMESPath expression over the answer in JSON finds something, or what is expected."""

    value: Annotated[str, Meta(min_length=1, max_length=4096)]
    """The expression itself."""
    expected: Any | UnsetType = UNSET
    """What it must find. Absent: anything but null, false, and what is empty."""


class CelAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="cel"):
    """A CEL expression is true."""

    value: Condition
    """The expression, over `output` (the text), `json` (the same parsed, or null), `params`, `calls`, `rulings`, `approvals`, `spend` and `outcome`."""


class PythonAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="python"):
    """A Python function has no complaint."""

    value: Reference
    """The function as module:function, under the project's import roots. It is given the run and returns None or True, or False or a text that says what is wrong."""
    network: bool = False
    """Whether the function may use the network and start programs. Otherwise both are refused in replays and with CI set. With `true` the report says that the assertion was live."""


# --- the trajectory ---------------------------------------------------------------------------------------------------


class TrajectoryStep(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call of a tool."""

    tool: TargetGlob
    """The tool's name, or a pattern with *; of a sub-agent's tool with a slash: read/search."""
    args: dict[str, Any] | UnsetType = UNSET
    """What the arguments must be; others than these may be there. A value is equal, or a comparison: {gt: 5}, {lte: 50}, {contains: late}, {icontains: late}, {starts-with: A}, {regex: "^A"}, {in: [a, b]}, {type: integer}, {present: false}, {equals: …}."""
    status: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """How the call ended: `ok`, the code of what went wrong, a pattern such as tool.*, or `open` when it did not end."""


# As in policy.py, the name has its pattern in the schema only.
TrajectoryStepOrName: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": TARGET_PATTERN})] | TrajectoryStep
"""A call by the tool's name, or with what it must be."""


class ToolsExact(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-exact"):
    """These calls were made in this order, and no others."""

    value: Annotated[list[TrajectoryStepOrName], Meta(max_length=1000)]
    """The calls, one by one."""


class ToolsInOrder(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-in-order"):
    """These calls were made in this order; others may stand between them."""

    value: Annotated[list[TrajectoryStepOrName], Meta(min_length=1, max_length=1000)]
    """The calls, one by one."""


class ToolsAnyOrder(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-any-order"):
    """These calls were made, in any order; others may have been made too."""

    value: Annotated[list[TrajectoryStepOrName], Meta(min_length=1, max_length=1000)]
    """The calls, one by one."""


class ToolCalled(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tool-called"):
    """A tool was called, with these arguments and this end if they are given."""

    value: TargetGlob
    """The tool's name, or a pattern with *; of a sub-agent's tool with a slash: read/search."""
    args: dict[str, Any] | UnsetType = UNSET
    """What the arguments must be; others than these may be there. A value is equal, or a comparison: {gt: 5}, {lte: 50}, {contains: late}, {icontains: late}, {starts-with: A}, {regex: "^A"}, {in: [a, b]}, {type: integer}, {present: false}, {equals: …}."""
    status: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """How the call ended: `ok`, the code of what went wrong, a pattern such as tool.*, or `open` when it did not end."""


class ToolCalls(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tool-calls"):
    """So many calls were made."""

    tool: TargetGlob = "*"
    """The tool's name, or a pattern with *. Absent: all calls count."""
    value: CountLimit | UnsetType = UNSET
    """Exactly so many."""
    min: CountLimit | UnsetType = UNSET
    """At least so many."""
    max: CountLimit | UnsetType = UNSET
    """At most so many."""


class StepStatus(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="step-status"):
    """A call ended in this way."""

    tool: TargetGlob
    """The tool's name, or a pattern with *; of a sub-agent's tool with a slash: read/search."""
    nth: Annotated[int, Meta(ge=1, le=100_000)] | UnsetType = UNSET
    """Which of its calls, from 1. Absent: all of them, and there must be one."""
    value: Annotated[str, Meta(min_length=1, max_length=64)]
    """How it ended: `ok`, the code of what went wrong, a pattern such as tool.*, or `open` when it did not end."""


# --- rulings and approvals --------------------------------------------------------------------------------------------


class RulingIs(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="ruling"):
    """The policy ruled so."""

    value: RulingSpec
    """What it ruled."""
    target: TargetGlob = "*"
    """The tool or sink that it was about, a stage such as `output`, or a pattern with *. Absent: anything."""
    stage: StageSpec | UnsetType = UNSET
    """The stage at which it was made. Absent: any."""
    rule: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """The id of a rule that led to it."""


class ApprovalIs(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="approval"):
    """A person was asked, and answered so."""

    value: ApprovalAnswerSpec
    """What was answered."""
    target: TargetGlob = "*"
    """The tool or sink that it was about, a stage such as `output`, or a pattern with *. Absent: anything."""


# --- spend and outcome ------------------------------------------------------------------------------------------------


class TokensAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tokens"):
    """So many tokens were used, in and out, those of sub-agents too."""

    min: CountField | UnsetType = UNSET
    """At least so many."""
    max: CountField | UnsetType = UNSET
    """At most so many."""


class CostAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="cost"):
    """It cost so much, with sub-agents."""

    min: DollarLimit | UnsetType = UNSET
    """At least so much, in dollars."""
    max: DollarLimit | UnsetType = UNSET
    """At most so much, in dollars."""


class TurnsAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="turns"):
    """The model was asked so often."""

    value: CountLimit | UnsetType = UNSET
    """Exactly so often."""
    min: CountLimit | UnsetType = UNSET
    """At least so often."""
    max: CountLimit | UnsetType = UNSET
    """At most so often."""


class TimeAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="time"):
    """It took so long, by the clock of the recording."""

    min: Duration | UnsetType = UNSET
    """At least so long."""
    max: Duration | UnsetType = UNSET
    """At most so long."""


class OutcomeIs(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="outcome"):
    """The run ended in this way. A case that says nothing of it must complete."""

    value: Annotated[str, Meta(min_length=1, max_length=64)]
    """`completed`, `suspended`, the code that it stopped with, or a pattern such as `budget.*`."""


class JournalSnapshot(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="journal-snapshot"):
    """The canonical journal is the one in __snapshots__; `agentrun test --update` writes it."""


Assertion: TypeAlias = (
    Equals
    | Contains
    | ContainsAll
    | ContainsAny
    | IContains
    | IContainsAll
    | IContainsAny
    | Regex
    | StartsWith
    | IsJson
    | JsonSchemaAssertion
    | JmespathAssertion
    | CelAssertion
    | PythonAssertion
    | ToolsExact
    | ToolsInOrder
    | ToolsAnyOrder
    | ToolCalled
    | ToolCalls
    | StepStatus
    | RulingIs
    | ApprovalIs
    | TokensAssertion
    | CostAssertion
    | TurnsAssertion
    | TimeAssertion
    | OutcomeIs
    | JournalSnapshot
)


# --- how an argument of a call is compared: words that stand in the place of its value ------------------------


COMPARISON_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")

COMPARISONS: dict[str, str] = {
    "equals": "it is equal to this, and has nothing more",
    "gt": "it is greater",
    "gte": "it is greater, or equal",
    "lt": "it is less",
    "lte": "it is less, or equal",
    "contains": "a text contains this text, a list this item",
    "icontains": "a text contains this text, in upper or lower case",
    "starts-with": "a text begins with this text",
    "regex": "a part of a text matches this expression, in RE2 syntax",
    "in": "it is one of these",
    "present": "true: it is there, whatever it is; false: it is not",
    "type": f"it is of this type: {', '.join(COMPARISON_TYPES)}",
}
"""The words, and what each asks for."""


def is_comparison(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and value.keys() <= COMPARISONS.keys()


# --- assertions as people write them, told apart: `not-contains` is `contains`, negated -----------------------


NEGATION_PREFIX = "not-"


def split_negations(document: dict[str, Any]) -> dict[str, Any]:
    """A file of cases with `not-` taken off the types of its assertions."""
    cases = [split_part_negations(case) for case in document["cases"]]
    for case in cases:
        if "turns" in case:
            case["turns"] = [split_part_negations(turn) if isinstance(turn, dict) else turn for turn in case["turns"]]
    return {**document, "defaults": split_part_negations(document.get("defaults", {})), "cases": cases}


def split_part_negations(part: dict[str, Any]) -> dict[str, Any]:
    """The same for what has assertions: a case, a turn, what cases have in common."""
    if "assert" not in part:
        return dict(part)
    return {**part, "assert": [_split_negation(each) for each in part["assert"]]}


def _split_negation(written: dict[str, Any]) -> dict[str, Any]:
    kind: str = written["type"]
    return {**written, "type": kind.removeprefix(NEGATION_PREFIX), "negated": kind.startswith(NEGATION_PREFIX)}
