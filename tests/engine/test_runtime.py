"""`Runtime`: registries, snapshots, subscriptions, resuming, and answers to sub-agents."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import agentrun
from agentrun.compiler.package_file import seal_package
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import ApprovalAnswer, DeliveryFinished, RunResumed, RunStarted, RunStopped, WorkLost
from agentrun.core.fault import Fault
from agentrun.core.messages import Text
from agentrun.core.outcome import Question
from agentrun.core.package import Package
from agentrun.engine.event_bus import EventBus
from agentrun.engine.events import Cursor, agent_scope, run_scope
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.request import Request
from agentrun.engine.runtime import Registry, Runtime
from agentrun.errors import AgentrunError, StorageError, ToolError
from agentrun.testing import Crash, CrashingJournals, approving, call, calls, scripted, sink, stub, text

from ..core.script import agent_tool, mcp_tool, rule, writing
from ..core.test_package_validation import HTTP, SHELL
from ..packages import ROUTE, package
from .memory_runtime import ASKING_AGENT, TOOLS, Home

PAY = (calls("pay", n=1), text("Done."))


# --- registries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["providers", "executors", "hooks", "sinks"])
def test_registry_refuses_a_duplicate_name(kind: str) -> None:
    runtime = Runtime(**{kind: {"x": stub()}})  # type: ignore[arg-type]  # the test gives the right kind
    registry: Registry[Any] = getattr(runtime, kind)
    with pytest.raises(ValueError, match="'x'"):
        registry.add("x", stub())
    with pytest.raises(ValueError, match="'x'"):
        Runtime(**{kind: [("x", stub()), ("x", stub())]})  # type: ignore[arg-type]  # the test gives the right kind
    registry.add("y", stub())
    assert (list(registry), len(registry)) == (["x", "y"], 2)


@pytest.mark.parametrize("kind", ["providers", "executors", "hooks", "sinks"])
@pytest.mark.parametrize("name", ["", " "])
def test_registry_refuses_an_empty_name(kind: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"a {kind[:-1]} needs a name"):
        Runtime(**{kind: {name: stub()}})  # type: ignore[arg-type]  # the test gives the right kind
    registry: Registry[Any] = getattr(Runtime(), kind)
    with pytest.raises(ValueError, match="needs a name"):
        registry.add(name, stub())
    assert len(registry) == 0


# --- packages -------------------------------------------------------------------------------------------------


ONE, OTHER = seal_package(package()), seal_package(package(instructions=("Be brief.",)))


def package_of(home: Home, wanted: str | None = None) -> str:
    home.runtime.start(Request(agent="triage", package=wanted, message="Hi.", run="r1"))
    return home.runtime.snapshot("r1").fingerprint


def test_request_without_a_package_gets_that_of_the_resolver_or_the_default() -> None:
    assert package_of(Home(default_package=ONE)) == ONE.fingerprint
    assert package_of(Home(resolver=lambda request: OTHER)) == OTHER.fingerprint
    assert package_of(Home(resolver=lambda request: OTHER, default_package=ONE)) == OTHER.fingerprint
    assert package_of(Home(resolver=lambda request: None, default_package=ONE)) == ONE.fingerprint


def test_request_with_a_fingerprint_gets_that_package_only() -> None:
    home = Home(packages=[ONE], resolver=lambda request: OTHER, default_package=ONE)
    assert package_of(home, ONE.fingerprint) == ONE.fingerprint
    assert package_of(Home(resolver=lambda request: OTHER, default_package=ONE), OTHER.fingerprint) == OTHER.fingerprint
    with pytest.raises(AgentrunError) as caught:
        package_of(Home(resolver=lambda request: OTHER, default_package=ONE), ONE.fingerprint)
    assert caught.value.code == "package.fingerprint_mismatch"
    fields = caught.value.fields
    assert (fields["pinned"], fields["found"], fields["run"]) == (ONE.fingerprint, OTHER.fingerprint, "r1")
    with pytest.raises(AgentrunError, match=r"package\.invalid: the runtime has no package with"):
        package_of(Home(default_package=ONE), OTHER.fingerprint)


def resolver_that_fails(request: Request) -> Any:
    raise LookupError("with a secret")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the request names no package, and the runtime has none for the agent 'triage'"),
        ({"resolver": lambda request: None}, "the request names no package"),
        ({"resolver": lambda request: "sha256:0"}, "returned str, which is no package"),
        ({"resolver": resolver_that_fails, "default_package": ONE}, "the package resolver failed: LookupError"),
        ({"default_package": seal_package(package(name="other"))}, "is for the agent 'other'"),
    ],
)
def test_request_without_any_package_is_refused_with_its_run(given: dict[str, Any], message: str) -> None:
    home = Home(**given)
    with pytest.raises(AgentrunError) as caught:
        package_of(home)
    assert (caught.value.code, caught.value.fields["run"]) == ("package.invalid", "r1")
    assert message in caught.value.message
    assert "secret" not in str(caught.value.as_json())
    assert (home.journals.runs, home.runtime.run_count) == ((), 0)


def test_effective_package_has_the_output_schema_of_the_request() -> None:
    request = Request(agent="triage", output={"type": "object"})
    found = Home(default_package=ONE).runtime.effective_package(request)
    assert found.agent.output.schema == {"type": "object"}
    assert found.fingerprint != ONE.fingerprint


# --- sinks that are not there ---------------------------------------------------------------------------------


def test_missing_optional_sink_is_skipped_and_recorded() -> None:
    kinds = {"report": {"kind": "stdout", "delivery": "optional", "timeout": 1000}}
    home = Home("Hello.")
    outcome = home.run(package(sinks=kinds))
    assert (outcome.status, outcome.answer) == ("completed", "Hello.")
    (finished,) = [fact for fact in home.facts() if isinstance(fact, DeliveryFinished)]
    assert finished.fault is not None
    assert (finished.fault.code, finished.fault.fields) == ("delivery.failed", {"sink": "report", "reason": "missing"})


# --- tools that end the run -----------------------------------------------------------------------------------


class EndingExecutor:
    """An executor object that ends the run, in one of several ways."""

    def __init__(self, fault: Fault, *, raises: bool) -> None:
        self.fault, self.raises = fault, raises

    async def run(self, call: RunTool) -> ToolReturn:
        if self.raises:
            raise ToolError(self.fault.code, self.fault.message, fields=self.fault.fields)
        return ToolReturn(fault=self.fault)


TOOL_KINDS = {"python": writing(), "http": HTTP, "shell": SHELL, "mcp": mcp_tool("end")}


@pytest.mark.parametrize("kind", TOOL_KINDS)
@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("code", ["tool.fatal", "tool.aborted"])
@pytest.mark.parametrize(
    ("fields", "reason"), [({}, "the shop is closed"), ({"reason": "closed", "tool": "other"}, "closed")]
)
def test_fault_that_ends_the_run_names_the_tool_and_the_reason(
    kind: str, raises: bool, code: str, fields: dict[str, Any], reason: str
) -> None:
    name = "t.end" if kind == "mcp" else "t"
    agent = package(tools={"t": TOOL_KINDS[kind]}, policy={"default": "allow"})
    executor = EndingExecutor(Fault(code, "the shop is closed", fields), raises=raises)
    outcome = Home(calls(name), executors={"t": executor}).run(agent)
    assert (outcome.code, outcome.fields) == (code, {"tool": name, "reason": reason})


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("code", ["tool.fatal", "tool.aborted"])
def test_function_that_ends_the_run_names_the_tool_and_the_reason(code: str, is_async: bool) -> None:
    def end(**_: Any) -> str:
        raise ToolError(code, "the shop is closed")

    async def end_later(**_: Any) -> str:
        return end()

    agent = package(tools={"t": writing()}, policy={"default": "allow"})
    tools: dict[str, Any] = {"t": end_later if is_async else end}
    outcome = agentrun.run(agent, "Hi.", model=scripted(calls("t")), tools=tools)
    assert (outcome.code, outcome.fields) == (code, {"tool": "t", "reason": "the shop is closed"})


def test_sink_added_later_is_used() -> None:
    home, agent = Home(), package(sinks={"report": {"kind": "stdout", "delivery": "required", "timeout": 1000}})
    with pytest.raises(AgentrunError, match=r"host\.missing"):
        home.start(agent)
    home.runtime.sinks.add("stdout", sink())
    assert home.run(agent).is_finished


# --- looking --------------------------------------------------------------------------------------------------


def test_snapshot_shows_status_turns_and_spend() -> None:
    home = Home(*PAY)
    handle = home.start(ASKING_AGENT)
    first = home.runtime.snapshot("r1")
    assert (first.status, first.seq, first.turns, first.outcome) == ("admitted", 1, 0, None)
    waiting = home.wait(handle)
    assert waiting.status == "suspended"
    second = home.runtime.snapshot("r1")
    assert (second.status, second.turns, second.tokens, second.tool_calls) == ("suspended", 1, 15, 0)
    handle.answer(waiting.questions[0], "approved", "ada")
    outcome = home.wait(handle)
    last = home.runtime.snapshot("r1")
    assert (last.run, last.agent, last.status, last.outcome) == ("r1", "triage", "completed", outcome)
    assert (last.turns, last.tokens, last.cost, last.tool_calls) == (2, 30, 0, 1)


def test_snapshot_shows_session_source_package_route_and_cancellation() -> None:
    spare = {**ROUTE, "name": "spare"}
    agent = seal_package(package(model={"routes": [ROUTE, spare]}))
    home = Home(Fault("provider.fatal", "no"), text("Hello."))
    home.runtime.sessions.create("ada")
    handle = home.start(agent, session="ada")
    first = home.runtime.snapshot("r1")
    assert (first.session, first.source, first.package) == ("ada", "host", "triage")
    assert (first.fingerprint, first.route, first.model) == (agent.fingerprint, "openai/gpt-4.1-mini", "gpt-4.1-mini")
    assert not first.cancel_requested
    home.wait(handle)
    last = home.runtime.snapshot("r1")
    assert (last.route, last.model, last.status) == ("openai/spare", "spare", "completed")
    other = Home("Hello.")
    handle = other.start()
    handle.cancel()
    other.wait(handle)
    cancelled = other.runtime.snapshot("r1")
    assert (cancelled.session, cancelled.cancel_requested, cancelled.status) == (None, True, "failed")


def test_snapshot_of_a_sub_agent_and_of_a_resumed_run() -> None:
    inner = package(name="inner", model={"routes": [{**ROUTE, "name": "small"}]})
    tools = {"ask": agent_tool()}
    outer = package(tools=tools, agents={"ask": msgspec.to_builtins(inner)}, policy={"default": "allow"})
    home = Home(calls("ask", message="x"), text("Inside."), text("Done."))
    home.run(outer)
    child = home.runtime.snapshot("r1.c1.0")
    assert (child.source, child.package, child.model) == ("parent", "inner", "small")
    home = Home(*PAY)
    home.run(ASKING_AGENT)
    other = seal_package(replace(ASKING_AGENT, model=package(model={"routes": [{**ROUTE, "name": "new"}]}).model))
    home.wait(home.runtime.resume("r1", with_package=other))
    assert (home.runtime.snapshot("r1").fingerprint, home.runtime.snapshot("r1").model) == (other.fingerprint, "new")


def test_snapshot_of_a_run_of_another_runtime() -> None:
    home = Home(*PAY)
    home.run(ASKING_AGENT)
    other = Home(journals=home.journals)
    assert other.runtime.snapshot("r1").status == "suspended"
    assert other.runtime.run_count == 0


@pytest.mark.parametrize("what", ["snapshot", "records", "cancel", "resume"])
@pytest.mark.parametrize("runtime", [Home().runtime, Runtime()], ids=["empty", "nothing"])
def test_unknown_run_is_not_found(runtime: Runtime, what: str) -> None:
    with pytest.raises(AgentrunError) as caught:
        getattr(runtime, what)("nowhere")
    if runtime.journals is None and what == "resume":
        assert caught.value.code == "host.missing"
        return
    assert (caught.value.code, caught.value.fields) == ("run.not_found", {"run": "nowhere"})
    assert (caught.value.retry, caught.value.exit_code) == ("repair", 2)


def test_run_count_counts_the_started_runs() -> None:
    home = Home("a", "b")
    assert home.runtime.run_count == 0
    home.run()
    home.run(run="r2")
    assert home.runtime.run_count == 2


def test_subscribe_filters_by_scope_and_starts_at_a_cursor() -> None:
    home = Home("a", "b")
    everything, agents = home.runtime.subscribe(), home.runtime.subscribe(agent_scope("triage"))
    home.run()
    home.run(run="r2")
    events = list(everything)
    assert [event.run for event in events] == ["r1"] * 5 + ["r2"] * 5
    assert [event.run for event in home.runtime.subscribe(run_scope("r2"), Cursor("run:r2"))] == ["r2"] * 5
    assert len(list(agents)) == 10
    assert list(home.runtime.subscribe(cursor=events[6].cursor)) == events[7:]
    with pytest.raises(AgentrunError) as caught:
        home.runtime.subscribe(run_scope("r1"), events[6].cursor)
    assert (caught.value.code, caught.value.fields["scope"]) == ("cursor.scope", "run:r1")
    for runtime, name in ((Runtime(), "events"), (Runtime(events=EventBus()), "journal")):
        with pytest.raises(AgentrunError) as caught:
            runtime.subscribe()
        assert (caught.value.code, caught.value.fields) == ("host.missing", {"name": name})


def test_cursor_is_valid_in_another_runtime_with_the_same_journals() -> None:
    home = Home("a", "b")
    home.run()
    first, *_, last = home.runtime.subscribe(cursor=Cursor("all"))
    again = Home("c", journals=home.journals)
    again.run(run="r2")
    assert [event.run for event in again.runtime.subscribe(cursor=first.cursor)] == ["r1"] * 4 + ["r2"] * 5
    assert [event.run for event in again.runtime.subscribe(cursor=last.cursor)] == ["r2"] * 5


def test_terminal_record_of_a_run_is_the_last_one_if_it_is_finished() -> None:
    home = Home(*PAY)
    handle = home.start(ASKING_AGENT)
    home.wait(handle)
    assert home.runtime.terminal_record("r1") is None
    handle.cancel()
    home.wait(handle)
    record = home.runtime.terminal_record("r1")
    assert record == home.journals.records("r1")[-1]
    assert isinstance(record.fact, RunStopped)


def test_every_event_is_journaled_before_it_is_published() -> None:
    home = Home(*PAY)
    seen: list[tuple[int, int]] = []
    tell = home.runtime._events.publish  # type: ignore[union-attr]  # it is there in this test

    def spying(run: str, news: Any) -> None:
        seen.append((news.seq, home.journals.records(run)[-1].seq))
        tell(run, news)

    home.runtime._events.publish = spying  # type: ignore[union-attr,method-assign]  # it is there in this test
    home.run(TOOLS)
    assert seen
    assert all(told == written for told, written in seen)


# --- going on -------------------------------------------------------------------------------------------------


def home_after_crash(at: int, *script: Any, agent: Package = TOOLS) -> Home:
    """A host with the journals of one that died after its nth record."""
    dead = CrashingJournals(at, "after")
    with pytest.raises(Crash):
        Home(*script, journals=dead).run(agent)
    home = Home(*script)
    home.journals.keep("r1", seal_package(agent))
    for run in dead.runs:
        home.journals.restore(run, dead.records(run))
    return home


def test_resume_continues_a_crashed_run_in_a_new_epoch() -> None:
    home = home_after_crash(2, "Hello.", agent=package())
    handle = home.runtime.resume("r1")
    assert home.kinds() == ["RunStarted", "ModelAsked", "RunResumed", "WorkLost"]
    assert home.facts()[3] == WorkLost("m1.1")
    assert home.wait(handle).answer == "Hello."
    epochs = [record.epoch for record in home.journals.records("r1")]
    assert epochs == [1, 1, *[2] * (len(epochs) - 2)]


def test_resume_of_a_finished_run_is_refused() -> None:
    home = Home()
    home.run()
    before = home.journals.text("r1")
    with pytest.raises(AgentrunError) as caught:
        home.runtime.resume("r1")
    assert caught.value.code == "run.invalid_state"
    assert caught.value.fields == {"run": "r1", "expected": "unfinished", "actual": "completed"}
    assert home.journals.text("r1") == before


@pytest.mark.parametrize("is_known", [True, False])
def test_resume_with_finished_ok_returns_the_outcome(is_known: bool) -> None:
    home = Home("Hello.")
    home.run()
    before = home.journals.text("r1")
    if not is_known:
        other = Home()
        other.journals.restore("r1", home.journals.records("r1"))
        other.journals.keep("r1", seal_package(package()))
        home = other
    handle = home.runtime.resume("r1", finished_ok=True)
    assert (handle.status, home.wait(handle).answer) == ("completed", "Hello.")
    assert home.journals.text("r1") == before
    assert home.model.requests == [] or is_known


def test_resume_of_a_running_run_is_refused() -> None:
    refused: list[str] = []

    def reply(request: Any) -> Any:
        with pytest.raises(AgentrunError) as caught:
            home.runtime.resume("r1")
        refused.append(caught.value.code)
        return text("Hello.")

    home = Home(reply)
    assert home.run().is_finished
    assert refused == ["run.invalid_state"]


def test_resume_with_another_package_records_and_keeps_it() -> None:
    """Recorded, and gone on with from then on."""
    home = home_after_crash(2, "Hello.", agent=package())
    other = seal_package(package(instructions=["Be brief."]))
    handle = home.runtime.resume("r1", with_package=other)
    assert home.facts()[2] == RunResumed(other.fingerprint)
    home.wait(handle)
    assert home.journals.package("r1", other.fingerprint) == other
    again = home_after_crash(2, "Hello.", agent=package())
    again.runtime.resume("r1", with_package=other)
    again.runtime._runs.clear()
    again.runtime.resume("r1")
    assert [fact.package for fact in again.facts() if isinstance(fact, RunResumed)] == [other.fingerprint] * 2


def test_resume_with_a_missing_port_is_refused() -> None:
    home = home_after_crash(2, "Hello.", agent=package())
    other = seal_package(package(sinks={"x": {"kind": "stdout", "delivery": "required", "timeout": 1}}))
    before = home.journals.text("r1")
    with pytest.raises(AgentrunError) as caught:
        home.runtime.resume("r1", with_package=other)
    assert (caught.value.code, caught.value.fields["run"]) == ("host.missing", "r1")
    assert home.journals.text("r1") == before


def test_resume_with_an_invalid_package_is_refused() -> None:
    home = home_after_crash(2, "Hello.", agent=package())
    before = home.journals.text("r1")
    with pytest.raises(AgentrunError) as caught:
        home.runtime.resume("r1", with_package=seal_package(package(budgets={"turns": 0})))
    assert (caught.value.code, caught.value.fields["pointer"]) == ("package.invalid", "/budgets/turns")
    assert home.journals.text("r1") == before


def test_resume_without_a_stored_package_fails() -> None:
    home = home_after_crash(2, "Hello.", agent=package())
    lonely = MemoryJournals()
    lonely.restore("r1", home.journals.records("r1"))
    with pytest.raises(StorageError) as caught:
        Home(journals=lonely).runtime.resume("r1")
    assert (caught.value.code, caught.value.exit_code) == ("recovery.failed", 7)


def test_resume_refuses_a_stored_package_with_another_fingerprint() -> None:
    home = home_after_crash(2, "Hello.", agent=package())
    other = seal_package(package(instructions=["Be brief."]))
    home.journals.package = lambda run, fingerprint: other  # type: ignore[method-assign]  # replaced on purpose
    with pytest.raises(AgentrunError) as caught:
        home.runtime.resume("r1")
    assert caught.value.code == "package.fingerprint_mismatch"
    assert caught.value.fields["found"] == other.fingerprint


def test_events_of_a_resumed_run_include_those_before_the_crash() -> None:
    """Also those that were told to another host."""
    home = home_after_crash(2, "Hello.", agent=package())
    handle = home.runtime.resume("r1")
    home.wait(handle)
    assert [event.what for event in handle.events()] == list(home.journals.records("r1"))


def test_answer_by_a_former_owner_is_a_stale_owner_error() -> None:
    home = Home(*PAY)
    old = home.start(ASKING_AGENT)
    waiting = home.wait(old)
    assert waiting.status == "suspended"
    new = home.runtime.resume("r1")
    with pytest.raises(StorageError) as caught:
        old.answer(waiting.questions[0], "approved", "ada")
    assert caught.value.code == "journal.stale_owner"
    assert caught.value.fields == {"seq": 6, "epoch": 1, "owner": 2}
    new.answer(waiting.questions[0], "approved", "ada")
    assert home.wait(new).is_finished


# --- children -------------------------------------------------------------------------------------------------

CHILD = package(
    name="billing", tools={"pay": writing()}, policy={"default": "deny", "rules": [rule("ask", "pay")]}, input=None
)
PARENT = package(
    tools={"billing": agent_tool()}, agents={"billing": msgspec.to_builtins(CHILD)}, policy={"default": "allow"}
)
SCRIPT = (calls("billing", message="Refund."), calls("pay", n=1), text("Refunded."), text("All done."))


def test_answer_to_a_suspended_sub_agent() -> None:
    home = Home(*SCRIPT)
    waiting = home.run(PARENT)
    assert waiting.status == "suspended"
    assert (waiting.questions, waiting.waits_for) == ((), ("c1.0",))
    (question,) = home.runtime.questions("r1.c1.0")
    assert (question.target, question.value, home.runtime.questions("r1")) == ("pay", {"n": 1}, ())
    home.runtime.answer("r1.c1.0", question, "approved", "ada")
    with pytest.raises(AgentrunError, match="already answered: approved by ada"):
        home.runtime.answer("r1.c1.0", question, "denied", "bob")
    outcome = home.wait(home.runtime.resume("r1"))
    assert (outcome.answer, home.pay.count) == ("All done.", 1)
    assert home.runtime.snapshot("r1.c1.0").status == "completed"
    assert home.runtime.run_count == 1, "a child is not a run that somebody started"


def test_first_answer_to_a_running_sub_agent_wins() -> None:
    """Somebody is being asked; somebody else is faster."""

    class Slow:
        async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
            home.runtime.answer("r1.c1.0", question, "denied", "bob")
            await home.clock.sleep_until(home.clock.now() + 1)
            return "approved", "ada"

    home = Home(*SCRIPT, approver=Slow())
    outcome = home.run(PARENT)
    assert (outcome.answer, home.pay.count) == ("All done.", 0)


def test_settle_decides_an_interrupted_call_of_a_sub_agent() -> None:
    """Record 8 of all is the intent of the child's call."""
    careless = msgspec.to_builtins(package(name="billing", tools={"pay": writing()}, policy={"default": "allow"}))
    parent = package(tools={"billing": agent_tool()}, agents={"billing": careless}, policy={"default": "allow"})
    home = home_after_crash(10, *SCRIPT, agent=parent)
    home.model.go_to(2)
    assert home.kinds("r1.c1.0")[-1] == "ToolStarted"
    handle = home.runtime.resume("r1")
    assert home.wait(handle).status == "suspended"
    home.runtime.settle("r1.c1.0", "c1.0", "result", "ada", (Text("it went through"),))
    with pytest.raises(AgentrunError, match="has a result"):
        home.runtime.settle("r1.c1.0", "c1.0", "retry", "ada")
    outcome = home.wait(home.runtime.resume("r1"))
    assert (outcome.answer, home.pay.count) == ("All done.", 0)


