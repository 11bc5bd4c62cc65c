"""The assertions of test cases.

Rule 1  Every type also exists with the prefix `not-`, which passes when the assertion fails. The prefix is stored as
        `negated`; that is not a key that users write.
Rule 2  An assertion about something that did not happen (a call that was not made, an output that is not JSON) fails,
        so its `not-` passes. If an assertion cannot be evaluated (an expression that fails), both fail.
Rule 3  A call counts whether it ran or not, but an expectation without `status` does not match a call that failed, unless
        it is negated. Calls of sub-agents count only if a slash is written: `read/library.search`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.field_types import (
    Condition,
    CountField,
    Duration,
    FieldPath,
    JsonSchemaField,
    Pattern,
    Reference,
)
from agentrun.spec.v1.policy import TARGET_PATTERN, StageSpec, TargetGlob

RulingSpec: TypeAlias = Literal["allow", "modify", "ask", "defer", "deny", "interrupt"]
ApprovalAnswerSpec: TypeAlias = Literal[
    "approved", "approved_for_session", "denied", "timed_out", "cancelled", "unavailable"
]
SnapshotUsage: TypeAlias = Literal["exact", "rounded", "none"]
NonEmptyText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=262_144)]
CountLimit: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
DollarLimit: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)] | Annotated[int, Meta(ge=0, le=1_000_000)]
COMPARISON_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
COMPARISONS = frozenset(
    ("equals", "gt", "gte", "lt", "lte", "contains", "icontains", "starts-with", "regex", "in", "present", "type")
)
NEGATION_PREFIX = "not-"


class AssertionBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type"):
    """Fields that every assertion has."""

    negated: bool = False
    """If true, the assertion passes when it would otherwise fail."""


class Equals(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="equals"):
    """The answer is exactly this value."""

    value: Any
    """A text. For an answer in JSON: any value."""


class Contains(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="contains"):
    """The answer contains this text."""

    value: NonEmptyText
    """The text to look for."""


class ContainsAll(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="contains-all"):
    """The answer contains all of these texts."""

    value: Annotated[list[NonEmptyText], Meta(min_length=1)]
    """The texts to look for."""


class ContainsAny(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="contains-any"):
    """The answer contains at least one of these texts."""

    value: Annotated[list[NonEmptyText], Meta(min_length=1)]
    """The texts to look for."""


class IContains(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains"):
    """The answer contains this text, ignoring case."""

    value: NonEmptyText
    """The text to look for."""


class IContainsAll(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains-all"):
    """The answer contains all of these texts, ignoring case."""

    value: Annotated[list[NonEmptyText], Meta(min_length=1)]
    """The texts to look for."""


class IContainsAny(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains-any"):
    """The answer contains at least one of these texts, ignoring case."""

    value: Annotated[list[NonEmptyText], Meta(min_length=1)]
    """The texts to look for."""


class Regex(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="regex"):
    """A regular expression matches somewhere in the answer."""

    value: Pattern
    """The expression, in RE2 syntax. Use ^ and $ to match the whole answer."""


class StartsWith(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="starts-with"):
    """The answer begins with this text."""

    value: NonEmptyText
    """The text to look for."""


class IsJson(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="is-json"):
    """The answer is JSON."""

    value: JsonSchemaField | UnsetType = UNSET
    """A JSON Schema that it must match. Default: any JSON."""


class JsonSchemaAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="json-schema"):
    """The answer is JSON that matches a schema."""

    value: JsonSchemaField
    """The JSON Schema."""


class JmespathAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="jmespath"):
    """A JMESPath expression on the JSON answer selects something, or the expected value."""

    value: Annotated[str, Meta(min_length=1, max_length=4096)]
    """The JMESPath expression."""
    expected: Any | UnsetType = UNSET
    """The value that it must select. Default: anything except null, false and empty values."""


class CelAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="cel"):
    """A CEL expression is true."""

    value: Condition
    """The expression. Its variables: `output` (the text), `json` (the parsed text, or null), `params`, `calls`, `rulings`, `approvals`, `spend` and `outcome`."""


class PythonAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="python"):
    """A Python function accepts the run."""

    value: Reference
    """The function, as module:function, under the project's import roots. It gets the run and returns None or True if it passes, or False or an error message if it fails."""
    network: bool = False
    """If true, the function may use the network and start programs, and the report says that the assertion was live. If false, both are blocked in replays and when CI is set."""


