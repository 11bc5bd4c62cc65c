"""Programs under a supervisor, with their environment, their end and the removal of all their processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agentrun.tools.processes import FolderNotFound, Process, open_folder, start_process
from agentrun.tools.supervisor_client import BoundedOutput, ProcessExit

from .hostile_commands import (
    HOSTILE,
    Resources,
    has_no_new_resources,
    held_resources,
    processes_with,
    remaining_processes,
    script,
    token,
    wait_for_processes,
)

SH = "/bin/sh"
GRACE = 200


@asynccontextmanager
async def running(folder: Path, *argv: str, program: str = SH, **given: Any) -> AsyncIterator[Process]:
    given = {"env": {}, "grace": GRACE, **given}
    with open_folder(folder) as opened:
        async with start_process(program, argv, folder=opened, **given) as process:
            yield process


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def run_script(folder: Path, text: str, **given: Any) -> tuple[ProcessExit, str, str]:
    """How a script ends, and what it writes."""

    async def work() -> tuple[ProcessExit, str, str]:
        out, err = BoundedOutput(head=10**6, tail=0), BoundedOutput(head=10**6, tail=0)
        async with running(folder, "sh", "-c", text, stdout=out, stderr=err, **{"stdin": False, **given}) as process:
            return await process.wait(), out.text(), err.text()

    result: tuple[ProcessExit, str, str] = run(work())
    return result


# --- what a program gets ------------------------------------------------------------------------------------


def test_exit_and_output_of_a_program(tmp_path: Path) -> None:
    assert run_script(tmp_path, "echo out; echo err >&2; exit 3") == (ProcessExit(code=3), "out\n", "err\n")
    assert run_script(tmp_path, "kill -9 $$") == (ProcessExit(signal=9), "", "")


def test_program_gets_only_the_given_environment(tmp_path: Path) -> None:
    assert run_script(tmp_path, "exec env", env={"A": "b=c", "B": ""})[1] == "A=b=c\nB=\nPWD=" + f"{tmp_path}\n"
    with_env = ["/usr/bin/env"]

    async def work() -> str:
        async with running(tmp_path, *with_env, program=with_env[0], env={"ONE": "ü"}) as process:
            return (await process.stdout.read()).decode()

    assert run(work()) == "ONE=ü\n"


def test_program_gets_only_its_own_descriptors(tmp_path: Path) -> None:
    listing = "n=0; while [ $n -lt 99 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n+1)); done"
    assert run_script(tmp_path, listing)[1].split() == ["0", "1", "2"]

    async def work() -> tuple[bytes, bytes]:
        async with running(tmp_path, "sh", "-c", f"{listing}; echo aside >&3", side=True) as process:
            return await process.stdout.read(), await process.side.read()

    seen, aside = run(work())
    assert (seen.split(), aside) == ([b"0", b"1", b"2", b"3"], b"aside\n")


def test_program_starts_with_default_signals(tmp_path: Path) -> None:
    _, blocked, _, ignored = run_script(tmp_path, "grep -E 'Sig(Ign|Blk)' /proc/self/status")[1].split()
    own = 0b11 << 31  # of the C library, which ignores them in every program that it spawns
    assert (int(blocked, 16), int(ignored, 16) & ~own) == (0, 0)


def test_program_can_be_written_to_and_read_line_by_line(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path, "sh", "-c", 'while read line; do echo "got $line"; done; exit 4') as process:
            for word in (b"one", b"two"):
                process.stdin.write(word + b"\n")
                assert await process.stdout.readline() == b"got " + word + b"\n"
            process.stdin.close()
            assert await process.wait() == ProcessExit(code=4)

    run(work())


def test_stdin_can_be_opened_by_name(tmp_path: Path) -> None:
    async def work() -> bytes:
        async with running(tmp_path, "sh", "-c", "cat /dev/stdin") as process:
            process.stdin.write(b"x" * 300_000)
            process.stdin.close()
            return await process.stdout.read()

    assert run(work()) == b"x" * 300_000


def test_program_that_does_not_read_stdin_can_end(tmp_path: Path) -> None:
    async def work() -> ProcessExit:
        async with running(tmp_path, "sh", "-c", "exit 0") as process:
            process.stdin.write(b"x" * 10_000_000)
            return await process.wait()

    assert run(work()) == ProcessExit(code=0)


def test_slow_reader_limits_the_buffered_output(tmp_path: Path) -> None:
    async def work() -> int:
        async with running(tmp_path, "sh", "-c", "yes; true", limit=1000) as process:
            await asyncio.sleep(0.2)
            return len(process.stdout._buffer)  # type: ignore[attr-defined]  # the memory that it takes

    assert run(work()) <= 2 * 1000 + 256 * 1024


def test_end_of_stderr_is_kept(tmp_path: Path) -> None:
    async def work() -> bytes:
        async with running(tmp_path, "sh", "-c", "head -c 9000000 /dev/zero >&2; echo end >&2") as process:
            await process.wait()
            return process.stderr_tail()

    kept = run(work())
    assert (len(kept), kept[-4:]) == (64 * 1024, b"end\n")


@pytest.mark.parametrize(
    ("program", "error"), [("/nowhere/x", FileNotFoundError), ("/etc/passwd", PermissionError), ("/", PermissionError)]
)
def test_program_that_cannot_be_started_raises(tmp_path: Path, program: str, error: type[OSError]) -> None:
    async def work() -> None:
        async with running(tmp_path, "x", program=program, grace=600_000):  # nothing is waited for
            pass

    with pytest.raises(error):
        run(work())


def test_nul_or_surrogate_in_arguments_raises(tmp_path: Path) -> None:
    for argv, env in ((["sh", "a\0b"], {}), (["sh"], {"A": "\0"}), (["sh", "\ud800"], {})):
        with pytest.raises(ValueError, match=r"NUL|surrogates"):
            run(running(tmp_path, *argv, env=env).__aenter__())


# --- nothing is left ----------------------------------------------------------------------------------------


Way = Callable[[Process], Awaitable[object]]
SHORT_TIME = 0.1
"""Seconds that a script has to do its worst."""


async def leave(process: Process) -> None:
    await asyncio.sleep(SHORT_TIME)


async def wait(process: Process) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.3)


async def stop_twice(process: Process) -> None:
    await asyncio.sleep(SHORT_TIME)
    assert await process.stop() == await process.stop()


async def cancelled(process: Process) -> None:
    task = asyncio.current_task()
    assert task is not None
    for wait in (SHORT_TIME, SHORT_TIME + 0.05, SHORT_TIME + 0.1):  # also while it is being stopped
        asyncio.get_running_loop().call_later(wait, task.cancel)
    await process.wait()
    await asyncio.sleep(1)


async def failing(process: Process) -> None:
    await asyncio.sleep(SHORT_TIME)
    raise KeyError


@pytest.mark.parametrize("way", [leave, wait, stop_twice, cancelled, failing], ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_program_leaves_no_process(tmp_path: Path, name: str, way: Way) -> None:
    word = token()

    async def work() -> None:
        async def body() -> None:
            async with running(tmp_path, *script(name, word), stdout=BoundedOutput(head=9, tail=9)) as process:
                await way(process)

        outcome = await asyncio.gather(asyncio.create_task(body()), return_exceptions=True)
        assert isinstance(outcome[0], asyncio.CancelledError | KeyError | None)

    run(work())
    assert remaining_processes(word) == []


def test_remaining_process_without_a_supervisor_is_detected(tmp_path: Path) -> None:
    """The twin: without a supervisor they are left, and seen."""
    word = token()
    done = subprocess.run(script("takes a session and lets go of the pipes", word), cwd=tmp_path, check=False)
    try:
        assert done.returncode == 0
        assert processes_with(word) != []
    finally:
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and word.encode() in _cmdline(folder):
                os.kill(int(folder.name), signal.SIGKILL)


def _cmdline(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", ["KILL", "STOP"])
def test_killed_or_stopped_supervisor_leaves_no_process(tmp_path: Path, number: str) -> None:
    word = token()
    stays = f"(setsid sh -c \"trap '' TERM; sleep 600; sleep 600\" {word} &)"
    text = f"sleep 0.1; kill -{number} $PPID; touch sent; {stays}; sleep 600; true"

    async def work() -> ProcessExit:
        async with running(tmp_path, "sh", "-c", text, word, stdin=False) as process:
            if number == "KILL":
                assert await process.wait() == ProcessExit()
            else:
                while not (tmp_path / "sent").exists():  # noqa: ASYNC110  # another process
                    await asyncio.sleep(0.01)
        return await process.stop()

    assert run(work()) == ProcessExit()
    assert remaining_processes(word) == []


STALLED_SUPERVISOR = """
import os, subprocess, sys
from agentrun.tools import supervisor

