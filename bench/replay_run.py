"""A replayed run beside the same conversation in a loop written by hand: httpx under vcrpy, from an equal cassette.

Both ask for the same pages, one in every step, read the same replies, and load their cassette for every run. vcrpy has
whole requests, and its default matching: it plays the replies of an address in their order and does not compare bodies.
agentrun does. So the short run is also measured beside a loop that compares them; in longer ones that would take
seconds per step. The floor is what no replay can avoid: the cassette as YAML, read by C, and its replies as JSON. What
is made once (package, client) is not counted.
"""

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conversation import page, reply_to

SPEC = """\
agentrun: "1"
name: pages
model: {{provider: openai, name: gpt-4.1-mini}}
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
URL = "https://api.openai.com/v1/chat/completions"
SHORT, MIDDLE, LONG, VERY_LONG = 5, 50, 200, 2000
ROUNDS = 5
PLOTTED = (5, 10, 25, 50, 100, 200)
FLOOR = "reading the cassette as YAML and JSON"
NEARLY = 1.5
"""How much a cost may change before the plot is drawn again."""
PLOT = Path(__file__).parents[1] / "docs" / "replay-cost.svg"


def to_vcrpy(folder: Path, steps: int, *, bodies: bool = False) -> float:
    """CPU of a run as a part of what the loop written by hand takes, both with their cassette loaded. `bodies`: whether
    vcrpy compares them."""
    return _least(_replay(folder, steps), steps) / _least(_loop(folder, steps, bodies=bodies), steps)


def to_floor(folder: Path, steps: int) -> float:
    """CPU of a run as a multiple of reading its cassette."""
    return _least(_replay(folder, steps), steps) / _least(_floor(folder, steps), steps)


def exponent(folder: Path) -> float:
    """How the CPU of a run grows with its length: 1 is linear, 2 is quadratic."""
    ratio = _least(_replay(folder, LONG), LONG) * LONG / (_least(_replay(folder, MIDDLE), MIDDLE) * MIDDLE)
    return math.log(ratio) / math.log(LONG / MIDDLE)


def reading_exponent(folder: Path) -> float:
    """How the CPU of searching, showing and comparing a cassette grows with its length."""
    from agentrun.cassette.file import load_cassette
    from agentrun.cassette.leaks import find_leaks
    from agentrun.cassette.parsed_interaction import load_redacted
    from agentrun.redactor import Redactor
    from agentrun.report.cassette_diff import compare_cassettes
    from agentrun.report.cassette_text import describe_interaction

    nothing = Redactor([])

    def read(steps: int) -> float:
        path = _cassette(folder, steps)
        begin = time.process_time()
        find_leaks(load_cassette(path), nothing)
        parsed = load_redacted(path, nothing)
        for each in parsed.interactions:
            describe_interaction(each)
        compare_cassettes(parsed, load_redacted(path, nothing))
        return time.process_time() - begin

    read(SHORT)  # its imports
    return math.log(read(VERY_LONG) / read(LONG)) / math.log(VERY_LONG / LONG)


def file_size(folder: Path, steps: int) -> float:
    """Megabytes of a cassette."""
    return _cassette(folder, steps).stat().st_size / 1e6


def memory(folder: Path) -> float:
    """Peak megabytes of a process that loads a cassette and replays it."""
    _cassette(folder, LONG)
    done = subprocess.run([sys.executable, __file__, str(folder)], capture_output=True, text=True, check=True)
    return float(done.stdout) / 1000


def plot(folder: Path) -> None:
    """Draw the cost of a step against the length of the run. A plot that shows nearly the same is kept."""
    works: dict[str, Callable[[int], Callable[[], None]]] = {
        "httpx + vcrpy, without comparing bodies": lambda steps: _loop(folder, steps, bodies=False),
        "agentrun": lambda steps: _replay(folder, steps),
        FLOOR: lambda steps: _floor(folder, steps),
    }
    costs = {name: [_least(work(steps), steps) * 1e6 for steps in PLOTTED] for name, work in works.items()}
    if not _is_drawn(costs):
        PLOT.write_text(_svg(costs), encoding="utf-8")


def _is_drawn(costs: dict[str, list[float]]) -> bool:
    """Whether the plot has these costs, up to the speed of the machine and what is different in every run."""
    drawn = re.search("<desc>(.*)</desc>", PLOT.read_text(encoding="utf-8")) if PLOT.exists() else None
    before = json.loads(drawn[1]) if drawn else {}
    if before.keys() != costs.keys():
        return False
    scale = costs[FLOOR][0] / before[FLOOR][0]
    pairs = [pair for name in costs for pair in zip(costs[name], before[name], strict=True)]
    return all(1 / NEARLY < now / (was * scale) < NEARLY for now, was in pairs)


def _least(work: Callable[[], None], steps: int) -> float:
    """CPU seconds for one step."""
    runs = max(1, MIDDLE // steps)
    work()
    times = []
    for _ in range(ROUNDS if steps < LONG else 3):
        begin = time.process_time()
        for _ in range(runs):
            work()
        times.append(time.process_time() - begin)
    return min(times) / (runs * steps)


def _svg(costs: dict[str, list[float]]) -> str:
    width, height, left, top = 640, 320, 60, 40
    most = max(max(each) for each in costs.values()) * 1.1

    def place(steps: float, cost: float) -> str:
        x = left + (width - left - 20) * math.log(steps / PLOTTED[0]) / math.log(PLOTTED[-1] / PLOTTED[0])
        return f"{x:.1f},{height - top - (height - 2 * top) * cost / most:.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
        ' font-family="sans-serif" font-size="12">',
        "<title>Cost of a replayed step against the length of the run</title>",
        f"<desc>{json.dumps({name: [round(cost) for cost in each] for name, each in costs.items()})}</desc>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20">CPU per step in µs, with the cassette loaded, against the steps of the run</text>',
    ]
    for cost in (0, most / 2, most):
        x, y = place(PLOTTED[0], cost).split(",")
        lines.append(f'<text x="{left - 8}" y="{y}" text-anchor="end">{cost:.0f}</text>')
        lines.append(f'<line x1="{x}" y1="{y}" x2="{width - 20}" y2="{y}" stroke="#ddd"/>')
    for steps in PLOTTED:
        x = place(steps, 0).split(",")[0]
        lines.append(f'<text x="{x}" y="{height - top + 18}" text-anchor="middle">{steps}</text>')
    for number, ((name, each), colour) in enumerate(zip(costs.items(), ("#b00", "#06c", "#777"), strict=True)):
        points = " ".join(map(place, PLOTTED, each))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        row = top + 16 + 16 * number
        lines.append(
            f'<text x="{left + 12}" y="{row}" fill="{colour}">{name}: {each[0]:.0f} to {each[-1]:.0f} µs</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


# --- ours -------------------------------------------------------------------------------------------------------


def _package(folder: Path, steps: int) -> Any:
    import agentrun

    path = folder / f"pages{steps}.yaml"
    path.write_text(SPEC.format(steps=steps), encoding="utf-8")
    (folder / "pages.py").write_text(MODULE, encoding="utf-8")
    return agentrun.compile(path)


def _cassette(folder: Path, steps: int) -> Path:
    """A recording of the whole conversation, made once by the product."""
    path = folder / f"pages{steps}.cassette.yaml"
    if not path.exists():
        path.write_text(_conversation(folder, steps), encoding="utf-8")
    return path


def _conversation(folder: Path, steps: int) -> str:
    """Run and record the conversation, with a model in memory. The text of its cassette."""
    from agentrun.cassette.recorder import Recorder
    from agentrun.cassette.redact_recording import RecordingRedaction
    from agentrun.cassette.redaction import RunRedaction
    from agentrun.cassette.writer import dump_cassette
    from agentrun.core.effects import RunTool, ToolReturn
    from agentrun.core.messages import Text
    from agentrun.engine.clock import StepClock
    from agentrun.engine.models import HttpProvider
    from agentrun.engine.request import Request
    from agentrun.engine.runtime import Runtime
    from agentrun.engine.worlds.record import recording_wrapper
    from agentrun.providers.codec import codec_for
    from agentrun.redactor import Redactor
    from agentrun.secret import Secret
    from agentrun.wire import HttpReply

    asked = [{"role": "user", "content": str(steps)}]

    class Service:
        async def send(self, *_: Any, **__: Any) -> HttpReply:
            body = json.dumps(reply_to(asked)).encode()
            asked.append({"role": "assistant"})
            return HttpReply(200, (("content-type", "application/json"),), body)

    class Pages:
        async def run(self, call: RunTool) -> ToolReturn:
            return ToolReturn((Text(page(call.arguments["number"])),))

    file, clock = _package(folder, steps), StepClock(1_769_860_800_000)
    redaction = RunRedaction((), Redactor([("OPENAI_API_KEY", Secret("sk-bench-1234567890abcdef"))]))
    recorder = Recorder(clock.now, redact=RecordingRedaction(redaction))
    runtime = Runtime.in_memory(
        clock=clock,
        providers={"openai": HttpProvider(codec_for("openai"), Service())},
        executors={"python": Pages()},
        wrappers=(recording_wrapper(recorder),),
    )
    clock.run(runtime.start(Request(agent="pages", package=file, run="run-1")).wait())
    return dump_cassette(recorder.interactions(), {"recorded_at": "2026-01-31T12:00:00Z"})


def _whole(folder: Path, steps: int) -> Path:
    """The same cassette with whole requests."""
    from agentrun.cassette.conversion import converted_text

    packed, whole = _cassette(folder, steps), folder / f"pages{steps}.whole.yaml"
    if not whole.exists():
        whole.write_text(converted_text(packed.read_text(encoding="utf-8"), packed=False), encoding="utf-8")
    return whole


def _replay(folder: Path, steps: int) -> Callable[[], None]:
    # late: only the process that is measured pays for these
    from agentrun.cassette.file import load_cassette
    from agentrun.cassette.player import Player
    from agentrun.engine.request import Request
    from agentrun.engine.run import replay_run

    file, cassette = _package(folder, steps), _cassette(folder, steps)

    def once() -> None:
        done = replay_run(Request(agent=file.agent.name, package=file), Player(load_cassette(cassette)))
        assert (done.exit_code, done.outcome.turns) == (0, steps), (done.outcome, done.unused_error)

    return once


# --- by hand ----------------------------------------------------------------------------------------------------


def _floor(folder: Path, steps: int) -> Callable[[], None]:
    import yaml

    path = _cassette(folder, steps)

    def once() -> None:
        for each in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["interactions"]:
            json.loads(each["request"]["body"])
            if each["response"]["headers"]["content-type"] == ["application/json"]:
                json.dumps(json.loads(each["response"]["body"]["string"]))

    return once


def _loop(folder: Path, steps: int, *, bodies: bool) -> Callable[[], None]:
    import httpx
    import vcr as untyped

    vcr: Any = untyped
    path = str(_whole(folder, steps))
    recorder = vcr.VCR(record_mode="none")
    if bodies:
        recorder.match_on = ["method", "uri", "body"]
    client = httpx.Client(trust_env=False)
    tools = _offered(path)

    def once() -> None:
        with recorder.use_cassette(path):
            asked = 0
            messages: list[dict[str, Any]] = [
                {"role": "system", "content": "Look at every page."},
                {"role": "user", "content": str(steps)},
            ]
            while True:
                body = {"model": "gpt-4.1-mini", "messages": messages, "tools": tools}
                response = client.post(URL, json=body)
                response.raise_for_status()
                asked += 1
                message = response.json()["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    break
                message = messages[-1] = {key: message[key] for key in ("role", "content", "tool_calls")}
                for call in message["tool_calls"]:
                    text = page(json.loads(call["function"]["arguments"])["number"])
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            assert asked == steps

    return once


def _offered(path: str) -> Any:
    """The tools as the recorded requests have them."""
    import yaml

    first = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["interactions"][0]
    return json.loads(first["request"]["body"])["tools"]


if __name__ == "__main__":
    # In a process of its own, without what made the cassette: its peak memory in kB.
    _replay(Path(sys.argv[1]), LONG)()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
