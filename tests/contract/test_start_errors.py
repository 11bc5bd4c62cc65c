"""Every error of a run that cannot start has the id of the refused run in `run`, through a `Runtime` and with `--json`.
A run that is in the way has a field of its own, `blocking_run`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun import Request, Runtime
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import AgentrunError, StorageError, storage_failed
from agentrun.spec.project import find_project
from agentrun.store.files import FileStore
from agentrun.testing import calls, text

from ..cli.shop_project import KEY, Project
from ..core.script import hook, rule
from ..engine.memory_runtime import ASKING_AGENT, Home
from ..packages import ROUTE, package
from .test_codes import changed_package

# --- Python -------------------------------------------------------------------------------------------------------


def home_with_session(agent: Any = None, *, waits: bool = True) -> Home:
    """`r0` of the session `s` is active, or suspended."""
    home = Home(calls("pay", n=1), text("Done."))
    home.runtime.sessions.create("s")
    if waits:
        home.run(agent or ASKING_AGENT, session="s", run="r0")
    else:
        home.start(ASKING_AGENT, session="s", run="r0")
    return home


def other_agent() -> None:
    home = Home("Hello.")
    home.runtime.sessions.create("s")
    home.run(session="s", run="r0")
    home.start(package(name="other"), session="s", agent="other")


def broken_sessions() -> None:
    home = Home("Hello.")
    home.runtime.sessions.create("s")
    home.run(session="s", run="r0")

    class Broken(MemoryJournals):
        def records(self, run: str) -> Any:
            raise ZeroDivisionError

    home.runtime.journals = Broken()
    home.start(session="s")


def damaged_session() -> None:
    home = Home("Hello.")
    home.runtime.sessions.create("s")
    home.run(session="s", run="r0")

    class Damaged(MemoryJournals):
        def records(self, run: str) -> Any:
            raise StorageError("journal.damaged", "record 2 is damaged", fields={"seq": 2, "run": run})

    home.runtime.journals = Damaged()
    home.start(session="s")


class FullDisk(MemoryJournals):
    def append(self, run: str, record: Any) -> None:
        raise storage_failed("journal", "no space left", 28)


def twice() -> None:
    home = Home("Hello.")
    home.run()
    home.start()


STARTS: dict[str, tuple[Callable[[], object], str | None]] = {
    "host.missing": (lambda: Home().start(package(hooks=[hook("on_input")])), None),
    "host.missing: a port": (lambda: Runtime().start(Request(agent="triage", run="r1")), None),
    "package.invalid": (lambda: Home().start(agent="other"), None),
    "package.fingerprint_mismatch": (lambda: Home().start(changed_package()), None),
    "provider.not_found": (
        lambda: Home().start(package(model={"routes": [{**ROUTE, "provider": "nobody"}]})),
        None,
    ),
    "input.rejected": (lambda: Home().start(message=" "), None),
    "input.admission_failed": (broken_sessions, None),
    "run.invalid_continuation": (lambda: Home().start(message=None, goes_on=True), None),
    "run.invalid_continuation: another agent": (other_agent, None),
    "run.duplicate": (twice, None),
    "session.not_found": (lambda: Home().start(session="s"), None),
    "session.busy": (lambda: home_with_session(waits=False).start(session="s"), "r0"),
    "session.unfinished": (lambda: home_with_session().start(session="s"), "r0"),
    "journal.damaged": (damaged_session, "r0"),
    "storage.failed": (lambda: Home(journals=FullDisk()).start(), None),
    "policy.denied": (lambda: Home().start(package(policy={"rules": [rule("deny", on="run_start")]})), None),
    "policy.interrupted": (
        lambda: Home().start(package(policy={"rules": [rule("interrupt", on="run_start")]})),
        None,
    ),
}
"""What refuses the run `r1`, and the run that is in the way."""


@pytest.mark.parametrize("case", STARTS)
def test_error_of_a_start_in_python_has_the_refused_run(case: str) -> None:
    start, blocking = STARTS[case]
    with pytest.raises(AgentrunError) as caught:
        start()
    fields = caught.value.fields
    assert (caught.value.code, fields["run"]) == (case.partition(":")[0], "r1")
    assert fields.get("blocking_run") == blocking


# --- the command line ---------------------------------------------------------------------------------------------

KEYS = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}


def suspended_session(shop: Project) -> str:
    """A session whose only run waits for an approval."""
    with shop.provider() as (_, environment):
        assert shop.run("--mode", "live", "--new-session", "s", **environment).code == 8
    (run,) = os.listdir(shop.root / ".agentrun" / "runs")
    return run


def busy(shop: Project) -> str:
    """A session that a process works on: this one."""
    run, store = suspended_session(shop), FileStore(find_project(shop.spec))
    store.lock_session("s")
    LOCKED.append(store)
    return run


LOCKED: list[FileStore] = []


@pytest.fixture(autouse=True)
def locks_are_released() -> Iterator[None]:
    yield
    while LOCKED:
        LOCKED.pop().close()


def damaged(shop: Project) -> str:
    run = suspended_session(shop)
    path = shop.root / ".agentrun" / "runs" / run / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"turn":1', b'"turn":2', 1))
    return run


def removed(shop: Project) -> str:
    run = suspended_session(shop)
    (shop.root / ".agentrun" / "runs" / run).rename(shop.root / "elsewhere")
    return run


def edit(old: str, new: str) -> Callable[[Project], None]:
    return lambda shop: shop.edit("shop.yaml", old, new)


def rule_at_start(ruling: str) -> Callable[[Project], None]:
    return edit("  rules:\n", f"  rules:\n    - {{id: start, on: run_start, {ruling}: '*'}}\n")


def full_store(shop: Project) -> None:
    (shop.root / ".agentrun").write_text("a file, and no directory")


def nothing(shop: Project) -> None:
    """The project is as it is."""


def with_session(shop: Project) -> None:
    suspended_session(shop)


COMMANDS: dict[str, tuple[Callable[[Project], str | None], tuple[str, ...], dict[str, str]]] = {
    "host.missing": (nothing, (), {"OPENAI_API_KEY": ""}),
    "provider.not_found": (edit("provider: openai", "provider: nobody"), (), {}),
    "input.rejected": (nothing, (" ",), {}),
    "input.rejected: a param": (nothing, ("--param", "other=1"), {}),
    "session.not_found": (nothing, ("Hi", "--session", "s"), {}),
    "session.duplicate": (with_session, ("Hi", "--new-session", "s"), {}),
    "session.busy": (busy, ("Hi", "--session", "s"), {}),
    "session.unfinished": (suspended_session, ("Hi", "--session", "s"), {}),
    "journal.damaged": (damaged, ("Hi", "--session", "s"), {}),
    "recovery.failed": (removed, ("Hi", "--session", "s"), {}),
    "storage.failed": (full_store, (), {}),
    "storage.untrusted": (with_session, ("Hi", "--session", "s"), {"XDG_STATE_HOME": "/nowhere"}),
    "policy.denied": (rule_at_start("deny"), (), {}),
    "policy.interrupted": (rule_at_start("interrupt"), (), {}),
}
"""What is done before, the arguments, and the environment. What is done before returns the run that is in the way."""


def modes() -> Iterator[tuple[str, str]]:
    for case, (_, args, _) in COMMANDS.items():
        yield case, "live"
        if not {"--session", "--new-session"} & {*args}:  # a recording has none
            yield case, "record"


@pytest.mark.parametrize(("case", "mode"), list(modes()))
def test_error_of_a_start_as_json_has_the_refused_run(case: str, mode: str, tmp_path: Path) -> None:
    prepare, args, environment = COMMANDS[case]
    shop = Project(tmp_path)
    blocking = prepare(shop)
    done = shop.run(*args, "--mode", mode, *["--yes"] * (mode == "record"), "--json", **{**KEYS, **environment})
    line = done.lines()[-1]
    fields = line["error"]["fields"]
    assert (line["error"]["code"], done.code) == (case.partition(":")[0], line["error"]["exit"]), done.err
    assert line["run"] == fields["run"]
    assert fields["run"].startswith("run-")
    assert fields["run"] != blocking
    assert fields.get("blocking_run") == blocking
    assert not (tmp_path / ".agentrun" / "runs" / fields["run"]).exists()
