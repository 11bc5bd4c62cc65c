"""What a case claims about a run.

Every type also exists with `not-` before it, which holds when the claim does not: `negated` is that prefix, and no key
that people write. A claim about something that did not happen (a call that was not made, an output that is no JSON) does
not hold, so its `not-` does. A claim that cannot be judged (an expression that fails) holds neither way.

A call counts whether it ran or not. Calls of sub-agents count only where a slash is written: `read/library.search`.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.policy import TARGET, Stage, Target
from agentrun.spec.v1.values import Condition, Count, Duration, JsonSchema, Pattern, Reference

Ruling: TypeAlias = Literal["allow", "modify", "ask", "defer", "deny", "interrupt"]
Answer: TypeAlias = Literal["approved", "approved_for_session", "denied", "timed_out", "cancelled", "unavailable"]
Words: TypeAlias = Annotated[str, Meta(min_length=1, max_length=262_144)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Money: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)] | Annotated[int, Meta(ge=0, le=1_000_000)]


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

    value: Words
    """The text itself."""


class ContainsAll(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="contains-all"):
    """The answer contains all of these texts."""

    value: Annotated[list[Words], Meta(min_length=1)]
    """The texts, one by one."""


class ContainsAny(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="contains-any"):
    """The answer contains one of these texts."""

    value: Annotated[list[Words], Meta(min_length=1)]
    """The texts, one by one."""


class IContains(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains"):
    """The answer contains this text, in upper or lower case."""

    value: Words
    """The text itself."""


class IContainsAll(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains-all"):
    """The answer contains all of these texts, in upper or lower case."""

    value: Annotated[list[Words], Meta(min_length=1)]
    """The texts, one by one."""


class IContainsAny(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="icontains-any"):
    """The answer contains one of these texts, in upper or lower case."""

    value: Annotated[list[Words], Meta(min_length=1)]
    """The texts, one by one."""


class Regex(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="regex"):
    """A part of the answer matches a regular expression."""

    value: Pattern
    """The expression, in RE2 syntax. ^ and $ tie it to the beginning and the end."""


class StartsWith(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="starts-with"):
    """The answer begins with this text."""

    value: Words
    """The text itself."""


class IsJson(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="is-json"):
    """The answer is JSON."""

    value: JsonSchema | UnsetType = UNSET
    """A JSON Schema that it must also fit. Absent: any JSON will do."""


class FitsSchema(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="json-schema"):
    """The answer is JSON that fits a schema."""

    value: JsonSchema
    """The JSON Schema."""


class Jmespath(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="jmespath"):
    """A JMESPath expression over the answer in JSON finds something, or what is expected."""

    value: Annotated[str, Meta(min_length=1, max_length=4096)]
    """The expression itself."""
    expected: Any | UnsetType = UNSET
    """What it must find. Absent: anything but null, false, and what is empty."""


class Cel(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="cel"):
    """A CEL expression is true."""

    value: Condition
    """The expression, over `output` (the text), `json` (the same parsed, or null), `params`, `calls`, `rulings`, `approvals`, `spend` and `outcome`."""


class Python(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="python"):
    """A Python function has no complaint."""

    value: Reference
    """The function as module:function, under the project's import roots. It is given the run and returns None or True, or False or a text that says what is wrong."""
    network: bool = False
    """Whether the function may use the network and start programs. Otherwise both are refused in replays and with CI set. With `true` the report says that the assertion was live."""


# --- the trajectory ---------------------------------------------------------------------------------------------------


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call of a tool."""

    tool: Target
    """The tool's name, or a pattern with *; of a sub-agent's tool with a slash: read/search."""
    args: dict[str, Any] | UnsetType = UNSET
    """What the arguments must be; others than these may be there. A value is equal, or a comparison: {gt: 5}, {lte: 50}, {contains: late}, {icontains: late}, {starts-with: A}, {regex: "^A"}, {in: [a, b]}, {type: integer}, {present: false}, {equals: …}."""
    status: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """How the call ended: `ok`, the code of what went wrong, a pattern such as tool.*, or `open` when it did not end."""


# As in policy.py, the name has its pattern in the schema only.
AStep: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": TARGET})] | Step
"""A call by the tool's name, or with what it must be."""