def test_cancel_stops_the_run_and_its_sub_agent() -> None:
    home = Home(*SCRIPT[:2], executors={"pay": stub()})
    allowed = msgspec.to_builtins(package(name="billing", tools={"pay": writing()}, policy={"default": "allow"}))
    parent = package(tools={"billing": agent_tool()}, agents={"billing": allowed}, policy={"default": "allow"})

    def paying(**arguments: Any) -> str:
        home.runtime.cancel("r1", "ada")
        return "paid"

    home.runtime.executors._entries["pay"] = stub(paying)
    outcome = home.run(parent)
    assert outcome.code == "cancelled"
    for run in ("r1", "r1.c1.0"):
        assert home.kinds(run)[-1] == "RunStopped"
        assert home.runtime.snapshot(run).status == "failed"


def test_events_of_sub_agents_are_published() -> None:
    home = Home(*SCRIPT, approver=approving())
    everything = home.runtime.subscribe()
    home.run(PARENT)
    told = [(event.run, event.agent) for event in everything]
    assert set(told) == {("r1", "triage"), ("r1.c1.0", "billing")}
    assert len(told) == sum(len(home.journals.records(run)) for run in home.journals.runs)


# --- without anything special ---------------------------------------------------------------------------------


def test_in_memory_uses_the_given_journals() -> None:
    journals = MemoryJournals()
    runtime = Runtime.in_memory(journals=journals, providers={"openai": scripted("Hello.")})
    assert runtime.journals is journals
    assert runtime.content is not None


def test_width_limits_the_effects_at_once() -> None:
    """No more effects at once than that."""
    for width in (1, 2, 5):
        home = Home(calls(*(call("search", q=str(number)) for number in range(5))), text("Done."), width=width)
        running: list[int] = []
        search = stub("found", delay=10, clock=home.clock)
        home.runtime.executors._entries["search"] = search
        handle = home.start(TOOLS)
        events = handle.events()
        home.wait(handle)
        under_way = 0
        for event in events:
            kind = type(event.what.fact).__name__  # type: ignore[union-attr]  # it is there in this test
            under_way += {"ToolStarted": 1, "ToolFinished": -1}.get(kind, 0)
            running.append(under_way)
        assert max(running) == width
        assert isinstance(home.facts()[0], RunStarted)
