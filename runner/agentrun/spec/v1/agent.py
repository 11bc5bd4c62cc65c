"""The agent document: everything one agent is."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from agentrun.spec.v1.budgets import Budgets, Context, Guards, Limits, Retry
from agentrun.spec.v1.policy import Policy
from agentrun.spec.v1.tools import Auth, HeaderName, Tool
from agentrun.spec.v1.values import (
    Count,
    Duration,
    EnvText,
    FileRef,
    JsonSchema,
    Name,
    ParamName,
    Pattern,
    Reference,
    SecretRef,
    Size,
    TemplateText,
)

Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
"""US dollars for a million tokens."""

MODEL_NAME = "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$"
ROUTE = "^[a-z][a-z0-9_-]{0,63}/[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$"
TOOL_CHOICE = "^[a-z][a-z0-9_.-]{0,127}$"
FIELD_PATH = "^[A-Za-z0-9_*-]+(\\.[A-Za-z0-9_*-]+)*$"

Route: TypeAlias = Annotated[str, Meta(pattern=ROUTE)]
"""A provider and a model: anthropic/claude-haiku-4-5."""

FieldPath: TypeAlias = Annotated[str, Meta(pattern=FIELD_PATH, max_length=256)]
"""A dotted path into a recorded request or reply; * stands for any key or index."""


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model costs, in US dollars for a million tokens."""

    input: Dollars
    """For input tokens."""
    output: Dollars
    """For output tokens, reasoning included."""
    cached_input: Dollars | UnsetType = UNSET
    """For input tokens read from the provider's cache. Absent: as `input`."""