class ToolsExact(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-exact"):
    """These calls were made in this order, and no others."""

    value: Annotated[list[AStep], Meta(max_length=1000)]
    """The calls, one by one."""


class ToolsInOrder(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-in-order"):
    """These calls were made in this order; others may stand between them."""

    value: Annotated[list[AStep], Meta(min_length=1, max_length=1000)]
    """The calls, one by one."""


class ToolsAnyOrder(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tools-any-order"):
    """These calls were made, in any order; others may have been made too."""

    value: Annotated[list[AStep], Meta(min_length=1, max_length=1000)]
    """The calls, one by one."""


class ToolCalled(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tool-called"):
    """A tool was called, with these arguments and this end if they are given."""

    value: Target
    """The tool's name, or a pattern with *; of a sub-agent's tool with a slash: read/search."""
    args: dict[str, Any] | UnsetType = UNSET
    """What the arguments must be; others than these may be there. A value is equal, or a comparison: {gt: 5}, {lte: 50}, {contains: late}, {icontains: late}, {starts-with: A}, {regex: "^A"}, {in: [a, b]}, {type: integer}, {present: false}, {equals: …}."""
    status: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """How the call ended: `ok`, the code of what went wrong, a pattern such as tool.*, or `open` when it did not end."""


class ToolCalls(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tool-calls"):
    """So many calls were made."""

    tool: Target = "*"
    """The tool's name, or a pattern with *. Absent: all calls count."""
    value: Number | UnsetType = UNSET
    """Exactly so many."""
    min: Number | UnsetType = UNSET
    """At least so many."""
    max: Number | UnsetType = UNSET
    """At most so many."""


class StepStatus(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="step-status"):
    """A call ended in this way."""

    tool: Target
    """The tool's name, or a pattern with *; of a sub-agent's tool with a slash: read/search."""
    nth: Annotated[int, Meta(ge=1, le=100_000)] | UnsetType = UNSET
    """Which of its calls, from 1. Absent: all of them, and there must be one."""
    value: Annotated[str, Meta(min_length=1, max_length=64)]
    """How it ended: `ok`, the code of what went wrong, a pattern such as tool.*, or `open` when it did not end."""


# --- rulings and approvals --------------------------------------------------------------------------------------------


class RulingIs(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="ruling"):
    """The policy ruled so."""

    value: Ruling
    """What it ruled."""
    target: Target = "*"
    """The tool or sink that it was about, a stage such as `output`, or a pattern with *. Absent: anything."""
    stage: Stage | UnsetType = UNSET
    """The stage at which it was made. Absent: any."""
    rule: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """The id of a rule that led to it."""


class ApprovalIs(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="approval"):
    """A person was asked, and answered so."""

    value: Answer
    """What was answered."""
    target: Target = "*"
    """The tool or sink that it was about, a stage such as `output`, or a pattern with *. Absent: anything."""


# --- spend and outcome ------------------------------------------------------------------------------------------------


class Tokens(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="tokens"):
    """So many tokens were used, in and out, those of sub-agents too."""

    min: Count | UnsetType = UNSET
    """At least so many."""
    max: Count | UnsetType = UNSET
    """At most so many."""


class Cost(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="cost"):
    """It cost so much, with sub-agents."""

    min: Money | UnsetType = UNSET
    """At least so much, in dollars."""
    max: Money | UnsetType = UNSET
    """At most so much, in dollars."""


class Turns(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="turns"):
    """The model was asked so often."""

    value: Number | UnsetType = UNSET
    """Exactly so often."""
    min: Number | UnsetType = UNSET
    """At least so often."""
    max: Number | UnsetType = UNSET
    """At most so often."""


class Time(AssertionBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="time"):
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
    | FitsSchema
    | Jmespath
    | Cel
    | Python
    | ToolsExact
    | ToolsInOrder
    | ToolsAnyOrder
    | ToolCalled
    | ToolCalls
    | StepStatus
    | RulingIs
    | ApprovalIs
    | Tokens
    | Cost
    | Turns
    | Time
    | OutcomeIs
    | JournalSnapshot
)
