"""The package: a compiled agent.

Rule 1  A package is self-contained. It contains templates, schemas and sub-agents, and every default is written out.
Rule 2  Durations are milliseconds, sizes bytes, cost micro-dollars (prices: micro-dollars per million tokens).
Rule 3  Every field changes behaviour, so every field is part of the fingerprint.
Rule 4  A field is documented below the field. The same text is in `schemas/package.schema.json`.

Tools, sinks and hooks are found by the functions at the end:

Rule 5  A name without `*` matches exactly. `*` matches any text, even an empty one. Matching takes linear time.
Rule 6  What a tool or sink starts and which variables it needs is found by the names of its fields (`argv`, `command`,
        `env`, `headers`, `auth`, `url`), so that it is found for every kind that has such a field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.package_tools import AgentTool, Auth, JsonSchema, McpTool, PackagePart, Tool, ToolEffect

Ruling: TypeAlias = Literal["allow", "modify", "ask", "defer", "deny", "interrupt"]
HookPoint: TypeAlias = Literal[
    "on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop"
]
Stage: TypeAlias = Literal["run_start", "input", "model_request", "tool_call", "tool_result", "output", "delivery"]

RULINGS: tuple[Ruling, ...] = ("allow", "modify", "ask", "defer", "deny", "interrupt")
"""From the least to the most restrictive."""
LEGAL_RULINGS: dict[Stage, tuple[Ruling, ...]] = {
    "run_start": ("allow", "deny", "interrupt"),
    "input": ("allow", "ask", "defer", "deny", "interrupt"),
    "model_request": ("allow", "modify", "deny", "interrupt"),
    "tool_call": RULINGS,
    "tool_result": ("allow", "modify", "deny", "interrupt"),
    "output": RULINGS,
    "delivery": RULINGS,
}
_EFFECTS_BY_HARM: tuple[ToolEffect, ...] = ("read", "idempotent", "at_most_once")


class Price(PackagePart, frozen=True):
    """The price of a million tokens, in micro-dollars."""

    input: int
    """Input tokens."""
    output: int
    """Output tokens."""
    cached_input: int
    """Input tokens read from the provider's cache."""


class Route(PackagePart, frozen=True):
    """A provider and a model."""

    provider: str
    """The wire format."""
    name: str
    """The name of the model, as the provider knows it."""
    base_url: str | None
    """The address of the provider. ${NAME} is an environment variable. Null: the default address of the provider."""
    api_key: str | None
    """The environment variable of the key as ${NAME}. Null: the default variable of the provider."""
    headers: dict[str, str]
    """Additional request headers."""
    price: Price | None
    """The price. Null: not known."""
    context_window: int | None
    """The size of the context window in tokens. Null: not known."""
    options: dict[str, Any]
    """Additional fields of the request body."""


class ModelSettings(PackagePart, frozen=True):
    """The routes in order of preference, and the settings of requests."""

    routes: tuple[Route, ...]
    """The first one is used. The others are fallbacks."""
    temperature: float | None
    """Sampling temperature. Null: the provider's default."""
    top_p: float | None
    """Nucleus sampling. Null: the provider's default."""
    seed: int | None
    """The seed. Null: none is sent."""
    stop: tuple[str, ...]
    """Texts at which the model stops."""
    max_output_tokens: int | None
    """The longest reply in tokens. Null: the provider's limit."""
    reasoning: Literal["none", "low", "medium", "high"] | None
    """The reasoning effort. Null: the provider's default."""
    tool_choice: str
    """auto, required, none, or the name of a tool."""
    stream: bool
    """Whether replies are streamed."""


class PolicyRule(PackagePart, frozen=True):
    """One rule of the policy."""

    id: str
    """The name of the rule."""
    ruling: Ruling
    """The ruling."""
    targets: tuple[str, ...]
    """The targets: names or globs."""
    on: Stage
    """The stage at which the rule applies."""
    when: str | None
    """CEL condition. Null: always."""
    set: dict[str, Any]
    """The arguments that modify sets."""
    mask: tuple[str, ...]
    """The patterns (RE2) that modify masks."""
    reason: str | None
    """The reason that is shown with the ruling."""
    until: int | UnsetType = UNSET
    """With defer: the time until which the rule defers, in milliseconds since 1970."""
    wait: int | UnsetType = UNSET
    """With defer: how long the rule defers, in milliseconds from the ruling."""
    person: bool | UnsetType = UNSET
    """With defer: only a person ends the deferral. If all three are absent, every resume asks the rule again."""


class Policy(PackagePart, frozen=True):
    """The policy."""

    default: Literal["deny", "ask", "allow"]
    """The ruling for tool calls that no rule matches."""
    rules: tuple[PolicyRule, ...]
    """The rules, by id."""
    approval_timeout: int
    """How long an approval may take, in milliseconds."""


class Budgets(PackagePart, frozen=True):
    """The budgets of a run."""

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
    """What happens when the turns are used up: the run fails, or stops with the answer so far."""
    grace: int | None
    """The model is asked to finish when this many turns are left. Null: it is not asked."""


