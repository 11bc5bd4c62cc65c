"""Test cases of an agent."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from agentrun.spec.v1.assertions import ApprovalAnswerSpec, Assertion, SnapshotUsage
from agentrun.spec.v1.field_types import Duration, Name, ParamName, TemplateText
from agentrun.spec.v1.policy import TargetGlob

DATETIME_PATTERN = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,3})?Z$"
FAULT_PLACE_PATTERN = "^([a-z0-9.]+/)?(model|(tool|approval|hook|sink):[A-Za-z0-9_.*/-]{1,128})(#[1-9][0-9]{0,4})?$"

SkipReason: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024)]
ErrorText: TypeAlias = Annotated[str, Meta(max_length=4096)]


class StubSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a tool returns instead of running: either `result` or `error`."""

    result: Any | UnsetType = UNSET
    """The result that the model reads: a text, or any value as JSON."""
    error: ErrorText | UnsetType = UNSET
    """The call fails with this error message."""


class ClockSetting(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The clock of a replay."""

    start: Annotated[str, Meta(pattern=DATETIME_PATTERN)] | UnsetType = UNSET
    """The start time of the run, such as 2026-01-31T09:00:00Z. Default: the time of the recording."""
    step: Duration | UnsetType = UNSET
    """The duration of each recorded interaction. Default: the recorded duration."""


class InjectedFaultSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fault to inject: one of `status`, `cut_after_chunk`, `refused`, `timeout`, `empty`, `error`, `fatal`, `answer`."""

    status: Annotated[int, Meta(ge=400, le=599)] | UnsetType = UNSET
    """A model or an HTTP tool replies with this status."""
    retry_after: Annotated[int, Meta(ge=0, le=86_400)] | UnsetType = UNSET
    """With `status`: the seconds in the Retry-After header."""
    cut_after_chunk: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET
    """The reply of a model is cut off after this many recorded chunks."""
    refused: Literal[True] | UnsetType = UNSET
    """The connection to a model or an HTTP tool is refused."""
    timeout: Literal[True] | UnsetType = UNSET
    """There is no answer before the time limit in the spec."""
    empty: Literal[True] | UnsetType = UNSET
    """The reply of a model is empty."""
    error: ErrorText | UnsetType = UNSET
    """A tool, hook or sink fails with this error message."""
    fatal: ErrorText | UnsetType = UNSET
    """A tool fails with this error message and ends the run."""
    answer: ApprovalAnswerSpec | UnsetType = UNSET
    """The answer to an approval question."""
    times: Annotated[int, Meta(ge=1, le=1000)] = 1
    """How many attempts at each place fail. Only model calls are retried; for tools, approvals, hooks and sinks it is always 1."""


class FaultInjectionSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fault that is injected into the replay."""

    at: Annotated[str, Meta(pattern=FAULT_PLACE_PATTERN)]
    """Where to inject it: `model#2` (the second model call), `tool:refund` (every call of the tool), `tool:refund#2`, `approval:refund`, `hook:ID`, `sink:NAME`. In a sub-agent, put the call that started it first: `c1.0/model#1`."""
    inject: InjectedFaultSpec
    """The fault to inject there."""


class CaseTurn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One message of a conversation."""

    input: TemplateText
    """The message. It is not a template."""
    assertions: list[Assertion] = field(default_factory=list, name="assert")
    """The assertions about the run that answers this message."""


class CaseDefaults(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings for all cases of the file. A case's own values win; lists are joined."""

    params: dict[ParamName, Any] = {}
    """Values for the agent's params."""
    profile: Name | UnsetType = UNSET
    """The profile of the spec to use."""
    approvals: dict[TargetGlob, Literal["approved", "denied", "unavailable"]] = {}
    """Answers to approval questions, by tool, by sink, or by stage (`input`, `output`). `unavailable` means that there is no person to ask. They are used in replays and while the case is recorded, never in other live runs."""
    stubs: dict[TargetGlob, StubSpec | Annotated[list[StubSpec], Meta(min_length=1)]] = {}
    """Tools that never run in these cases, not even during recording, and what they return instead. In a list, each call gets the next entry, and the last entry is repeated."""
    clock: ClockSetting = ClockSetting()
    """The clock of the replay."""
    faults: list[FaultInjectionSpec] = []
    """Faults that are injected into the replay."""
    tags: list[Name] = []
    """Tags to select cases by: `agentrun test --tag NAME`."""
    skip: SkipReason | UnsetType = UNSET
    """Skip the case, for this reason."""
    usage: SnapshotUsage | UnsetType = UNSET
    """The usage and cost in snapshots of journals: `exact`, `rounded` or `none`. See `usage` of the assertion `journal-snapshot`."""
    assertions: list[Assertion] = field(default_factory=list, name="assert")
    """The assertions about the run, or about the whole conversation."""


class Case(CaseDefaults, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One test case of an agent."""

    name: Name
    """The case's name. Its cassette is cassettes/<spec>/<name>.yaml."""
    input: TemplateText | UnsetType = UNSET
    """The message. It is not a template. Default: the agent's own `input`."""
    turns: Annotated[list[TemplateText | CaseTurn], Meta(min_length=1, max_length=1000)] | UnsetType = UNSET
    """Instead of `input`: the messages of a conversation. Each is answered by a run that has the earlier ones as history."""
    cassette: Name | UnsetType = UNSET
    """The name of the cassette, if the case reuses the cassette of another case."""
    xfail: SkipReason | UnsetType = UNSET
    """The case is expected to fail, for this reason. If it passes, it is reported as failed."""

    @property
    def is_plain_replay(self) -> bool:
        """Whether the case only replays its cassette: no conversation, no stubs, no faults, no clock."""
        return self.turns is UNSET and not self.stubs and not self.faults and self.clock == ClockSetting()

    @property
    def without_approvals(self) -> "Case":
        """The case without its approvals. In a live run that is not recorded, a file must not approve anything."""
        faults = [each for each in self.faults if each.inject.answer not in ("approved", "approved_for_session")]
        return replace(self, approvals={}, faults=faults)

    @property
    def cassette_name(self) -> str:
        return self.name if self.cassette is UNSET else self.cassette


class CasesFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The test cases of the agent whose spec is next to this file."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    defaults: CaseDefaults = CaseDefaults()
    """Settings for all cases of this file."""
    cases: Annotated[list[Case], Meta(min_length=1, max_length=10_000)]
    """The cases. Each has a unique name."""
