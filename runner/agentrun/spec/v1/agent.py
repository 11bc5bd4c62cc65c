"""The agent document, and the documents with shared tools, policies and budgets."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from agentrun.spec.v1.budgets import BudgetsSpec, ContextSpec, GuardsSpec, LimitsSpec, RetrySpec
from agentrun.spec.v1.field_types import (
    CountField,
    Duration,
    EnvText,
    FieldPath,
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
"""US dollars per million tokens."""

MODEL_NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$"
ROUTE_PATTERN = "^[a-z][a-z0-9_-]{0,63}/[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$"
TOOL_CHOICE_PATTERN = "^[a-z][a-z0-9_.-]{0,127}$"

RouteName: TypeAlias = Annotated[str, Meta(pattern=ROUTE_PATTERN)]
SHARED_KEYS = ("tools", "policy", "budgets")
"""Keys that may be inline, `{file: …}`, or a list of both."""
TEXT_PATHS: tuple[tuple[str, ...], ...] = (("instructions",), ("input",), ("context", "compaction", "prompt"))
"""Keys whose text may be in a separate file."""
SCHEMA_PATHS: tuple[tuple[str, ...], ...] = (
    ("output", "schema"),
    ("params", "*"),
    ("tools", "*", "args"),
    ("tools", "*", "actions", "*"),
)
"""Keys that hold a JSON Schema, inline or `{file: …}`."""


class PriceSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a model, in US dollars per million tokens."""

    input: Dollars
    """Price of input tokens."""
    output: Dollars
    """Price of output tokens, including reasoning."""
    cached_input: Dollars | UnsetType = UNSET
    """Price of input tokens read from the provider's cache. Default: the price of `input`."""


class FallbackModelSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Another route, used when all retries on the route before it have failed."""

    provider: Name
    """The wire format: openai, openai-responses, anthropic, gemini, or a provider that the host program registered."""
    name: Annotated[str, Meta(pattern=MODEL_NAME_PATTERN)]
    """The model's name, as the provider spells it."""
    base_url: EnvText | UnsetType = UNSET
    """The base URL of the provider's API. ${NAME} reads an environment variable. Default: the provider's public URL."""
    api_key: SecretRef | UnsetType = UNSET
    """The environment variable with the API key, as ${NAME}. Default: the provider's usual variable."""
    headers: dict[HeaderName, EnvText] = {}
    """Additional request headers. ${NAME} reads an environment variable."""
    price: PriceSpec | UnsetType = UNSET
    """The price of the model. Default: the price pinned by `agentrun lock`."""
    context_window: CountField | UnsetType = UNSET
    """The size of the model's context window, in tokens. Default: the number pinned by `agentrun lock`."""
    options: dict[str, Any] = {}
    """Additional fields for the provider's request body, sent unchanged."""

    @property
    def route(self) -> str:
        return f"{self.provider}/{self.name}"


class ModelSpec(FallbackModelSpec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The model and its settings."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | UnsetType = UNSET
    """Sampling temperature. Default: the provider's default."""
    top_p: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    """Nucleus sampling. Default: the provider's default."""
    seed: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType = UNSET
    """Sampling seed, for providers that accept one."""
    stop: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(min_length=1, max_length=4)]
        | UnsetType
    ) = UNSET
    """Stop sequences: the model stops before it writes one of these texts."""
    max_output_tokens: CountField | UnsetType = UNSET
    """The maximum length of one reply, in tokens. Budgets reserve this amount before each model call."""
    reasoning: Literal["none", "low", "medium", "high"] | UnsetType = UNSET
    """The reasoning effort, for models that support reasoning."""
    tool_choice: Annotated[str, Meta(pattern=TOOL_CHOICE_PATTERN)] = "auto"
    """`auto`, `required` (the model must call a tool), `none`, or the name of one tool."""
    stream: bool = False
    """If true, replies are streamed."""
    fallback: Annotated[list[RouteName | FallbackModelSpec], Meta(max_length=8)] = []
    """Other routes, tried in order: `provider/model`, or an object with its own URL and price."""

    @property
    def routes(self) -> list[FallbackModelSpec]:
        return [self, *(_parse_route(one) if isinstance(one, str) else one for one in self.fallback)]


def _parse_route(route: str) -> FallbackModelSpec:
    provider, _, name = route.partition("/")
    return FallbackModelSpec(provider=provider, name=name)


class AdmissionSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Which inputs are accepted. A rejected input does not start a run."""

    max_chars: CountField | UnsetType = UNSET
    """The maximum length of the input, in characters. Default: no limit."""
    dedupe: bool = False
    """If true, a text that was already sent in the same session is rejected."""


class OutputSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The format of the final answer: JSON that matches a schema. agentrun always validates it, whatever the provider promises."""

    schema: JsonSchemaField | UnsetType = UNSET
    """JSON Schema of the answer, inline or {file: …}. References to other files or hosts are not allowed."""
    repairs: Annotated[int, Meta(ge=0, le=10)] = 2
    """How many times the model may repair an answer that does not match the schema. It is shown the errors."""
    max_bytes: Size = "64KiB"
    """The maximum size of the answer."""
    max_depth: Annotated[int, Meta(ge=1, le=64)] = 24
    """The maximum nesting depth of the answer."""


class SinkSpecBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """Fields that every kind of sink has."""

    delivery: Literal["required", "optional", "disabled"] = "required"
    """`required`: the run fails with `delivery.failed` if the answer cannot be delivered. `optional`: the failure is only recorded. `disabled`: nothing is delivered."""
    timeout: Duration = "30s"
    """The time limit for one delivery."""