class BudgetKind(Struct, frozen=True):
    """What is the same for every budget. Its name is the field of `Budgets` and the code `budget.NAME`."""

    unit: str
    """What it counts, in the singular."""
    hint: str
    """What a user can do when it is used up."""
    least: int = 1
    """The smallest limit."""


BUDGET_KINDS: dict[str, BudgetKind] = {
    "turns": BudgetKind("turn", "raise budgets.turns, or set budgets.on_turns: stop"),
    "tokens": BudgetKind("token", "raise budgets.tokens, or lower model.max_output_tokens"),
    "cost": BudgetKind("micro-dollar", "raise budgets.cost, or lower model.max_output_tokens"),
    "tool_calls": BudgetKind("tool call", "raise budgets.tool_calls", least=0),
    "time": BudgetKind("ms", "raise budgets.time"),
}
"""Every budget of a run, by name and in the order of reports. Conditions see what was used of each as `spend.NAME`."""


class Limits(PackagePart, frozen=True):
    """Limits of single steps."""

    parallel_tools: int
    """Tool calls in one reply."""
    on_oversize_batch: Literal["fail", "reject_all", "run_first"]
    """What happens if a reply has more tool calls."""
    stream_gap: int
    """The longest pause in a reply, in milliseconds."""
    call_time: int
    """The longest model call, in milliseconds."""
    on_truncated: Literal["continue", "escalate"]
    """What happens if a reply is cut off: the model continues it, or is asked again with a larger limit."""
    truncations: int
    """How often that happens in a row."""
    output_lines: int
    """Lines of a tool result that the model reads."""
    output_bytes: int
    """Bytes of a tool result that the model reads."""
    depth: int
    """How deep sub-agents may nest."""
    runs: int
    """How many sub-agents may be started in one run, at any depth."""


GuardComparison: TypeAlias = Literal["results", "calls"]


class Guards(PackagePart, frozen=True):
    """Guards: they detect an agent that repeats itself. Null: off."""

    repeated_call: int | None
    """Trips at this number of identical calls in a row."""
    cycle: int | None
    """Trips when a cycle of 2 to 4 calls occurs this often."""
    repeated_batch: int | None
    """How often the same batch of calls is allowed."""
    batch_scope: Literal["consecutive", "session"]
    """Whether equal batches are counted in a row or in the whole session."""
    stagnation: int | None
    """How often the same text of the assistant is allowed in a session."""
    empty_outcome: int | None
    """How many stops without a tool call are allowed."""
    nudge: str
    """The message to the model after such a stop."""
    observation: int
    """The limit for tools marked as observation."""
    call_compare: GuardComparison | UnsetType = UNSET
    """For `repeated_call`: calls are identical if tool, arguments and results are, or if tool and arguments are. With
    `results`, identical reads of one reply run once. Absent, in packages of earlier releases: `calls`."""
    cycle_compare: GuardComparison | UnsetType = UNSET
    """The same for `cycle`."""
    batch_compare: GuardComparison | UnsetType = UNSET
    """The same for `repeated_batch`."""


class RetrySettings(PackagePart, frozen=True):
    """How failed model calls are retried."""

    attempts: int
    """Attempts on one route."""
    first_delay: int
    """The first wait, in milliseconds."""
    max_delay: int
    """The longest wait, in milliseconds."""
    max_wait: int
    """The longest total wait, in milliseconds."""


class ContextSettings(PackagePart, frozen=True):
    """What happens when the conversation no longer fits the context window."""

    overflow: Literal["fail", "compact"]
    """Fail, or replace the first messages by a summary."""
    prompt: str
    """The prompt that asks the model for the summary."""
    keep: int
    """How many of the latest messages are kept."""
    failures: int
    """Failed compactions in a row before the run stops."""


class AdmissionSettings(PackagePart, frozen=True):
    """Which inputs are accepted."""

    max_chars: int | None
    """The longest input. Null: no limit."""
    dedupe: bool
    """Whether the same input is refused the second time in a session."""


class OutputContract(PackagePart, frozen=True):
    """The contract of the final answer."""

    schema: JsonSchema | None
    """JSON Schema of the answer, without references. Null: any text."""
    repairs: int
    """How often the model may repair the answer."""
    max_bytes: int
    """The size limit of the answer."""
    max_depth: int
    """The nesting limit of the answer."""


class Hook(PackagePart, frozen=True):
    """A Python function that is called at a point of the run."""

    id: str
    """The name of the hook."""
    at: HookPoint
    """The point."""
    module: str
    """The module."""
    function: str
    """The function in it."""
    source: str
    """Hash of the module's source."""
    order: int
    """Hooks of one point are called in this order, then by id."""
    timeout: int
    """How long it may take, in milliseconds."""
    on_failure: Literal["deny", "continue"]
    """What happens if it fails."""


class SessionSettings(PackagePart, frozen=True):
    """What a run knows of earlier runs of its session."""

    history: Literal["full", "answers", "none"]
    """Which messages are carried over."""
    max_runs: int | None
    """How many runs are carried over. Null: all."""


class RedactionRule(PackagePart, frozen=True):
    """Where sensitive values are found."""

    name: str
    """The name of the value."""
    path: str | None
    """Its dotted path."""
    pattern: str | None
    """A pattern (RE2) that finds it."""


