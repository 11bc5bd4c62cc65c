"""A replayed run beside the same conversation in a loop written by hand: httpx under vcrpy, from an equal cassette.

Both ask for the same pages, one in every step, and read the same replies. What is made once (package, cassette in
memory, client) is not counted; loading a cassette has a figure of its own.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live_run import page, reply_to

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
budgets: {{turns: 1000, tool_calls: 1000, tokens: 1000M}}
"""
MODULE = '''
def page(number: str) -> str:
    """One page."""
    return number
'''
URL = "https://api.openai.com/v1/chat/completions"
SHORT, LONG = 5, 200
ROUNDS = 7


def per_step(folder: Path, steps: int) -> float:
    """CPU for one step, which is a model's reply and a tool call, as a multiple of reading and writing both as JSON."""
    return _least(_replay(folder, steps), steps) / _least(_as_json, SHORT)


def growth(folder: Path) -> float:
    """How much more a step of the long run costs than one of the short run."""
    return _least(_replay(folder, LONG), LONG) / _least(_replay(folder, SHORT), SHORT)


def to_vcrpy(folder: Path, steps: int) -> float:
    """CPU of a step as a part of what the loop written by hand takes."""
    return _least(_replay(folder, steps), steps) / _least(_loop(folder, steps), steps)


def loading(folder: Path) -> float:
    """CPU of loading a cassette as a multiple of CSafeLoader and json.loads of all bodies."""
    import yaml

    from agentrun.cassette.file import load_cassette

    path = _cassette(folder, 60)

    def by_hand() -> None:
        for each in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["interactions"]:
            json.loads(each["request"]["body"])
            if each["response"]["headers"]["content-type"] == ["application/json"]:
                json.loads(each["response"]["body"]["string"])

    def ours() -> None:
        load_cassette(path)

    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for work, into in zip((ours, by_hand), times, strict=True):
            begin = time.process_time()
            work()
            into.append(time.process_time() - begin)
    return min(times[0]) / min(times[1])


def _least(work: Callable[[], float], steps: int) -> float:
    """CPU seconds for one step. `work` gives what one run took, without what it loaded."""
    runs = max(1, 100 // steps)
    work()
    return min(sum(work() for _ in range(runs)) / (runs * steps) for _ in range(ROUNDS))


def _as_json() -> float:
    """CPU seconds to read the replies of a short run and write the messages that it adds, with Python's own json."""
    replies = [json.dumps(reply_to([{"role": "user", "content": str(SHORT)}])) for _ in range(SHORT)]
    begin = time.process_time()
    for number, reply in enumerate(replies):
        message = json.loads(reply)["choices"][0]["message"]
        json.dumps([message, {"role": "tool", "tool_call_id": f"call_{number}", "content": page(str(number))}])
    return time.process_time() - begin


# --- ours -------------------------------------------------------------------------------------------------------


def _package(folder: Path, steps: int) -> Any:
    import agentrun

    path = folder / f"pages{steps}.yaml"
    path.write_text(SPEC.format(steps=steps), encoding="utf-8")
    (folder / "pages.py").write_text(MODULE, encoding="utf-8")
    return agentrun.compile(path)


def _cassette(folder: Path, steps: int) -> Path:
    """A recording of the whole conversation, made by the product."""
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
            body = json.dumps(reply_to(json.loads(call.body)["messages"])).encode()
            return HttpReply(200, (("content-type", "application/json"),), body)

    class Pages:
        async def run(self, call: RunTool) -> ToolReturn:
            return ToolReturn((Text(page(call.arguments["number"])),))

    file, clock = _package(folder, steps), StepClock(1_769_860_800_000)
    recorder = Recorder(clock.now)
    runtime = Runtime.in_memory(
        clock=clock,
        providers={"openai": HttpProvider(codec_for("openai"), Service())},
        executors={"python": Pages()},
        wrappers=(recording_wrapper(recorder),),
    )
    clock.run(runtime.start(Request(agent="pages", package=file, run="run-1")).wait())
    path = folder / f"pages{steps}.cassette.yaml"
    path.write_text(dump_cassette(recorder.interactions(), {"recorded_at": "2026-01-31T12:00:00Z"}), encoding="utf-8")
    return path


def _replay(folder: Path, steps: int) -> Callable[[], float]:
    # late: only the process that is measured pays for these
    from agentrun.cassette.file import load_cassette
    from agentrun.cassette.player import Player
    from agentrun.engine.request import Request
    from agentrun.engine.run import replay_run

    file, cassette = _package(folder, steps), load_cassette(_cassette(folder, steps))

    def once() -> float:
        begin = time.process_time()
        done = replay_run(Request(agent=file.agent.name, package=file), Player(cassette))
        spent = time.process_time() - begin
        assert (done.exit_code, done.outcome.turns) == (0, steps), (done.outcome, done.unused_error)
        return spent

    return once


# --- by hand ----------------------------------------------------------------------------------------------------


def _loop(folder: Path, steps: int) -> Callable[[], float]:
    import httpx
    import vcr

    path = str(_cassette(folder, steps))
    client = httpx.Client(trust_env=False)
    tools = _offered(path)

    def once() -> float:
        with vcr.use_cassette(path, record_mode="none", match_on=["method", "uri", "body"]):  # type: ignore[no-untyped-call]  # vcrpy has no types
            asked, begin = 0, time.process_time()
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
            return time.process_time() - begin

    return once


def _offered(path: str) -> Any:
    """The tools as the recorded requests have them."""
    import yaml

    first = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["interactions"][0]
    return json.loads(first["request"]["body"])["tools"]
