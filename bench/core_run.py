"""A long run of the pure core: one tool call in every turn, no engine, a journal in memory."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import to_builtins

import agentrun
from agentrun.core.decide import decide
from agentrun.core.effects import Commit, Finished, Perform, Wait, intent
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import RULES_VERSION, Fact, ModelReplied, Record, RunStarted, ToolFinished
from agentrun.core.messages import Assistant, Reply, Text, ToolCall, Usage, user_message
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.journal.storage import MemoryJournal

SPEC = """\
agentrun: "1"
name: long
model: {provider: openai, name: gpt-4.1-mini, max_output_tokens: 1k}
instructions: Look at every page.
input: Go.
tools:
  page:
    kind: http
    description: One page.
    url: "https://pages.example/{{ args.number }}"
    args: {type: object, properties: {number: {type: string}}, required: [number]}
policy:
  default: deny
  rules: [{id: pages, allow: page}]
budgets: {turns: 10000, tool_calls: 100000, tokens: 1000M}
"""
TURNS = (50, 100, 200, 500, 1000, 2000)


def long_package(folder: Path) -> Package:
    path = folder / "long.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return agentrun.compile(path).agent


def answers(turns: int) -> dict[str, Fact]:
    """What the world says to each effect of a run, made before the clock starts."""
    made: dict[str, Fact] = {}
    for turn in range(1, turns + 1):
        text, call = Text(f"Now page {turn}."), ToolCall("", "page", f'{{"number": "{turn}"}}')
        message = Assistant((text, call) if turn < turns else (text,))
        reply = Reply(message, "stop", Usage(20, 5, 0, 0), "gpt", None).with_call_ids(turn)
        made[f"m{turn}.1"] = ModelReplied(f"m{turn}.1", turn, 1, reply)
        made[f"c{turn}.0"] = ToolFinished(f"c{turn}.0", (Text(f"Page {turn}, with a little text."),))
    return made


class CoreRun:
    """One run of so many turns: its records, and the CPU seconds that deciding, evolving and writing them took."""

    def __init__(self, package: Package, turns: int) -> None:
        self.package, self.answers = package, answers(turns)
        self.journal, self.state = MemoryJournal(), State()
        started = RunStarted("run", "sha256:0", False, package.name, RULES_VERSION, {}, "Look.", user_message("Go."))
        begin = time.process_time()
        self._commit(started)
        while self._step():
            pass
        self.seconds = time.process_time() - begin

    def _step(self) -> bool:
        match decide(self.package, self.state):
            case Commit(facts):
                for fact in facts:
                    self._commit(fact)
            case Perform(effects):
                for effect in effects:
                    self._commit(intent(effect))
            case Wait(inflight):
                self._commit(self.answers[inflight[0]])
            case Finished():
                return False
        return True

    def _commit(self, fact: Fact) -> None:
        record = Record(self.state.seq + 1, 0, 1, self.journal.head, fact)
        after = evolve(self.state, record)
        self.journal.append(record)
        self.state = after


def per_fact(folder: Path) -> float:
    """CPU for one fact as a multiple of writing it as JSON and reading it again, in runs of 100 turns."""
    package = long_package(folder)
    runs = [CoreRun(package, 100) for _ in range(150)]
    return min(run.seconds for run in runs) / min(json_time(run.journal.records()) for run in runs)


def growth(folder: Path) -> float:
    """The exponent with which the CPU time of a run grows with its turns: 1 is a straight line."""
    package = long_package(folder)
    CoreRun(package, 50)
    points = [(math.log(turns), math.log(min(CoreRun(package, turns).seconds for _ in range(3)))) for turns in TURNS]
    x, y = (sum(each) / len(points) for each in zip(*points, strict=True))
    return float(sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points))


def fold_time(folder: Path) -> float:
    """CPU to fold the journal of a run of 2,000 turns as a multiple of writing it as JSON and reading it again."""
    records = CoreRun(long_package(folder), TURNS[-1]).journal.records()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(5):
        begin = time.process_time()
        fold(records)
        times[0].append(time.process_time() - begin)
        times[1].append(json_time(records))
    return min(times[0]) / min(times[1])


def json_time(records: Sequence[Record]) -> float:
    """CPU seconds to write all facts as JSON and read them again, with Python's own json."""
    plain = [to_builtins(record.fact) for record in records]
    begin = time.process_time()
    for each in plain:
        json.loads(json.dumps(each))
    return time.process_time() - begin
