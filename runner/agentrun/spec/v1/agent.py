"""The agent document: everything one agent is."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from agentrun.spec.v1.budgets import BudgetsSpec, ContextSpec, GuardsSpec, LimitsSpec, RetrySpec
from agentrun.spec.v1.field_types import (
    CountField,
    Duration,
    EnvText,
    FileRef,
    JsonSchemaField,
    Name,
    ParamName,
    Pattern,
    Reference,
    SecretRef,
    Size,
    TemplateText,
)
from agentrun.spec.v1.policy import PolicySpec
from agentrun.spec.v1.tools import AuthSpec, HeaderName, ToolSpec

Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
"""US dollars for a million tokens."""

MODEL_NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$"
ROUTE_PATTERN = "^[a-z][a-z0-9_-]{0,63}/[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$"
TOOL_CHOICE_PATTERN = "^[a-z][a-z0-9_.-]{0,127}$"
FIELD_PATH_PATTERN = "^[A-Za-z0-9_*-]+(\\.[A-Za-z0-9_*-]+)*$"

RouteName: TypeAlias = Annotated[str, Meta(pattern=ROUTE_PATTERN)]
"""A provider and a model: anthropic/claude-haiku-4-5."""

FieldPath: TypeAlias = Annotated[str, Meta(pattern=FIELD_PATH_PATTERN, max_length=256)]
"""A dotted path into a recorded request or reply; * stands for any key or index."""


class PriceSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model costs, in US dollars for a million tokens."""

    input: Dollars
    """For input tokens."""
    output: Dollars
    """For output tokens, reasoning included."""
    cached_input: Dollars | UnsetType = UNSET
    """For input tokens read from the provider's cache. Absent: as `input`."""


class FallbackModelSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Another route to try when the one before it has failed for good."""

    provider: Name
    """The wire format: openai, openai-responses, anthropic, gemini, or a provider registered by the host."""
    name: Annotated[str, Meta(pattern=MODEL_NAME_PATTERN)]
    """The model's name as the provider knows it."""
    base_url: EnvText | UnsetType = UNSET
    """Where the provider is reached; ${NAME} takes it from the environment. Absent: the provider's own address."""
    api_key: SecretRef | UnsetType = UNSET
    """The environment variable that holds the key, as ${NAME}. Absent: the provider's usual one."""
    headers: dict[HeaderName, EnvText] = {}
    """Further request headers; ${NAME} takes a value from the environment."""
    price: PriceSpec | UnsetType = UNSET
    """What the model costs. Absent: the row pinned by `agentrun lock`."""
    context_window: CountField | UnsetType = UNSET
    """How many tokens the model can read. Absent: the number pinned by `agentrun lock`."""
    options: dict[str, Any] = {}
    """Further fields of the provider's request body, sent as they are."""


class ModelSpec(FallbackModelSpec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The model to ask, and how."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | UnsetType = UNSET
    """Sampling temperature. Absent: the provider's default."""
    top_p: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    """Nucleus sampling. Absent: the provider's default."""
    seed: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType = UNSET
    """Seed for providers that accept one."""
    stop: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(min_length=1, max_length=4)]
        | UnsetType
    ) = UNSET
    """Texts at which the model stops."""
    max_output_tokens: CountField | UnsetType = UNSET
    """The longest reply. It is also what a budget reserves before a call."""
    reasoning: Literal["none", "low", "medium", "high"] | UnsetType = UNSET
    """How much the model may think before it answers, for models that do."""
    tool_choice: Annotated[str, Meta(pattern=TOOL_CHOICE_PATTERN)] = "auto"
    """`auto`, `required` (some tool), `none`, or the name of one tool."""
    stream: bool = False
    """Whether replies are streamed."""
    fallback: Annotated[list[RouteName | FallbackModelSpec], Meta(max_length=8)] = []
    """Other routes, tried in order: `provider/model`, or an object with its own address and price."""


class AdmissionSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Which inputs are accepted at all. A refused input leaves no run."""

    max_chars: CountField | UnsetType = UNSET
    """The longest input. Absent: no limit."""
    dedupe: bool = False
    """Whether the same text is refused the second time in one session."""


class OutputSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contract the final answer keeps: JSON of a schema. Local validation decides, whatever the provider promises."""

    schema: JsonSchemaField | UnsetType = UNSET
    """JSON Schema of the answer, or {file: …}. References outside the schema are refused."""
    repairs: Annotated[int, Meta(ge=0, le=10)] = 2
    """How often the model may repair an answer that breaks the contract, with the errors shown to it."""
    max_bytes: Size = "64KiB"
    """The largest answer."""
    max_depth: Annotated[int, Meta(ge=1, le=64)] = 24
    """The deepest nesting of the answer."""


class SinkSpecBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What sinks of every kind have in common."""

    delivery: Literal["required", "optional", "disabled"] = "required"
    """`required`: the run fails with `delivery.failed` when the answer cannot be delivered; `optional`: that is only recorded; `disabled`: nothing is delivered."""
    timeout: Duration = "30s"
    """How long one delivery may take."""


class FileSinkSpec(SinkSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="file"):
    """Writes the answer to a file, replacing it."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The file, inside the project, relative to its root."""


class JsonlSinkSpec(SinkSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="jsonl"):
    """Appends one JSON line for each answer."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The file, inside the project, relative to its root."""


