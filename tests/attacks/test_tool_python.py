"""Hostile Python tools (THREATS 39, 40, 42, 43; fault 9) in whole runs of the real command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.facts import CallRefused, Record, ToolFinished
from agentrun.core.messages import text_of
from agentrun.journal.storage import read_journal_file

from ..cli.command import SCRIPT, CommandResult
from ..cli.shop_project import Project

SECRET = "Zq8-hunter2-Zq8-hunter2"  # made up
KEY = "sk-ant-" + "a1B2c3D4" * 4  # made up

SPEC = """\
agentrun: "1"
name: shop
model: {{provider: openai, name: gpt-4.1-mini}}
instructions: Try everything.
input: Go.
tools:
{tools}
policy: {{default: allow}}
budgets: {{turns: 100, tokens: 1M, time: 5m}}
"""
HEAD = """\
import asyncio, ctypes, json, os, signal, subprocess, sys, threading, time
from agentrun import ToolError, progress

SHOP_TOKEN = os.environ["SHOP_TOKEN"]
HERE = os.path.dirname(__file__)
"""
CALLS: dict[str, tuple[str, str | None, str]] = {
    # name: (body, code of the fault, what the model reads begins so)
    "exits": ("sys.exit(3)", "tool.execution", "tool.execution: SystemExit: 3"),
    "interrupts": ("raise KeyboardInterrupt", "tool.execution", "tool.execution: KeyboardInterrupt"),
    "cancels": ("raise asyncio.CancelledError", "tool.execution", "tool.execution: CancelledError"),
    "tells_a_secret": (
        "raise ValueError(f'cannot log in with {SHOP_TOKEN}')",
        "tool.execution",
        "tool.execution: ValueError: cannot log in with ",
    ),
    "tells_a_key": (f"raise ValueError('key ' + {KEY!r})", "tool.execution", "tool.execution: ValueError: key ***"),
    "gives_a_secret": ("return {'token': SHOP_TOKEN}", None, '{"token":"'),
    "prints": ("print('to stdout', SHOP_TOKEN)\n    sys.stderr.write('to stderr')", None, ""),
    "writes": ("os.write(1, b'written to 1\\n')", None, ""),
    "starts": ("subprocess.run(['echo', 'a program wrote this'], check=True)", None, ""),
    "threads": (
        (
            "threading.Thread(target=sys.exit).start()\n    threading.Thread(target=time.sleep, args=(9,), daemon=True)"
            ".start()\n    return 'threads'"
        ),
        None,
        "threads",
    ),
    "threads_that_print": (
        (
            "def body():\n        print('in a thread', SHOP_TOKEN)\n        sys.stderr.write(SHOP_TOKEN)\n"
            "    thread = threading.Thread(target=body)\n    thread.start()\n    thread.join()"
        ),
        None,
        "",
    ),
    "prints_at_exit": ("import atexit\n    atexit.register(print, SHOP_TOKEN)", None, ""),
    "forks": ("pid = os.fork()\n    if pid:\n        os.waitpid(pid, 0)\n    return 'one'", None, "one"),
    "forks_and_exits": ("if os.fork() == 0: os._exit(0)\n    os.wait()\n    return 'parent'", None, "parent"),
    "cycle": ("a = []; a.append(a); return a", "tool.execution", "tool.execution: the result cannot be written"),
    "no_json": ("return [object()]", "tool.execution", "tool.execution: the result cannot be written"),
    "no_number": ("return float('inf')", "tool.execution", "tool.execution: the result cannot be written"),
    "binary": ("return bytes(range(256))", None, '"AAECAw'),
    "surrogate": ("return 'half \\ud800'", "tool.execution", "tool.execution: the result contains half"),
    "huge": ("return 'x' * 100_000_000", "tool.execution", "tool.execution: the result has 100,000,000 bytes"),
    "long": ("return 'y' * 1_000_000", None, "yyyy"),
    "recursion": ("return f'{recursion()}'", "tool.execution", "tool.execution: RecursionError"),
    "memory": ("return 'x' * 10**15", "tool.execution", "tool.execution: MemoryError"),
    "closes": ("sys.stdout.close()\n    return 'closed'", None, "closed"),
    "takes_the_stream": ("sys.stdout = None\n    return 'taken'", None, "taken"),
    "says": ("progress(f'half \\x1b[2J {SHOP_TOKEN}')\n    return 'told'", None, "told"),
    "async_exits": ("sys.exit(3)", "tool.execution", "tool.execution: SystemExit: 3"),
    "async_interrupts": ("raise KeyboardInterrupt", "tool.execution", "tool.execution: KeyboardInterrupt"),
    "async_cancels": ("raise asyncio.CancelledError", "tool.execution", "tool.execution: CancelledError"),
    "async_cancels_itself": (
        "asyncio.current_task().cancel()\n    await asyncio.sleep(0)",
        "tool.execution",
        "tool.execution: CancelledError",
    ),
    "async_closes": ("raise GeneratorExit", "tool.execution", "tool.execution: GeneratorExit"),
    "async_ends": (
        "class End(BaseException): ...\n    raise End('of the world')",
        "tool.execution",
        "tool.execution: End: of the world",
    ),
    "async_forks": ("pid = os.fork()\n    if pid:\n        os.waitpid(pid, 0)\n    return 'one'", None, "one"),
    "async_leaves": ("asyncio.get_running_loop().create_task(asyncio.sleep(600))\n    return 'left'", None, "left"),
    "async_never": ("await asyncio.sleep(600)", "tool.timeout", "tool.timeout: "),
    "never": ("time.sleep(600)", "tool.timeout", "tool.timeout: the call took longer than 1500 ms"),
}
CRASHES: dict[str, tuple[str, str | None, str]] = {
    "dies": ("os._exit(9)", "tool.execution", "tool.execution: the process of the tool ended with exit code 9"),
    "faults": (
        "ctypes.string_at(0)",
        "tool.execution",
        "tool.execution: the process of the tool was killed by SIGSEGV",
    ),
    "kills": (
        "os.kill(os.getpid(), signal.SIGKILL)",
        "tool.execution",
        "tool.execution: the process of the tool was killed by SIGKILL",
    ),
}


def project(folder: Path, calls: dict[str, tuple[str, str | None, str]], isolation: str) -> Project:
    shop = Project(folder)
    env = ', env: {SHOP_TOKEN: "${SHOP_TOKEN}"}' if isolation == "process" else ""
    lines = [
        f'  {name}: {{kind: python, call: "desk:{name}", isolation: {isolation}, timeout: {_time(name)}{env}}}'
        for name in calls
    ]
    shop.spec.write_text(SPEC.format(tools="\n".join(lines)), encoding="utf-8")
    functions = [f'{_form(name)} {name}():\n    "Does it."\n    {body}\n' for name, (body, _, _) in calls.items()]
    (folder / "desk.py").write_text(HEAD + "\n".join(functions), encoding="utf-8")
    return shop


def _time(name: str) -> str:
    return "1500ms" if name.endswith("never") else "30s"


def _form(name: str) -> str:
    return "async def" if name.startswith("async_") else "def"


def story(calls: list[tuple[str, dict[str, Any]]]) -> str:
    turns = [{"calls": [{"tool": name, "args": args}]} for name, args in calls]
    return json.dumps({"agentrun": "1", "turns": [*turns, {"text": "All survived."}]})


def record_calls(
    shop: Project, calls: list[tuple[str, dict[str, Any]]], *args: str
) -> tuple[CommandResult, list[Record]]:
    with shop.provider(story(calls)) as (_, environment):
        done = shop.run("--mode", "record", "--yes", "--journal", "run.jsonl", *args, **environment, SHOP_TOKEN=SECRET)
    return done, [*read_journal_file(shop.root / "run.jsonl")]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_42_hostile_functions_do_not_end_the_run_or_leak_secrets(tmp_path: Path, isolation: str) -> None:
    attacks = CALLS if isolation == "thread" else CALLS | CRASHES
    shop = project(tmp_path, attacks, isolation)
    done, records = record_calls(shop, [(name, {}) for name in attacks])
    assert (done.code, done.out) == (0, "All survived.\n"), done.err
    finished = dict(zip(attacks, _finished(records), strict=True))
    for name, (_, code, told) in attacks.items():
        fact = finished[name]
        assert (fact.fault and fact.fault.code) == code, (name, fact)
        assert text_of(fact.parts).startswith(told), (name, text_of(fact.parts)[:200])
        assert "Traceback" not in text_of(fact.parts)
    never = finished["never"].fault
    assert never is not None
    assert never.fields.get("abandoned") == (True if isolation == "thread" else None)
    assert "left out" in text_of(finished["long"].parts)
    assert finished["long"].blob is not None
    assert max(len(line) for line in (shop.root / "run.jsonl").read_bytes().splitlines()) <= 256 * 1024

    assert "a program wrote this" in done.err
    assert "written to 1" in done.err
    assert "prints printed: to stdout" in done.err
    assert "printed: in a thread" in done.err
    assert "says: half \\x1b[2J" in done.err
    everything = [done.out.encode(), done.err.encode(), *_files(tmp_path)]
    assert not any(secret.encode() in data for secret in (SECRET, KEY) for data in everything)
    assert b"\x1b" not in done.err.encode()

    before = (shop.root / "run.jsonl").read_bytes()
    replayed = shop.run()
    assert (replayed.code, replayed.out) == (0, "All survived.\n"), replayed.err
    assert (shop.root / "run.jsonl").read_bytes() == before


def _finished(records: list[Record]) -> list[ToolFinished]:
    return [record.fact for record in records if isinstance(record.fact, ToolFinished)]


def _files(folder: Path) -> list[bytes]:
    """All that the run wrote: not the source, which has the key in it on purpose."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix in (".jsonl", ".yaml")]
    return [path.read_bytes() for path in found]


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize(
    ("body", "code", "exit_code"),
    [
        ("raise ToolError.fatal('the shop is closed', shop=7)", "tool.fatal", 6),
        ("raise ToolError.aborted('given up')", "tool.aborted", 6),
    ],
)
def test_fatal_or_aborted_tool_error_ends_the_run(
    tmp_path: Path, isolation: str, body: str, code: str, exit_code: int
) -> None:
    shop = project(tmp_path, {"ends": (body, code, "")}, isolation)
    done, records = record_calls(shop, [("ends", {}), ("ends", {})])
    assert (done.code, done.out) == (exit_code, ""), done.err
    assert f"{code}: " in done.err
    (fact,) = _finished(records)
    assert fact.fault is not None
    assert fact.fault.fields["tool"] == "ends"
    assert shop.run().code == exit_code


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_39_invalid_arguments_are_refused_and_run_nothing(tmp_path: Path, isolation: str) -> None:
    """No coercion, no extra key, nothing missing: the model reads why, and the loop guard counts it."""
    shop = Project(tmp_path)
    shop.edit("shop.yaml", "effect: read}", f"effect: read, isolation: {isolation}}}")
    shop.edit("desk.py", "def look(order: str)", "def look(order: int)")
    wrong: list[dict[str, Any]] = [{"order": "5"}, {"order": 5, "x": 1}, {}, {"order": 5.5}, {"order": None}]
    done, records = record_calls(shop, [("look", args) for args in wrong] + [("look", {"order": 5})])
    assert (done.code, shop.traces()) == (0, ["look 5"]), done.err
    refused = [record.fact for record in records if isinstance(record.fact, CallRefused)]
    assert [fact.code for fact in refused] == ["tool.invalid_arguments"] * len(wrong) or {
        fact.code for fact in refused
    } <= {"tool.invalid_arguments", "tool.missing_field"}
    assert len(refused) == len(wrong)
    looped, _ = record_calls(shop, [("look", {"order": "5"})] * 4, "--case", "loop", "--record", "all")
    assert (looped.code, "guard.repeated_call" in looped.err) == (5, True), looped.err


