"""`crash_everywhere`: a run that crashes anywhere ends the same after a resume, and violations are found."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core import tool_calls, transitions
from agentrun.core.effects import AskModel
from agentrun.core.evolve import evolve
from agentrun.core.facts import Fact, Record, ToolFinished, ToolStarted
from agentrun.core.messages import Reply
from agentrun.core.state import State
from agentrun.engine.answers import CallSettlement
from agentrun.engine.api import load_package_source
from agentrun.engine.clock import StepClock
from agentrun.engine.driver import RunLog
from agentrun.engine.memory import MemoryJournals
from agentrun.testing import fails, scripted, text
from agentrun.testing.laws import Setting, begin_run, crash_everywhere, finish_run, make_runtime

from ..core.script import rule
from ..packages import ROUTE, package
from .law_shapes import SHAPES, TWO_TOOLS, Shape, parallel_tools


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_crash_law_passes_for_every_shape(shape: Shape) -> None:
    """Before and after each record, and inside each effect."""
    clock, journals = StepClock(), MemoryJournals()
    setting, file = shape.setting(clock), load_package_source(shape.package)
    runtime = make_runtime(file, setting, clock, journals, 8)
    finish_run(runtime, begin_run(runtime, file, setting), clock, "retry", "approved")
    records = sum(len(journals.records(run)) for run in journals.runs)
    assert crash_everywhere(*shape) > 2 * records


@pytest.mark.parametrize("width", [1, 2])
def test_crash_law_passes_with_limited_parallelism(width: int) -> None:
    assert crash_everywhere(*SHAPES["parallel tools"], width=width)


@pytest.mark.parametrize("how", ["result", "stop"])
def test_crash_law_passes_with_other_settlements(how: CallSettlement) -> None:
    """A call whose outcome is not known is given a result, or ends the run. It never runs again."""
    assert crash_everywhere(*SHAPES["parallel tools"], settle=how)
    assert crash_everywhere(*SHAPES["child"], settle=how)


def test_crash_law_passes_with_denied_approvals() -> None:
    assert crash_everywhere(*SHAPES["approval"], answer="denied")


def test_crash_law_passes_with_a_fallback_route() -> None:
    agent = package(model={"routes": [ROUTE, ROUTE | {"provider": "other"}]})
    script = (fails("provider.fatal"), text("Hello."))
    assert crash_everywhere(agent, lambda clock: Setting(model=scripted(*script), message="Hi."))


def test_crash_law_accepts_a_custom_model() -> None:
    """Any provider will do, if it says the same to the same request."""

    class Parrot:
        async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply:
            return text("Hello.").reply

    assert crash_everywhere(package(), lambda clock: Setting(model=Parrot(), message="Hi.")) == 11


def test_crash_law_fails_for_a_run_that_never_ends() -> None:
    agent = package(tools=TWO_TOOLS, policy={"default": "allow", "rules": [rule("defer", "pay")]})
    with pytest.raises(AssertionError, match="suspended 20 times and has not ended"):
        crash_everywhere(agent, parallel_tools)


# --- planted bugs ---------------------------------------------------------------------------------------------


def test_crash_law_finds_a_repeated_at_most_once_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tool is taken for one that may run twice."""
    monkeypatch.setattr(tool_calls, "tool_effect", lambda tool, name: "read")
    with pytest.raises(AssertionError, match=r"c1\.1 may run at most once, but ran 2 times"):
        crash_everywhere(*SHAPES["parallel tools"])


def test_crash_law_finds_an_intent_written_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The intent of a call is only written together with what follows it."""
    owed: dict[int, Record] = {}

    def commit(log: Any, fact: Fact) -> None:
        record = Record(log.state.seq + 1, log._clock.now(), log._journal.epoch, "", fact)
        after = evolve(log.state, record)
        if isinstance(fact, ToolStarted) and fact.tool == "pay":
            owed[id(log)] = record
        else:
            for each in (owed.pop(id(log), None), record):
                if each is not None:
                    log._journal.append(replace(each, prev=log._journal.head))
        log.state = after

    monkeypatch.setattr(RunLog, "commit", commit)
    with pytest.raises(AssertionError, match=r"c1\.1 may run at most once, but ran 2 times"):
        crash_everywhere(*SHAPES["parallel tools"])


def test_crash_law_finds_a_lost_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call gives after a resume is not written."""
    resumed: list[str] = []
    take_over = RunLog.take_over

    def marked(log: RunLog, fingerprint: str) -> None:
        take_over(log, fingerprint)
        resumed.append(fingerprint)

    def forgetful(state: State, fact: Fact) -> bool:
        return not (resumed and isinstance(fact, ToolFinished)) and transitions.is_acceptable(state, fact)

    monkeypatch.setattr(RunLog, "take_over", marked)
    monkeypatch.setattr("agentrun.engine.driver.is_acceptable", forgetful)
    with pytest.raises(AssertionError, match=r"(?s)the host crashed after record 1\n.*-- tool_finished"):
        crash_everywhere(*SHAPES["parallel tools"])


def test_crash_law_finds_lost_work_that_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new owner does not ask what the one before left undone."""
    monkeypatch.setattr("agentrun.engine.driver.lost_work", lambda state: ())
    for shape in SHAPES.values():
        with pytest.raises(AssertionError, match="the host crashed after record"):
            crash_everywhere(*shape)


def test_crash_law_finds_a_changing_setting() -> None:
    """A law about one run cannot be tried on two."""
    clocks: list[StepClock] = []

    def setting(clock: StepClock) -> Setting:
        clocks.append(clock)
        return parallel_tools(clock) if len(clocks) < 20 else Setting(model=scripted("Bye."), message="Hi.")

    with pytest.raises(AssertionError, match="the setting must be the same each time"):
        crash_everywhere(package(), setting)
