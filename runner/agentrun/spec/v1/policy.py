"""The policy of an agent: rules, rulings and stages."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.field_types import Condition, Duration, Name, Pattern, milliseconds

StageSpec: TypeAlias = Literal["run_start", "input", "model_request", "tool_call", "tool_result", "output", "delivery"]
TARGET_PATTERN = "^[a-z*][A-Za-z0-9_.*/-]{0,127}$"
TargetGlob: TypeAlias = Annotated[str, Meta(pattern=TARGET_PATTERN)]
UNTIL_PATTERN = (
    "^(person|[1-9][0-9]{0,6}(ms|s|m|h|d)"
    "|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,3})?)?(Z|[+-][0-9]{2}:[0-9]{2}))$"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Only the JSON Schema has the pattern of a single target: msgspec 0.22 frees a string pattern twice if it is in a
# union with a list or dict, and the process crashes at exit (tests/spec/test_models.py looks for such unions).
TargetGlobs: TypeAlias = (
    Annotated[str, Meta(extra_json_schema={"pattern": TARGET_PATTERN})]
    | Annotated[list[TargetGlob], Meta(min_length=1, max_length=256)]
)


class RuleSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: a ruling for its targets, at a stage, under a condition. A rule has exactly one of the six rulings."""

    id: Name
    """The rule's unique name. Journals and reports contain it."""
    allow: TargetGlobs | UnsetType = UNSET
    """Targets that are allowed."""
    modify: TargetGlobs | UnsetType = UNSET
    """Targets that are allowed after their arguments are changed with `set` or their text is masked with `mask`."""
    ask: TargetGlobs | UnsetType = UNSET
    """Targets that need approval by a person each time."""
    defer: TargetGlobs | UnsetType = UNSET
    """Targets that suspend the run. The policy is evaluated again when the run is resumed, or as `until` says."""
    deny: TargetGlobs | UnsetType = UNSET
    """Targets that are denied. The model reads that the call was denied."""
    interrupt: TargetGlobs | UnsetType = UNSET
    """Targets that end the run."""
    on: StageSpec = "tool_call"
    """The stage at which the rule is evaluated."""
    when: Condition | UnsetType = UNSET
    """A CEL condition over args, params, spend, calls, session and now. If it cannot be evaluated, `allow` and `modify` rules do not match, and all others do."""
    set: dict[str, Any] | UnsetType = UNSET
    """With `modify` on tool_call: the arguments to set, by name."""
    mask: Annotated[list[Pattern], Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """With `modify` on other stages: regular expressions (RE2). Each match is replaced by ***."""
    until: Annotated[str, Meta(pattern=UNTIL_PATTERN)] | UnsetType = UNSET
    """With `defer`: how long. A time with its time zone (2026-12-24T08:00:00Z), a duration from the ruling (2h), or `person`: until someone lifts it with `agentrun approve`."""
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] | UnsetType = UNSET
    """The reason for the rule. Approval questions, the model and the journal show it."""


class PolicySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Which calls are allowed. The most restrictive matching rule wins: interrupt, deny, defer, ask, modify, allow."""

    default: Literal["deny", "ask", "allow"] | UnsetType = UNSET
    """The ruling for tool calls that no rule matches. Required when there are tools."""
    rules: Annotated[list[RuleSpec], Meta(max_length=1000)] = []
    """The rules. Their order does not matter."""
    approval_timeout: Duration = "120s"
    """How long a person at the terminal has to answer. After that the call is denied."""


def parse_until(until: str) -> dict[str, int]:
    """`until` in milliseconds since 1970, `wait` in milliseconds, or `person`. Raises ValueError and OverflowError for a
    time that no calendar has."""
    if until == "person":
        return {"person": True}
    if "T" not in until:
        return {"wait": milliseconds(until)}
    since_1970 = (datetime.fromisoformat(until) - _EPOCH) // timedelta(milliseconds=1)
    if since_1970 < 0:
        raise ValueError("it is before 1970")
    return {"until": since_1970}
