"""The world of a run under test, and one run in it from its start to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.compiler.fingerprint import PackageFile
from agentrun.core.facts import Record, WorkLost
from agentrun.core.facts_calls import ToolFinished
from agentrun.core.facts_gates import Answer, ApprovalAsked
from agentrun.core.outcome import Outcome, Question
from agentrun.engine.api import providers_of
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import Order
from agentrun.engine.handle import How, RunHandle
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Approver, Executor, Hook, Provider, SinkPort
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.journal.canonical import canonical

RUN = "run-1"
PATIENCE = 20
"""How often a run may wait for somebody before it is taken for one that never ends."""


class Setting(Struct, frozen=True, kw_only=True):
    """What a run meets: its models, its tools, its people, and what it is asked."""

    model: Provider | Mapping[str, Provider]
    """One for all providers, or one for each."""
    tools: Mapping[str, Executor] = {}
    hooks: Mapping[str, Hook] = {}
    sinks: Mapping[str, SinkPort] = {}
    approver: Approver | None = None
    """None: nobody is there. The run is suspended, and goes on with the law's own answer."""
    message: str | None = None
    params: Mapping[str, Any] = {}


MakeSetting: TypeAlias = Callable[[StepClock], Setting]
"""Makes a fresh setting on a clock: the law runs the agent many times, and no run may know of another."""


def runtime_in(
    file: PackageFile,
    setting: Setting,
    clock: StepClock,
    journals: MemoryJournals,
    width: int,
    order: Order = lambda ready: 0,
) -> Runtime:
    return Runtime.in_memory(
        journals=journals,
        providers=providers_of(file.agent, setting.model),
        executors=setting.tools,
        hooks=setting.hooks,
        sinks=setting.sinks,
        approver=setting.approver,
        packages=[file],
        clock=clock,
        width=width,
        order=order,
    )


def begun(runtime: Runtime, file: PackageFile, setting: Setting) -> RunHandle:
    return runtime.start(
        Request(
            agent=file.agent.name,
            package=file,
            message=setting.message,
            params=dict(setting.params),
            run=RUN,
        )
    )


def ended(runtime: Runtime, handle: RunHandle, clock: StepClock, how: How, answer: Answer) -> Outcome:
    """The outcome of a run. What it waits for on the way is answered like this, also for its children."""
    for _ in range(PATIENCE):
        result = clock.run(handle.wait())
        if isinstance(result, Outcome):
            return result
        _answer_all(runtime, how, answer)
        handle = runtime.resume(result.run)
    raise AssertionError(f"the run was suspended {PATIENCE} times and is still not over")


def _answer_all(runtime: Runtime, how: How, answer: Answer) -> None:
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


def story(journals: MemoryJournals) -> str:
    """The canonical journal of the run with its children's."""
    journal_of = {run: [_told(record) for record in journals.records(run)] for run in journals.runs}
    return canonical(journal_of.pop(RUN), journal_of)


def _told(record: Record) -> Record:
    """Without what a child spent: a request that was cut off counts as spent, so a crash makes it more."""
    fact = record.fact
    return replace(record, fact=replace(fact, spent=None)) if isinstance(fact, ToolFinished) else record
