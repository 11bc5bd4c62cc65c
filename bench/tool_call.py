"""A call of a Python tool as a live run makes it, beside the same function in a thread."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

SPEC = """\
agentrun: "1"
name: call
model: {provider: openai, name: gpt-4.1-mini}
instructions: Call it.
tools: {look: {kind: python, call: "measured:look", effect: read}}
policy: {default: allow}
budgets: {turns: 2}
"""
SOURCE = '''\
def look(order: str, lines: int) -> dict[str, object]:
    """Finds an order."""
    return {"order": order, "state": "late", "lines": list(range(lines))}
'''
ARGUMENTS: dict[str, Any] = {"order": "1042", "lines": 5}
CALLS, ROUNDS = 20, 400


def overhead(folder: Path) -> float:
    """A call as a multiple of `asyncio.to_thread`: the least of many rounds, each of them interleaved."""
    # late: only the process that is measured pays for these
    import agentrun
    from agentrun.core.effects import RunTool
    from agentrun.engine.perform import Performer
    from agentrun.engine.worlds.live import live_world
    from agentrun.spec.project import find_project

    (folder / "call.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "measured.py").write_text(SOURCE, encoding="utf-8")
    sys.path.insert(0, str(folder))  # the loop below imports the module under its own name, too
    package = agentrun.compile(folder / "call.yaml").agent
    call = RunTool("c1.0", "look", package.tools["look"], ARGUMENTS, "key", max_lines=2000, max_bytes=51_200)

    async def measured() -> float:
        async with live_world(package, find_project(folder / "call.yaml"), "run-1", models=False) as world:
            return await rounds(Performer(world))

    async def rounds(performer: Performer) -> float:
        await performer.perform(call)
        import measured as module  # type: ignore[import-not-found]  # late: written just now

        ours, bare = [], []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for _ in range(CALLS):
                await performer.perform(call)
            middle = time.perf_counter()
            for _ in range(CALLS):
                await asyncio.to_thread(module.look, **ARGUMENTS)
            bare.append(time.perf_counter() - middle)
            ours.append(middle - begin)
        return min(ours) / min(bare)

    return asyncio.run(measured())
