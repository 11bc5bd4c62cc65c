"""Attacks 34 and 89, replies of some hundred kilobytes that decompress to 200 MiB.

All runs happen in a process of their own: first some with small compressed replies, then one for each large reply. The
process prints by how much its peak of memory has grown, as the kernel measures it, so no allocator hides any.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from ..servers import LAST, Plan, Server, chunk, head
from .bombs import bomb
from .provider_runs import GOOD, STREAM, delta, events

MOST = 64 * 1024 * 1024

RUNS = """
import json, sys
from pathlib import Path
import agentrun
from agentrun.core.facts import ModelFailed
from agentrun.core.facts import ToolFinished
from agentrun.engine.memory import MemoryJournals
from agentrun.testing import calls, scripted, text

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

def codes(who):
    journals = MemoryJournals()
    model = {"model": scripted(calls("fetch"), text("Done."))} if who == "tool" else {}
    outcome = agentrun.run(f"{who}.yaml", "Go.", journals=journals, **model)
    facts = [record.fact for record in journals.records(outcome.run)]
    return [each.fault and each.fault.code for each in facts if isinstance(each, ModelFailed | ToolFinished)]

small, large = json.loads(sys.argv[1])
found = [codes(who) for who in small]
before = peak()
print(json.dumps([found, [(codes(who), peak() - before) for who in large]]))
"""

SPEC = """
agentrun: "1"
name: reader
model: {{provider: openai, name: gpt-4.1-mini, base_url: "{url}", stream: {stream}}}
instructions: Be brief.
budgets: {{turns: 5}}
policy: {{default: allow}}
tools:
  fetch:
    kind: http
    description: Reads.
    url: "{url}/page"
    args: {{type: object}}
    private_network: true
    max_bytes: 64MiB
"""


class Case(NamedTuple):
    who: str
    """Whose reply it is: of a `model`, of one that is asked for a `stream`, or for a `tool`."""
    kind: str
    encodings: tuple[str, ...]
    body: bytes

    def plan(self) -> Plan:
        """The reply, in chunks of 64 KiB."""
        fields = [("Content-Encoding", each) for each in self.encodings]
        pieces = b"".join(chunk(self.body[at : at + 65536]) for at in range(0, len(self.body), 65536))
        return [head(200, ("Content-Type", self.kind), ("Transfer-Encoding", "chunked"), *fields) + pieces + LAST]


JSON, SSE, TEXT = "application/json", "text/event-stream", "text/plain"
GZIP = ("gzip",)
SPACES = bomb(b" ")
TEXT_BOMB = bomb(events(delta("x" * 2000)))
DOUBLE_GZIP = gzip.compress(SPACES)

SMALL = [
    Case("model", JSON, GZIP, gzip.compress(GOOD.body)),
    Case("stream", SSE, GZIP, gzip.compress(events(*STREAM))),
    Case("tool", TEXT, GZIP, gzip.compress(b"found")),
]
LARGE = {
    "a model": Case("model", JSON, GZIP, SPACES),
    "a model, deflate": Case("model", JSON, ("deflate",), bomb(b" ", form="deflate")),
    "a model, compressed twice": Case("model", JSON, ("gzip, gzip",), DOUBLE_GZIP),
    "a stream of words": Case("stream", SSE, GZIP, TEXT_BOMB),
    "a stream that is one line": Case("stream", SSE, GZIP, SPACES),
    "a stream that is said to be text": Case("stream", TEXT, GZIP, SPACES),
    "a whole reply instead of a stream": Case("stream", JSON, GZIP, SPACES),
    "a stream, compressed twice": Case("stream", SSE, ("gzip", "gzip"), DOUBLE_GZIP),
    "a tool": Case("tool", JSON, GZIP, SPACES),
    "a tool, words": Case("tool", TEXT, GZIP, TEXT_BOMB),
    "a tool, compressed twice": Case("tool", JSON, ("gzip", "gzip"), DOUBLE_GZIP),
}


def test_memory_stays_below_64_mib(tmp_path: Path) -> None:
    with Server(*(case.plan() for case in (*SMALL, *LARGE.values()))) as server:
        for who in ("model", "stream", "tool"):
            text = SPEC.format(url=server.url, stream=json.dumps(who == "stream"))
            (tmp_path / f"{who}.yaml").write_text(text, encoding="utf-8")
        runs = json.dumps([[case.who for case in SMALL], [case.who for case in LARGE.values()]])
        command = [sys.executable, "-c", RUNS, runs]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    small, large = json.loads(done.stdout)
    assert small == [[], [], [None]], "small compressed replies are read"
    for name, (codes, grown) in zip(LARGE, large, strict=True):
        assert codes == ["tool.execution" if LARGE[name].who == "tool" else "provider.decode"], name
        assert grown < MOST, name


RECORDINGS = """
import sys
from pathlib import Path
from agentrun.cli.group import run_command

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

assert run_command(["stream.yaml", "Go.", "--mode", "record", "--case", "small"]) == 0
before = peak()
code = run_command(["stream.yaml", "Go on.", "--mode", "record", "--case", "large"])
print("grown", code, peak() - before)
"""


def test_memory_stays_below_64_mib_while_a_stream_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.agentrun]\n", encoding="utf-8")
    with Server(SMALL[1].plan(), LARGE["a stream of words"].plan()) as server:
        text = SPEC.format(url=server.url, stream="true").partition("policy:")[0]
        (tmp_path / "stream.yaml").write_text(text, encoding="utf-8")
        case = 'name: large\n    input: Go on.\n    assert: [{type: outcome, value: "provider.*"}]\n'
        (tmp_path / "stream.cases.yaml").write_text(f'agentrun: "1"\ncases:\n  - {case}', encoding="utf-8")
        command = [sys.executable, "-c", RECORDINGS]
        environment = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "key"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, code, grown = done.stdout.splitlines()[-1].split()
    assert (code, int(grown) < MOST) == ("6", True), done.stdout
    assert (tmp_path / "cassettes/reader/large.yaml").stat().st_size < MOST // 8
