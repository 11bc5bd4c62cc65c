"""What a run is made of: the compiled agent.

Rule 1  A package is self-contained: templates, schemas and sub-agents are inside, every default is written out.
Rule 2  Durations are milliseconds, sizes bytes, money micro-dollars (a price: micro-dollars for a million tokens).
Rule 3  Every field changes behaviour, so every field is part of the fingerprint.
Rule 4  A field is documented under the field; the same words are in `schemas/package.schema.json`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.core.package_tools import Auth, JsonSchema, PackagePart, Tool

Ruling: TypeAlias = Literal["allow", "modify", "ask", "defer", "deny", "interrupt"]
Stage: TypeAlias = Literal["run_start", "input", "model_request", "tool_call", "tool_result", "output", "delivery"]

RULINGS: tuple[Ruling, ...] = ("allow", "modify", "ask", "defer", "deny", "interrupt")
"""From the mildest to the most restrictive."""
LEGAL_RULINGS: dict[Stage, tuple[Ruling, ...]] = {
    "run_start": ("allow", "deny", "interrupt"),
    "input": ("allow", "ask", "defer", "deny", "interrupt"),
    "model_request": ("allow", "modify", "deny", "interrupt"),
    "tool_call": RULINGS,
    "tool_result": ("allow", "modify", "deny", "interrupt"),
    "output": RULINGS,
    "delivery": RULINGS,
}
"""Which rulings are legal at which stage."""


class Price(PackagePart, frozen=True):
    """What a million tokens cost, in micro-dollars."""

    input: int
    """For input tokens."""
    output: int
    """For output tokens."""
    cached_input: int
    """For input tokens read from the provider's cache."""


class Route(PackagePart, frozen=True):
    """One way to a model."""

    provider: str
    """The wire format."""
    name: str
    """The model's name as the provider knows it."""
    base_url: str | None
    """Where the provider is reached; ${NAME} stands for an environment variable. Null: the provider's own address."""
    api_key: str | None
    """The environment variable of the key as ${NAME}. Null: the provider's usual one."""
    headers: dict[str, str]
    """Further request headers."""
    price: Price | None
    """What it costs. Null: not known."""
    context_window: int | None
    """How many tokens it can read. Null: not known."""
    options: dict[str, Any]
    """Further fields of the request body."""


class ModelSettings(PackagePart, frozen=True):
    """The routes in order of preference, and how they are asked."""

    routes: tuple[Route, ...]
    """The first is the one asked; the others are fallbacks."""
    temperature: float | None
    """Sampling temperature. Null: the provider's default."""
    top_p: float | None
    """Nucleus sampling. Null: the provider's default."""
    seed: int | None
    """Seed. Null: none is sent."""
    stop: tuple[str, ...]
    """Texts at which the model stops."""
    max_output_tokens: int | None
    """The longest reply. Null: the provider's own limit."""
    reasoning: Literal["none", "low", "medium", "high"] | None
    """How much the model may think. Null: the provider's default."""
    tool_choice: str
    """auto, required, none, or a tool's name."""
    stream: bool
    """Whether replies are streamed."""


class PolicyRule(PackagePart, frozen=True):
    """One rule of the policy."""

    id: str
    """The rule's name."""
    ruling: Ruling
    """What it rules."""
    targets: tuple[str, ...]
    """What it rules on: names or globs."""
    on: Stage
    """The stage at which it is asked."""
    when: str | None
    """CEL condition. Null: always."""
    set: dict[str, Any]
    """Arguments to set, for modify."""
    mask: tuple[str, ...]
    """Patterns (RE2) to mask, for modify."""
    reason: str | None
    """Why it is there."""


class Policy(PackagePart, frozen=True):
    """Which calls go ahead."""

    default: Literal["deny", "ask", "allow"]
    """The ruling for tool calls that no rule matches."""
    rules: tuple[PolicyRule, ...]
    """The rules, by id."""
    approval_timeout: int
    """How long a person may take to answer, in milliseconds."""


class Budgets(PackagePart, frozen=True):
    """What a run may spend."""

    turns: int
    """Model calls."""
    tokens: int | None
    """Input and output tokens. Null: no limit."""
    cost: int | None
    """Micro-dollars. Null: no limit."""
    time: int | None
    """Milliseconds. Null: no limit."""
    tool_calls: int | None
    """Executed tool calls. Null: no limit."""
    on_turns: Literal["fail", "stop"]
    """What happens when the turns are spent."""
    grace: int | None
    """Turns before the last at which the model is told to wrap up. Null: it is not told."""


class Limits(PackagePart, frozen=True):
    """Limits on single steps."""

    parallel_tools: int
    """Calls in one reply."""
    on_oversize_batch: Literal["fail", "reject_all", "run_first"]
    """What happens when there are more."""
    stream_gap: int
    """The longest silence in a reply, in milliseconds."""
    call_time: int
    """The longest model call, in milliseconds."""
    on_truncated: Literal["continue", "escalate"]
    """What happens to a reply cut off at its cap."""
    truncations: int
    """How often that is done in a row."""
    output_lines: int
    """Lines of a tool's result that the model reads."""
    output_bytes: int
    """Bytes of a tool's result that the model reads."""
    depth: int
    """How deep sub-agents may nest."""
    runs: int
    """How many sub-agents may be started in one run, those of sub-agents included."""


