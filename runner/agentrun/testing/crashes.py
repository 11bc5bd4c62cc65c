"""The law of crashes: wherever a host dies, another goes on, and the run means the same.

Rule 1  A host dies before a record is written, after it, or inside an effect that has taken place already.
Rule 2  Models, tools and people are of the world and survive; what the model said and nobody wrote down, it says again.
Rule 3  A call that may run once at most runs again only when somebody says so.
Rule 4  The next host comes much later. The time without a host is not the run's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from difflib import unified_diff
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from agentrun.compiler.fingerprint import PackageFile
from agentrun.core.audit import audit
from agentrun.core.effects import AskModel, Deliver, Returned, RunTool
from agentrun.core.facts import ModelAsked, ModelFailed, ModelReplied, Record, RunStopped, kind_of
from agentrun.core.facts_base import Fault
from agentrun.core.facts_calls import CallSettled, ToolStarted
from agentrun.core.facts_gates import Answer
from agentrun.core.messages import Reply
from agentrun.core.names import effect_of
from agentrun.engine.api import AnyPackage, package_of, providers_of
from agentrun.engine.clock import StepClock
from agentrun.engine.handle import How
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Executor, Hook, Provider, SinkPort
from agentrun.errors import AgentrunError
from agentrun.journal.lines import read
from agentrun.testing.journals import Crash, CrashingJournals
from agentrun.testing.models import Script
from agentrun.testing.setting import RUN, MakeSetting, Setting, begun, ended, runtime_in, story

T = TypeVar("T")
When: TypeAlias = Literal["before", "after", "inside"]


class Point(Struct, frozen=True):
    """Where a host dies: before or after its nth record, or inside its nth effect."""

    when: When
    number: int

    def __str__(self) -> str:
        return f"the host died {self.when} {'effect' if self.when == 'inside' else 'record'} {self.number}"


NEVER = Point("before", 0)
AWAY = 3_600_000
"""Milliseconds until another host goes on."""


def crash_everywhere(
    package: AnyPackage,
    setting: MakeSetting,
    *,
    settle: How = "retry",
    answer: Answer = "approved",
    width: int = 8,
) -> int:
    """Wherever the host dies, the run goes on to the same end.

    The agent runs once undisturbed; then once for each point at which its host can die, and is resumed there. Its
    canonical journal is the same (unless a call was settled other than by a retry), has one terminal record and a
    valid chain, passes the audit, and no call that may run once at most ran twice without somebody saying so.

    `settle` is what is said about calls whose outcome is not known, `answer` what people say if nobody is in the
    setting. Children that run at the same time need models of their own, or one made by `replies`. A request that was
    cut off counts as spent: an agent close to a limit of tokens or cost may well stop earlier after a crash.

        laws.crash_everywhere(package, setting)
    """
    file = package_of(package)
    whole = _Life(file, setting, NEVER, settle, answer, width)
    whole.live()
    points = [*whole.points()]
    for point in points:
        life = _Life(file, setting, point, settle, answer, width)
        try:
            life.live()
            _compare(whole, life)
        except (AssertionError, AgentrunError) as error:
            raise AssertionError(f"{point}\n{error}\n{life.records_told()}") from error
    return len(points)


class _Life:
    """One run that is cut off at a point, and what came of it."""

    def __init__(
        self, file: PackageFile, setting: MakeSetting, point: Point, settle: How, answer: Answer, width: int
    ) -> None:
        self.file = file
        self._point = point
        self._settle = settle
        self._answer = answer
        self._width = width
        self._clock = StepClock()
        self._setting = setting(self._clock)
        self._dying = _dying(point)
        self.journals: MemoryJournals = self._dying
        self._effects = 0
        self.ran: Counter[str] = Counter()
        """How often each call ran that may run once at most, by its key."""

    def live(self) -> None:
        try:
            self._end(resumed=False)
        except Crash:
            self.journals = _survivors(self._dying, self.file)
            self._clock.move_to(self._clock.now() + AWAY)
            self._rewind()
            self._end(resumed=RUN in self.journals)
        else:
            assert self._point == NEVER, "this time the run was over before that point: is the setting always the same?"

    def points(self) -> Iterator[Point]:
        """Where a run like this one can be cut off."""
        whens: tuple[When, ...] = ("before", "after")
        yield from (Point(when, number) for number in range(1, self._dying.appends + 1) for when in whens)
        yield from (Point("inside", number) for number in range(1, self._effects + 1))

    def _end(self, *, resumed: bool) -> None:
        runtime = runtime_in(self.file, self._watched(), self._clock, self.journals, self._width)
        if resumed and any(isinstance(record.fact, RunStopped) for record in self.journals.records(RUN)):
            return
        handle = runtime.resume(RUN) if resumed else begun(runtime, self.file, self._setting)
        ended(runtime, handle, self._clock, self._settle, self._answer)

    def _rewind(self) -> None:
        heard: Counter[str] = Counter()
        for run in self.journals.runs:
            heard += _answers_heard(self.journals.records(run))
        models = providers_of(self.file.agent, self._setting.model)
        for script in models.values():
            if isinstance(script, Script):
                script.go_to(sum(heard[name] for name, model in models.items() if model is script))

    def _watched(self) -> Setting:
        models = providers_of(self.file.agent, self._setting.model)
        return replace(
            self._setting,
            model={name: _Model(model, self) for name, model in models.items()},
            tools={name: _Tool(tool, self) for name, tool in self._setting.tools.items()},
            hooks={name: _hook(hook, self) for name, hook in self._setting.hooks.items()},
            sinks={name: _Sink(sink, self) for name, sink in self._setting.sinks.items()},
        )

    async def inside(self, work: Coroutine[Any, Any, T]) -> T:
        """Some work of the world; perhaps nobody lives to hear what came of it."""
        done = await work
        self._effects += 1
        if self._point == Point("inside", self._effects) and not self._dying.is_dead:
            self._dying.die()
        return done

    def records_told(self) -> str:
        """The journals, in short."""
        runs = ((run, self.journals.records(run)) for run in self.journals.runs)
        return "\n".join(f"{run}: " + ", ".join(kind_of(record.fact) for record in records) for run, records in runs)


def _dying(point: Point) -> CrashingJournals:
    return CrashingJournals(0, "before") if point.when == "inside" else CrashingJournals(point.number, point.when)


def _survivors(dead: MemoryJournals, file: PackageFile) -> MemoryJournals:
    """The journals as another host finds them."""
    found = MemoryJournals()
    found.keep(RUN, file)
    for run in dead.runs:
        found.restore(run, read(dead.text(run).splitlines()))
    return found


def _answers_heard(records: Iterable[Record]) -> Counter[str]:
    """How many requests were answered, by provider."""
    asked: dict[str, str] = {}
    heard: Counter[str] = Counter()
    for record in records:
        match record.fact:
            case ModelAsked(effect=effect, route=route):
                asked[effect] = route.partition("/")[0]
            case ModelReplied(effect=effect) | ModelFailed(effect=effect):
                heard[asked[effect]] += 1
    return heard


class _Model:
    def __init__(self, model: Provider, life: _Life) -> None:
        self._model = model
        self._life = life

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        return await self._life.inside(self._model.ask(effect, delta))


class _Tool:
    def __init__(self, tool: Executor, life: _Life) -> None:
        self._tool = tool
        self._life = life

    async def run(self, call: RunTool) -> Returned:
        if effect_of(call.tool, call.name) == "at_most_once":
            self._life.ran[call.key] += 1
        return await self._life.inside(self._tool.run(call))


class _Sink:
    def __init__(self, sink: SinkPort, life: _Life) -> None:
        self._sink = sink
        self._life = life

    async def deliver(self, delivery: Deliver) -> Fault | None:
        return await self._life.inside(self._sink.deliver(delivery))


def _hook(hook: Hook, life: _Life) -> Hook:
    async def asked(question: Any) -> Any:
        said = hook(question)
        return await said if isinstance(said, Coroutine) else said

    return lambda question: life.inside(asked(question))


def _compare(whole: _Life, life: _Life) -> None:
    journals, settled = life.journals, []
    keys: dict[str, tuple[str, str]] = {}
    for run in journals.runs:
        records = tuple(journals.records(run))
        ends = [record.seq for record in records if isinstance(record.fact, RunStopped)]
        assert ends == [len(records)], f"{run} has {len(records)} records and ends at {ends}"
        settled += [(run, record.fact) for record in records if isinstance(record.fact, CallSettled)]
        keys |= {record.fact.key: (run, record.fact.call) for record in records if isinstance(record.fact, ToolStarted)}
        tuple(read(journals.text(run).splitlines()))
    for key, times in life.ran.items():
        assert key in keys, "a call ran that the journal does not know"
        retries = sum((run, fact.call) == keys[key] and fact.how == "retry" for run, fact in settled)
        assert times <= 1 + retries, f"{keys[key][1]} may run once at most and ran {times} times"
    assert audit(life.file.agent, journals.records(RUN)) is None, "today's code would decide differently"
    if all(fact.how == "retry" for _, fact in settled):
        one, other = story(whole.journals).splitlines(), story(journals).splitlines()
        assert one == other, "\n".join(unified_diff(one, other, "undisturbed", "resumed", lineterm=""))
