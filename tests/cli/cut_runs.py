"""A project whose tools wait while a file says so, so that a test can cut its runs at an exact place."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrun.testing.provider import ScriptedProvider

from .command import CommandResult, agentrun, start
from .shop_project import KEY

BANK = '''\
"""Tools that leave a trace, and wait while there is a file `hold-NAME`."""
import time
from pathlib import Path

HERE = Path(__file__).parent


def _do(name: str, value: str) -> str:
    with (HERE / "trace.txt").open("a") as file:
        file.write(f"{name} {value}\\n")
    while (HERE / f"hold-{name}").exists():
        time.sleep(0.01)
    return f"{name} is done"


def look(value: str) -> str:
    """Reads."""
    return _do("look", value)


def save(value: str) -> str:
    """Writes, and may be repeated."""
    return _do("save", value)


def pay(value: str) -> str:
    """Pays, once."""
    return _do("pay", value)
'''
SPEC = """\
agentrun: "1"
name: bank
model: {provider: openai, name: gpt-4.1-mini, stream: true}
instructions: Be brief.
input: Pay.
tools:
  look: {kind: python, call: "bank:look", effect: read}
  save: {kind: python, call: "bank:save", effect: idempotent}
  pay: {kind: python, call: "bank:pay"}
policy: {default: allow}
budgets: {turns: 8}
"""
PAYS = """\
agentrun: "1"
turns:
  - calls: [{tool: pay, args: {value: one}}]
  - text: Paid.
"""


def wait_until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Bank:
    def __init__(self, root: Path, spec: str = SPEC) -> None:
        self.root = root
        files = {"bank.yaml": spec, "bank.py": BANK, "pyproject.toml": "[tool.agentrun]\n"}
        for name, text in files.items():
            (root / name).write_text(text, encoding="utf-8")
        self.environment = {"HOME": str(root / "home")}

    @contextmanager
    def provider(self, story: str = PAYS) -> Iterator[ScriptedProvider]:
        with ScriptedProvider(story) as server:
            self.environment |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1"}
            yield server

    def hold(self, *tools: str) -> None:
        for tool in tools:
            (self.root / f"hold-{tool}").touch()

    def release(self, *tools: str) -> None:
        for tool in tools:
            (self.root / f"hold-{tool}").unlink()

    def traces(self) -> list[str]:
        path = self.root / "trace.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def start(self, *args: str, **env: str) -> Any:
        words = args or ("bank.yaml",)
        return start(*words, cwd=self.root, environment={**self.environment, **env})

    @contextmanager
    def started(self, *args: str, **env: str) -> Iterator[Any]:
        """`agentrun bank.yaml`, as a process that is killed in the end if it is still running."""
        run = self.start(*args, **env)
        try:
            yield run
        finally:
            run.kill()
            run.communicate()

    def killed(self, at: Callable[[], object], *args: str, **env: str) -> str:
        """Start a run and kill it when `at` is true. Its id."""
        with self.started(*args, **env) as run:
            wait_until(at)
            run.kill()
            run.wait(60)
        return self.run_ids()[-1]

    def command(self, *args: str, cwd: Path | None = None, **env: str) -> CommandResult:
        given: dict[str, Any] = {**self.environment, **env}
        return agentrun(*args, cwd=cwd or self.root, **given)

    @property
    def store(self) -> Path:
        return self.root / ".agentrun" / "runs"

    def run_ids(self) -> list[str]:
        """The runs that were started by a user, in order."""
        folders = sorted(self.store.iterdir(), key=lambda each: each.stat().st_ctime_ns) if self.store.exists() else []
        return [each.name for each in folders if "." not in each.name]

    def facts(self, run: str) -> list[dict[str, Any]]:
        path = self.store / run / "journal.jsonl"
        lines = path.read_bytes().split(b"\n") if path.exists() else []  # the directory of a run is created first
        return [json.loads(line)["fact"] for line in lines if line]

    def kinds(self, run: str) -> list[str]:
        return [fact["type"] for fact in self.facts(run)]

    def recorded(self, kind: str, run: str | None = None) -> Callable[[], bool]:
        """Whether a run has a record of this kind, for `killed`."""

        def look() -> bool:
            runs = self.run_ids()
            has_journal = bool(runs) and (self.store / (run or runs[-1]) / "journal.jsonl").exists()
            return has_journal and kind in self.kinds(run or runs[-1])

        return look
