"""A worker that continues the runs of a project that are due: a rule deferred them until now, a person has answered,
or the process that worked on them is gone. Several workers can run at once.

python worker.py
"""

import asyncio
from pathlib import Path

import agentrun

PROJECT = Path(__file__).parent


async def resume_due(runtime: agentrun.ProjectRuntime) -> list[agentrun.Outcome]:
    """Continue the runs that are due, one after the other."""
    outcomes = []
    for due in runtime.runs(due=True):
        try:
            handle = await runtime.resume(due.run)
        except agentrun.AgentrunError as error:
            if error.code not in ("session.busy", "run.invalid_state"):  # another worker was faster
                print(f"{due.run}: {error}")
            continue
        outcomes.append(await handle.wait())
    return outcomes


async def work(seconds: float = 30) -> None:
    async with agentrun.open(PROJECT) as runtime:
        while True:
            for outcome in await resume_due(runtime):
                print(f"{outcome.run}: {outcome.status}")
            await asyncio.sleep(seconds)


if __name__ == "__main__":
    asyncio.run(work())
