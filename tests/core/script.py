"""The pure core driven by hand: facts in, facts out, no engine."""

from collections.abc import Iterable
from typing import Any

from agentrun.core.decide import Commit, Finished, Perform, Wait, decide
from agentrun.core.effects import AskModel, intent
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import Fact, Fault, ModelFailed, ModelReplied, Record, RunStarted
from agentrun.core.messages import Assistant, Finish, Refusal, Reply, Text, ToolCall, Usage, User
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.state import State

Part = Text | Refusal | ToolCall

STARTED = RunStarted(
    run="run-1",
    package="sha256:0",
    replayed=False,
    agent="triage",
    rules=1,
    params={},
    instructions="Sort tickets.",
    input=User((Text("It burns."),)),
)


def said(*parts: str | Part, finish: Finish = "stop", usage: Usage | None = Usage(20, 5, 0, 0)) -> Reply:  # noqa: B008
    """A reply of a model."""
    whole = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Reply(Assistant(whole), finish, usage, "gpt", "wire-1")


def records(facts: Iterable[Fact]) -> list[Record]:
    """Facts at their places."""
    return [Record(seq, 0, 1, "", fact) for seq, fact in enumerate(facts, 1)]


class Run:
    """A run of which every fact and every request is kept."""

    def __init__(self, agent: Package, *answers: Reply | Fault) -> None:
        self.agent = agent
        self.answers = list(answers)
        self.facts: list[Fact] = []
        self.requests: list[AskModel] = []
        self.state = State()
        self.add(STARTED)

    def add(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.state = evolve(self.state, Record(len(self.facts), 0, 1, "", fact))

    def finish(self) -> Outcome:
        while True:
            match decide(self.agent, self.state):
                case Finished(outcome):
                    assert fold(records(self.facts)) == self.state
                    return outcome
                case Commit(facts):
                    for fact in facts:
                        self.add(fact)
                case Perform(effects):
                    (effect,) = effects
                    self.add(intent(effect))
                    assert decide(self.agent, self.state) == Wait(inflight=(effect.id,))
                    self.add(self._answer(effect))
                case Wait():
                    raise AssertionError("nothing is under way")

    def _answer(self, effect: AskModel) -> Fact:
        self.requests.append(effect)
        match self.answers.pop(0):
            case Reply() as reply:
                return ModelReplied(effect.id, effect.turn, effect.attempt, reply.in_turn(effect.turn))
            case fault:
                return ModelFailed(effect.id, effect.turn, effect.attempt, fault)

    def kinds(self) -> list[Any]:
        return [type(fact).__struct_config__.tag for fact in self.facts]
