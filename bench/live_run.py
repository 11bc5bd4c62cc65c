"""A live run against a server on this machine, beside the same conversation in a loop written by hand over httpx.

Both ask for the same pages, one in every step, and read the same replies. The server is a process of its own: CPU time
is that of the client alone. What is made once for many runs (the client, the package) is not counted.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from conversation import TEXT, page, reply_to

SPEC = """\
agentrun: "1"
name: live
model: {{provider: openai, name: gpt-4.1-mini, base_url: "{url}"}}
instructions: Look at every page.
input: "{steps}"
tools:
  page:
    kind: http
    description: One page.
    url: "https://pages.example/{{{{ args.number }}}}"
    args: {{type: object, properties: {{number: {{type: string}}}}, required: [number]}}
policy:
  default: deny
  rules: [{{id: pages, allow: page}}]
budgets: {{turns: 1000, tool_calls: 1000, tokens: 1000M}}
"""
PYTHON_TOOL = """\
  page: {{kind: python, call: "pages_of_bench:page", effect: read}}
"""
PAGES = """\
def page(number: str) -> str:
    \"\"\"One page.\"\"\"
    return f"Page {{number}}. {text}"
"""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "page",
            "description": "One page.",
            "parameters": {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]},
        },
    }
]
SHORT, LONG = 5, 200
ROUNDS = 5
STORED_ROUNDS = 20
"""More, because the difference is small."""


def overhead(folder: Path, steps: int) -> float:
    """CPU time of a run as a multiple of what the loop written by hand takes."""
    ours, by_hand = measured(folder, steps)
    return ours / by_hand


def arun_overhead(folder: Path, steps: int) -> float:
    """CPU time of `arun` with a Python tool of the spec, as a multiple of what the loop written by hand takes."""
    ours, by_hand = measured(folder, steps, way="arun")
    return ours / by_hand


def growth(folder: Path) -> float:
    """How much faster the cost of a step grows from the short run to the long one than in the loop written by hand."""
    short, long = measured(folder, SHORT), measured(folder, LONG)
    return (long[0] / short[0]) / (long[1] / short[1])


def store_overhead(folder: Path) -> float:
    """CPU time of a long run that is stored, without syncs, as a multiple of the same run in memory."""
    stored, in_memory = measured(folder, LONG, more="stored")
    return stored / in_memory


def redaction_overhead(folder: Path) -> float:
    """CPU time of a long run that knows 40 secrets as a multiple of the same run without any."""
    knowing, plain = measured(folder, LONG, more="secrets")
    return knowing / plain


def measured(folder: Path, steps: int, *, more: str = "", way: str = "runtime") -> tuple[float, float]:
    """Least CPU seconds per step: of a run and of the loop by hand, or of a run with more (`stored`, `secrets`) and of
    one without. `way`: `runtime` with every port, or `arun`."""
    server = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        return asyncio.run(_interleaved(folder, url, steps, more, way))
    finally:
        server.kill()
        server.wait()


async def _interleaved(folder: Path, url: str, steps: int, more: str, way: str) -> tuple[float, float]:
    ours = _arun_of(folder, url, steps) if way == "arun" else _run_of(folder, url, steps, more)
    other = _run_of(folder, url, steps) if more else _loop_of(url, steps)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(STORED_ROUNDS if more else ROUNDS):
        for work, into in zip((ours, other), times, strict=True):
            runs = max(1, 50 // steps)
            begin = time.process_time()
            for _ in range(runs):
                await work()
            into.append((time.process_time() - begin) / (runs * steps))
    return min(times[0]), min(times[1])


# --- ours -------------------------------------------------------------------------------------------------------


def _run_of(folder: Path, url: str, steps: int, more: str = "") -> Callable[[], Coroutine[Any, Any, None]]:
    # late: only the process that is measured pays for these
    import agentrun
    from agentrun.core.effects import RunTool, ToolReturn
    from agentrun.core.messages import Text
    from agentrun.engine.live_providers import live_providers, live_sender
    from agentrun.engine.settings import Settings
    from agentrun.net.client import make_client
    from agentrun.redactor import Redactor
    from agentrun.secret import Secret
    from agentrun.spec.project import Project
    from agentrun.store.files import FileStore

    class Pages:
        async def run(self, call: RunTool) -> ToolReturn:
            return ToolReturn((Text(page(call.arguments["number"])),))

    path = folder / "live.yaml"
    path.write_text(SPEC.format(url=url, steps=steps), encoding="utf-8")
    package = agentrun.compile(path)
    settings = Settings()
    providers = live_providers(package.agent, settings, live_sender(settings, make_client()))

    redactor = Redactor((f"SHOP_TOKEN_{n}", Secret(f"tOken-{n * 7919:06}/of+a-shop=")) for n in range(40))

    async def once() -> None:
        with FileStore(Project(folder / "stored"), sync="process") as store:
            ports: dict[str, Any] = {"journals": store} if more == "stored" else {}
            ports |= {"redactor": redactor} if more == "secrets" else {}
            runtime = agentrun.Runtime.in_memory(**ports, providers=providers, executors={"page": Pages()})
            outcome = await runtime.start(agentrun.Request(agent="live", package=package)).wait()
        assert (outcome.status, outcome.turns) == ("completed", steps), outcome

    return once


def _arun_of(folder: Path, url: str, steps: int) -> Callable[[], Coroutine[Any, Any, None]]:
    import agentrun  # late: as above

    spec = SPEC.format(url=url, steps=steps)
    first, last = spec.index("  page:"), spec.index("policy:")
    (folder / "arun.yaml").write_text(spec[:first] + PYTHON_TOOL.format() + spec[last:], encoding="utf-8")
    (folder / "pages_of_bench.py").write_text(PAGES.format(text=TEXT), encoding="utf-8")
    package = agentrun.compile(folder / "arun.yaml")

    async def once() -> None:
        outcome = await agentrun.arun(package, project=folder)
        assert (outcome.status, outcome.turns, outcome.tool_calls) == ("completed", steps, steps - 1), outcome

    return once


# --- by hand ----------------------------------------------------------------------------------------------------


def _loop_of(url: str, steps: int) -> Callable[[], Coroutine[Any, Any, None]]:
    import httpx  # late: as above

    client = httpx.AsyncClient(trust_env=False)

    async def once() -> None:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "Look at every page."},
            {"role": "user", "content": str(steps)},
        ]
        asked = 0
        while True:
            body = {"model": "gpt-4.1-mini", "messages": messages, "tools": TOOLS}
            response = await client.post(f"{url}/chat/completions", json=body)
            response.raise_for_status()
            asked += 1
            message = response.json()["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                break
            for call in message["tool_calls"]:
                text = page(json.loads(call["function"]["arguments"])["number"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        assert asked == steps

    return once


# --- the server -------------------------------------------------------------------------------------------------


def serve() -> None:
    """Answer on a free port until the parent is gone: as many pages as the user's message says, then the end."""
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
        while lines.readline():
            length = 0
            while (line := lines.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            body = json.dumps(reply_to(json.loads(lines.read(length))["messages"])).encode()
            fields = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(fields.encode() + body)


if __name__ == "__main__":
    serve()