class HttpSinkSpec(SinkSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="http"):
    """Posts the answer as JSON."""

    url: EnvText
    """Where it is sent; ${NAME} takes it from the environment."""
    headers: dict[HeaderName, EnvText] = {}
    """Request headers; ${NAME} takes a value from the environment."""
    auth: AuthSpec | UnsetType = UNSET
    """The credential to send."""
    private_network: bool = False
    """Whether loopback and private addresses may be reached."""


class StdoutSinkSpec(SinkSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="stdout"):
    """Prints the answer as one JSON line on standard output."""


SinkSpec: TypeAlias = FileSinkSpec | JsonlSinkSpec | HttpSinkSpec | StdoutSinkSpec
"""Where the answer is delivered."""


class HookSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Python function asked at a point of the run; it may let go on, deny, modify or inject a message."""

    id: Name
    """The hook's name, found again in journals. Each hook has its own."""
    at: Literal["on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop"]
    """The point at which it is asked."""
    call: Reference
    """The function as module:function, found under the project's import roots."""
    order: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """Hooks of one point are asked in this order, then by id."""
    timeout: Duration = "5s"
    """How long it may take."""
    on_failure: Literal["deny", "continue"] = "deny"
    """When the hook fails or takes too long: `deny` stops what it was asked about, `continue` goes on without it."""


class SessionSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run in a session knows of the runs before it."""

    history: Literal["full", "answers", "none"] = "full"
    """`full` carries all messages, `answers` only inputs and final answers, `none` nothing."""
    max_runs: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET
    """How many of the latest runs are carried. Absent: all."""


class RedactionSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a sensitive value is found: by its path, by a pattern, or both (the pattern inside the value at the path)."""

    name: Name
    """What the value is; it names the placeholder on the tape."""
    path: FieldPath | UnsetType = UNSET
    """Dotted path of the value in requests, replies, arguments or results."""
    pattern: Pattern | UnsetType = UNSET
    """Regular expression (RE2) that finds the value."""


class ReplaySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How recordings of this agent are written and matched."""

    redact: Annotated[list[RedactionSpec], Meta(max_length=256)] = []
    """Sensitive values; each is replaced everywhere on the tape and in snapshots by a placeholder."""
    volatile: Annotated[list[FieldPath], Meta(max_length=256)] = []
    """Fields of a request that may differ from the recorded one without a miss."""


class Agent(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An agent: its model, prompts, tools, policy and budgets."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    name: Name
    """The agent's name: small letters, digits, - and _."""
    description: Annotated[str, Meta(min_length=1, max_length=4096)] | UnsetType = UNSET
    """What the agent does, in a sentence. A parent agent's model reads it when this agent is its tool."""
    params: dict[ParamName, JsonSchemaField] = {}
    """The variables templates see, each with a JSON Schema; `default` makes one optional."""
    model: ModelSpec
    """The model to ask, and how."""
    instructions: TemplateText | FileRef | Annotated[list[TemplateText | FileRef], Meta(min_length=1, max_length=64)]
    """The system prompt: text, {file: …}, or a list of both, joined by blank lines. Jinja syntax; params are its variables."""
    input: TemplateText | FileRef | UnsetType = UNSET
    """The message sent when the command line gives none."""
    tools: dict[Name, ToolSpec] = {}
    """The tools by name; {file: …} or a list of both shares them between agents."""
    policy: PolicySpec = PolicySpec()
    """Which calls go ahead; {file: …} or a list of both shares rules between agents."""
    budgets: BudgetsSpec = BudgetsSpec()
    """What a run may spend; {file: …} or a list of both shares budgets between agents."""
    limits: LimitsSpec = LimitsSpec()
    """Limits on single steps."""
    guards: GuardsSpec = GuardsSpec()
    """Detectors of an agent that goes in circles."""
    retry: RetrySpec = RetrySpec()
    """How failed model calls are tried again."""
    context: ContextSpec = ContextSpec()
    """What happens when the conversation no longer fits the model's window."""
    admission: AdmissionSpec = AdmissionSpec()
    """Which inputs are accepted at all."""
    output: OutputSpec = OutputSpec()
    """The contract the final answer keeps."""
    sinks: dict[Name, SinkSpec] = {}
    """Where the answer is delivered, besides standard output."""
    hooks: Annotated[list[HookSpec], Meta(max_length=256)] = []
    """Python functions asked at points of the run."""
    session: SessionSpec = SessionSpec()
    """What a run in a session knows of the runs before it."""
    replay: ReplaySpec = ReplaySpec()
    """How recordings are written and matched."""
    profiles: dict[Name, dict[str, Any]] = field(default_factory=dict)
    """Named overlays of this document, chosen with --profile: maps are merged, everything else is replaced, null removes."""


# --- where an agent document may refer to other files ---------------------------------------------------------


SHARED_KEYS = ("tools", "policy", "budgets")
"""Keys that may be inline, `{file: …}`, or a list of both."""

TEXT_PATHS: tuple[tuple[str, ...], ...] = (("instructions",), ("input",), ("context", "compaction", "prompt"))
"""Keys whose text may stand in a file of its own."""

SCHEMA_PATHS: tuple[tuple[str, ...], ...] = (
    ("output", "schema"),
    ("params", "*"),
    ("tools", "*", "args"),
    ("tools", "*", "actions", "*"),
)
"""Keys that hold a JSON Schema, inline or `{file: …}`."""


# --- the other documents people write: shared tools, policies and budgets -------------------------------------


class ToolsFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tools shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    tools: dict[Name, ToolSpec]
    """The tools by name."""


class PolicyFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    policy: PolicySpec
    """The rules, and the default if this file is to set it."""


class BudgetsFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Budgets shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    budgets: BudgetsSpec
    """What a run may spend."""
