"""Laws that every run keeps, to be tried on one's own agents.

    from agentrun.testing import laws, calls, scripted, stub, text

    def setting(clock):
        return laws.Setting(
            model=scripted(calls("refund", amount=5), text("Done.")),
            tools={"refund": stub("refunded", delay=20, clock=clock)},
            message="My money, please.",
        )

    def test_refunds_survive_crashes():
        laws.crash_everywhere(agentrun.compile("specs/refunds.yaml"), setting)

A law raises AssertionError with a story of what happened, and gives the number of runs that it tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from random import Random
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentrun.compiler.package_file import PackageFile
from agentrun.core.audit import find_divergence
from agentrun.core.effects import AskModel, Deliver, RunTool, ToolReturn
from agentrun.core.evolve import fold
from agentrun.core.facts import (
    ApprovalAnswer,
    ApprovalAsked,
    CallSettled,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Record,
    RunStopped,
    ToolFinished,
    ToolStarted,
    WorkLost,
    fact_kind,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.outcome import Outcome, Question
from agentrun.core.package_lookup import tool_effect
from agentrun.core.state import State
from agentrun.engine.api import PackageSource, load_package_source, providers_by_name
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import CompletionOrder
from agentrun.engine.handle import CallSettlement, RunHandle
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Approver, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.errors import AgentrunError
from agentrun.journal.canonical import canonical
from agentrun.journal.records import read_records
from agentrun.testing.doubles import Crash, CrashingJournals, Script

__all__ = ["MakeSetting", "Setting", "any_order", "audit_ok", "crash_everywhere"]


def audit_ok(package: PackageSource, records: Iterable[Record]) -> None:
    """Today's code would have made the decisions of this journal.

    laws.audit_ok(package, journals.records("run-1"))
    """
    found = find_divergence(load_package_source(package).agent, records)
    if found is not None:
        today = [msgspec.json.encode(fact).decode() for fact in found.instead] or ["nothing: the run would wait"]
        raise AssertionError(
            f"record {found.seq} is {fact_kind(found.was)}, which would not be written today\n"
            f"  was    {msgspec.json.encode(found.was).decode()}\n  is now {today[0]}"
        )


# --- the world of a run under test, and one run in it from its start to its end -------------------------------


RUN_ID = "run-1"
MAX_SUSPENSIONS = 20
"""How often a run may wait for somebody before it is taken for one that never ends."""


class Setting(Struct, frozen=True, kw_only=True):
    """What a run meets: its models, its tools, its people, and what it is asked."""

    model: Provider | Mapping[str, Provider]
    """One for all providers, or one for each."""
    tools: Mapping[str, Executor] = {}
    hooks: Mapping[str, HookFunction] = {}
    sinks: Mapping[str, SinkPort] = {}
    approver: Approver | None = None
    """None: nobody is there. The run is suspended, and goes on with the law's own answer."""
    message: str | None = None
    params: Mapping[str, Any] = {}


MakeSetting: TypeAlias = Callable[[StepClock], Setting]
"""Makes a fresh setting on a clock: the law runs the agent many times, and no run may know of another."""


def make_runtime(
    file: PackageFile,
    setting: Setting,
    clock: StepClock,
    journals: MemoryJournals,
    width: int,
    order: CompletionOrder = lambda ready: 0,
) -> Runtime:
    return Runtime.in_memory(
        journals=journals,
        providers=providers_by_name(file.agent, setting.model),
        executors=setting.tools,
        hooks=setting.hooks,
        sinks=setting.sinks,
        approver=setting.approver,
        packages=[file],
        clock=clock,
        width=width,
        order=order,
    )


def begin_run(runtime: Runtime, file: PackageFile, setting: Setting) -> RunHandle:
    return runtime.start(
        Request(
            agent=file.agent.name,
            package=file,
            message=setting.message,
            params=dict(setting.params),
            run=RUN_ID,
        )
    )


