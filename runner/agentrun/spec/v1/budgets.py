"""What a run may spend: budgets, limits, guards, retries, context."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.field_types import CountField, Duration, FileRef, Size, TemplateText

Allowance: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
"""How often something may happen."""


class BudgetsSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run may spend before it is stopped. Spending is reserved before a call and settled after it."""

    turns: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """How many model calls a run may make. The call after the last one is not made."""
    tokens: CountField | UnsetType = UNSET
    """Input and output tokens, summed over all model calls: 50k, 1.5M. Absent: no limit."""
    cost: Annotated[float, Meta(ge=0.000001, le=1_000_000)] | UnsetType = UNSET
    """US dollars, counted with the price pinned in the lock or given as `model.price`. Absent: no limit."""
    time: Duration | UnsetType = UNSET
    """Wall time of the run, without the time it was suspended: 90s, 2m. Absent: no limit."""
    tool_calls: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET
    """How many tool calls may be executed; 0 means none. Absent: no limit."""
    on_turns: Literal["fail", "stop"] = "fail"
    """When the turns are spent: `fail` ends the run with `budget.turns`, `stop` completes it with what there is, labelled."""
    grace: Annotated[int, Meta(ge=1, le=100)] | UnsetType = UNSET
    """How many turns before the last the model is told once to wrap up. Absent: it is not told."""


class LimitsSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on single steps of a run."""

    parallel_tools: Annotated[int, Meta(ge=1, le=1000)] = 8
    """How many tool calls one model reply may ask for."""
    on_oversize_batch: Literal["fail", "reject_all", "run_first"] = "fail"
    """When a reply asks for more: `fail` ends the run, `reject_all` refuses every call and tells the model, `run_first` runs the first ones and refuses the rest."""
    tool_timeout: Duration = "30s"
    """How long one tool call may take; a tool's own `timeout` overrides it. After that the model reads `tool.timeout`."""
    stream_gap: Duration = "60s"
    """The longest silence inside a model's reply before the attempt fails with `provider.timeout`."""
    call_time: Duration = "600s"
    """The longest time one model call may take before the attempt fails with `provider.timeout`."""
    on_truncated: Literal["continue", "escalate"] = "continue"
    """When a reply was cut off at its token cap: `continue` keeps it and asks for the rest, `escalate` discards it and asks again with a larger cap."""
    truncations: Annotated[int, Meta(ge=0, le=100)] = 3
    """How often `on_truncated` is applied in a row before a cut reply is accepted and labelled."""
    output_lines: Annotated[int, Meta(ge=10, le=1_000_000)] = 2000
    """Lines of a tool's result that the model reads; more is cut to head and tail, the whole is kept as a blob."""
    output_bytes: Size = "50KiB"
    """Bytes of a tool's result that the model reads; more is cut to head and tail, the whole is kept as a blob."""
    depth: Annotated[int, Meta(ge=1, le=3)] = 3
    """How deep sub-agents may call sub-agents."""
    runs: Annotated[int, Meta(ge=1, le=10_000)] = 100
    """How many sub-agents may be started in one run, those that sub-agents start included. After that the model reads `tool.invalid_call`."""


class Guard(Struct, frozen=True, forbid_unknown_fields=True):
    """A guard with its own settings."""

    limit: Allowance
    """The number at which the guard acts; each guard says whether that one still passes."""


class BatchGuard(Struct, frozen=True, forbid_unknown_fields=True):
    """The guard against repeated batches of calls."""

    limit: Allowance = 2
    """How many equal batches are allowed; the next one trips."""
    scope: Literal["consecutive", "session"] = "consecutive"
    """`consecutive` counts equal batches in a row, `session` counts them in the whole session."""


class GuardsSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Detectors of an agent that goes in circles. Each can be a number, an object with settings, or `off`."""

    repeated_call: Allowance | Literal["off"] | Guard = 3
    """The same call with the same arguments this often in a row trips, before it runs (3: the third one)."""
    cycle: Allowance | Literal["off"] | Guard = 3
    """A cycle of 2 to 4 calls seen this often at the end trips, before it runs again."""
    repeated_batch: Allowance | Literal["off"] | BatchGuard = 2
    """How often the same batch of calls is allowed (2: the third one trips)."""
    stagnation: Allowance | Literal["off"] | Guard = 5
    """How often the same assistant text is allowed in a session (5: the sixth one trips)."""
    empty_outcome: Annotated[int, Meta(ge=0, le=100)] | Literal["off"] = "off"
    """With a number only a terminal tool is success: how many stops without a tool call are allowed before the run fails (0: none)."""
    nudge: TemplateText = "Continue with the task. Call a tool, or the tool that finishes the task."
    """What the model is told after a stop without a tool call when `empty_outcome` is on."""
    observation: Allowance = 15
    """The limit for tools marked `observation: true` in repeated_call, cycle and repeated_batch."""


class RetrySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how patiently a failed model call is sent again."""

    attempts: Annotated[int, Meta(ge=1, le=20)] = 4
    """How often one model call is tried on one route, the first try included."""
    first_delay: Duration = "1s"
    """The wait before the second try; it doubles after each further one."""
    max_delay: Duration = "15s"
    """The longest single wait."""
    max_wait: Duration = "60s"
    """The longest waiting in total for one model call. A Retry-After beyond it ends the tries."""


class CompactionSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How a history that no longer fits is summed up."""

    prompt: TemplateText | FileRef = (
        "Sum up the conversation so far for your own use: the task, what was done, what was found, what is left."
        " Keep every name, number and identifier that may be needed."
    )
    """What the model is asked when the history is summed up."""
    keep: Annotated[int, Meta(ge=0, le=1000)] = 4
    """How many of the latest messages are kept as they are."""
    failures: Annotated[int, Meta(ge=1, le=100)] = 3
    """After this many compactions in a row that did not shrink the context the run stops."""


class ContextSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What happens when the conversation no longer fits the model's window."""

    overflow: Literal["fail", "compact"] = "fail"
    """`fail` ends the run with `context.overflow` before anything is sent, `compact` sums up the history first."""
    compaction: CompactionSpec = CompactionSpec()
    """How the history is summed up when `overflow` is `compact`."""
