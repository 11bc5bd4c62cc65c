"""Cases: tests of an agent."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from agentrun.spec.v1.assertions import ApprovalAnswerSpec, Assertion
from agentrun.spec.v1.field_types import Duration, Name, ParamName, TemplateText
from agentrun.spec.v1.policy import TargetGlob

DATETIME_PATTERN = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,3})?Z$"
FAULT_PLACE_PATTERN = "^([a-z0-9.]+/)?(model|(tool|approval|hook|sink):[A-Za-z0-9_.*/-]{1,128})(#[1-9][0-9]{0,4})?$"

SkipReason: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024)]
ErrorText: TypeAlias = Annotated[str, Meta(max_length=4096)]


class StubSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a tool gives in place of running: one of the two."""

    result: Any | UnsetType = UNSET
    """What the model reads: a text, or any value as JSON."""
    error: ErrorText | UnsetType = UNSET
    """The call fails with this message."""


class ClockSetting(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The clock of a replay."""

    start: Annotated[str, Meta(pattern=DATETIME_PATTERN)] | UnsetType = UNSET
    """When the run begins, such as 2026-01-31T09:00:00Z. Absent: when it was recorded."""
    step: Duration | UnsetType = UNSET
    """How long each recorded exchange takes. Absent: as long as it took."""


class InjectedFaultSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What goes wrong: one of `status`, `cut_after_chunk`, `refused`, `timeout`, `empty`, `error`, `fatal`, `answer`."""

    status: Annotated[int, Meta(ge=400, le=599)] | UnsetType = UNSET
    """A model, or an HTTP tool, replies with this status."""
    retry_after: Annotated[int, Meta(ge=0, le=86_400)] | UnsetType = UNSET
    """With `status`: the seconds in its Retry-After header."""
    cut_after_chunk: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET
    """The reply of a model ends after so many of the pieces in which it came."""
    refused: Literal[True] | UnsetType = UNSET
    """Nobody listens at the other end of a model or an HTTP tool."""
    timeout: Literal[True] | UnsetType = UNSET
    """No answer comes before the limit that the spec sets."""
    empty: Literal[True] | UnsetType = UNSET
    """The reply of a model has nothing in it."""
    error: ErrorText | UnsetType = UNSET
    """A tool, hook or sink fails with this message."""
    fatal: ErrorText | UnsetType = UNSET
    """A tool asks for the run to end."""
    answer: ApprovalAnswerSpec | UnsetType = UNSET
    """What becomes of a question to a person."""
    times: Annotated[int, Meta(ge=1, le=1000)] = 1
    """How many attempts at each place meet it. Tools, people, hooks and sinks are asked once, models again."""


class FaultInjectionSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fault that is laid over the recording."""

    at: Annotated[str, Meta(pattern=FAULT_PLACE_PATTERN)]
    """Where: `model#2` (the second call of the model), `tool:refund` (every call of the tool), `tool:refund#2`, `approval:refund`, `hook:ID`, `sink:NAME`; in a sub-agent with its call before it: `c1.0/model#1`."""
    inject: InjectedFaultSpec
    """What goes wrong there."""


class CaseTurn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One message of a conversation."""

    input: TemplateText
    """The message, as it is."""
    assertions: list[Assertion] = field(default_factory=list, name="assert")
    """What must hold of the run that answers it."""


class CaseDefaults(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What cases of one file have in common. A case's own values win; lists are added to."""

    params: dict[ParamName, Any] = {}
    """Values for the agent's params."""
    profile: Name | UnsetType = UNSET
    """The profile to use."""
    approvals: dict[TargetGlob, Literal["approved", "denied", "unavailable"]] = {}
    """Answers to approvals, by tool, by sink, or by stage (`input`, `output`); `unavailable`: there is nobody to ask. They count in a replay and while the case is recorded, never where tools run for real otherwise."""
    stubs: dict[TargetGlob, StubSpec | Annotated[list[StubSpec], Meta(min_length=1)]] = {}
    """Tools that are never run for these cases, also not when they are recorded, and what they give: always the same, or one after the other, the last again and again."""
    clock: ClockSetting = ClockSetting()
    """The clock of the replay."""
    faults: list[FaultInjectionSpec] = []
    """Faults that are laid over the recording."""
    tags: list[Name] = []
    """Words to pick cases by: `agentrun test --tag NAME`."""
    skip: SkipReason | UnsetType = UNSET
    """Why it is not run."""
    assertions: list[Assertion] = field(default_factory=list, name="assert")
    """What must hold of the run, and of a conversation as a whole."""


class Case(CaseDefaults, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One test of an agent."""

    name: Name
    """The case's name; its cassette is cassettes/<spec>/<name>.yaml."""
    input: TemplateText | UnsetType = UNSET
    """The message, as it is. Absent: the agent's own `input`."""
    turns: Annotated[list[TemplateText | CaseTurn], Meta(min_length=1, max_length=1000)] | UnsetType = UNSET
    """In place of `input`: the messages of a conversation. Each is answered by a run that knows the ones before."""
    cassette: Name | UnsetType = UNSET
    """The name of the recording, if it is that of another case."""
    xfail: SkipReason | UnsetType = UNSET
    """Why it is known to fail. A case that passes all the same fails."""

    @property
    def is_plain_replay(self) -> bool:
        """Whether it is its recording and nothing else: no conversation, nothing laid over it."""
        return self.turns is UNSET and not self.stubs and not self.faults and self.clock == ClockSetting()

    @property
    def without_approvals(self) -> "Case":
        """The case for a run with real tools that is not recorded: a file approves nothing there."""
        faults = [each for each in self.faults if each.inject.answer not in ("approved", "approved_for_session")]
        return replace(self, approvals={}, faults=faults)

    @property
    def cassette_name(self) -> str:
        """The name of its recording."""
        return self.name if self.cassette is UNSET else self.cassette


class CasesFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The cases of the agent whose spec stands beside this file."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    defaults: CaseDefaults = CaseDefaults()
    """What all cases of this file have in common."""
    cases: Annotated[list[Case], Meta(min_length=1, max_length=10_000)]
    """The cases; each has its own name."""
