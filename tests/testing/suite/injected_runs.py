"""Runs with injected faults: recorded with doubles, then replayed from the cassette."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from agentrun.cassette.interactions import Cassette
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import Continue, ModelFailed, RetryPlanned, ToolFinished
from agentrun.core.messages import text_of
from agentrun.core.package import Package
from agentrun.engine.clock import StepClock
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.models import HttpProvider
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun
from agentrun.engine.runtime import Runtime
from agentrun.engine.worlds.record import recording_wrapper
from agentrun.journal.canonical import canonical
from agentrun.providers.codec import codec_for
from agentrun.spec.v1.cases import Case, FaultInjectionSpec, InjectedFaultSpec
from agentrun.testing import approving, stub
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall, HttpReply

from ...core.script import rule
from ...engine.memory_worlds import AGENT, COMMON, HOOK, PYTHON
from ...engine.recorded_runs import BEGAN, ROOT, Service, cassette
from ...packages import ROUTE, package
from ...replays import replay_package

HTTP: dict[str, Any] = {
    **COMMON,
    "kind": "http",
    "args": {"type": "object"},
    "actions": {},
    "url": "https://shop.example/stock",
    "method": "GET",
    "effect": "read",
    "query": {},
    "headers": {},
    "body": None,
    "auth": None,
    "result": None,
    "hosts": ["shop.example"],
    "private_network": False,
    "max_bytes": 1000,
}
SINK: dict[str, Any] = {"kind": "stdout", "delivery": "optional", "timeout": 1000}
SECOND = {**ROUTE, "name": "gpt-4.1"}
"""Another model of the same provider, to fall back to."""


def shop(**changes: Any) -> Package:
    """An agent with a tool of each kind that matters. `refund` asks a person."""
    tools = {
        "look": {**PYTHON, "effect": "read"},
        "refund": PYTHON,
        "stock": HTTP,
        "order": {**HTTP, "method": "POST", "effect": "at_most_once", "url": "https://shop.example/orders"},
    }
    rules = [rule("allow", "*", id="all"), rule("ask", "refund", id="ask", reason="money")]
    return package(**{"tools": tools, "policy": {"rules": rules}, **changes})


def with_reader(**changes: Any) -> Package:
    """The same with a sub-agent that has a tool `look` of its own."""
    base = shop()
    inner = package(name="reader", tools={"look": {**PYTHON, "effect": "read"}}, policy={"default": "allow"})
    tools = {**{name: to_builtins(tool) for name, tool in base.tools.items()}, "read": AGENT}
    return shop(tools=tools, agents={"read": to_builtins(inner)}, **changes)


class Endpoint:
    """The shop's own server."""

    def __init__(self) -> None:
        self.calls: list[HttpCall] = []

    async def send(self, call: HttpCall, **_: Any) -> HttpReply:
        self.calls.append(call)
        return HttpReply(200, (("content-type", "text/plain"),), b"12 left")


class Doubles:
    """The world that is recorded, and what was done in it."""

    def __init__(self) -> None:
        self.look = stub("seen")
        self.refund = stub("paid")
        self.endpoint = Endpoint()
        self.person = approving("approved", by="ada")
        self.asked: list[Any] = []
        self.delivered: list[str] = []

    async def deliver(self, delivery: Any) -> None:
        self.delivered.append(delivery.text)

    def hook(self, question: Any) -> Any:
        self.asked.append(question)
        return Continue()

    def ports(self) -> dict[str, Any]:
        return {
            "executors": {"look": self.look, "refund": self.refund, "http": HttpTools(self.endpoint)},
            "approver": self.person,
            "hooks": {"careful": self.hook},
            "sinks": {"stdout": self},
        }


class ReplayedCase(Struct, frozen=True):
    run: FinishedRun
    laid: FaultInjection
    player: Player

    @property
    def ending(self) -> str:
        return self.run.ending.code or ("completed" if self.run.ending.ok else "suspended")

    @property
    def time(self) -> int:
        """Milliseconds by its clock."""
        return self.run.journal[-1].at - self.run.journal[0].at

    @property
    def waits(self) -> list[int]:
        return [each.fact.wait for each in self.run.journal if isinstance(each.fact, RetryPlanned)]

    @property
    def failed(self) -> list[str]:
        """What requests to the model failed with."""
        return [each.fact.fault.code for each in self.run.journal if isinstance(each.fact, ModelFailed)]

    @property
    def results(self) -> list[tuple[str, str]]:
        """Of each call that ran: `ok` or the code, and what the model reads."""
        found = [each.fact for each in self.run.journal if isinstance(each.fact, ToolFinished)]
        return [(fact.fault.code if fact.fault else "ok", text_of(fact.parts)) for fact in found]


def case(*faults: FaultInjectionSpec, **more: Any) -> Case:
    return Case(name="c", faults=list(faults), **more)


def fault(at: str, **inject: Any) -> FaultInjectionSpec:
    return FaultInjectionSpec(at=at, inject=InjectedFaultSpec(**inject))


def record_case(
    folder: Path, agent: Package, laid: Case, *replies: Any, doubles: Doubles | None = None
) -> tuple[Cassette, str]:
    """A recording of a case, and its journal as it is compared."""
    clock, journals = StepClock(BEGAN), MemoryJournals()
    recorder = Recorder(clock.now)
    service = Service(clock, *replies)
    runtime = Runtime.in_memory(
        journals=journals,
        clock=clock,
        width=1,
        wrappers=(recording_wrapper(recorder), FaultInjection(laid).wrap),
        providers={name: HttpProvider(codec_for(name), service) for name in ("openai", "anthropic")},
        **(doubles or Doubles()).ports(),
    )
    handle = runtime.start(Request(agent=agent.name, package=seal_package(agent), run=ROOT))
    clock.run(handle.wait())
    children = {run: journals.records(run) for run in journals.runs if run != ROOT}
    return cassette(folder, recorder.interactions()), canonical(journals.records(ROOT), children)


def replay(
    agent: Package, laid: Case, recorded_cassette: Cassette, make: Callable[[Cassette], Player] = Player
) -> ReplayedCase:
    """A case, replayed from a recording."""
    player = make(recorded_cassette)
    over = FaultInjection(laid, player)
    run = replay_package(agent, player, start=over.start, step=over.step, wrappers=over.wrappers)
    return ReplayedCase(run, over, player)


def record_and_replay(
    folder: Path, agent: Package, laid: Case, *replies: Any, doubles: Doubles | None = None
) -> ReplayedCase:
    """Recorded and replayed under the same: one journal, and nothing of the cassette is left over."""
    recorded_cassette, journal = record_case(folder, agent, laid, *replies, doubles=doubles)
    again = replay(agent, laid, recorded_cassette)
    assert again.run.canonical() == journal
    assert again.run.unused_error is None
    return again


HOOK_PART = {"hooks": [HOOK]}
SINK_PART = {"sinks": {"log": SINK}}
