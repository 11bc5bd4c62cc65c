"""Budgets, limits, guards, retries and context handling."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.field_types import CountField, Duration, FileRef, Size, TemplateText

Allowance: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]


class BudgetsSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run may spend before it is stopped. Each call reserves its maximum cost first and is charged its real cost afterwards."""

    turns: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """The maximum number of model calls in a run."""
    tokens: CountField | UnsetType = UNSET
    """Input and output tokens of all model calls together: 50k, 1.5M. Default: no limit."""
    cost: Annotated[float, Meta(ge=0.000001, le=1_000_000)] | UnsetType = UNSET
    """US dollars, computed from the price in the lock file or in `model.price`. Default: no limit."""
    time: Duration | UnsetType = UNSET
    """Wall-clock time of the run, without the time it was suspended: 90s, 2m. Default: no limit."""
    tool_calls: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET
    """The maximum number of tool calls that are executed; 0 means none. Default: no limit."""
    on_turns: Literal["fail", "stop"] = "fail"
    """When the turns are used up: `fail` ends the run with `budget.turns`, `stop` completes it with the last text and a label."""
    grace: Annotated[int, Meta(ge=1, le=100)] | UnsetType = UNSET
    """How many turns before the last one the model is asked, once, to wrap up. Default: it is not asked."""


class LimitsSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits for single steps of a run."""

    parallel_tools: Annotated[int, Meta(ge=1, le=1000)] = 8
    """The maximum number of tool calls in one model reply."""
    on_oversize_batch: Literal["fail", "reject_all", "run_first"] = "fail"
    """When a reply has more tool calls: `fail` ends the run, `reject_all` rejects every call and lets the model try again, `run_first` runs the first calls and rejects the others."""
    tool_timeout: Duration = "30s"
    """The time limit for one tool call; a tool's own `timeout` overrides it. A call that takes longer ends with `tool.timeout`."""
    stream_gap: Duration = "60s"
    """The longest pause while a reply is streamed before the attempt fails with `provider.timeout`."""
    call_time: Duration = "600s"
    """The time limit for one model call. An attempt that takes longer fails with `provider.timeout`."""
    on_truncated: Literal["continue", "escalate"] = "continue"
    """When a reply was cut off at its token limit: `continue` keeps it and asks for the rest, `escalate` discards it and asks again with a larger limit."""
    truncations: Annotated[int, Meta(ge=0, le=100)] = 3
    """How many times in a row `on_truncated` is applied before a truncated reply is accepted, with a label."""
    output_lines: Annotated[int, Meta(ge=10, le=1_000_000)] = 2000
    """The maximum number of lines of a tool result that the model reads. From a longer result it reads the first and last lines; the whole result is stored as a blob."""
    output_bytes: Size = "50KiB"
    """The maximum size of a tool result that the model reads. From a larger result it reads the first and last lines; the whole result is stored as a blob."""
    depth: Annotated[int, Meta(ge=1, le=3)] = 3
    """The maximum nesting depth of sub-agents."""
    runs: Annotated[int, Meta(ge=1, le=10_000)] = 100
    """The maximum number of sub-agents started in one run, including those that sub-agents start. Further calls end with `tool.invalid_call`."""


class Guard(Struct, frozen=True, forbid_unknown_fields=True):
    """A guard with its own settings."""

    limit: Allowance
    """The limit of the guard. The description of each guard says what is counted."""


class CallGuard(Struct, frozen=True, forbid_unknown_fields=True):
    """A guard against repeated tool calls."""

    limit: Allowance = 3
    """How many repetitions trip the guard."""
    compare: Literal["results", "calls"] = "results"
    """`results`: calls are identical if their tool, arguments and results are, so an agent may ask for something until it changes. `calls`: if their tool and arguments are. With `calls` for `repeated_call`, identical `effect: read` calls of one reply all run, and each of them counts."""


class BatchGuard(Struct, frozen=True, forbid_unknown_fields=True):
    """The guard against repeated batches of tool calls."""

    limit: Allowance = 2
    """How many equal batches are allowed. The next one trips the guard."""
    compare: Literal["results", "calls"] = "results"
    """`results`: batches are equal if their calls and the results are, in any order. `calls`: if their calls are, in the same order."""
    scope: Literal["consecutive", "session"] = "consecutive"
    """`consecutive` counts equal batches in a row, `session` counts equal batches in the whole session."""


class GuardsSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Checks that stop an agent that repeats itself. Each is a number, an object with settings, or `off`."""

    repeated_call: Allowance | Literal["off"] | CallGuard = 3
    """How many identical calls in a row, with the same result each, trip the guard. The last of them does not run (3: the third call trips). Identical `effect: read` calls of one reply run once and count once."""
    cycle: Allowance | Literal["off"] | CallGuard = 3
    """How many repetitions of a cycle of 2 to 4 calls trip the guard, before the cycle runs again."""
    repeated_batch: Allowance | Literal["off"] | BatchGuard = 2
    """How many times the same batch of calls is allowed (2: the third one trips)."""
    stagnation: Allowance | Literal["off"] | Guard = 5
    """How many times the same assistant text is allowed in a session (5: the sixth one trips)."""
    empty_outcome: Annotated[int, Meta(ge=0, le=100)] | Literal["off"] = "off"
    """With a number, a run succeeds only through a terminal tool. The number says how many replies without a tool call are allowed before the run fails (0: none)."""
    nudge: TemplateText = "Continue with the task. Call a tool, or the tool that finishes the task."
    """The message sent to the model after a reply without a tool call when `empty_outcome` is on."""
    observation: Allowance = 15
    """The limit for tools marked `observation: true` in repeated_call, cycle and repeated_batch."""


class RetrySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How failed model calls are retried."""

    attempts: Annotated[int, Meta(ge=1, le=20)] = 4
    """The maximum number of attempts for one model call on one route, including the first."""
    first_delay: Duration = "1s"
    """The delay before the second attempt. It doubles after each further attempt."""
    max_delay: Duration = "15s"
    """The maximum delay between two attempts."""
    max_wait: Duration = "60s"
    """The maximum total delay for one model call. A Retry-After beyond it ends the retries."""


class CompactionSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How a history that no longer fits is summarised."""

    prompt: TemplateText | FileRef = (
        "Sum up the conversation so far for your own use: the task, what was done, what was found, what is left."
        " Keep every name, number and identifier that may be needed."
    )
    """The prompt that asks the model for the summary."""
    keep: Annotated[int, Meta(ge=0, le=1000)] = 4
    """How many of the latest messages are kept unchanged."""
    failures: Annotated[int, Meta(ge=1, le=100)] = 3
    """The run stops after this many compactions in a row that did not make the context smaller."""


class ContextSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do when the conversation no longer fits into the model's context window."""

    overflow: Literal["fail", "compact"] = "fail"
    """`fail` ends the run with `context.overflow` before anything is sent, `compact` summarises the history first."""
    compaction: CompactionSpec = CompactionSpec()
    """How the history is summarised when `overflow` is `compact`."""
