"""Every error code is produced through the public API (`agentrun.run`, `Runtime`) or the command line, with the fields,
the retry class and the exit code of the contract. A code of `errors.py` without a case here fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

import agentrun
from agentrun.compiler.package_file import seal_package
from agentrun.core.effects import AskModel, Deliver, RunTool, ToolReturn
from agentrun.core.facts import CallCancelled, CallRefused, Fact, Record, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import File, Reply, Text, ToolResult
from agentrun.core.outcome import Outcome, Question
from agentrun.core.package import Package
from agentrun.engine.events import run_scope
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import ERROR_CODES, TOOL_RESULT_CODES, AgentrunError, SpecError, code_of, storage_failed
from agentrun.testing import StepClock, calls, text

from ..cli.command import agentrun as command
from ..cli.shop_project import Project
from ..core import script
from ..core.error_code_cases import STOPS, TOOL_RESULT_CASES, Stop, ToolResultCode, aborted
from ..core.error_code_contract import MEANINGS
from ..engine.memory_runtime import ASKING_AGENT, Home
from ..packages import package


class Produced(NamedTuple):
    """An error as a user of the API or of `--json` gets it."""

    code: str
    fields: Mapping[str, Any]
    retry: str | None
    exit: int


def of_error(error: AgentrunError) -> Produced:
    return Produced(error.code, error.fields, error.retry, error.exit_code)


def of_outcome(outcome: Outcome) -> Produced:
    assert outcome.is_finished, outcome
    assert outcome.code is not None, outcome
    return Produced(outcome.code, outcome.fields, outcome.retry, outcome.exit_code)


def raised_by(work: Callable[[], object]) -> Produced:
    with pytest.raises(AgentrunError) as caught:
        work()
    return of_error(caught.value)


def printed_by(*args: str, cwd: Path, **env: Any) -> Produced:
    """The error that a command prints with `--json`."""
    done = command(*args, "--json", cwd=cwd, **env)
    error = done.lines()[-1]["error"]
    assert done.code == error["exit"]
    return Produced(error["code"], error["fields"], error["retry"], error["exit"])


# --- codes of the core: the runs of its own tests, driven by a `Runtime` ------------------------------------------


class ScriptedWorld:
    """The world of a scripted run of the core, as ports of a `Runtime`."""

    def __init__(self, run: script.Run) -> None:
        self.run, self.clock = run, StepClock()

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        await self.clock.sleep_until(self.clock.now() + self.run.takes)
        return self.run.answers.pop(0)

    async def answer(self, question: Question) -> tuple[Any, str]:
        return self.run.people[question.target], "somebody"

    async def deliver(self, delivery: Deliver) -> Fault | None:
        return self.run.sinks.get(delivery.name)

    def home(self) -> Home:
        tools = {name: Tool(self, name) for name in self.run.first.tools}
        approver = self if self.run.people else None
        return Home(
            clock=self.clock,
            providers=dict.fromkeys(("openai", "other"), self),
            executors=tools,
            approver=approver,
            sinks={"file": self},
        )

    def outcome(self) -> tuple[Home, Outcome]:
        home = self.home()
        handle = home.start(self.run.first, message="It burns.")
        return home, self.clock.run(handle.wait())


class Tool:
    def __init__(self, world: ScriptedWorld, name: str) -> None:
        self.world, self.name = world, name

    async def run(self, call: RunTool) -> ToolReturn:
        await self.world.clock.sleep_until(self.world.clock.now() + self.world.run.takes)
        given = self.world.run.tools.get(self.name, "done")
        return ToolReturn(fault=given) if isinstance(given, Fault) else ToolReturn((Text(given),))


def lost_call() -> Produced:
    """A process ends inside a call that must not run twice, and a person stops the run."""
    agent = package(tools={"pay": script.writing()}, policy={"default": "allow"})
    home = Home(calls("pay", n=1), text("Done."))
    home.run(agent)
    cut = Home()
    end = home.kinds().index("ToolFinished")
    cut.journals.restore("r1", tuple(home.journals.records("r1"))[:end])
    cut.journals.keep("r1", seal_package(agent))
    assert cut.wait(cut.runtime.resume("r1")).status == "suspended"
    cut.runtime.settle("r1", "c1.0", "stop", "ann")
    return of_outcome(cut.wait(cut.runtime.resume("r1", finished_ok=True)))


def cancelled() -> Produced:
    home = Home("Hello.")
    handle = home.start()
    handle.cancel("ann")
    return of_outcome(home.wait(handle))


def torn_history() -> Produced:
    return of_outcome(Home().run(history=(ToolResult("c9.0", (Text("42"),)),)))


def missing_attachment() -> Produced:
    return of_outcome(Home().run(attachments=(File("a.txt", "text/plain", "sha256:0", 1),)))


def broken_provider() -> Produced:
    class Broken:
        async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply:
            raise KeyError("with a secret")

    return of_outcome(agentrun.run(seal_package(package()), "Hi.", model=Broken(), clock=StepClock()))


BY_HAND: dict[str, Callable[[], Produced]] = {
    "tool.indeterminate": lost_call,
    "cancelled": cancelled,
    "provider.inconsistent_history": torn_history,
}
"""Scripted runs of the core in which a test plays the host: a real host does it here."""


@pytest.mark.parametrize("case", [case for case in STOPS if case.code not in BY_HAND], ids=lambda case: case.code)
def test_scripted_run_stops_with_its_code(case: Stop) -> None:
    home, ending = ScriptedWorld(case.play()).outcome()
    check(case.code, of_outcome(ending))
    assert home.kinds().count("RunStopped") == 1
    assert home.kinds()[-1] == "RunStopped"


@pytest.mark.parametrize("code", BY_HAND)
def test_run_of_a_host_stops_with_its_code(code: str) -> None:
    check(code, BY_HAND[code]())


def refusals(facts: list[Fact]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for fact in facts:
        if isinstance(fact, CallRefused):
            yield fact.code, fact.fields
        elif isinstance(fact, ToolFinished) and fact.fault is not None:
            yield fact.fault.code, fact.fault.fields


@pytest.mark.parametrize("case", TOOL_RESULT_CASES, ids=lambda case: case.code)
def test_model_reads_the_code_of_a_call(case: ToolResultCode) -> None:
    home, ending = ScriptedWorld(case.play()).outcome()
    assert (ending.status, ending.exit_code) == ("completed", 0)
    code, fields = list(refusals(home.facts()))[-1]
    assert code == case.code
    assert {*MEANINGS[code].fields} - {"action", "field"} <= fields.keys()


def test_cancelled_sibling_has_its_code() -> None:
    home, ending = ScriptedWorld(aborted()).outcome()
    (fact,) = [fact for fact in home.facts() if isinstance(fact, CallCancelled)]
    assert (ending.status, fact.told.partition(":")[0]) == ("completed", "tool.aborted")


# --- codes of other layers ----------------------------------------------------------------------------------------


def changed_package() -> agentrun.PackageFile:
    return replace(seal_package(package()), agent=package(instructions=("Be rude.",)))


def no_provider() -> Produced:
    return raised_by(lambda: Home(providers={}).start())


def broken_sessions() -> Produced:
    home = Home("Hello.")
    home.runtime.sessions.create("s")
    home.run(session="s")

    class Broken(MemoryJournals):
        def records(self, run: str) -> Any:
            raise ZeroDivisionError

    home.runtime.journals = Broken()
    return raised_by(lambda: home.start(run="r2", session="s"))


def busy_session() -> Produced:
    home = Home(calls("pay", n=1), text("Done."))
    home.runtime.sessions.create("s")
    home.start(session="s")
    return raised_by(lambda: home.start(run="r2", session="s"))


def two_sessions() -> None:
    runtime = Home().runtime
    runtime.sessions.create("s")
    runtime.sessions.create("s")


def unfinished_session() -> Produced:
    home = Home(calls("pay", n=1), text("Done."))
    home.runtime.sessions.create("s")
    home.run(ASKING_AGENT, session="s")
    return raised_by(lambda: home.start(run="r2", session="s"))


def twice_the_same_run() -> Produced:
    home = Home("Hello.")
    home.run()
    return raised_by(home.start)


def resume_of_a_finished_run() -> Produced:
    home = Home("Hello.")
    home.run()
    return raised_by(lambda: home.runtime.resume("r1"))


def cursor_of_another_run() -> Produced:
    home = Home("Hello.", "Hello.")
    home.run()
    home.run(run="r2")
    cursor = next(iter(home.start(run="r3").events())).cursor
    return raised_by(lambda: home.runtime.subscribe(run_scope("r1"), cursor))


def stored_run(root: Path) -> tuple[Project, str]:
    shop = Project(root)
    with shop.provider() as (_, environment):
        assert shop.run("--mode", "live", "--approve", "all", **environment).code == 0
    (run,) = (path.name for path in (root / ".agentrun" / "runs").iterdir())
    return shop, run


def changed_journal(root: Path, change: Callable[[bytes], bytes]) -> Produced:
    _, run = stored_run(root)
    path = root / ".agentrun" / "runs" / run / "journal.jsonl"
    path.write_bytes(change(path.read_bytes()))
    return printed_by("verify", run, cwd=root)


def impossible_record() -> Produced:
    """A journal in which a call ends that was never asked for."""
    home = Home()
    home.start()
    journal = home.journals.open("r1")
    journal.append(Record(2, 0, journal.epoch, journal.head, ToolFinished("c1.0", ())))
    return raised_by(lambda: home.runtime.resume("r1"))


class FullDisk(MemoryJournals):
    """Journals with space for one record."""

    def append(self, run: str, record: Record) -> None:
        if record.seq > 1:
            raise storage_failed("journal", "no space left", 28)
        super().append(run, record)


def full_disk() -> Produced:
    return raised_by(Home("Hello.", journals=FullDisk()).run)


def after_a_full_disk() -> Produced:
    home = Home("Hello.", journals=FullDisk())
    handle = home.start()
    raised_by(lambda: home.wait(handle))
    return raised_by(lambda: handle.send("More."))


def former_owner() -> Produced:
    home = Home(calls("pay", n=1), text("Done."))
    old = home.start(ASKING_AGENT)
    waiting = home.wait(old)
    assert waiting.status == "suspended"
    home.runtime.resume("r1")
    return raised_by(lambda: old.answer(waiting.questions[0], "approved", "ada"))


def foreign_store(root: Path) -> Produced:
    """The store of another person: a copy, of which this user has no id."""
    _, run = stored_run(root)
    return printed_by("resume", run, cwd=root, XDG_STATE_HOME=str(root / "elsewhere"))


def other_policy() -> Produced:
    home = Home(calls("pay", n=1), text("Done."))
    agent = package(tools={"pay": script.writing()}, policy={"default": "allow"})
    home.run(agent)
    strict: Package = package(tools={"pay": script.writing()}, policy={"default": "deny"})
    return raised_by(lambda: agentrun.audit(home.journals.records("r1"), strict))


def other_prompt(root: Path) -> Produced:
    shop = Project(root)
    shop.recorded()
    shop.edit("prompt.md", "Be brief.", "Be rude.")
    lines = shop.run("--mode", "replay", "--json").lines()
    fault = lines[-1]["outcome"]["fault"]
    code = code_of(fault["code"])
    return Produced(fault["code"], fault["fields"], code.retry, lines[-1]["outcome"]["exit"])


def damaged_cassette(root: Path) -> Produced:
    shop = Project(root)
    shop.recorded()
    shop.cassette.write_text(shop.cassette.read_text().replace("version: 1", "version: ["))
    return printed_by("shop.yaml", "--mode", "replay", cwd=root)


def shorter_run(root: Path) -> Produced:
    shop = Project(root)
    shop.recorded()
    text = shop.cassette.read_text()
    first = text.index("\n- request:\n")
    shop.cassette.write_text(text + text[first + 1 : text.index("\n- request:\n", first + 1) + 1])
    return printed_by("shop.yaml", "--mode", "replay", cwd=root)


def spec_with_a_mistake(root: Path) -> Produced:
    (root / "a.yaml").write_text("agentrun: '1'\nname: a\nmodle: {}\n")
    with pytest.raises(SpecError) as caught:
        agentrun.compile(root / "a.yaml")
    assert {"file", "line", "column", "code"} <= caught.value.fields["problems"][0].keys()
    return of_error(caught.value)


MORE_FIELDS = {
    "spec": ("problems",),  # each problem has its place
    "package.fingerprint_mismatch": ("pinned", "found"),
    "cassette.damaged": ("line",),
    "cassette.unused": ("unused",),
}
"""The fields of codes that share a row of the contract with others and have more fields of their own."""

OTHERS: dict[str, Callable[[Path], Produced]] = {
    "spec": spec_with_a_mistake,
    "package.invalid": lambda root: raised_by(lambda: Home().start(agent="other")),
    "package.fingerprint_mismatch": lambda root: raised_by(lambda: Home().start(changed_package())),
    "host.missing": lambda root: raised_by(
        lambda: agentrun.Runtime().start(agentrun.Request(agent="triage", run="r1"))
    ),
    "provider.not_found": lambda root: no_provider(),
    "input.rejected": lambda root: raised_by(lambda: Home().start(message=" ")),
    "input.admission_failed": lambda root: broken_sessions(),
    "session.not_found": lambda root: raised_by(lambda: Home().start(session="s")),
    "session.busy": lambda root: busy_session(),
    "session.duplicate": lambda root: raised_by(two_sessions),
    "session.unfinished": lambda root: unfinished_session(),
    "run.not_found": lambda root: raised_by(lambda: Home().runtime.snapshot("nowhere")),
    "run.duplicate": lambda root: twice_the_same_run(),
    "run.invalid_state": lambda root: resume_of_a_finished_run(),
    "run.invalid_continuation": lambda root: raised_by(lambda: Home().start(message=None, goes_on=True)),
    "cursor.scope": lambda root: cursor_of_another_run(),
    "cursor.invalid": lambda root: printed_by("events", "--since", "nonsense", cwd=Project(root).root),
    "recovery.failed": lambda root: impossible_record(),
    "journal.damaged": lambda root: changed_journal(root, lambda data: data.replace(b'"attempt":1', b'"attempt":2', 1)),
    "journal.truncated": lambda root: changed_journal(root, lambda data: data[: data[:-1].rindex(b"\n") + 1]),
    "journal.poisoned": lambda root: after_a_full_disk(),
    "journal.stale_owner": lambda root: former_owner(),
    "storage.failed": lambda root: full_disk(),
    "storage.untrusted": foreign_store,
    "audit.diverged": lambda root: other_policy(),
    "cassette.miss": other_prompt,
    "cassette.damaged": damaged_cassette,
    "cassette.unused": shorter_run,
    "context.failed": lambda root: missing_attachment(),
    "internal": lambda root: broken_provider(),
}


@pytest.mark.parametrize("code", OTHERS)
def test_code_of_another_layer_is_produced(code: str, tmp_path: Path) -> None:
    check(code, OTHERS[code](tmp_path))


def check(code: str, found: Produced) -> None:
    """The error is as the contract says: its code, fields, retry class and exit code."""
    meaning = MEANINGS[code]
    assert found.code == code or (code == "spec" and found.code.startswith("spec.")), found
    assert {*meaning.fields, *MORE_FIELDS.get(code, ())} <= found.fields.keys(), found
    assert found.exit == meaning.exit
    assert found.retry is None or meaning.retry in (None, found.retry)


def codes_without_a_case(codes: set[str]) -> set[str]:
    scripted_codes = {case.code for case in STOPS} | {case.code for case in TOOL_RESULT_CASES}
    return codes - scripted_codes - {*BY_HAND} - {*OTHERS}


def test_every_code_has_a_case() -> None:
    assert codes_without_a_case({*ERROR_CODES, *TOOL_RESULT_CODES}) == set()
    assert codes_without_a_case({*ERROR_CODES, "tool.tired"}) == {"tool.tired"}