def finish_run(
    runtime: Runtime, handle: RunHandle, clock: StepClock, how: CallSettlement, answer: ApprovalAnswer
) -> Outcome:
    """The outcome of a run. What it waits for on the way is answered like this, also for its children."""
    for _ in range(MAX_SUSPENSIONS):
        result = clock.run(handle.wait())
        if isinstance(result, Outcome):
            return result
        _answer_all(runtime, how, answer)
        handle = runtime.resume(result.run)
    raise AssertionError(f"the run was suspended {MAX_SUSPENSIONS} times and is still not over")


def _answer_all(runtime: Runtime, how: CallSettlement, answer: ApprovalAnswer) -> None:
    journals = runtime.journals
    assert isinstance(journals, MemoryJournals)
    for run in journals.runs:
        for record in journals.records(run):
            match record.fact:
                case ApprovalAsked() as asked:
                    question = Question(asked.subject, asked.question, asked.target, None, asked.rules, asked.reason)
                    runtime.answer(run, question, answer, by="a law")
                case WorkLost() as lost:
                    runtime.settle(run, lost.effect, how, by="a law")


def canonical_journals(journals: MemoryJournals) -> str:
    """The canonical journal of the run with its children's."""
    journal_of = {run: [_without_child_spend(record) for record in journals.records(run)] for run in journals.runs}
    return canonical(journal_of.pop(RUN_ID), journal_of)


def _without_child_spend(record: Record) -> Record:
    """Without what a child spent: a request that was cut off counts as spent, so a crash makes it more."""
    fact = record.fact
    return replace(record, fact=replace(fact, spent=None)) if isinstance(fact, ToolFinished) else record


# --- the law of order: whichever of several effects is done first, the run ends the same ----------------------


MAX_ORDERS = 10_000
"""Orders that are tried when all are wanted."""


def any_order(
    package: PackageSource,
    setting: MakeSetting,
    *,
    seeds: int = 200,
    every: bool = False,
    width: int = 8,
) -> int:
    """Any order in which effects are done gives one end state and one canonical journal.

    `seeds` random orders are tried, or with `every` all that there are. A batch with a terminal tool, or with one that
    aborts its siblings, is the exception: there it matters who is first.

        laws.any_order(package, setting, every=True)
    """
    file = load_package_source(package)
    first_story, first_state = _run_in_order(file, setting, _planned_order([]), width)
    tried = 0
    for choices in _all_orders() if every else map(_random_order, range(seeds)):
        told, state = _run_in_order(file, setting, choices, width)
        tried += 1
        if told != first_story:
            raise AssertionError(f"{choices}: another journal\n" + _journal_diff(first_story, told))
        if state != first_state:
            raise AssertionError(f"{choices}: the same journal, another state\n{first_state}\n{state}")
    return tried


class _Choices:
    """An order: which of those that could go on did, each time."""

    def __init__(self, choose: Callable[[int, int], int]) -> None:
        self._choose = choose
        """Given how many choices were made before, and of how many this one is."""
        self.made: list[tuple[int, int]] = []
        """Each choice, and of how many."""
        self._names: list[str] = []

    def __call__(self, ready: Sequence[str]) -> int:
        choice = self._choose(len(self.made), len(ready))
        self.made.append((choice, len(ready)))
        self._names.append(ready[choice])
        return choice

    def __str__(self) -> str:
        return "in the order " + ", ".join(self._names)


def _planned_order(plan: Sequence[int]) -> _Choices:
    """A plan, and after it always the first."""
    return _Choices(lambda number, among: plan[number] if number < len(plan) else 0)


def _random_order(seed: int) -> _Choices:
    chance = Random(seed)  # noqa: S311  # to be repeated, not to be secret
    return _Choices(lambda number, among: chance.randrange(among))


def _all_orders() -> Iterator[_Choices]:
    """All orders, one after the other: the last choice that could have been another is made anew."""
    choices = _planned_order([])
    for _ in range(MAX_ORDERS):
        yield choices  # the caller tries it, and with that learns what there was to choose from
        while choices.made and choices.made[-1][0] + 1 == choices.made[-1][1]:
            choices.made.pop()
        if not choices.made:
            return
        *before, (last, _) = choices.made
        choices = _planned_order([*(choice for choice, _ in before), last + 1])
    raise AssertionError(f"there are more than {MAX_ORDERS} orders: try random ones")