class Guards(PackagePart, frozen=True):
    """Detectors of an agent that goes in circles. Null: off."""

    repeated_call: int | None
    """The identical consecutive call of this number trips."""
    cycle: int | None
    """A cycle of 2 to 4 calls seen this often trips."""
    repeated_batch: int | None
    """Equal batches allowed."""
    batch_scope: Literal["consecutive", "session"]
    """Whether equal batches are counted in a row or in the session."""
    stagnation: int | None
    """Equal assistant texts allowed in a session."""
    empty_outcome: int | None
    """Stops without a tool call allowed."""
    nudge: str
    """What the model is told after such a stop."""
    observation: int
    """The limit for observation tools."""


class RetrySettings(PackagePart, frozen=True):
    """How failed model calls are tried again."""

    attempts: int
    """Tries on one route."""
    first_delay: int
    """The first wait, in milliseconds."""
    max_delay: int
    """The longest wait, in milliseconds."""
    max_wait: int
    """The longest waiting in total, in milliseconds."""


class ContextSettings(PackagePart, frozen=True):
    """What happens when the conversation no longer fits."""

    overflow: Literal["fail", "compact"]
    """Fail, or sum up the history."""
    prompt: str
    """What the model is asked when the history is summed up."""
    keep: int
    """How many of the latest messages stay as they are."""
    failures: int
    """Compactions without effect before the run stops."""


class AdmissionSettings(PackagePart, frozen=True):
    """Which inputs are accepted."""

    max_chars: int | None
    """The longest input. Null: no limit."""
    dedupe: bool
    """Whether the same text is refused the second time in one session."""


class OutputContract(PackagePart, frozen=True):
    """The contract of the final answer."""

    schema: JsonSchema | None
    """JSON Schema of the answer, without references. Null: any text."""
    repairs: int
    """How often the model may repair it."""
    max_bytes: int
    """The largest answer."""
    max_depth: int
    """Its deepest nesting."""


class Hook(PackagePart, frozen=True):
    """A Python function asked at a point of the run."""

    id: str
    """The hook's name."""
    at: Literal["on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop"]
    """The point."""
    module: str
    """The module."""
    function: str
    """The function in it."""
    source: str
    """Hash of the module's source."""
    order: int
    """Hooks of one point are asked in this order, then by id."""
    timeout: int
    """How long it may take, in milliseconds."""
    on_failure: Literal["deny", "continue"]
    """What its failure means."""


class SessionSettings(PackagePart, frozen=True):
    """What a run knows of earlier runs of its session."""

    history: Literal["full", "answers", "none"]
    """Which messages are carried."""
    max_runs: int | None
    """How many runs are carried. Null: all."""


class RedactionRule(PackagePart, frozen=True):
    """Where a sensitive value is found."""

    name: str
    """What the value is."""
    path: str | None
    """Its dotted path."""
    pattern: str | None
    """A pattern (RE2) that finds it."""


class ReplaySettings(PackagePart, frozen=True):
    """How recordings are written and matched."""

    redact: tuple[RedactionRule, ...]
    """Sensitive values."""
    volatile: tuple[str, ...]
    """Fields that may differ without a miss."""


class Package(PackagePart, frozen=True):
    """A compiled agent. Its fields are the sections that have fingerprints of their own."""

    name: str
    """The agent's name."""
    params: dict[str, JsonSchema]
    """The variables of its templates, with their schemas and defaults."""
    model: ModelSettings
    """The routes, and how they are asked."""
    instructions: tuple[str, ...]
    """The system prompt's templates; rendered, they are joined by blank lines."""
    input: str | None
    """The template of the default message."""
    tools: dict[str, Tool]
    """The tools by name."""
    agents: dict[str, Package]
    """The sub-agents, by the tool that calls them."""
    policy: Policy
    """Which calls go ahead."""
    budgets: Budgets
    """What a run may spend."""
    limits: Limits
    """Limits on single steps."""
    guards: Guards
    """Detectors of an agent that goes in circles."""
    retry: RetrySettings
    """How failed model calls are tried again."""
    context: ContextSettings
    """What happens when the conversation no longer fits."""
    admission: AdmissionSettings
    """Which inputs are accepted."""
    output: OutputContract
    """The contract of the final answer."""
    sinks: dict[str, Sink]
    """Where the answer is delivered."""
    hooks: tuple[Hook, ...]
    """Functions asked at points of the run, in the order they are asked."""
    session: SessionSettings
    """What a run knows of earlier runs."""
    replay: ReplaySettings
    """How recordings are written and matched."""


# --- where a compiled agent delivers its answer ---------------------------------------------------------------


class _SinkBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What sinks of every kind have in common."""

    delivery: Literal["required", "optional", "disabled"]
    """What a failed delivery means."""
    timeout: int
    """How long one delivery may take, in milliseconds."""


class FileSink(_SinkBase, frozen=True, tag="file"):
    """Writes the answer to a file."""

    path: str
    """The file, relative to the project's root."""


class JsonlSink(_SinkBase, frozen=True, tag="jsonl"):
    """Appends one JSON line."""

    path: str
    """The file, relative to the project's root."""


class HttpSink(_SinkBase, frozen=True, tag="http"):
    """Posts the answer as JSON."""

    url: str
    """Where it is sent."""
    headers: dict[str, str]
    """Request headers."""
    auth: Auth | None
    """The credential to send."""
    private_network: bool
    """Whether loopback and private addresses may be reached."""


class StdoutSink(_SinkBase, frozen=True, tag="stdout"):
    """Prints the answer as one JSON line."""


Sink: TypeAlias = FileSink | JsonlSink | HttpSink | StdoutSink