class ReplaySettings(PackagePart, frozen=True):
    """How cassettes are written and matched."""

    redact: tuple[RedactionRule, ...]
    """Sensitive values."""
    volatile: tuple[str, ...]
    """Fields that may differ without a miss."""


class Package(PackagePart, frozen=True):
    """A compiled agent. Its fields are the sections that have their own fingerprints."""

    name: str
    """The name of the agent."""
    params: dict[str, JsonSchema]
    """The variables of its templates, with their schemas and defaults."""
    model: ModelSettings
    """The routes, and the settings of requests."""
    instructions: tuple[str, ...]
    """The templates of the system prompt. After rendering, they are joined by blank lines."""
    input: str | None
    """The template of the default input."""
    tools: dict[str, Tool]
    """The tools by name."""
    agents: dict[str, Package]
    """The sub-agents, by the tool that calls them."""
    policy: Policy
    """The policy."""
    budgets: Budgets
    """The budgets of a run."""
    limits: Limits
    """Limits of single steps."""
    guards: Guards
    """Guards: they detect an agent that repeats itself."""
    retry: RetrySettings
    """How failed model calls are retried."""
    context: ContextSettings
    """What happens when the conversation no longer fits the context window."""
    admission: AdmissionSettings
    """Which inputs are accepted."""
    output: OutputContract
    """The contract of the final answer."""
    sinks: dict[str, Sink]
    """Where the answer is delivered."""
    hooks: tuple[Hook, ...]
    """Functions that are called at points of the run, in their order."""
    session: SessionSettings
    """What a run knows of earlier runs."""
    replay: ReplaySettings
    """How cassettes are written and matched."""


class _SinkBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What sinks of every kind have in common."""

    delivery: Literal["required", "optional", "disabled"]
    """Whether a failed delivery fails the run."""
    timeout: int
    """How long one delivery may take, in milliseconds."""


class FileSink(_SinkBase, frozen=True, tag="file"):
    """Writes the answer to a file."""

    path: str
    """The file, relative to the project root."""


class JsonlSink(_SinkBase, frozen=True, tag="jsonl"):
    """Appends one JSON line."""

    path: str
    """The file, relative to the project root."""


class HttpSink(_SinkBase, frozen=True, tag="http"):
    """Posts the answer as JSON."""

    url: str
    """The address."""
    headers: dict[str, str]
    """Request headers."""
    auth: Auth | None
    """The credential to send."""
    private_network: bool
    """Whether loopback and private addresses may be reached."""


class StdoutSink(_SinkBase, frozen=True, tag="stdout"):
    """Prints the answer as one JSON line."""


Sink: TypeAlias = FileSink | JsonlSink | HttpSink | StdoutSink

SINK_KINDS: tuple[str, ...] = tuple(sink.__struct_config__.tag for sink in get_args(Sink))


def matches_pattern(target: str, name: str) -> bool:
    if "*" not in target:
        return target == name
    first, *inner = target.split("*")
    last = inner.pop()
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in inner:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def find_tool(package: Package, name: str) -> Tool | None:
    """The tool with a name, as the model writes it. The tools of an MCP server are named server.tool."""
    tool = package.tools.get(name)
    if tool is not None:
        return None if isinstance(tool, McpTool) else tool
    server, _, inner = name.partition(".")
    tool = package.tools.get(server)
    return tool if isinstance(tool, McpTool) and inner in tool.pinned else None


def hooks_at(package: Package, point: HookPoint) -> tuple[Hook, ...]:
    hooks = [hook for hook in package.hooks if hook.at == point]
    return tuple(sorted(hooks, key=lambda hook: (hook.order, hook.id))) if hooks else ()


def argument_schemas(tools: Mapping[str, Tool]) -> dict[str, JsonSchema]:
    schemas: dict[str, JsonSchema] = {}
    for name, tool in tools.items():
        if isinstance(tool, McpTool):
            schemas |= {f"{name}.{inner}": pinned.args for inner, pinned in tool.pinned.items()}
        else:
            schemas[name] = tool.args
    return schemas


def tool_effect(tool: Tool, name: str) -> ToolEffect:
    if isinstance(tool, AgentTool):
        return "idempotent"  # it has its own journal and continues where that ends
    if not isinstance(tool, McpTool):
        return tool.effect
    inner = name.partition(".")[2]
    found = [effect for pattern, effect in tool.effects.items() if matches_pattern(pattern, inner)]
    return max(found, key=_EFFECTS_BY_HARM.index) if found else tool.effect


def tool_command(tool: Tool) -> str | None:
    command: tuple[str, ...] = getattr(tool, "argv", ()) or getattr(tool, "command", ())
    return command[0] if command else None


def credential_texts(part: Tool | Sink) -> Iterator[str]:
    """The texts of a tool or a sink whose environment variables may be secrets: all but addresses."""
    yield from getattr(part, "headers", {}).values()
    if getattr(part, "auth", None) is not None:
        yield part.auth.secret  # type: ignore[union-attr]  # only some kinds have the field
    yield from (getattr(part, "env", None) or {}).values()
