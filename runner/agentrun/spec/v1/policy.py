"""What an agent may do: rules, rulings and stages."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.field_types import Condition, Duration, Name, Pattern

StageSpec: TypeAlias = Literal["run_start", "input", "model_request", "tool_call", "tool_result", "output", "delivery"]
"""A point in a run at which rules are asked."""

TARGET_PATTERN = "^[a-z*][A-Za-z0-9_.*/-]{0,127}$"

TargetGlob: TypeAlias = Annotated[str, Meta(pattern=TARGET_PATTERN)]
"""A tool (or sink) by its exact name, an MCP tool as server.tool, or a glob with *."""

# The single target has its pattern in the schema only: msgspec 0.22 frees a string pattern twice when it shares
# a union with a list or dict, and the process dies at exit (tests/spec/test_models.py looks for such unions).
TargetGlobs: TypeAlias = (
    Annotated[str, Meta(extra_json_schema={"pattern": TARGET_PATTERN})]
    | Annotated[list[TargetGlob], Meta(min_length=1, max_length=256)]
)
"""One target or a list of them."""


class RuleSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: a ruling on its targets, at a stage, under a condition. Exactly one of the six rulings is given."""

    id: Name
    """The rule's name, found again in journals and reports. Each rule has its own."""
    allow: TargetGlobs | UnsetType = UNSET
    """Targets that may go ahead."""
    modify: TargetGlobs | UnsetType = UNSET
    """Targets whose arguments are rewritten with `set`, or whose text is masked with `mask`, before they go ahead."""
    ask: TargetGlobs | UnsetType = UNSET
    """Targets that need a person's approval each time."""
    defer: TargetGlobs | UnsetType = UNSET
    """Targets that suspend the run; when it is resumed the rules are asked again."""
    deny: TargetGlobs | UnsetType = UNSET
    """Targets that are refused; the model is told."""
    interrupt: TargetGlobs | UnsetType = UNSET
    """Targets that end the run."""
    on: StageSpec = "tool_call"
    """The stage at which the rule is asked."""
    when: Condition | UnsetType = UNSET
    """CEL condition over args, params, spend, calls and session. A condition that cannot be evaluated counts against the call."""
    set: dict[str, Any] | UnsetType = UNSET
    """With `modify` on tool_call: the arguments to set, by name."""
    mask: Annotated[list[Pattern], Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """With `modify` on other stages: regular expressions (RE2) whose matches are replaced by ***."""
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] | UnsetType = UNSET
    """Why the rule is there; shown in approvals, to the model and in the journal."""


class PolicySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Which calls go ahead. The most restrictive matching rule wins: interrupt, deny, defer, ask, modify, allow."""

    default: Literal["deny", "ask", "allow"] | UnsetType = UNSET
    """The ruling for tool calls that no rule matches. Required when there are tools."""
    rules: Annotated[list[RuleSpec], Meta(max_length=1000)] = []
    """The rules; their order does not matter."""
    approval_timeout: Duration = "120s"
    """How long a person at the terminal may take to answer before the call is denied."""
