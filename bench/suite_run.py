"""A suite of replayed cases, beside the same ones written by hand with pytest, vcrpy and syrupy.

Each case asks a model four times and reads a page after each reply but the last. The recordings are made by the
product: `agentrun test` and `pytest` with our plugin read them as they are, and the tests written by hand with whole
requests, because vcrpy compares bodies. These send the same requests with httpx and compare the conversation with a
snapshot. Whole processes are measured, in CPU seconds of their own and of what they started: nothing that a user pays
for is left out.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conversation import page, reply_to

MANY, FEW = 1000, 200
STEPS = 4
AGENTRUN = str(Path(sys.executable).with_name("agentrun"))
PYTEST_ALONE = [sys.executable, "-m", "pytest", "-q", "-p", "syrupy"]
"""With the one plugin that the tests written by hand use: they do not pay for what else is installed here."""
_READ = """\
import pathlib, yaml
for path in pathlib.Path("cassettes").rglob("*.yaml"):
    yaml.load(path.read_bytes(), yaml.CSafeLoader)
"""
READ_CASSETTES = [sys.executable, "-c", _READ]
"""The least that replaying all cases could cost: each cassette as YAML, read by C."""

PROJECT = """\
[tool.agentrun]
"""
SPEC = """\
agentrun: "1"
name: pages
model: {provider: openai, name: gpt-4.1-mini}
instructions: Look at every page.
tools:
  page: {kind: python, call: "pages:page", effect: read}
policy:
  default: deny
  rules: [{id: pages, allow: page}]
budgets: {turns: 10, tool_calls: 10, tokens: 100k}
"""
MODULE = '''
def page(number: str) -> str:
    """One page."""
    return number
'''
CASE = """\
  - name: case-{number}
    input: "{number}"
    assert:
      - {{type: contains, value: All seen}}
      - {{type: tools-exact, value: [page, page, page]}}
      - {{type: journal-snapshot}}
"""
BY_HAND = """\
import json
from pathlib import Path

import httpx
import pytest
import vcr

HERE = Path(__file__).parent
URL = "https://api.openai.com/v1/chat/completions"
TOOLS = json.loads((HERE / "tools.json").read_text(encoding="utf-8"))
CASSETTES = vcr.VCR(
    cassette_library_dir=str(HERE),
    record_mode="none",
    match_on=["method", "uri", "body"],
)


def page(number):
    return f"Page {{number}}. {text}"


{client}

@pytest.mark.parametrize("number", [str(number) for number in range({first}, {last})])
def test_pages(number, client, snapshot):
    messages = [{{"role": "system", "content": "Look at every page."}}, {{"role": "user", "content": number}}]
    with CASSETTES.use_cassette(f"case-{{number}}.yaml"):
        while True:
            body = {{"model": "gpt-4.1-mini", "messages": messages, "tools": TOOLS}}
            response = client.post(URL, json=body)
            response.raise_for_status()
            message = response.json()["choices"][0]["message"]
            calls = message.get("tool_calls")
            kept = ("role", "content", "tool_calls") if calls else ("role", "content")
            messages.append({{key: message[key] for key in kept}})
            if not calls:
                break
            for call in calls:
                text = page(json.loads(call["function"]["arguments"])["number"])
                messages.append({{"role": "tool", "tool_call_id": call["id"], "content": text}})
    assert messages == snapshot
"""
CLIENT_EACH = """\
@pytest.fixture
def client():
    with httpx.Client() as client:
        yield client