def test_drift_ends_the_run_before_the_function_runs(tmp_path: Path) -> None:
    """The source changes between the compilation and the call: by a tool that ran before it."""
    body = "with open(HERE + '/other.py', 'a') as file:\n        file.write('\\n# changed\\n')"
    shop = project(tmp_path, {"changes": (body, None, "")}, "thread")
    text = shop.spec.read_text().replace("policy:", '  other: {kind: python, call: "other:f"}\npolicy:')
    shop.spec.write_text(text)
    (tmp_path / "other.py").write_text("def f():\n    'Does it.'\n    open(__file__ + '.ran', 'w')\n")
    done, _ = record_calls(shop, [("changes", {}), ("other", {})])
    assert (done.code, "tool.drift" in done.err) == (6, True), done.err
    assert not (tmp_path / "other.py.ran").exists()


def test_43_and_9_a_hanging_process_is_gone_when_the_run_is_cancelled(tmp_path: Path) -> None:
    """Ctrl-C: the function, its children and their children, which ignore SIGTERM, are gone with the run."""
    body = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    if os.fork() == 0:\n        os.setsid()\n        os.fork()\n"
        "    open(f'{HERE}/{os.getpid()}.pid', 'w').close()\n    time.sleep(600)"
    )
    shop = project(tmp_path, {"hangs": (body, None, "")}, "process")
    with shop.provider(story([("hangs", {})])) as (_, environment):
        clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **environment, "SHOP_TOKEN": SECRET}
        running = subprocess.Popen(
            [SCRIPT, "shop.yaml", "--mode", "live"], cwd=tmp_path, env=clean, stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + 60
        while len(pids := [int(path.stem) for path in tmp_path.glob("*.pid")]) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_json_has_one_object_per_line_whatever_tools_print(tmp_path: Path) -> None:
    names = ("prints", "writes", "starts", "says")
    shop = project(tmp_path, {name: CALLS[name] for name in names}, "thread")
    shop.spec.write_text(shop.spec.read_text() + "sinks: {out: {kind: stdout}}\n")
    done, _ = record_calls(shop, [(name, {}) for name in names], "--json")
    lines = done.lines()
    assert [line["progress"]["tool"] for line in lines if "progress" in line] == ["says"]
    (sink,) = (line["delivery"] for line in lines if "delivery" in line)
    assert (sink["sink"], sink["text"]) == ("out", "All survived.")
    assert "outcome" in lines[-1]
    assert SECRET not in done.out
    plain, _ = record_calls(shop, [(name, {}) for name in names], "--record", "all")
    first, second = plain.out.splitlines()
    assert (json.loads(first)["text"], second) == ("All survived.", "All survived.")
