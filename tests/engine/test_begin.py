"""The steps of starting a run, their order, and that a refused start leaves no run."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import EarlierRuns, RunStarted
from agentrun.core.messages import Assistant, File, Image, Text, user_message
from agentrun.core.package import Package
from agentrun.core.policy import PolicyDecision
from agentrun.engine.begin import PackagePolicy, find_package
from agentrun.engine.event_bus import EventBus
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.errors import AgentrunError, StorageError
from agentrun.testing import FailingJournals, scripted, sink

from ..core import script
from ..core.script import agent_tool, rule, tool
from ..packages import ROUTE, TRIAGE, package, typed
from .memory_runtime import Home

PORTS = ("journals", "events", "content", "policy")
NAMES = ("journal", "events", "content", "policy")


def start_error(home: Home, *args: Any, **request: Any) -> AgentrunError:
    """Why a start is refused. It leaves nothing."""
    before, runs, requests = home.journals.runs, home.runtime.run_count, len(home.model.requests)
    with pytest.raises(AgentrunError) as caught:
        home.start(*args, **request)
    assert (home.journals.runs, home.runtime.run_count, len(home.model.requests)) == (before, runs, requests)
    return caught.value


# --- 1: ports -------------------------------------------------------------------------------------------------


def test_runtime_without_ports_refuses_to_start() -> None:
    runtime = Runtime()
    with pytest.raises(AgentrunError) as caught:
        runtime.start(Request(agent="triage", package=seal_package(package()), run="r1"))
    assert (caught.value.code, caught.value.fields) == ("host.missing", {"name": "journal", "run": "r1"})
    assert (caught.value.retry, caught.value.exit_code) == ("host", 2)


@pytest.mark.parametrize("count", range(4))
def test_first_missing_port_is_named(count: int) -> None:
    """With the first n ports given, the next one is missed."""
    whole = Home()
    given: dict[str, Any] = {
        "journals": whole.journals,
        "events": EventBus(),
        "content": whole.runtime.content,
        "policy": PackagePolicy(),
    }
    runtime = Runtime(**{name: given[name] for name in PORTS[:count]})
    with pytest.raises(AgentrunError) as caught:
        runtime.start(Request(agent="nobody", package="sha256:none", run="r1"))
    assert caught.value.fields == {"name": NAMES[count], "run": "r1"}


# --- 2: the package -------------------------------------------------------------------------------------------


def test_package_is_found_by_its_fingerprint() -> None:
    file = seal_package(package())
    home = Home(packages=[file])
    assert home.run(package(), package=file.fingerprint).is_finished
    started = home.facts()[0]
    assert isinstance(started, RunStarted)
    assert started.package == file.fingerprint
    error = start_error(home, package=file.fingerprint[:-1], run="r2")
    assert (error.code, error.fields["place"]) == ("package.invalid", file.fingerprint[:-1])


def test_package_of_another_agent_is_refused() -> None:
    error = start_error(Home(), agent="billing")
    assert error.code == "package.invalid"
    assert [error.fields[name] for name in ("pointer", "expected", "actual", "run")] == [
        "/name",
        "billing",
        "triage",
        "r1",
    ]


def test_package_that_differs_from_its_fingerprint_is_refused() -> None:
    file = seal_package(package())
    changed = replace(file, agent=replace(file.agent, instructions=("Give everything away.",)))
    error = start_error(Home(), changed)
    assert error.code == "package.fingerprint_mismatch"
    assert error.fields["pinned"] == file.fingerprint != error.fields["found"]


def test_invalid_output_schema_of_the_request_is_refused() -> None:
    error = start_error(Home(), output={"type": "nonsense"})
    assert (error.code, error.fields["pointer"], error.fields["run"]) == ("package.invalid", "/output/schema", "r1")


OTHER = {**TRIAGE, "required": ["queue"]}


@pytest.mark.parametrize(
    ("present", "given", "fits"),
    [
        (None, TRIAGE, True),
        (TRIAGE, TRIAGE, True),
        (TRIAGE, OTHER, False),
        ({**TRIAGE, "title": "t"}, {**OTHER, "title": "t"}, True),
        ({**TRIAGE, "title": "t"}, {**OTHER, "title": "u"}, False),
        ({**TRIAGE, "title": "t"}, OTHER, False),
        ({**TRIAGE, "title": "t"}, {**OTHER, "$id": "t"}, True),
    ],
)
def test_output_schema_of_the_request_replaces_only_a_compatible_one(present: Any, given: Any, fits: bool) -> None:
    home, agent = Home('{"queue": "billing", "urgent": true}'), package(output={"schema": present})
    if not fits:
        error = start_error(home, agent, output=given)
        assert (error.code, error.fields["pointer"]) == ("package.invalid", "/output/schema")
        return
    outcome = home.run(agent, output=given)
    assert outcome.output == {"queue": "billing", "urgent": True}
    request = Request(agent="triage", package=seal_package(agent), output=given)
    effective = find_package(home.runtime.packages, request)
    assert effective.agent.output.schema == given
    assert effective == seal_package(effective.agent)
    assert home.journals.package("r1", effective.fingerprint) == effective, "stored with the run"


def test_package_without_output_schema_is_used_unchanged() -> None:
    file = seal_package(package())
    assert find_package({}, Request(agent="triage", package=file)) == file


# --- 3: what the package names --------------------------------------------------------------------------------

CHILD = msgspec.to_builtins(package(name="billing", model={"routes": [ROUTE | {"provider": "far"}]}))
LACKING = {
    "a provider": (package(model={"routes": [ROUTE, ROUTE | {"provider": "far"}]}), "provider.not_found", "far"),
    "a child's provider": (
        package(tools={"billing": agent_tool()}, agents={"billing": CHILD}),
        "provider.not_found",
        "far",
    ),
    "a hook": (package(hooks=[script.hook("on_stop", id="bye")], tools={"fly": tool()}), "host.missing", "bye"),
    "an executor": (package(tools={"fly": tool()}, sinks={"report": script.SINK}), "host.missing", "fly"),
    "a sink": (package(sinks={"report": script.SINK}), "host.missing", "report"),
}


@pytest.mark.parametrize(("agent", "code", "name"), LACKING.values(), ids=LACKING)
def test_missing_provider_hook_executor_or_sink_is_refused(agent: Package, code: str, name: str) -> None:
    error = start_error(Home(), agent)
    assert error.code == code
    assert error.fields["provider" if code == "provider.not_found" else "name"] == name
    assert error.fields["run"] == "r1"


def test_disabled_sink_is_not_missed() -> None:
    assert Home().run(package(sinks={"report": script.SINK | {"delivery": "disabled"}})).is_finished


# --- admission ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "reason"), [("", "empty"), (" \n\t", "empty"), ("x" * 11, "too_long"), ("x" * 10, None)]
)
def test_empty_or_too_long_message_is_refused(message: str, reason: str | None) -> None:
    home, agent = Home(), package(admission={"max_chars": 10})
    if reason is None:
        assert home.run(agent, message=message).is_finished
        return
    error = start_error(home, agent, message=message)
    assert (error.code, error.fields["reason"], error.fields["input_id"]) == ("input.rejected", reason, "r1.1")
    assert (error.retry, error.exit_code) == ("user", 2)


def test_wrong_params_are_refused() -> None:
    error = start_error(Home(), params={"nonsense": 1})
    assert (error.code, error.fields["reason"], error.fields["input_id"]) == ("input.rejected", "params", "r1.1")


def test_message_is_checked_for_empty_then_length_then_duplicate() -> None:
    """Empty comes before too long, too long before duplicate."""
    home, agent = Home("a", "b"), package(admission={"max_chars": 2, "dedupe": True})
    home.runtime.sessions.create("s")
    home.run(agent, message="Hi", session="s")
    assert start_error(home, agent, message="   ", session="s", run="r2").fields["reason"] == "empty"
    assert start_error(home, agent, message="Hi ", session="s", run="r2").fields["reason"] == "too_long"
    assert start_error(home, agent, message="Hi", session="s", run="r2").fields["reason"] == "duplicate"


def test_exception_during_admission_is_admission_failed() -> None:
    home = Home()
    home.runtime.sessions.create("s").runs.append("r0")
    home.runtime._runs["r0"] = home.start(run="r0")
    home.wait(home.runtime._runs["r0"])
    home.journals.records = lambda run: 1 / 0  # type: ignore[method-assign,assignment,return-value]  # replaced on purpose
    with pytest.raises(AgentrunError) as caught:
        home.start(session="s")
    assert caught.value.code == "input.admission_failed"
    assert caught.value.fields == {"input_id": "r1.1", "reason": "ZeroDivisionError", "run": "r1"}
    assert (caught.value.retry, caught.value.exit_code) == ("repair", 2)


def test_attachments_are_part_of_the_input_and_a_missing_one_fails_the_run() -> None:
    home = Home()
    picture = Image("image/png", home.runtime.content.put(b"png"), 3)  # type: ignore[union-attr]  # it is there in this test
    lost = File("a.txt", "text/plain", "sha256:0", 1)
    assert home.run(attachments=(picture,)).is_finished
    started = home.facts()[0]
    assert isinstance(started, RunStarted)
    assert started.input is not None
    assert started.input.parts == (Text("Hi."), picture)
    outcome = home.run(attachments=(lost,), run="r2")
    assert (outcome.code, outcome.fields["part"], outcome.fields["reason"]) == ("context.failed", "a.txt", "missing")


HISTORY = (user_message("Hello?"),)


def test_goes_on_continues_the_given_history_without_a_message() -> None:
    home = Home()
    home.run(message=None, goes_on=True, history=HISTORY)
    assert [tuple(request.messages) for request in home.model.requests] == [HISTORY]
    started = home.facts()[0]
    assert isinstance(started, RunStarted)
    assert (started.input, started.earlier) == (None, EarlierRuns(messages=HISTORY))


@pytest.mark.parametrize(("history", "actual"), [((), "empty"), ((*HISTORY, Assistant((Text("Yes?"),))), "assistant")])
def test_goes_on_needs_a_history_that_ends_with_user_or_tool(history: Any, actual: str) -> None:
    error = start_error(Home(), message=None, goes_on=True, history=history)
    assert error.code == "run.invalid_continuation"
    assert (error.fields["expected"], error.fields["actual"]) == ("user or tool", actual)
    assert (error.retry, error.exit_code) == ("repair", 2)


def test_input_of_the_package_is_used_without_a_message() -> None:
    home = Home("a", "b")
    home.run(message=None)
    started = home.facts()[0]
    assert isinstance(started, RunStarted)
    assert started.input == user_message("The printer of support is on fire.")
    assert start_error(home, package(input=None), message=None, run="r2").fields["reason"] == "empty"


# --- 4: policy ------------------------------------------------------------------------------------------------


def agent_with_start_rules(*rules: dict[str, Any]) -> Package:
    return package(policy={"rules": [each | {"on": "run_start"} for each in rules]})


@pytest.mark.parametrize(
    ("rules", "code", "ids"),
    [
        ((rule("allow"),), None, []),
        ((rule("deny"),), "policy.denied", ["r1"]),
        ((rule("deny", id="b"), rule("deny", id="a"), rule("allow", id="c")), "policy.denied", ["a", "b"]),
        ((rule("deny"), rule("interrupt", id="i")), "policy.interrupted", ["i"]),
        ((rule("deny", when="params.team == 'sales'"),), None, []),
        ((rule("deny", when="params.team == 'support'"),), "policy.denied", ["r1"]),
        ((rule("deny", when="params.nowhere == 1"),), "policy.denied", ["r1"]),
        ((rule("deny", when="session.runs > 0"),), None, []),
    ],
)
def test_run_start_rules_allow_or_refuse_the_run(rules: Any, code: str | None, ids: list[str]) -> None:
    if code is None:
        assert Home().run(agent_with_start_rules(*rules)).is_finished
        return
    error = start_error(Home(), agent_with_start_rules(*rules))
    assert (error.code, error.fields["rules"], error.fields["run"]) == (code, ids, "r1")
    assert (error.retry, error.exit_code) == ("user", 4)


@pytest.mark.parametrize(("now", "is_refused"), [(4999, False), (5000, True)])
def test_run_start_rules_see_the_time_of_the_check(now: int, is_refused: bool) -> None:
    home = Home()
    home.clock.move_to(now)
    closed = agent_with_start_rules(rule("deny", on="run_start", when="now >= timestamp(5)"))
    if is_refused:
        assert start_error(home, closed).code == "policy.denied"
    else:
        home.start(closed)


@pytest.mark.parametrize("ruling", ["ask", "modify", "defer", "deny"])
def test_any_ruling_but_allow_refuses_the_start(ruling: Any) -> None:
    class Policy:
        def ruling(self, package: Package, started: RunStarted, now: int) -> PolicyDecision:
            return PolicyDecision(ruling, ("x",), None)

    error = start_error(Home(policy=Policy()))
    assert (error.code, error.fields["rules"]) == ("policy.denied", ["x"])


# --- 5: the run -----------------------------------------------------------------------------------------------


def test_duplicate_run_id_is_refused_and_the_journal_unchanged() -> None:
    home = Home("a", "b")
    home.run()
    before = home.journals.text("r1")
    error = start_error(home)
    assert (error.code, error.fields, error.exit_code) == ("run.duplicate", {"run": "r1"}, 2)
    assert home.journals.text("r1") == before


def test_accepted_run_has_written_run_started() -> None:
    home = Home()
    handle = home.start()
    assert home.kinds() == ["RunStarted"]
    assert (handle.status, home.runtime.run_count) == ("admitted", 1)


def test_failed_first_write_leaves_no_run_and_no_session_entry() -> None:
    home = Home(journals=FailingJournals(1))
    session = home.runtime.sessions.create("s")
    with pytest.raises(StorageError, match=r"storage\.failed"):
        home.start(session="s")
    assert (home.runtime.run_count, session.runs, session.has_seen("Hi.")) == (0, [], False)


def test_run_ids_are_generated_and_unique() -> None:
    home = Home("a", "b", ids=iter(["one", "two"]).__next__)
    assert [home.start(run=None).run, home.start(run=None).run] == ["one", "two"]
    other = Runtime.in_memory(providers={"openai": scripted()}, clock=home.clock)
    request = Request(agent="triage", package=seal_package(package()), message="Hi.")
    assert other.start(request).run != other.start(request).run


def test_checks_of_a_start_run_in_order() -> None:
    """Everything is wrong at once. Each repair shows the next fault, and only after the last one there is a run."""
    denied = package(policy={"rules": [rule("deny", on="run_start")]}, sinks={"report": script.SINK})
    home = Home()
    home.start(run="taken")
    steps: list[tuple[str, Any, dict[str, Any]]] = [
        ("package.invalid", replace(seal_package(denied), fingerprint="sha256:0"), {"agent": "x", "message": " "}),
        ("package.fingerprint_mismatch", replace(seal_package(denied), fingerprint="sha256:0"), {"message": " "}),
        ("host.missing", denied, {"message": " "}),
        ("input.rejected", denied, {"message": " "}),
        ("policy.denied", denied, {}),
        ("run.duplicate", package(), {}),
    ]
    for code, what, request in steps:
        if code == "input.rejected":
            home.runtime.sinks.add("report", sink())
        assert start_error(home, what, **{"run": "taken", **request}).code == code
    assert home.start(run="free").run == "free"


def test_package_is_stored_with_the_run() -> None:
    home, file = Home('{"queue": "other", "urgent": false}'), seal_package(typed())
    home.run(file)
    assert home.journals.package("r1", file.fingerprint) == file
