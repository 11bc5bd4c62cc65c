"""A scripted run of the pure core: facts in, facts out, without the engine.

`Run` plays the world: replies of the model in order, results of tools, answers of hooks, people and sinks by name.
Everything that happened is kept, and every finished run is folded and audited again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from agentrun.core.audit import find_divergence
from agentrun.core.budget import charged_cost
from agentrun.core.decide import decide
from agentrun.core.effects import (
    AskHook,
    AskModel,
    Commit,
    Deliver,
    Effect,
    Finished,
    Perform,
    RunChild,
    RunTool,
    SharedResult,
    Wait,
    intent,
)
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import (
    RULES_VERSION,
    ApprovalAnswer,
    ApprovalAnswered,
    Continue,
    DeliveryFinished,
    Fact,
    HookAnswer,
    ModelFailed,
    ModelReplied,
    Record,
    RunResumed,
    RunStarted,
    TimePassed,
    ToolFinished,
)
from agentrun.core.fault import Fault
from agentrun.core.hook_answers import make_hook_answered
from agentrun.core.messages import (
    Assistant,
    FinishReason,
    Message,
    Reasoning,
    Refusal,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from agentrun.core.outcome import Outcome, answer_of
from agentrun.core.package import Package
from agentrun.core.spend import ChildSpend
from agentrun.core.state import State, pending_effects
from agentrun.core.transitions import lost_work

Part = Text | Refusal | Reasoning | ToolCall

RUN_STARTED = RunStarted(
    run="run-1",
    package="sha256:0",
    replayed=False,
    agent="triage",
    rules=RULES_VERSION,
    params={},
    instructions="Sort tickets.",
    input=User((Text("It burns."),)),
    prompts={"nudge": "Go on.", "compact": "Sum up."},
)

TOOL: dict[str, Any] = {
    "kind": "python",
    "description": "A tool.",
    "effect": "read",
    "parallel": True,
    "timeout": 30_000,
    "visible": None,
    "observation": False,
    "terminal": False,
    "aborts_siblings": False,
    "on_denied": "tell",
    "args": {"type": "object", "properties": {"q": {"type": "string"}}},
    "actions": {},
    "module": "shop",
    "function": "search",
    "source": "sha256:0",
    "isolation": "thread",
}
"""A tool of a package; `tool(effect="at_most_once")` is another."""

HOOK: dict[str, Any] = {
    "id": "watch",
    "at": "before_tool",
    "module": "shop",
    "function": "watch",
    "source": "sha256:0",
    "order": 0,
    "timeout": 5000,
    "on_failure": "deny",
}

RULE: dict[str, Any] = {
    "id": "r1",
    "ruling": "allow",
    "targets": ["*"],
    "on": "tool_call",
    "when": None,
    "set": {},
    "mask": [],
    "reason": None,
}

SINK: dict[str, Any] = {"kind": "file", "delivery": "required", "timeout": 5000, "path": "out.txt"}


def tool(**changes: Any) -> dict[str, Any]:
    return TOOL | changes


def writing(**changes: Any) -> dict[str, Any]:
    """A tool that must not run twice, and runs alone."""
    return TOOL | {"effect": "at_most_once", "parallel": False} | changes


def agent_tool(**changes: Any) -> dict[str, Any]:
    python = ("effect", "actions", "module", "function", "source", "isolation")
    own = {key: value for key, value in TOOL.items() if key not in python}
    args = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    return own | {"kind": "agent", "args": args, "params": {}, "parallel": True} | changes


def pins(*tools: str, **changes: Any) -> dict[str, Any]:
    """These tools as a server had them when the spec was locked."""
    pinned = {"description": "A tool.", "args": {"type": "object"}, "digest": "sha256:0"} | changes
    return dict.fromkeys(tools, pinned)


def mcp_tool(*tools: str, **changes: Any) -> dict[str, Any]:
    """A server with these tools."""
    python = ("args", "actions", "module", "function", "source", "isolation")
    own = {key: value for key, value in TOOL.items() if key not in python}
    server: dict[str, Any] = {
        "command": ["server"],
        "url": None,
        "env": {},
        "headers": {},
        "requests": [],
        "start_timeout": 1000,
    }
    return own | server | {"kind": "mcp", "pinned": pins(*tools), "effects": {}, "private_network": False} | changes


def hook(at: str, **changes: Any) -> dict[str, Any]:
    return HOOK | {"at": at} | changes


def rule(ruling: str, *targets: str, **changes: Any) -> dict[str, Any]:
    return RULE | {"ruling": ruling, "targets": list(targets or ("*",))} | changes


def text_reply(*parts: str | Part, finish: FinishReason = "stop", usage: Usage | None = Usage(20, 5, 0, 0)) -> Reply:  # noqa: B008  # frozen
    """A reply of a model."""
    whole = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Reply(Assistant(whole), finish, usage, "gpt", "wire-1")


def calls_reply(*calls: tuple[str, str] | str, text: str = "") -> Reply:
    """A reply that asks for calls: names, or names with their arguments as JSON."""
    pairs = [(each, "{}") if isinstance(each, str) else each for each in calls]
    parts = tuple(ToolCall("", name, arguments) for name, arguments in pairs)
    return text_reply(*((text,) if text else ()), *parts, finish="tool_calls")


def records(facts: Iterable[Fact]) -> list[Record]:
    """Facts at their places."""
    return [Record(seq, 0, 1, "", fact) for seq, fact in enumerate(facts, 1)]


class RunWaits(Exception):
    """The run waits for somebody outside."""

    def __init__(self, wait: Wait | Perform) -> None:
        self.wait = wait
        super().__init__(repr(wait))


Result = str | Fault | tuple[str, ChildSpend] | ToolFinished


class Run:
    """A run of which every fact and every effect is kept.

    `tools`: what each tool gives (text, fault, text and what a child spent, or a function of the effect).
    `hooks`: what each hook answers, by id. `people`: what people answer, by target. `sinks`: what goes wrong, by name.
    `helps`: what somebody outside does when the run waits for nothing else.
    `disturb`: what comes between, once there are so many records, also between the facts of one commit.
    """

    def __init__(
        self,
        agent: Package,
        *answers: Reply | Fault,
        tools: Mapping[str, Any] | None = None,
        hooks: Mapping[str, HookAnswer | Callable[[AskHook], HookAnswer]] | None = None,
        people: Mapping[str, ApprovalAnswer] | None = None,
        sinks: Mapping[str, Fault] | None = None,
        started: RunStarted = RUN_STARTED,
        pick: Callable[[int], int] = lambda count: 0,
        takes: int = 0,
        helps: Callable[["Run", Wait], Fact | None] = lambda run, wait: None,
    ) -> None:
        self.agent = self.first = agent
        self.others: dict[str, Package] = {}
        self.answers = list(answers)
        self.tools, self.hooks = dict(tools or {}), dict(hooks or {})
        self.people, self.sinks = dict(people or {}), dict(sinks or {})
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.under_way: list[Effect] = []
        self.state = State()
        self.now = 0
        self.pick, self.takes, self.helps = pick, takes, helps
        self.disturb: dict[int, Callable[[Run], None]] = {}
        self.add(started)

    # what happened

    @property
    def facts(self) -> list[Fact]:
        return [record.fact for record in self.records]

    @property
    def requests(self) -> list[AskModel]:
        return [effect for effect in self.effects if isinstance(effect, AskModel)]

    @property
    def ran(self) -> list[str]:
        """The ids of the calls that ran, in the order in which they were started."""
        ran = [effect for effect in self.effects if isinstance(effect, RunTool | RunChild)]
        return [effect.id for effect in ran if isinstance(effect, RunChild) or effect.shared is None]

    def kinds(self) -> list[Any]:
        return [type(fact).__struct_config__.tag for fact in self.facts]

    def of(self, kind: type) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    # what happens

    def add(self, fact: Fact) -> None:
        record = Record(len(self.records) + 1, self.now, 1, "", fact)
        self.state = evolve(self.state, record)
        self.records.append(record)

    def finish(self) -> Outcome:
        """Go on to the end. Raises `Stuck` when somebody outside has to act."""
        while (outcome := self.step()) is None:
            pass
        assert fold(self.records) == self.state
        assert find_divergence(self.first, self.records, self.others) is None
        assert self.kinds().count("run_stopped") == 1
        assert self.kinds()[-1] == "run_stopped"
        return outcome

    def until(self, kind: type) -> Fact:
        """Go on until a fact of this kind was written."""
        start = len(self.records)
        while not any(isinstance(fact, kind) for fact in self.facts[start:]):
            assert self.step() is None, f"the run ended without {kind.__name__}"
        return self.of(kind)[-1]  # type: ignore[no-any-return]  # of the kind that was asked for

    def step(self) -> Outcome | None:
        if self._disturbed():
            return None
        match decide(self.agent, self.state):
            case Finished(outcome):
                return outcome
            case Commit(facts):
                for fact in facts:
                    self.add(fact)
                    if self._disturbed():
                        break
            case Perform(effects):
                for effect in effects:
                    self.add(intent(effect))
                    self.effects.append(effect)
                    self.under_way.append(effect)
                    if self._disturbed():
                        break
            case Wait() as wait:
                self._wait(wait)
        return None

    def _disturbed(self) -> bool:
        happens = self.disturb.pop(len(self.records), None)
        if happens is not None and self.state.phase != "stopped":
            happens(self)
        return happens is not None

    def crash(self, other: Package | None = None) -> None:
        """The owner goes away, and another goes on: with the same package unless told otherwise."""
        self.under_way = []
        package = self.state.package if other is None else f"sha256:other-{len(self.others)}"
        if other is not None:
            self.agent = self.others[package] = other
        self.add(RunResumed(package))
        for fact in lost_work(self.state):
            self.add(fact)

    def _wait(self, wait: Wait) -> None:
        self.under_way = [effect for effect in self.under_way if effect.id in pending_effects(self.state)]
        answer = next((question for question in wait.questions if question.target in self.people), None)
        if self.under_way:
            self.now += self.takes
            self.add(self.perform(self.under_way.pop(self.pick(len(self.under_way)))))
        elif answer is not None:
            self.add(ApprovalAnswered(answer.subject, answer.question, self.people[answer.target], "somebody"))
        elif wait.deadline is not None:
            self.now = max(self.now, wait.deadline)
            self.add(TimePassed())
        elif (fact := self.helps(self, wait)) is not None:
            self.add(fact)
        else:
            raise RunWaits(wait)

    def perform(self, effect: Effect) -> Fact:
        """The fact of an effect, as the world of this run has it."""
        match effect:
            case AskModel():
                answer = self.answers.pop(0)
                if isinstance(answer, Fault):
                    return ModelFailed(effect.id, effect.turn, effect.attempt, answer)
                cost = charged_cost(effect.request.route.price, answer.usage, effect.cost)
                return ModelReplied(effect.id, effect.turn, effect.attempt, answer.with_call_ids(effect.turn), cost)
            case RunTool(shared=SharedResult(returned=given)):
                return ToolFinished(effect.id, given.parts, given.fault, given.whole)
            case RunTool() | RunChild():
                return self._result(effect, self.tools.get(effect.name, "done"))
            case AskHook():
                answers = self.hooks.get(effect.hook.id, Continue())
                answer_of_hook = answers(effect) if callable(answers) else answers
                return make_hook_answered(effect.id, effect.hook, effect.subject, answer_of_hook)
            case Deliver():
                return DeliveryFinished(effect.name, self.sinks.get(effect.name))

    def _result(self, effect: RunTool | RunChild, given: Any) -> Fact:
        given = given(effect) if callable(given) else given
        match given:
            case Fault():
                return ToolFinished(effect.id, (Text(f"{given.code}: {given.message}"),), given)
            case str():
                return ToolFinished(effect.id, (Text(given),))
            case (str() as text, ChildSpend() as spent):
                return ToolFinished(effect.id, (Text(text),), spent=spent)
            case _:
                return replace(given, call=effect.id)  # type: ignore[no-any-return]  # of the kind that was asked for


def session_messages(state: State) -> tuple[Message, ...]:
    """What a later run of the session could read of this run. Each call in it has its result."""
    messages = tuple(state.conversation.transcript)
    if state.stopped is not None and state.stopped.status == "completed":
        return (*messages, Assistant((Text(answer_of(state)),))) if state.in_turn else messages
    if state.replies.latest is None or not state.in_turn:
        return messages
    results = (ToolResult(call.id, call.parts) for call in state.calls)
    return (*messages, state.replies.latest.message, *results)
