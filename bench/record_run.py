"""A recorded live run beside the same live run: requests over loopback, both stored, without syncs.

The server is a process of its own, and reads nothing of a request but its length and how many replies it repeats. CPU
time is that of the client alone. What is made once for many runs (the client, the package, imports) is not counted.
"""

import asyncio
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from conversation import page, reply_to

SPEC = """\
agentrun: "1"
name: recorded
model: {{provider: openai, name: gpt-4.1-mini, base_url: "{url}/{steps}"}}
instructions: Look at every page.
input: "{steps}"
tools:
  page: {{kind: python, call: "pages:page", effect: read}}
policy:
  default: deny
  rules: [{{id: pages, allow: page}}]
budgets: {{turns: 3000, tool_calls: 3000, tokens: 1000M}}
"""
MODULE = '''
def page(number: str) -> str:
    """One page."""
    return number
'''
LONG, VERY_LONG = 200, 2000


def to_live(folder: Path, steps: int) -> float:
    """CPU of a recorded run as a multiple of the same run that is not recorded."""
    recorded, live = _measured(folder, steps)
    return recorded / live


def exponent(folder: Path) -> float:
    """How the CPU of a recorded run grows with its length: 1 is linear, 2 is quadratic."""
    short, long = _measured(folder, LONG)[0], _measured(folder, VERY_LONG)[0]
    return math.log(long / short) / math.log(VERY_LONG / LONG)


def _measured(folder: Path, steps: int) -> tuple[float, float]:
    """Least CPU seconds of a recorded run, and of one that is not recorded."""
    server = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        return asyncio.run(_interleaved(folder / f"recorded{steps}", url, steps))
    finally:
        server.kill()
        server.wait()


async def _interleaved(folder: Path, url: str, steps: int) -> tuple[float, float]:
    works = _works(folder, url, steps)
    for work in _works(folder.with_name("short"), url, 5):  # what is imported late is not counted
        await work()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(1 if steps == VERY_LONG else 5):
        for work, into in zip(works, times, strict=True):
            begin = time.process_time()
            await work()
            into.append(time.process_time() - begin)
            shutil.rmtree(folder / ".agentrun")
    return min(times[0]), min(times[1])


def _works(folder: Path, url: str, steps: int) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
    # late: only the process that is measured pays for these
    import agentrun
    from agentrun.core.effects import RunTool, ToolReturn
    from agentrun.core.messages import Text
    from agentrun.engine.approvals import NoApprover
    from agentrun.engine.crew_registry import CrewRegistry
    from agentrun.engine.event_loop import SystemClock
    from agentrun.engine.live_providers import live_providers, live_sender
    from agentrun.engine.recording import CassetteRecording, record_runs
    from agentrun.engine.request import new_run_id
    from agentrun.engine.run import FinishedRun, run_in_world
    from agentrun.engine.settings import Settings
    from agentrun.engine.world import World
    from agentrun.engine.worlds import hosted_world
    from agentrun.net.client import make_client
    from agentrun.redactor import Redactor
    from agentrun.secret import Secret
    from agentrun.spec.project import Project
    from agentrun.spec.v1.cases import Case
    from agentrun.store.files import FileStore

    class Pages:
        async def run(self, call: RunTool) -> ToolReturn:
            return ToolReturn((Text(page(call.arguments["number"])),))

    folder.mkdir(exist_ok=True)
    path, project = folder / "recorded.yaml", Project(folder)
    path.write_text(SPEC.format(url=url, steps=steps), encoding="utf-8")
    (folder / "pages.py").write_text(MODULE, encoding="utf-8")
    package, settings = agentrun.compile(path), Settings()
    providers = live_providers(package.agent, settings, live_sender(settings, make_client()))
    redactor = Redactor([("OPENAI_API_KEY", Secret("sk-bench-1234567890abcdef"))])

    def open_world(store: FileStore) -> Callable[[str], Any]:
        @asynccontextmanager
        async def opened(run: str) -> AsyncIterator[World]:
            clock = SystemClock()
            ports: dict[str, Any] = {"journals": store, "blobs": store.blobs(run), "crews": CrewRegistry(clock)}
            ports |= {"providers": providers, "executors": {"python": Pages()}, "redactor": redactor}
            yield hosted_world((), run=run, clock=clock, **ports)

        return opened

    def check(done: FinishedRun) -> None:
        assert (done.exit_code, done.outcome.turns) == (0, steps), done.outcome

    request = agentrun.Request(agent="recorded", package=package)

    async def record() -> None:
        cassette = project.cassette_directory / "recorded" / "default.yaml"
        with FileStore(project, sync="process") as store:
            recording = CassetteRecording(project, cassette, path, Case(name="default"))
            recorded = await record_runs(recording, open_world(store), package, [request], NoApprover(), store=store)
        assert recorded.is_saved, recorded.refusal
        check(recorded.run)

    async def live() -> None:
        with FileStore(project, sync="process") as store:
            async with open_world(store)(run := new_run_id()) as world:
                check(await run_in_world(world, agentrun.Request(agent="recorded", package=package, run=run)))

    return record, live


# --- the server -------------------------------------------------------------------------------------------------


def serve() -> None:
    """Answer on a free port until the parent is gone. The path says how many pages there are."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                _converse(connection)
                os._exit(0)
            connection.close()


def _converse(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection.makefile("rb") as lines:
        while first := lines.readline():
            length = 0
            while (line := lines.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            steps = re.match(rb"POST /([0-9]+)/", first)
            assert steps is not None
            asked: list[dict[str, Any]] = [{"role": "user", "content": steps[1].decode()}]
            asked += [{"role": "assistant"}] * lines.read(length).count(b'"role":"assistant"')
            body = json.dumps(reply_to(asked)).encode()
            fields = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(fields.encode() + body)


if __name__ == "__main__":
    serve()