class Time:
    now = 0.0
    def monotonic(self):
        self.now += 100
        return self.now

supervisor.time = Time()
assert supervisor.become_reaper()
started = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
started.stdout.readline()
woken, _ = os.pipe()
print(supervisor.ProcessTree(started.pid, reaps=True).terminate(0.2, woken))
"""


def test_supervisor_kills_also_after_a_long_pause() -> None:
    """All its time passes between two of its steps, as on a machine that stands still."""
    word = token()
    stubborn = "trap '' TERM; echo ready; while :; do sleep 5; done"
    command = [sys.executable, "-c", STALLED_SUPERVISOR, "sh", "-c", stubborn, word]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert remaining_processes(word) == []


def test_killed_agentrun_leaves_no_process(tmp_path: Path) -> None:
    word = token()
    program = f"""
import asyncio, os, sys
from agentrun.tools.processes import start_process
async def main():
    async with start_process("/bin/sh", {script("forks twice, takes a session, stays", word)!r}, env={{}},
                       folder=os.open({str(tmp_path)!r}, 0), grace={GRACE}, stdin=False) as process:
        print("runs", flush=True)
        await process.wait()
asyncio.run(main())
"""
    host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert host.stdout is not None
    assert host.stdout.readline() == b"runs\n"
    assert len(wait_for_processes(word, 2)) >= 2
    host.kill()
    host.wait()
    host.stdout.close()
    assert remaining_processes(word) == []


def test_start_cancelled_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    word = token()

    async def one(delay: float) -> None:
        async def body() -> None:
            async with running(tmp_path, *script("forks twice", word), side=True) as process:
                await process.wait()

        task = asyncio.create_task(body())
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def work() -> tuple[Resources, Resources]:
        await one(0.1)
        before = held_resources()
        for delay in range(0, 40, 2):
            await one(delay / 1000)
        for _ in range(100):
            if has_no_new_resources(before, held_resources()):
                break
            await asyncio.sleep(0.02)
        return before, held_resources()

    before, after = run(work())
    assert has_no_new_resources(before, after), (before, after)
    assert remaining_processes(word) == []


def test_program_has_its_grace_time_after_sigterm(tmp_path: Path) -> None:
    text = "trap 'sleep 0.1; echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done"

    async def work() -> tuple[ProcessExit, bytes]:
        async with running(tmp_path, "sh", "-c", text, stdin=False, grace=5000) as process:
            assert await process.stdout.readline() == b"up\n"
            return await process.stop(), await process.stdout.read()

    assert run(work()) == (ProcessExit(code=7), b"bye\n")


def test_stopped_program_has_its_grace_time_despite_cancellations(tmp_path: Path) -> None:
    text = "trap 'sleep 0.2 && touch tidy; exit' TERM; echo up; kill -STOP $$; sleep 600"

    async def body() -> None:
        async with running(tmp_path, "sh", "-c", text, stdin=False, grace=5000) as process:
            await process.stdout.readline()
            await asyncio.sleep(SHORT_TIME)
            await cancelled(process)

    async def work() -> None:
        await asyncio.gather(asyncio.create_task(body()), return_exceptions=True)

    run(work())
    assert (tmp_path / "tidy").exists()


# --- folders ------------------------------------------------------------------------------------------------


def test_folders_outside_the_project_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "a" / "link").symlink_to("b")
    (tmp_path / "out").symlink_to("/etc")
    for path in ("a/b", "./a//b/.", "a/b/"):
        with open_folder(tmp_path, path) as opened:
            assert os.path.samestat(os.fstat(opened), (tmp_path / "a" / "b").stat())
    before = held_resources()[0]
    for path in ("..", "a/../a", "out", "a/link", "out/ssl", "file", "nowhere", "a\0b", "/etc/.."):
        with pytest.raises(FolderNotFound), open_folder(tmp_path, path):
            pass
    assert held_resources()[0] == before


def test_program_runs_in_the_opened_folder_even_if_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    async def work() -> str:
        with open_folder(tmp_path, "work") as opened:
            (tmp_path / "work").rename(tmp_path / "moved")
            (tmp_path / "work").symlink_to("/etc")
            async with start_process(SH, ["sh", "-c", "pwd -P"], env={}, folder=opened, grace=GRACE) as process:
                return (await process.stdout.read()).decode()

    assert run(work()) == f"{tmp_path}/moved\n"
