"""The ports of a world, how they are found, and which of them a package is missing."""

from typing import Any

import msgspec
import pytest

from agentrun.core.facts import CancelRequested, Record
from agentrun.core.package import Package
from agentrun.engine.begin import begin, check_start
from agentrun.engine.driver import RunLog, open_run_log
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.request import Request
from agentrun.engine.world import World, find_executor, find_missing_port, find_sink, world_of_run
from agentrun.errors import HostError, StorageError

from ..packages import ROUTE, package
from .memory_worlds import AGENT, HOOK, MCP, PYTHON, Model, Place, delivery, tool

SINK = {"kind": "stdout", "delivery": "required", "timeout": 1000}
ANY_PORT: Any = object()

REQUEST = Request(agent="triage", package="sha256:0", message="hello")


def agent(**changes: Any) -> Package:
    """An agent that names one thing of each sort, and a sub-agent that names others."""
    inner = package(
        model={"routes": [{**ROUTE, "provider": "inner-provider"}]},
        hooks=[{**HOOK, "id": "inner-hook"}],
        tools={"inner-tool": PYTHON},
        sinks={"inner-sink": SINK},
    )
    parts: dict[str, Any] = {
        "model": {"routes": [ROUTE, {**ROUTE, "provider": "fallback"}]},
        "hooks": [HOOK],
        "tools": {"billing": AGENT, "refund": PYTHON},
        "agents": {"billing": msgspec.to_builtins(inner)},
        "sinks": {"out": SINK},
    }
    return package(**{**parts, **changes})


def world(*names: str) -> World:
    parts: dict[str, Any] = {"providers": {}, "hooks": {}, "executors": {}, "sinks": {}}
    for name in names:
        sort, _, key = name.partition(":")
        parts[sort][key] = ANY_PORT
    return Place(**parts).world


ORDER = [
    ("providers:openai", "provider.not_found"),
    ("providers:fallback", "provider.not_found"),
    ("providers:inner-provider", "provider.not_found"),
    ("hooks:careful", "host.missing"),
    ("hooks:inner-hook", "host.missing"),
    ("executors:refund", "host.missing"),
    ("executors:inner-tool", "host.missing"),
    ("sinks:out", "host.missing"),
    ("sinks:inner-sink", "host.missing"),
]


@pytest.mark.parametrize("count", range(len(ORDER)))
def test_first_missing_port_is_found_in_order(count: int) -> None:
    """Providers, then hooks, executors, sinks; sub-agents included."""
    error = find_missing_port(world(*(name for name, _ in ORDER[:count])), agent())
    name, code = ORDER[count]
    assert error is not None
    assert error.code == code
    field = "provider" if code == "provider.not_found" else "name"
    assert error.fields[field] == name.partition(":")[2]


def test_world_with_all_ports_misses_nothing() -> None:
    assert find_missing_port(world(*(name for name, _ in ORDER)), agent()) is None


@pytest.mark.parametrize("delivery", ["optional", "disabled"])
def test_sink_that_is_not_required_may_be_missing(delivery: str) -> None:
    loose = package(sinks={"out": {**SINK, "delivery": delivery}})
    assert find_missing_port(world("providers:openai"), loose) is None


def test_ports_of_nested_sub_agents_are_checked() -> None:
    middle = package(tools={"inner": AGENT}, agents={"inner": msgspec.to_builtins(agent())})
    outer = package(tools={"middle": AGENT}, agents={"middle": msgspec.to_builtins(middle)})
    error = find_missing_port(world("providers:openai", "providers:fallback"), outer)
    assert error is not None
    assert error.fields["provider"] == "inner-provider"


def test_executor_and_sink_kinds_serve_all_names() -> None:
    names = [name for name, _ in ORDER if name.startswith(("providers", "hooks"))]
    assert find_missing_port(world(*names, "executors:python", "sinks:stdout"), agent()) is None


def test_disabled_sinks_are_not_missed() -> None:
    quiet = package(sinks={"out": {**SINK, "delivery": "disabled"}})
    assert find_missing_port(world("providers:openai"), quiet) is None


@pytest.mark.parametrize(
    ("executor", "found"),
    [("docs", True), ("mcp", True), ("docs.search", True), ("doc", False), ("docsearch", False), ("python", False)],
)
def test_one_executor_of_a_server_is_enough(executor: str, found: bool) -> None:
    """Which tools a server has is not known before it is asked: one of them is enough."""
    error = find_missing_port(world("providers:openai", f"executors:{executor}"), package(tools={"docs": MCP}))
    assert (error is None) == found


def test_names_win_over_kinds() -> None:
    own: Any = object()
    kind: Any = object()
    place = Place(executors={"refund": own, "python": kind}, sinks={"out": own, "stdout": kind})
    found = [find_executor(place.world, name, tool()) for name in ("refund", "lookup")]
    assert found == [own, kind]
    given = [find_sink(place.world, name, delivery().sink) for name in ("out", "log")]
    assert given == [own, kind]
    with pytest.raises(HostError, match=r"host\.missing"):
        find_executor(Place().world, "refund", tool())


def begin_run(place: Place) -> RunLog:
    world = world_of_run(place.world, "run-1")
    return begin(world, check_start(world, package(), REQUEST))


def test_listener_gets_every_written_record() -> None:
    """After it is written, and only then."""
    place = Place(providers={"openai": Model()})
    log = begin_run(place)
    log.commit(CancelRequested("me"))
    assert place.heard == [("run-1", record) for record in place.journals.records("run-1")]
    assert open_run_log(world_of_run(place.world, "run-1")).state == log.state


def test_listener_gets_no_record_that_was_not_written() -> None:
    class Full(MemoryJournals):
        def append(self, run: str, record: Record) -> None:
            raise StorageError("storage.failed", "no space left")

    place = Place(journals=Full(), providers={"openai": Model()})
    with pytest.raises(StorageError):
        begin_run(place)
    assert place.heard == []