def _run_in_order(file: PackageFile, setting: MakeSetting, order: _Choices, width: int) -> tuple[str, State]:
    clock, journals = StepClock(), MemoryJournals()
    world = setting(clock)
    runtime = make_runtime(file, world, clock, journals, width, order)
    finish_run(runtime, begin_run(runtime, file, world), clock, "retry", "approved")
    return canonical_journals(journals), fold(journals.records(RUN_ID))


def _journal_diff(one: str, other: str) -> str:
    return "\n".join(unified_diff(one.splitlines(), other.splitlines(), "first order", "this order", lineterm=""))


# --- the law of crashes: wherever a host dies, another goes on, and the run means the same --------------------


EffectResult = TypeVar("EffectResult")
CrashMoment: TypeAlias = Literal["before", "after", "inside"]


class CrashPoint(Struct, frozen=True):
    """Where a host dies: before or after its nth record, or inside its nth effect."""

    when: CrashMoment
    number: int

    def __str__(self) -> str:
        return f"the host died {self.when} {'effect' if self.when == 'inside' else 'record'} {self.number}"


NO_CRASH = CrashPoint("before", 0)
DOWNTIME_MS = 3_600_000
"""Milliseconds until another host goes on."""


def crash_everywhere(
    package: PackageSource,
    setting: MakeSetting,
    *,
    settle: CallSettlement = "retry",
    answer: ApprovalAnswer = "approved",
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
    file = load_package_source(package)
    whole = _CrashTrial(file, setting, NO_CRASH, settle, answer, width)
    whole.run()
    points = [*whole.crash_points()]
    for point in points:
        life = _CrashTrial(file, setting, point, settle, answer, width)
        try:
            life.run()
            _compare_trials(whole, life)
        except (AssertionError, AgentrunError) as error:
            raise AssertionError(f"{point}\n{error}\n{life.journal_summary()}") from error
    return len(points)


class _CrashTrial:
    """One run that is cut off at a point, and what came of it."""

    def __init__(
        self,
        file: PackageFile,
        setting: MakeSetting,
        point: CrashPoint,
        settle: CallSettlement,
        answer: ApprovalAnswer,
        width: int,
    ) -> None:
        self.file = file
        self._point = point
        self._settle = settle
        self._answer = answer
        self._width = width
        self._clock = StepClock()
        self._setting = setting(self._clock)
        self._dying = _crashing_journals(point)
        self.journals: MemoryJournals = self._dying
        self._effects = 0
        self.at_most_once_runs: Counter[str] = Counter()
        """How often each call ran that may run once at most, by its key."""

    def run(self) -> None:
        try:
            self._run_to_end(resumed=False)
        except Crash:
            self.journals = _surviving_journals(self._dying, self.file)
            self._clock.move_to(self._clock.now() + DOWNTIME_MS)
            self._rewind_models()
            self._run_to_end(resumed=RUN_ID in self.journals)
        else:
            assert self._point == NO_CRASH, (
                "this time the run was over before that point: is the setting always the same?"
            )

    def crash_points(self) -> Iterator[CrashPoint]:
        """Where a run like this one can be cut off."""
        whens: tuple[CrashMoment, ...] = ("before", "after")
        yield from (CrashPoint(when, number) for number in range(1, self._dying.appends + 1) for when in whens)
        yield from (CrashPoint("inside", number) for number in range(1, self._effects + 1))

    def _run_to_end(self, *, resumed: bool) -> None:
        runtime = make_runtime(self.file, self._instrumented_setting(), self._clock, self.journals, self._width)
        if resumed and any(isinstance(record.fact, RunStopped) for record in self.journals.records(RUN_ID)):
            return
        handle = runtime.resume(RUN_ID) if resumed else begin_run(runtime, self.file, self._setting)
        finish_run(runtime, handle, self._clock, self._settle, self._answer)

    def _rewind_models(self) -> None:
        heard: Counter[str] = Counter()
        for run in self.journals.runs:
            heard += _count_answers(self.journals.records(run))
        models = providers_by_name(self.file.agent, self._setting.model)
        for script in models.values():
            if isinstance(script, Script):
                script.go_to(sum(heard[name] for name, model in models.items() if model is script))

    def _instrumented_setting(self) -> Setting:
        models = providers_by_name(self.file.agent, self._setting.model)
        return replace(
            self._setting,
            model={name: _InstrumentedModel(model, self) for name, model in models.items()},
            tools={name: _InstrumentedTool(tool, self) for name, tool in self._setting.tools.items()},
            hooks={name: _instrument_hook(hook, self) for name, hook in self._setting.hooks.items()},
            sinks={name: _InstrumentedSink(sink, self) for name, sink in self._setting.sinks.items()},
        )

    async def run_effect(self, work: Coroutine[Any, Any, EffectResult]) -> EffectResult:
        """Some work of the world; perhaps nobody lives to hear what came of it."""
        done = await work
        self._effects += 1
        if self._point == CrashPoint("inside", self._effects) and not self._dying.is_dead:
            self._dying.die()
        return done

    def journal_summary(self) -> str:
        """The journals, in short."""
        runs = ((run, self.journals.records(run)) for run in self.journals.runs)
        return "\n".join(f"{run}: " + ", ".join(fact_kind(record.fact) for record in records) for run, records in runs)


def _crashing_journals(point: CrashPoint) -> CrashingJournals:
    return CrashingJournals(0, "before") if point.when == "inside" else CrashingJournals(point.number, point.when)


def _surviving_journals(dead: MemoryJournals, file: PackageFile) -> MemoryJournals:
    """The journals as another host finds them."""
    found = MemoryJournals()
    found.keep(RUN_ID, file)
    for run in dead.runs:
        found.restore(run, read_records(dead.text(run).splitlines()))
    return found


def _count_answers(records: Iterable[Record]) -> Counter[str]:
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


class _InstrumentedModel:
    def __init__(self, model: Provider, life: _CrashTrial) -> None:
        self._model = model
        self._life = life

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        return await self._life.run_effect(self._model.ask(effect, delta))


class _InstrumentedTool:
    def __init__(self, tool: Executor, life: _CrashTrial) -> None:
        self._tool = tool
        self._life = life

    async def run(self, call: RunTool) -> ToolReturn:
        if tool_effect(call.tool, call.name) == "at_most_once":
            self._life.at_most_once_runs[call.key] += 1
        return await self._life.run_effect(self._tool.run(call))


class _InstrumentedSink:
    def __init__(self, sink: SinkPort, life: _CrashTrial) -> None:
        self._sink = sink
        self._life = life

    async def deliver(self, delivery: Deliver) -> Fault | None:
        return await self._life.run_effect(self._sink.deliver(delivery))


def _instrument_hook(hook: HookFunction, life: _CrashTrial) -> HookFunction:
    async def asked(question: Any) -> Any:
        said = hook(question)
        return await said if isinstance(said, Coroutine) else said

    return lambda question: life.run_effect(asked(question))


def _compare_trials(whole: _CrashTrial, life: _CrashTrial) -> None:
    journals, settled = life.journals, []
    keys: dict[str, tuple[str, str]] = {}
    for run in journals.runs:
        records = tuple(journals.records(run))
        ends = [record.seq for record in records if isinstance(record.fact, RunStopped)]
        assert ends == [len(records)], f"{run} has {len(records)} records and ends at {ends}"
        settled += [(run, record.fact) for record in records if isinstance(record.fact, CallSettled)]
        keys |= {record.fact.key: (run, record.fact.call) for record in records if isinstance(record.fact, ToolStarted)}
        tuple(read_records(journals.text(run).splitlines()))
    for key, times in life.at_most_once_runs.items():
        assert key in keys, "a call ran that the journal does not know"
        retries = sum((run, fact.call) == keys[key] and fact.how == "retry" for run, fact in settled)
        assert times <= 1 + retries, f"{keys[key][1]} may run once at most and ran {times} times"
    assert find_divergence(life.file.agent, journals.records(RUN_ID)) is None, "today's code would decide differently"
    if all(fact.how == "retry" for _, fact in settled):
        one, other = canonical_journals(whole.journals).splitlines(), canonical_journals(journals).splitlines()
        assert one == other, "\n".join(unified_diff(one, other, "undisturbed", "resumed", lineterm=""))