class TrajectoryStep(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool call."""

    tool: TargetGlob
    """The name of the tool, or a glob with *. For a tool of a sub-agent use a slash: read/search."""
    args: dict[str, Any] | UnsetType = UNSET
    """The expected arguments. The call may have others. Each is an exact value or a comparison: {gt: 5}, {lte: 50}, {contains: late}, {icontains: late}, {starts-with: A}, {regex: "^A"}, {in: [a, b]}, {type: integer}, {present: false}, {equals: …}."""
    status: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """How the call ended: `ok`, an error code, a pattern such as tool.*, or `open` if it did not end. Default: any call that did not fail; with `not-` any call."""


# As in policy.py, only the JSON Schema has the pattern of the name.
TrajectoryStepOrName: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": TARGET_PATTERN})] | TrajectoryStep


class ToolsExact(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-exact"):
    """Exactly these calls were made, in this order."""

    value: Annotated[list[TrajectoryStepOrName], Meta(max_length=1000)]
    """The expected calls."""


class ToolsInOrder(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-in-order"):
    """These calls were made in this order. There may be other calls between them."""

    value: Annotated[list[TrajectoryStepOrName], Meta(min_length=1, max_length=1000)]
    """The expected calls."""


class ToolsAnyOrder(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-any-order"):
    """These calls were made, in any order. There may be other calls."""

    value: Annotated[list[TrajectoryStepOrName], Meta(min_length=1, max_length=1000)]
    """The expected calls."""


class ToolCalled(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tool-called"):
    """A tool was called, with these arguments and this status if they are set."""

    value: TargetGlob
    """The name of the tool, or a glob with *. For a tool of a sub-agent use a slash: read/search."""
    args: dict[str, Any] | UnsetType = UNSET
    """The expected arguments. The call may have others. Each is an exact value or a comparison: {gt: 5}, {lte: 50}, {contains: late}, {icontains: late}, {starts-with: A}, {regex: "^A"}, {in: [a, b]}, {type: integer}, {present: false}, {equals: …}."""
    status: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """How the call ended: `ok`, an error code, a pattern such as tool.*, or `open` if it did not end. Default: any call that did not fail; with `not-` any call."""


class ToolCalls(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tool-calls"):
    """The number of calls."""

    tool: TargetGlob = "*"
    """The name of the tool, or a glob with *. Default: all calls count."""
    value: CountLimit | UnsetType = UNSET
    """Exactly this many."""
    min: CountLimit | UnsetType = UNSET
    """At least this many."""
    max: CountLimit | UnsetType = UNSET
    """At most this many."""


class StepStatus(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="step-status"):
    """A call ended with this status."""

    tool: TargetGlob
    """The name of the tool, or a glob with *. For a tool of a sub-agent use a slash: read/search."""
    nth: Annotated[int, Meta(ge=1, le=100_000)] | UnsetType = UNSET
    """Which call of the tool, from 1. Default: all of them, and there must be at least one."""
    value: Annotated[str, Meta(min_length=1, max_length=64)]
    """The status: `ok`, an error code, a pattern such as tool.*, or `open` if the call did not end."""


class RulingIs(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="ruling"):
    """The policy made this ruling."""

    value: RulingSpec
    """The expected ruling."""
    target: TargetGlob = "*"
    """The tool or sink it was about, a stage such as `output`, or a glob with *. Default: any."""
    stage: StageSpec | UnsetType = UNSET
    """The stage of the ruling. Default: any."""
    rule: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """The id of a rule that led to the ruling."""


class ApprovalIs(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="approval"):
    """An approval question got this answer."""

    value: ApprovalAnswerSpec
    """The expected answer."""
    target: TargetGlob = "*"
    """The tool or sink it was about, a stage such as `output`, or a glob with *. Default: any."""


class TokensAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tokens"):
    """The number of input and output tokens, including sub-agents."""

    min: CountField | UnsetType = UNSET
    """At least this many."""
    max: CountField | UnsetType = UNSET
    """At most this many."""


class CostAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="cost"):
    """The cost of the run, including sub-agents."""

    min: DollarLimit | UnsetType = UNSET
    """At least this much, in US dollars."""
    max: DollarLimit | UnsetType = UNSET
    """At most this much, in US dollars."""


class TurnsAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="turns"):
    """The number of model calls."""

    value: CountLimit | UnsetType = UNSET
    """Exactly this many."""
    min: CountLimit | UnsetType = UNSET
    """At least this many."""
    max: CountLimit | UnsetType = UNSET
    """At most this many."""


class TimeAssertion(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="time"):
    """The duration of the run, by the clock of the cassette."""

    min: Duration | UnsetType = UNSET
    """At least this long."""
    max: Duration | UnsetType = UNSET
    """At most this long."""


class OutcomeIs(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="outcome"):
    """The run ended with this outcome. A case without this assertion must complete."""

    value: Annotated[str, Meta(min_length=1, max_length=64)]
    """`completed`, `suspended`, the error code, or a pattern such as `budget.*`."""


class JournalSnapshot(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="journal-snapshot"):
    """The journal equals a snapshot in __snapshots__. `agentrun test --update` writes the snapshot."""

    usage: SnapshotUsage | UnsetType = UNSET
    """`rounded`: no usage and cost of single replies, and one rounded total at the end. `exact`: the usage and cost of every reply. `none`: no usage. Default: the `usage` of the case or of `defaults`, or `rounded`."""
    ignore: Annotated[list[FieldPath], Meta(max_length=256)] = []
    """Paths of values that may differ, as in `replay.volatile`. A path begins with the kind of a fact: model_replied.reply.model, tool_finished.parts.*.text. It may lead into a text that is JSON. The snapshot contains [ignored] instead of the value."""


AnswerAssertion: TypeAlias = (
    Equals | Contains | ContainsAll | ContainsAny | IContains | IContainsAll | IContainsAny | Regex | StartsWith
)
JsonAssertion: TypeAlias = IsJson | JsonSchemaAssertion | JmespathAssertion
CallAssertion: TypeAlias = ToolsExact | ToolsInOrder | ToolsAnyOrder | ToolCalled | ToolCalls | StepStatus
PolicyAssertion: TypeAlias = RulingIs | ApprovalIs
SpendAssertion: TypeAlias = TokensAssertion | CostAssertion | TurnsAssertion | TimeAssertion
Assertion: TypeAlias = (
    AnswerAssertion
    | JsonAssertion
    | CelAssertion
    | PythonAssertion
    | CallAssertion
    | PolicyAssertion
    | SpendAssertion
    | OutcomeIs
    | JournalSnapshot
)


def is_comparison(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and value.keys() <= COMPARISONS


def split_negations(document: dict[str, Any]) -> dict[str, Any]:
    """Return a cases file in which `not-` is removed from the assertion types and stored as `negated`."""
    cases = [split_part_negations(case) for case in document["cases"]]
    for case in cases:
        if "turns" in case:
            case["turns"] = [split_part_negations(turn) if isinstance(turn, dict) else turn for turn in case["turns"]]
    return {**document, "defaults": split_part_negations(document.get("defaults", {})), "cases": cases}


def split_part_negations(part: dict[str, Any]) -> dict[str, Any]:
    if "assert" not in part:
        return dict(part)
    return {**part, "assert": [_split_negation(each) for each in part["assert"]]}


def _split_negation(written: dict[str, Any]) -> dict[str, Any]:
    kind: str = written["type"]
    return {**written, "type": kind.removeprefix(NEGATION_PREFIX), "negated": kind.startswith(NEGATION_PREFIX)}
