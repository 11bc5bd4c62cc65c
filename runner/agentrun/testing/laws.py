"""Laws that every run must satisfy, to check your own agents.

    from agentrun.testing import laws, calls, scripted, stub, text

    def setting(clock):
        return laws.Setting(
            model=scripted(calls("refund", amount=5), text("Done.")),
            tools={"refund": stub("refunded", delay=20, clock=clock)},
            message="My money, please.",
        )

    def test_refunds_survive_crashes():
        laws.crash_everywhere(agentrun.compile("specs/refunds.yaml"), setting)

A law raises AssertionError with a description of what happened, and returns the number of runs that it tried.

Law of order     Whichever of several concurrent effects finishes first, the run ends the same.
Law of crashes   Wherever a host crashes, another one continues, and the run ends the same.

Rule 1  A host crashes before a record is written, after it, or inside an effect that has already happened.
Rule 2  Models, tools and people survive the crash. A model repeats a reply that was not written to the journal.
Rule 3  A call that may run at most once runs again only after an explicit `retry`.
Rule 4  The next host starts an hour later. The downtime does not count as time of the run.
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
from agentrun.core import facts
from agentrun.core.audit import find_divergence
from agentrun.core.effects import AskModel, Deliver, RunTool, ToolReturn
from agentrun.core.evolve import fold
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply, Text
from agentrun.core.outcome import Outcome
from agentrun.core.package import tool_effect
from agentrun.core.state import State
from agentrun.engine.answers import CallSettlement
from agentrun.engine.api import PackageSource, load_package_source
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import CompletionOrder
from agentrun.engine.handle import RunHandle
from agentrun.engine.host_ports import providers_by_name
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Approver, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.errors import AgentrunError
from agentrun.journal.canonical import canonical
from agentrun.journal.records import read_records
from agentrun.testing.doubles import Crash, CrashingJournals, Script


def audit_ok(package: PackageSource, records: Iterable[facts.Record]) -> None:
    """Check that the current code makes the decisions of a journal.

    laws.audit_ok(package, journals.records("run-1"))
    """
    divergence = find_divergence(load_package_source(package).agent, records)
    if divergence is not None:
        now = [msgspec.json.encode(fact).decode() for fact in divergence.instead] or ["nothing: the run would wait"]
        raise AssertionError(
            f"record {divergence.seq} is {facts.fact_kind(divergence.was)}, which the current code would not write\n"
            f"  was    {msgspec.json.encode(divergence.was).decode()}\n  is now {now[0]}"
        )


# --- Runs under test -------------------------------------------------------------------------------------------


RUN_ID = "run-1"
MAX_SUSPENSIONS = 20
"""A run that is suspended more often is assumed never to end."""


class Setting(Struct, frozen=True, kw_only=True):
    """The environment and the input of a run."""

    model: Provider | Mapping[str, Provider]
    """One for all providers, or one for each."""
    tools: Mapping[str, Executor] = {}
    hooks: Mapping[str, HookFunction] = {}
    sinks: Mapping[str, SinkPort] = {}
    approver: Approver | None = None
    """None: the run is suspended, and the law answers the question."""
    message: str | None = None
    params: Mapping[str, Any] = {}


MakeSetting: TypeAlias = Callable[[StepClock], Setting]
"""Makes a new setting with a clock. A law runs the agent many times, and the runs must not share state."""


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
    message, params = setting.message, dict(setting.params)
    return runtime.start(Request(agent=file.agent.name, package=file, message=message, params=params, run=RUN_ID))


def finish_run(
    runtime: Runtime, handle: RunHandle, clock: StepClock, how: CallSettlement, answer: facts.ApprovalAnswer
) -> Outcome:
    """Run to the end. Answer all approvals and settle all lost calls, including those of sub-agents."""
    for _ in range(MAX_SUSPENSIONS):
        result = clock.run(handle.wait())
        if result.is_finished:
            return result
        _answer_all(runtime, how, answer)
        handle = runtime.resume(result.run)
    raise AssertionError(f"the run was suspended {MAX_SUSPENSIONS} times and has not ended")


def _answer_all(runtime: Runtime, how: CallSettlement, answer: facts.ApprovalAnswer) -> None:
    journals = runtime.journals
    assert isinstance(journals, MemoryJournals)
    for run in journals.runs:
        for question in runtime.questions(run):
            runtime.answer(run, question, answer, by="a law")
        for call in fold(journals.records(run)).calls:
            if call.status == "lost":
                parts = (Text("settled"),) if how == "result" else ()
                runtime.settle(run, call.id, how, "a law", parts)


def canonical_journals(journals: MemoryJournals) -> str:
    """The canonical journal of the run and its sub-agents."""
    journal_of = {run: [_without_child_spend(record) for record in journals.records(run)] for run in journals.runs}
    return canonical(journal_of.pop(RUN_ID), journal_of)


def _without_child_spend(record: facts.Record) -> facts.Record:
    """Remove the spend of a sub-agent. A crash increases it, because an interrupted request counts as spent."""
    fact = record.fact
    return replace(record, fact=replace(fact, spent=None)) if isinstance(fact, facts.ToolFinished) else record


# --- Law of order ----------------------------------------------------------------------------------------------


MAX_ORDERS = 10_000


def any_order(
    package: PackageSource, setting: MakeSetting, *, seeds: int = 200, every: bool = False, width: int = 8
) -> int:
    """Check that any order in which effects finish gives the same end state and canonical journal.

    Tries `seeds` random orders, or with `every` all possible ones. A batch with a terminal tool, or with a tool that
    aborts its siblings, does not satisfy this law, because it depends on the order.

        laws.any_order(package, setting, every=True)
    """
    file = load_package_source(package)
    first_journal, first_state = _run_in_order(file, setting, _planned_order([]), width)
    tried = 0
    for choices in _all_orders() if every else map(_random_order, range(seeds)):
        journal, state = _run_in_order(file, setting, choices, width)
        tried += 1
        if journal != first_journal:
            diff = _diff(first_journal, journal, "first order", "this order")
            raise AssertionError(f"{choices}: the journal differs\n{diff}")
        if state != first_state:
            raise AssertionError(f"{choices}: the journal is the same, but the state differs\n{first_state}\n{state}")
    return tried


class _Choices:
    """An order: which of the finished effects was taken, each time."""

    def __init__(self, choose: Callable[[int, int], int]) -> None:
        self._choose = choose
        """Gets the number of choices so far, and the number of options."""
        self.made: list[tuple[int, int]] = []
        """Each choice with the number of its options."""
        self._names: list[str] = []

    def __call__(self, ready: Sequence[str]) -> int:
        choice = self._choose(len(self.made), len(ready))
        self.made.append((choice, len(ready)))
        self._names.append(ready[choice])
        return choice

    def __str__(self) -> str:
        return "in the order " + ", ".join(self._names)


def _planned_order(plan: Sequence[int]) -> _Choices:
    """Follow a plan, and then always take the first."""
    return _Choices(lambda number, among: plan[number] if number < len(plan) else 0)


def _random_order(seed: int) -> _Choices:
    chance = Random(seed)  # noqa: S311  # reproducible, not secret
    return _Choices(lambda number, among: chance.randrange(among))


def _all_orders() -> Iterator[_Choices]:
    """All orders. Each one changes the last choice that has another option left."""
    choices = _planned_order([])
    for _ in range(MAX_ORDERS):
        yield choices  # while the caller runs it, the options are recorded
        while choices.made and choices.made[-1][0] + 1 == choices.made[-1][1]:
            choices.made.pop()
        if not choices.made:
            return
        *before, (last, _) = choices.made
        choices = _planned_order([*(choice for choice, _ in before), last + 1])
    raise AssertionError(f"there are more than {MAX_ORDERS} orders; use `seeds` instead of `every`")


def _run_in_order(file: PackageFile, setting: MakeSetting, order: _Choices, width: int) -> tuple[str, State]:
    clock, journals = StepClock(), MemoryJournals()
    world = setting(clock)
    runtime = make_runtime(file, world, clock, journals, width, order)
    finish_run(runtime, begin_run(runtime, file, world), clock, "retry", "approved")
    return canonical_journals(journals), fold(journals.records(RUN_ID))


def _diff(one: str, other: str, one_name: str, other_name: str) -> str:
    return "\n".join(unified_diff(one.splitlines(), other.splitlines(), one_name, other_name, lineterm=""))


# --- Law of crashes --------------------------------------------------------------------------------------------


EffectResult = TypeVar("EffectResult")
CrashMoment: TypeAlias = Literal["before", "after", "inside"]


class CrashPoint(Struct, frozen=True):
    """Where a host crashes: before or after its nth record, or inside its nth effect."""

    when: CrashMoment
    number: int

    def __str__(self) -> str:
        return f"the host crashed {self.when} {'effect' if self.when == 'inside' else 'record'} {self.number}"


NO_CRASH = CrashPoint("before", 0)
DOWNTIME_MS = 3_600_000
"""Milliseconds until another host continues."""


def crash_everywhere(
    package: PackageSource,
    setting: MakeSetting,
    *,
    settle: CallSettlement = "retry",
    answer: facts.ApprovalAnswer = "approved",
    width: int = 8,
) -> int:
    """Check that a run ends the same wherever its host crashes.

    The agent runs once without a crash, then once for each point at which its host can crash, and is resumed there.
    Each canonical journal must be the same (unless a call was settled other than by a retry), have one terminal record
    and a valid chain, and pass the audit. A call that may run at most once must not run twice without a `retry`.

    `settle`: how calls with an unknown outcome are settled. `answer`: the answer to approvals if the setting has no
    approver. Sub-agents that run concurrently need their own models, or one made by `replies`. An interrupted request
    counts as spent, so an agent close to a limit of tokens or cost may stop earlier after a crash.

        laws.crash_everywhere(package, setting)
    """
    file = load_package_source(package)
    undisturbed = _CrashTrial(file, setting, NO_CRASH, settle, answer, width)
    undisturbed.run()
    points = [*undisturbed.crash_points()]
    for point in points:
        trial = _CrashTrial(file, setting, point, settle, answer, width)
        try:
            trial.run()
            _compare_trials(undisturbed, trial)
        except (AssertionError, AgentrunError) as error:
            raise AssertionError(f"{point}\n{error}\n{trial.journal_summary()}") from error
    return len(points)


class _CrashTrial:
    """One run that crashes at a point and is resumed."""

    def __init__(
        self,
        file: PackageFile,
        setting: MakeSetting,
        point: CrashPoint,
        settle: CallSettlement,
        answer: facts.ApprovalAnswer,
        width: int,
    ) -> None:
        self.file = file
        self._point = point
        self._settle = settle
        self._answer = answer
        self._width = width
        self._clock = StepClock()
        self._setting = setting(self._clock)
        self._dying = CrashingJournals(0, "before")
        if point.when != "inside":
            self._dying = CrashingJournals(point.number, point.when)
        self.journals: MemoryJournals = self._dying
        self._effects = 0
        self.at_most_once_runs: Counter[str] = Counter()
        """How often each call ran that may run at most once, by its key."""

    def run(self) -> None:
        try:
            self._run_to_end(resumed=False)
        except Crash:
            self.journals = _surviving_journals(self._dying, self.file)
            self._clock.move_to(self._clock.now() + DOWNTIME_MS)
            self._rewind_models()
            self._run_to_end(resumed=RUN_ID in self.journals)
        else:
            assert self._point == NO_CRASH, "the run ended before that point; the setting must be the same each time"

    def crash_points(self) -> Iterator[CrashPoint]:
        whens: tuple[CrashMoment, ...] = ("before", "after")
        yield from (CrashPoint(when, number) for number in range(1, self._dying.appends + 1) for when in whens)
        yield from (CrashPoint("inside", number) for number in range(1, self._effects + 1))

    def _run_to_end(self, *, resumed: bool) -> None:
        runtime = make_runtime(self.file, self._instrumented_setting(), self._clock, self.journals, self._width)
        if resumed and any(isinstance(record.fact, facts.RunStopped) for record in self.journals.records(RUN_ID)):
            return
        handle = runtime.resume(RUN_ID) if resumed else begin_run(runtime, self.file, self._setting)
        finish_run(runtime, handle, self._clock, self._settle, self._answer)

    def _rewind_models(self) -> None:
        answers: Counter[str] = Counter()
        for run in self.journals.runs:
            answers += _count_answers(self.journals.records(run))
        models = providers_by_name(self.file.agent, self._setting.model)
        for script in models.values():
            if isinstance(script, Script):
                script.go_to(sum(answers[name] for name, model in models.items() if model is script))

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
        """Run an effect, and crash afterwards if this is the point."""
        result = await work
        self._effects += 1
        if self._point == CrashPoint("inside", self._effects) and not self._dying.is_dead:
            self._dying.die()
        return result

    def journal_summary(self) -> str:
        runs = ((run, self.journals.records(run)) for run in self.journals.runs)
        return "\n".join(
            f"{run}: " + ", ".join(facts.fact_kind(record.fact) for record in records) for run, records in runs
        )


def _surviving_journals(dead: MemoryJournals, file: PackageFile) -> MemoryJournals:
    journals = MemoryJournals()
    journals.keep(RUN_ID, file)
    for run in dead.runs:
        journals.restore(run, read_records(dead.text(run).splitlines()))
    return journals


def _count_answers(records: Iterable[facts.Record]) -> Counter[str]:
    """How many requests were answered, by provider."""
    providers: dict[str, str] = {}
    answers: Counter[str] = Counter()
    for record in records:
        match record.fact:
            case facts.ModelAsked(effect=effect, route=route):
                providers[effect] = route.partition("/")[0]
            case facts.ModelReplied(effect=effect) | facts.ModelFailed(effect=effect):
                answers[providers[effect]] += 1
    return answers


class _InstrumentedModel(Struct, frozen=True):
    model: Provider
    trial: _CrashTrial

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        return await self.trial.run_effect(self.model.ask(effect, delta))


class _InstrumentedTool(Struct, frozen=True):
    tool: Executor
    trial: _CrashTrial

    async def run(self, call: RunTool) -> ToolReturn:
        if tool_effect(call.tool, call.name) == "at_most_once":
            self.trial.at_most_once_runs[call.key] += 1
        return await self.trial.run_effect(self.tool.run(call))


class _InstrumentedSink(Struct, frozen=True):
    sink: SinkPort
    trial: _CrashTrial

    async def deliver(self, delivery: Deliver) -> Fault | None:
        return await self.trial.run_effect(self.sink.deliver(delivery))


def _instrument_hook(hook: HookFunction, trial: _CrashTrial) -> HookFunction:
    async def ask(question: Any) -> Any:
        answer = hook(question)
        return await answer if isinstance(answer, Coroutine) else answer

    return lambda question: trial.run_effect(ask(question))


def _compare_trials(undisturbed: _CrashTrial, trial: _CrashTrial) -> None:
    journals, settled = trial.journals, []
    keys: dict[str, tuple[str, str]] = {}
    for run in journals.runs:
        records = tuple(journals.records(run))
        ends = [record.seq for record in records if isinstance(record.fact, facts.RunStopped)]
        assert ends == [len(records)], f"{run} has {len(records)} records and ends at {ends}"
        settled += [(run, record.fact) for record in records if isinstance(record.fact, facts.CallSettled)]
        keys |= {
            record.fact.key: (run, record.fact.call) for record in records if isinstance(record.fact, facts.ToolStarted)
        }
        tuple(read_records(journals.text(run).splitlines()))
    for key, times in trial.at_most_once_runs.items():
        assert key in keys, "a call ran that is not in the journal"
        retries = sum((run, fact.call) == keys[key] and fact.how == "retry" for run, fact in settled)
        assert times <= 1 + retries, f"{keys[key][1]} may run at most once, but ran {times} times"
    assert find_divergence(trial.file.agent, journals.records(RUN_ID)) is None, "the current code decides differently"
    if all(fact.how == "retry" for _, fact in settled):
        one, other = canonical_journals(undisturbed.journals), canonical_journals(journals)
        assert one == other, _diff(one, other, "undisturbed", "resumed")
