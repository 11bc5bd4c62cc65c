"""A runtime for tests, with all ports in memory and a step clock."""

from typing import Any

from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.core.facts import Fact
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.engine.clock import StepClock
from agentrun.engine.handle import RunHandle
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.testing import Script, scripted, stub

from ..core.script import rule, tool, writing
from ..packages import package

TOOLS = package(tools={"search": tool(), "pay": writing()}, policy={"default": "allow"})
ASKING_AGENT = package(tools={"pay": writing()}, policy={"default": "deny", "rules": [rule("ask", "pay")]})


class Home:
    """A runtime with a scripted model and stub tools."""

    def __init__(self, *script: Any, **given: Any) -> None:
        self.clock = StepClock()
        self.journals = MemoryJournals()
        self.model = script[0] if script and isinstance(script[0], Script) else scripted(*(script or ("Hello.",)))
        self.pay = stub("paid")
        ports = {
            "journals": self.journals,
            "clock": self.clock,
            "providers": {"openai": self.model},
            "executors": {"search": stub("found"), "pay": self.pay},
        }
        self.runtime = Runtime.in_memory(**{**ports, **given})

    def start(self, what: Package | PackageFile | None = None, /, **request: Any) -> RunHandle:
        file = what if isinstance(what, PackageFile) else seal_package(what or package())
        given = {"agent": file.agent.name, "package": file, "message": "Hi.", "run": "r1", **request}
        return self.runtime.start(Request(**given))

    def wait(self, handle: RunHandle) -> Outcome:
        return self.clock.run(handle.wait())

    def run(self, what: Package | PackageFile | None = None, /, **request: Any) -> Outcome:
        return self.wait(self.start(what, **request))

    def facts(self, run: str = "r1") -> list[Fact]:
        return [record.fact for record in self.journals.records(run)]

    def kinds(self, run: str = "r1") -> list[str]:
        return [type(fact).__name__ for fact in self.facts(run)]