class FallbackModel(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Another route to try when the one before it has failed for good."""

    provider: Name
    """The wire format: openai, openai-responses, anthropic, gemini, or a provider registered by the host."""
    name: Annotated[str, Meta(pattern=MODEL_NAME)]
    """The model's name as the provider knows it."""
    base_url: EnvText | UnsetType = UNSET
    """Where the provider is reached; ${NAME} takes it from the environment. Absent: the provider's own address."""
    api_key: SecretRef | UnsetType = UNSET
    """The environment variable that holds the key, as ${NAME}. Absent: the provider's usual one."""
    headers: dict[HeaderName, EnvText] = {}
    """Further request headers; ${NAME} takes a value from the environment."""
    price: Price | UnsetType = UNSET
    """What the model costs. Absent: the row pinned by `agentrun lock`."""
    context_window: Count | UnsetType = UNSET
    """How many tokens the model can read. Absent: the number pinned by `agentrun lock`."""
    options: dict[str, Any] = {}
    """Further fields of the provider's request body, sent as they are."""


class Model(FallbackModel, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
    max_output_tokens: Count | UnsetType = UNSET
    """The longest reply. It is also what a budget reserves before a call."""
    reasoning: Literal["none", "low", "medium", "high"] | UnsetType = UNSET
    """How much the model may think before it answers, for models that do."""
    tool_choice: Annotated[str, Meta(pattern=TOOL_CHOICE)] = "auto"
    """`auto`, `required` (some tool), `none`, or the name of one tool."""
    stream: bool = False
    """Whether replies are streamed."""
    fallback: Annotated[list[Route | FallbackModel], Meta(max_length=8)] = []
    """Other routes, tried in order: `provider/model`, or an object with its own address and price."""


class Admission(Struct, frozen=True, forbid_unknown_fields=True):
    """Which inputs are accepted at all. A refused input leaves no run."""

    max_chars: Count | UnsetType = UNSET
    """The longest input. Absent: no limit."""
    dedupe: bool = False
    """Whether the same text is refused the second time in one session."""


class Output(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contract the final answer keeps: JSON of a schema. Local validation decides, whatever the provider promises."""

    schema: JsonSchema | UnsetType = UNSET
    """JSON Schema of the answer, or {file: …}. References outside the schema are refused."""
    repairs: Annotated[int, Meta(ge=0, le=10)] = 2
    """How often the model may repair an answer that breaks the contract, with the errors shown to it."""
    max_bytes: Size = "64KiB"
    """The largest answer."""
    max_depth: Annotated[int, Meta(ge=1, le=64)] = 24
    """The deepest nesting of the answer."""


class SinkBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What sinks of every kind have in common."""

    delivery: Literal["required", "optional", "disabled"] = "required"
    """`required`: the run fails with `delivery.failed` when the answer cannot be delivered; `optional`: that is only recorded; `disabled`: nothing is delivered."""
    timeout: Duration = "30s"
    """How long one delivery may take."""


class FileSink(SinkBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="file"):
    """Writes the answer to a file, replacing it."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The file, inside the project, relative to its root."""


class JsonlSink(SinkBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="jsonl"):
    """Appends one JSON line for each answer."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The file, inside the project, relative to its root."""


class HttpSink(SinkBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="http"):
    """Posts the answer as JSON."""

    url: EnvText
    """Where it is sent; ${NAME} takes it from the environment."""
    headers: dict[HeaderName, EnvText] = {}
    """Request headers; ${NAME} takes a value from the environment."""
    auth: Auth | UnsetType = UNSET
    """The credential to send."""
    private_network: bool = False
    """Whether loopback and private addresses may be reached."""


class StdoutSink(SinkBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="stdout"):
    """Prints the answer as one JSON line on standard output."""


Sink: TypeAlias = FileSink | JsonlSink | HttpSink | StdoutSink
"""Where the answer is delivered."""


class Hook(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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


class Session(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run in a session knows of the runs before it."""

    history: Literal["full", "answers", "none"] = "full"
    """`full` carries all messages, `answers` only inputs and final answers, `none` nothing."""
    max_runs: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET
    """How many of the latest runs are carried. Absent: all."""


class Redaction(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a sensitive value is found: by its path, by a pattern, or both (the pattern inside the value at the path)."""

    name: Name
    """What the value is; it names the placeholder on the tape."""
    path: FieldPath | UnsetType = UNSET
    """Dotted path of the value in requests, replies, arguments or results."""
    pattern: Pattern | UnsetType = UNSET
    """Regular expression (RE2) that finds the value."""


class Replay(Struct, frozen=True, forbid_unknown_fields=True):
    """How recordings of this agent are written and matched."""

    redact: Annotated[list[Redaction], Meta(max_length=256)] = []
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
    params: dict[ParamName, JsonSchema] = {}
    """The variables templates see, each with a JSON Schema; `default` makes one optional."""
    model: Model
    """The model to ask, and how."""
    instructions: TemplateText | FileRef | Annotated[list[TemplateText | FileRef], Meta(min_length=1, max_length=64)]
    """The system prompt: text, {file: …}, or a list of both, joined by blank lines. Jinja syntax; params are its variables."""
    input: TemplateText | FileRef | UnsetType = UNSET
    """The message sent when the command line gives none."""
    tools: dict[Name, Tool] = {}
    """The tools by name; {file: …} or a list of both shares them between agents."""
    policy: Policy = Policy()
    """Which calls go ahead; {file: …} or a list of both shares rules between agents."""
    budgets: Budgets = Budgets()
    """What a run may spend; {file: …} or a list of both shares budgets between agents."""
    limits: Limits = Limits()
    """Limits on single steps."""
    guards: Guards = Guards()
    """Detectors of an agent that goes in circles."""
    retry: Retry = Retry()
    """How failed model calls are tried again."""
    context: Context = Context()
    """What happens when the conversation no longer fits the model's window."""
    admission: Admission = Admission()
    """Which inputs are accepted at all."""
    output: Output = Output()
    """The contract the final answer keeps."""
    sinks: dict[Name, Sink] = {}
    """Where the answer is delivered, besides standard output."""
    hooks: Annotated[list[Hook], Meta(max_length=256)] = []
    """Python functions asked at points of the run."""
    session: Session = Session()
    """What a run in a session knows of the runs before it."""
    replay: Replay = Replay()
    """How recordings are written and matched."""
    profiles: dict[Name, dict[str, Any]] = field(default_factory=dict)
    """Named overlays of this document, chosen with --profile: maps are merged, everything else is replaced, null removes."""