"""
CLIENT_SHARED = CLIENT_EACH.replace("@pytest.fixture\n", '@pytest.fixture(scope="session")\n')
FIRST = 1000
"""The number of the first case: all have as many digits."""


def to_client_each(folder: Path) -> float:
    """CPU of `agentrun test` as a part of what tests with a client each take."""
    root = project(folder, MANY)
    return cpu(root, [AGENTRUN, "test", "specs"]) / _by_hand_cpu(root, "test_each.py")


def pytest_to_client_each(folder: Path) -> float:
    """CPU of `pytest` with our plugin as a part of what tests with a client each take."""
    root = project(folder, MANY)
    return cpu(root, [sys.executable, "-m", "pytest", "-q", "specs"]) / _by_hand_cpu(root, "test_each.py")


def to_client_shared(folder: Path) -> float:
    """CPU of `agentrun test` as a part of what tests with one client take."""
    root = project(folder, FEW)
    return cpu(root, [AGENTRUN, "test", "specs"]) / _by_hand_cpu(root, "test_shared.py")


def to_reading(folder: Path) -> float:
    """CPU of `agentrun test` as a multiple of reading the cassettes."""
    root = project(folder, MANY)
    return cpu(root, [AGENTRUN, "test", "specs"]) / cpu(root, READ_CASSETTES)


def _by_hand_cpu(root: Path, name: str) -> float:
    return cpu(root, [*PYTEST_ALONE, f"by_hand/{name}"], PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def cpu(root: Path, argv: Sequence[str], **variables: str) -> float:
    """CPU seconds of a process that must succeed, and of all that it started."""
    environment = {**os.environ, "CI": "true", **variables}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(argv)} failed with {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# --- the project ------------------------------------------------------------------------------------------------


def project(folder: Path, cases: int) -> Path:
    """A project with so many cases, all of which pass. It is made once for all figures of a round."""
    from agentrun.cassette.conversion import converted_text  # late: only the process that makes the project pays for it

    root = folder / f"suite{cases}"
    if (root / "ready").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    numbers = range(FIRST, FIRST + cases)
    _write(root / "pyproject.toml", PROJECT)
    _write(root / "specs/pages.yaml", SPEC)
    _write(root / "pages.py", MODULE)
    _write(root / "specs/pages.cases.yaml", 'agentrun: "1"\ncases:\n' + "".join(CASE.format(number=n) for n in numbers))
    recorded = _recorded(root)
    for number in numbers:
        whole = recorded.replace(str(FIRST), str(number))
        _write(root / f"cassettes/pages/case-{number}.yaml", converted_text(whole, packed=True))
        _write(root / f"by_hand/case-{number}.yaml", whole)
    _snapshots(root)
    _by_hand(root, numbers)
    cpu(root, [AGENTRUN, "test", "specs"])  # writes bytecode, and shows that all pass
    _write(root / "ready", "")
    return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _recorded(root: Path) -> str:
    """The recording of the first case with whole requests, made by the product."""
    # late: only the process that makes the project pays for these
    import agentrun
    from agentrun.cassette.recorder import Recorder
    from agentrun.cassette.writer import dump_cassette
    from agentrun.core.effects import RunTool, ToolReturn
    from agentrun.core.messages import Text
    from agentrun.engine.clock import StepClock
    from agentrun.engine.models import HttpProvider
    from agentrun.engine.request import Request
    from agentrun.engine.runtime import Runtime
    from agentrun.engine.worlds.record import recording_wrapper
    from agentrun.providers.codec import codec_for
    from agentrun.wire import HttpCall, HttpReply

    class Service:
        async def send(self, call: HttpCall, **_: Any) -> HttpReply:
            messages = json.loads(call.body)["messages"]
            steps = [{**each, "content": str(STEPS)} if each["role"] == "user" else each for each in messages]
            return HttpReply(200, (("content-type", "application/json"),), json.dumps(reply_to(steps)).encode())

    class Pages:
        async def run(self, call: RunTool) -> ToolReturn:
            return ToolReturn((Text(page(call.arguments["number"])),))

    clock = StepClock(1_769_860_800_000)
    recorder = Recorder(clock.now)
    runtime = Runtime.in_memory(
        clock=clock,
        providers={"openai": HttpProvider(codec_for("openai"), Service())},
        executors={"python": Pages()},
        wrappers=(recording_wrapper(recorder),),
    )
    request = Request(
        agent="pages", package=agentrun.compile(root / "specs/pages.yaml"), run="run-1", message=str(FIRST)
    )
    clock.run(runtime.start(request).wait())
    return dump_cassette(recorder.interactions(), {"recorded_at": "2026-01-31T12:00:00Z"}, packed=False)


def _snapshots(root: Path) -> None:
    """Accept every journal as it is."""
    # late: as above
    from agentrun.testing.suite.discovery import read_located_cases
    from agentrun.testing.suite.replay import CompiledAgents, replay_case
    from agentrun.testing.suite.snapshots import snapshot_path, take_snapshot

    preparations = CompiledAgents()
    for found in read_located_cases(root / "specs/pages.cases.yaml"):
        _write(snapshot_path(found), take_snapshot(replay_case(found, preparations.for_case(found)).runs).text)


def _by_hand(root: Path, numbers: range) -> None:
    """The same cases as tests, their snapshots accepted."""
    import yaml  # late: as above

    first = yaml.load((root / f"cassettes/pages/case-{FIRST}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    _write(root / "by_hand/tools.json", json.dumps(json.loads(first["interactions"][0]["request"]["body"])["tools"]))
    text = page("").removeprefix("Page . ")
    for name, client in (("test_each.py", CLIENT_EACH), ("test_shared.py", CLIENT_SHARED)):
        test = BY_HAND.format(client=client, text=text, first=numbers[0], last=numbers[-1] + 1)
        _write(root / "by_hand" / name, test)
    cpu(root, [*PYTEST_ALONE, "--snapshot-update", "by_hand"], PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