class FileSinkSpec(SinkSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="file"):
    """Writes the answer to a file and replaces its content."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The path of the file, relative to the project root. It must be inside the project."""


class JsonlSinkSpec(SinkSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="jsonl"):
    """Appends each answer to a file, as one line of JSON."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The path of the file, relative to the project root. It must be inside the project."""


class HttpSinkSpec(SinkSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="http"):
    """Sends the answer as JSON with HTTP POST."""

    url: EnvText
    """The URL to send it to. ${NAME} reads an environment variable."""
    headers: dict[HeaderName, EnvText] = {}
    """Request headers. ${NAME} reads an environment variable."""
    auth: AuthSpec | UnsetType = UNSET
    """The credential to send."""
    private_network: bool = False
    """If true, loopback and private addresses are allowed."""


class StdoutSinkSpec(SinkSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="stdout"):
    """Prints the answer to standard output, as one line of JSON."""


SinkSpec: TypeAlias = FileSinkSpec | JsonlSinkSpec | HttpSinkSpec | StdoutSinkSpec


class HookSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Python function that is called at a point of the run. It can continue, deny, modify, or inject a message."""

    id: Name
    """The hook's unique name. Journals contain it."""
    at: Literal["on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop"]
    """The point at which the hook is called."""
    call: Reference
    """The function, as module:function. The module must be under the project's import roots."""
    order: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """Hooks at the same point are called in ascending order of this number, then by id."""
    timeout: Duration = "5s"
    """The time limit for one call."""
    on_failure: Literal["deny", "continue"] = "deny"
    """If the hook fails or times out: `deny` blocks the action it was called for, `continue` ignores the hook. A hook at before_tool always denies."""


class SessionSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the earlier runs of its session a run gets."""

    history: Literal["full", "answers", "none"] = "full"
    """`full`: all messages. `answers`: only inputs and final answers. `none`: nothing."""
    max_runs: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET
    """The number of most recent runs to include. Default: all."""


class RedactionSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to find a sensitive value: by path, by pattern, or both (the pattern is then searched in the value at the path)."""

    name: Name
    """A name for the value. The placeholder in the cassette contains it."""
    path: FieldPath | UnsetType = UNSET
    """The dotted path of the value in requests, replies, arguments or results."""
    pattern: Pattern | UnsetType = UNSET
    """A regular expression (RE2) that matches the value."""


class ReplaySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How cassettes of this agent are written and matched."""

    redact: Annotated[list[RedactionSpec], Meta(max_length=256)] = []
    """Sensitive values. Each is replaced by a placeholder everywhere in cassettes and snapshots."""
    volatile: Annotated[list[FieldPath], Meta(max_length=256)] = []
    """Fields of a request that may differ from the recorded request. Replay ignores them when it matches."""


class Agent(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An agent: its model, prompts, tools, policy and budgets."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    name: Name
    """The agent's name: lowercase letters, digits, - and _."""
    description: Annotated[str, Meta(min_length=1, max_length=4096)] | UnsetType = UNSET
    """What the agent does, in one sentence. If another agent uses this agent as a tool, its model reads this text."""
    params: dict[ParamName, JsonSchemaField] = {}
    """The variables that templates can use, each with a JSON Schema. A param with a `default` is optional."""
    model: ModelSpec
    """The model and its settings."""
    instructions: TemplateText | FileRef | Annotated[list[TemplateText | FileRef], Meta(min_length=1, max_length=64)]
    """The system prompt: text, {file: …}, or a list of both, joined with blank lines. It is a Jinja template; params are its variables."""
    input: TemplateText | FileRef | UnsetType = UNSET
    """The message to send if the command line has none."""
    tools: dict[Name, ToolSpec] = {}
    """The tools, by name. Use {file: …}, or a list of mappings and files, to share tools between agents."""
    policy: PolicySpec = PolicySpec()
    """Which tool calls are allowed. Use {file: …}, or a list of mappings and files, to share rules between agents."""
    budgets: BudgetsSpec = BudgetsSpec()
    """What a run may spend. Use {file: …}, or a list of mappings and files, to share budgets between agents."""
    limits: LimitsSpec = LimitsSpec()
    """Limits for single steps."""
    guards: GuardsSpec = GuardsSpec()
    """Checks that stop an agent that repeats itself."""
    retry: RetrySpec = RetrySpec()
    """How failed model calls are retried."""
    context: ContextSpec = ContextSpec()
    """What to do when the conversation no longer fits into the model's context window."""
    admission: AdmissionSpec = AdmissionSpec()
    """Which inputs are accepted."""
    output: OutputSpec = OutputSpec()
    """The format of the final answer."""
    sinks: dict[Name, SinkSpec] = {}
    """Where the answer is delivered, in addition to standard output."""
    hooks: Annotated[list[HookSpec], Meta(max_length=256)] = []
    """Python functions that are called at points of the run."""
    session: SessionSpec = SessionSpec()
    """How much of the earlier runs of its session a run gets."""
    replay: ReplaySpec = ReplaySpec()
    """How cassettes are written and matched."""
    profiles: dict[Name, dict[str, Any]] = field(default_factory=dict)
    """Named variants of this document, selected with --profile. Mappings are merged, other values are replaced, and null removes a key."""


class ToolsFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tools shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    tools: dict[Name, ToolSpec]
    """The tools, by name."""


class PolicyFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    policy: PolicySpec
    """The rules, and optionally the default."""


class BudgetsFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Budgets shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    budgets: BudgetsSpec
    """What a run may spend."""
