"""A project with one agent, a scripted provider to record it from, and the real command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrun.testing.provider import ScriptedProvider

from .command import CommandResult, agentrun

SPEC = """\
agentrun: "1"
name: shop
model: {provider: openai, name: gpt-4.1-mini, temperature: 0, stream: true}
instructions: {file: prompt.md}
params: {order: {type: string, default: "1042"}}
input: "Where is order {{ order }}?"
tools:
  look: {kind: python, call: "desk:look", effect: read}
  refund: {kind: python, call: "desk:refund"}
policy:
  default: deny
  rules:
    - {id: reads, allow: look}
    - {id: money, ask: refund, reason: money}
budgets: {turns: 8, tokens: 20k, time: 5m}
retry: {first_delay: 1ms}
"""
PROMPT = "You help with order {{ order }}.\nBe brief.\n"
DESK = '''\
"""Tools that leave a trace."""
from pathlib import Path

TRACE = Path(__file__).with_name("trace.txt")

def look(order: str) -> dict[str, object]:
    """Finds an order."""
    with TRACE.open("a") as file:
        file.write(f"look {order}\\n")
    return {"order": order, "state": "late"}

def refund(order: str, amount: float) -> str:
    """Pays money back."""
    with TRACE.open("a") as file:
        file.write(f"refund {order} {amount}\\n")
    return "paid"
'''
STORY = """\
agentrun: "1"
turns:
  - text: I look it up.
    calls: [{tool: look, args: {order: "1042"}}]
    chunk: 4
  - calls: [{tool: refund, args: {order: "1042", amount: 20.0}}]
    faults: [{status: 429, headers: {retry-after: "0"}}]
  - text: Done.
"""
KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"


_cached_recordings: dict[tuple[Any, ...], dict[str, bytes]] = {}


class Project:
    """A folder with the agent in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spec = root / "shop.yaml"
        self.cassette = root / "cassettes" / "shop" / "default.yaml"
        self.trace = root / "trace.txt"
        files = {"shop.yaml": SPEC, "prompt.md": PROMPT, "desk.py": DESK, "pyproject.toml": "[tool.agentrun]\n"}
        for name, text in files.items():
            (root / name).write_text(text, encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text
        (self.root / name).write_text(text.replace(old, new), encoding="utf-8")

    def expect_outcome(self, code: str) -> None:
        """Write a file with one case, `default`, that expects its run to end so."""
        text = f'agentrun: "1"\ncases: [{{name: default, assert: [{{type: outcome, value: "{code}"}}]}}]\n'
        (self.root / "shop.cases.yaml").write_text(text, encoding="utf-8")

    def run(self, *args: str | Path, **given: Any) -> CommandResult:
        """The command, with nothing of the environment but what is given."""
        return agentrun("shop.yaml", *args, cwd=self.root, **given)

    @contextmanager
    def provider(self, story: str = STORY, **given: Any) -> Iterator[tuple[ScriptedProvider, dict[str, str]]]:
        """A provider, and the environment in which it is asked. `given`: the arguments of the provider."""
        with ScriptedProvider(story, **given) as server:
            yield server, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1"}

    def record(self, *args: str | Path, story: str = STORY) -> CommandResult:
        with self.provider(story) as (_, environment):
            done = self.run("--mode", "record", "--yes", "--approve", "all", *args, **environment)
        assert "recorded: " in done.err, done.err
        return done

    def recorded(self, *args: str, story: str = STORY) -> None:
        """As `record`, for a test that begins with a recording: one is made for all that begin with the same."""
        begun = (args, story, *sorted(self._files().items()))
        if begun not in _cached_recordings:
            self.record(*args, story=story)
            _cached_recordings[begun] = self._files()
        for name, data in _cached_recordings[begun].items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes(data)

    def _files(self) -> dict[str, bytes]:
        found = (path for path in self.root.rglob("[!.]*") if path.is_file() and path.suffix != ".pyc")
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in found}

    def traces(self) -> list[str]:
        return self.trace.read_text(encoding="utf-8").splitlines() if self.trace.exists() else []
