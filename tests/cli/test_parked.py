"""Signals to a running command: SIGTERM and SIGHUP park it, Ctrl-C cancels it, a second signal ends it at once."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest

from agentrun.cli.interrupt import InterruptHandler
from agentrun.errors import Cancelled

from .command import SCRIPT
from .cut_runs import PAYS, Bank, wait_until

PARKING = (signal.SIGTERM, signal.SIGHUP)
SLOW = PAYS.replace("  - text: Paid.", "  - text: Paid.\n    faults: [{delay: 60s}]")


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


def read_until(run: Any, text: bytes) -> None:
    assert any(text in line for line in run.stderr)


@pytest.mark.parametrize("number", PARKING)
def test_signal_parks_the_run_and_what_is_running_may_end(bank: Bank, number: signal.Signals) -> None:
    bank.hold("pay")
    with bank.provider() as server:
        with bank.started("bank.yaml", "--grace", "10m") as run:
            wait_until(bank.traces)
            run.send_signal(number)
            read_until(run, f"{number.name}: nothing new starts, and what is running has 10m to end".encode())
            bank.release("pay")
            out, err = run.communicate(timeout=60)
        (name,) = bank.run_ids()
        lines = err.decode().splitlines()
        assert (run.returncode, out, lines[-1]) == (8, b"", f"agentrun resume {name}")
        assert bank.kinds(name)[-1] == "tool_finished", "it ended in time, and is recorded"
        assert len(server.requests) == 1, "nothing new starts"
        done = bank.command("resume", name)
    assert (done.code, done.out) == (0, "Paid.\n")
    assert bank.traces() == ["pay one"]
    assert "lost" not in done.err


def test_work_that_does_not_end_within_the_grace_is_lost(bank: Bank) -> None:
    bank.hold("pay")
    with bank.provider():
        with bank.started("bank.yaml", "--grace", "0") as run:
            wait_until(bank.traces)
            run.send_signal(signal.SIGTERM)
            _, err = run.communicate(timeout=60)
        (name,) = bank.run_ids()
        assert run.returncode == 8
        assert err.decode().splitlines()[-2:] == [
            "parked after record 5 while pay (c1.0) was running; the run is not finished, continue it with:",
            f"agentrun resume {name}",
        ]
        assert bank.kinds(name)[-1] == "tool_started"
        done = bank.command("resume", name)
    assert done.code == 8
    assert "pay (c1.0) was lost: it may or may not have run" in done.err


@pytest.mark.parametrize("number", PARKING)
def test_request_is_given_up_after_the_grace_and_sent_again_on_resume(bank: Bank, number: signal.Signals) -> None:
    with bank.provider(SLOW) as server:
        with bank.started("bank.yaml", "--grace", "1ms") as run:
            wait_until(lambda: len(server.requests) == 2)
            run.send_signal(number)
            run.communicate(timeout=60)
        assert run.returncode == 8
        done = bank.command("resume", "-")
        assert (done.code, done.out, len(server.requests)) == (0, "Paid.\n", 3)
    assert bank.traces() == ["pay one"]


def test_second_signal_leaves_at_once_and_resume_treats_it_as_a_crash(bank: Bank) -> None:
    bank.hold("pay")
    with bank.provider():
        with bank.started("bank.yaml", "--grace", "10m") as run:
            wait_until(bank.traces)
            run.send_signal(signal.SIGHUP)
            read_until(run, b"nothing new starts")
            run.send_signal(signal.SIGTERM)
            _, err = run.communicate(timeout=60)
        (name,) = bank.run_ids()
        assert (run.returncode, err.decode()) == (8, f"agentrun resume {name}\n")
        assert bank.kinds(name)[-1] == "tool_started"
        assert "pay (c1.0) was lost" in bank.command("resume", name).err


@pytest.mark.parametrize(
    ("args", "env", "number"),
    [
        (("--on-signal", "cancel"), {}, signal.SIGTERM),
        (("--on-signal", "cancel"), {}, signal.SIGHUP),
        ((), {"AGENTRUN_STORE": "none"}, signal.SIGTERM),
        ((), {"AGENTRUN_STORE": "none"}, signal.SIGHUP),
        ((), {}, signal.SIGINT),
    ],
)
def test_signal_cancels_if_asked_or_if_the_run_cannot_be_resumed(
    bank: Bank, args: tuple[str, ...], env: dict[str, str], number: signal.Signals
) -> None:
    with bank.provider(SLOW) as server, bank.started("bank.yaml", "--journal", "run.jsonl", *args, **env) as run:
        wait_until(lambda: len(server.requests) == 2)
        run.send_signal(number)
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    by = "user" if number == signal.SIGINT else number.name
    assert f"cancelled: the run was cancelled by {by}" in err.decode()
    assert b'"run_stopped"' in (bank.root / "run.jsonl").read_bytes()
    assert [bank.kinds(name)[-1] for name in bank.run_ids()] == ([] if env else ["run_stopped"])


def test_parked_run_as_json_ends_with_an_object_that_names_it(bank: Bank) -> None:
    with bank.provider(SLOW) as server, bank.started("bank.yaml", "--json", "--grace", "0") as run:
        wait_until(lambda: len(server.requests) == 2)
        run.send_signal(signal.SIGTERM)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (8, b"")
    (name,) = bank.run_ids()
    last = out.decode().splitlines()[-1]
    assert last.startswith(f'{{"run":"{name}","parked":{{')
    assert '"exit":8' in last


def test_parked_recording_is_finished_by_resume(bank: Bank) -> None:
    with bank.provider(SLOW) as server:
        with bank.started("bank.yaml", "--mode", "record", "--yes", "--grace", "0") as run:
            wait_until(lambda: len(server.requests) == 2)
            run.send_signal(signal.SIGTERM)
            _, err = run.communicate(timeout=60)
        assert run.returncode == 8
        log = f".agentrun/runs/{bank.run_ids()[0]}/recording.jsonl"
        assert f"not recorded yet: 3 interactions in {log}, and `resume` continues the recording" in err.decode()
        assert err.decode().splitlines()[-1] == f"agentrun resume {bank.run_ids()[0]}"
        assert list((bank.root / "cassettes").rglob("*.yaml")) == []
        assert bank.command("resume", "-").out == "Paid.\n"
        assert not (bank.root / log).exists()
        assert "replay: cassettes/bank/default.yaml" in bank.command("bank.yaml").err


def test_resumed_run_can_be_parked_again(bank: Bank) -> None:
    with bank.provider(SLOW.replace("delay: 60s", "delay: 60s, times: 2")) as server:
        for count in (2, 3):
            command = ("bank.yaml",) if count == 2 else ("resume", "-")
            with bank.started(*command, "--grace", "0") as run:
                wait_until(lambda count=count: len(server.requests) == count)  # type: ignore[misc]  # bound now
                run.send_signal(signal.SIGTERM)
                run.communicate(timeout=60)
            assert run.returncode == 8
        assert bank.command("resume", "-").out == "Paid.\n"


def test_ignored_hangup_stays_ignored(bank: Bank) -> None:
    """As `nohup` starts it."""
    bank.hold("pay")
    program = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    with bank.provider():
        words = ["python3", "-c", program, SCRIPT, "bank.yaml"]
        env = {"PATH": os.environ["PATH"], **bank.environment}
        with subprocess.Popen(words, cwd=bank.root, env=env, stdout=subprocess.PIPE) as run:
            wait_until(bank.traces)
            run.send_signal(signal.SIGHUP)
            bank.release("pay")
            assert run.communicate(timeout=60)[0] == b"Paid.\n"
    assert run.returncode == 0


def test_terminal_that_hangs_up_parks_the_run(bank: Bank) -> None:
    """The kernel sends SIGHUP, and nothing can be printed any more."""
    bank.hold("pay")
    ours, theirs = pty.openpty()
    with bank.provider():
        env = {"PATH": os.environ["PATH"], "TERM": "xterm", **bank.environment}

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        words = [SCRIPT, "bank.yaml", "--grace", "0"]
        run = subprocess.Popen(
            words,
            cwd=bank.root,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=take_terminal,  # noqa: PLW1509  # the test has no threads
        )
        os.close(theirs)
        wait_until(bank.traces)
        os.close(ours)
        assert run.wait(60) == 8
        (name,) = bank.run_ids()
        assert bank.kinds(name)[-1] == "tool_started"


@pytest.mark.parametrize("text", ["10", "s", "-1s", "1.5s", "9999999d9", ""])
def test_wrong_grace_is_refused(bank: Bank, text: str) -> None:
    done = bank.command("bank.yaml", "--grace", text)
    assert done.code == 2
    assert "give a time such as 500ms, 10s or 2m, or 0" in done.err


class Silent:
    has_reader = False
    color = False

    def say(self, text: str, tone: Any = "plain") -> None: ...
    def close(self) -> None: ...
    def aside(self) -> Any: ...


@pytest.mark.parametrize(("grace", "starts"), [(1000, False), (None, True)])
def test_signal_before_the_run_exists_does_not_start_it(grace: int | None, starts: bool) -> None:
    """A run that would be parked at once is not started. One that is cancelled has its terminal record."""
    begun: list[str] = []

    async def begin() -> None:
        begun.append("begun")

    async def whole() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            while not interrupts.is_interrupted:  # noqa: ASYNC110  # the signal has no event of its own
                await asyncio.sleep(0)
        await interrupts.announce(begin)()

    interrupts = InterruptHandler(Silent(), grace)
    if starts:
        interrupts.run(whole())
    else:
        with pytest.raises(Cancelled, match="SIGTERM came before the run started; nothing was done"):
            interrupts.run(whole())
    assert begun == (["begun"] if starts else [])
